"""The annotations with which people steer us, and typing errors in them."""

import difflib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from vc_egpu.volcano.words import names

KNOBS: Final = (
    names.PRIORITY,
    names.CORE_POLICY,
    names.OVERSUBSCRIBE,
    names.CARD_POLICY,
    names.NODE_POLICY,
    names.USE_CARDS,
    names.AVOID_CARDS,
    names.USE_MODELS,
    names.AVOID_MODELS,
    names.MIX_MODELS,
    names.NEEDS,
    names.ALTERNATIVES,
    names.ALTERNATIVES_ORDER,
    names.EXPECTED_RUNTIME,
    names.SLICE,
    names.ISOLATION,
    names.RESTARTABLE,
    names.SUSPEND_SIGNAL,
)
"""Annotations that people write."""
_WRITTEN: Final = (
    names.CARDS,
    names.CHOICE,
    names.PLAN,
    names.SUSPEND,
    names.REQUEST,
    names.PAUSE,
    names.RESIZE,
    names.RESIZED,
    names.GROUP_UNSEEN,
)
_KNOWN: Final = frozenset({*KNOBS, *_WRITTEN})
_WORDS: Final = tuple(name.removeprefix(f"{names.DOMAIN}/") for name in KNOBS)
_MAX_SLIPS: Final = 4
_COMPARED: Final = 100


def knobs_in(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Those annotations that people steer us with."""
    return {name: annotations[name] for name in KNOBS if name in annotations}


def slips(annotations: Mapping[str, Any], labels: Mapping[str, Any], path: str) -> list[str]:
    """Sentences about keys of ours that mean nothing: misspelt, or labels that should be annotations.

    Not refused: a later version may know more of them than this one. Only the first few are looked at: a near
    name takes time to find. A user who sends thousands must not keep all others waiting.
    """
    return list(islice(_slips(annotations, labels, path), _MAX_SLIPS))


def _slips(annotations: Mapping[str, Any], labels: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in sorted(annotations.keys() - _KNOWN):
        if name.startswith(f"{names.DOMAIN}/"):
            # Bounded: what is much longer is near none of them, and to find that out took a second.
            word = name.removeprefix(f"{names.DOMAIN}/")[:_COMPARED].lower()
            near = difflib.get_close_matches(word, _WORDS, 1, cutoff=0.7)
            guess = f", did you mean {names.DOMAIN}/{near[0]}?" if near else ""
            yield f'{path}.annotations["{name[:100]}"]: means nothing here and has no effect{guess}'
    yield from (
        f'{path}.labels["{name}"]: has no effect, it is an annotation' for name in KNOBS if name in labels
    )
