"""How much room the annotations of an object leave: Kubernetes bounds them all together. Pure.

What this stack tells a pod or a PodGroup stands in annotations. A user who fills them leaves no room for
that, and the API server then refuses every such write. So the webhook and the admission policies bound what
users write (:data:`MAX_OWN_BYTES`). This module says what still fits next to what stands there.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.volcano.words import names

MAX_BYTES: Final = 256 * 1024
"""Keys and values of all annotations of one object, as the API server counts them."""
MAX_OWN_BYTES: Final = 64 * 1024
"""The same for what users and other programs write. ``kubectl apply``'s copy is counted apart."""
ORDER_BYTES: Final = 4 * 1024
"""More than an order to leave the cards takes, with all of its words."""
_CARDS_BASE: Final = 512
_CONTAINER_BYTES: Final = 128
_CARD_BYTES: Final = 192
"""More than one share takes in the cards annotation."""
_PLAN_BASE: Final = 4 * 1024
_MEMBER_BYTES: Final = 96
"""More than a member takes in a plan, with a node of its own and a name of 40 characters."""
WRITTEN_BY_US: Final = frozenset({names.REQUEST, names.CARDS, names.PLAN, names.SUSPEND, names.RESIZED})
"""No user can write these. What others of ours a user could write is counted as the user's."""

TAKEN_OUT: Final = "annotationBytesTakenOut"
"""In the metadata of an object as it is kept in memory; no object of the API server has it."""


def size(annotations: Mapping[str, Any]) -> int:
    """Bytes of all keys and values."""
    return sum(_length(str(key)) + _length(str(value)) for key, value in annotations.items())


def size_of(metadata: Mapping[str, Any]) -> int:
    """The same for an object, also where its copy in memory lacks some annotations."""
    return size(metadata.get("annotations") or {}) + int(metadata.get(TAKEN_OUT) or 0)


def without(metadata: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The annotations without this one, and the bytes that it took: both as keys of the metadata to keep."""
    annotations = metadata.get("annotations") or {}
    if not annotations:
        return {}
    kept = {k: v for k, v in annotations.items() if k != key} if key in annotations else annotations
    out = int(metadata.get(TAKEN_OUT) or 0)
    out += size({key: annotations[key]}) if key in annotations else 0
    return {"annotations": kept, **({TAKEN_OUT: out} if out else {})}


def own_size(annotations: Mapping[str, Any]) -> int:
    """Bytes of what users and other programs write, without the copy that ``kubectl apply`` makes."""
    skipped = WRITTEN_BY_US | {names.LAST_APPLIED}
    return size({key: value for key, value in annotations.items() if key not in skipped})


def cards_size(containers: int, cards: int) -> int:
    """At most so many bytes take the cards of a pod with so many containers and cards."""
    return len(names.CARDS) + _CARDS_BASE + containers * _CONTAINER_BYTES + cards * _CARD_BYTES


def plan_size(members: int, cards: int) -> int:
    """About so many bytes takes the plan of a gang with so many members and cards: each on another node."""
    return _PLAN_BASE + members * _MEMBER_BYTES + cards


def fits(taken: int, key: str, value: str) -> bool:
    """Whether this annotation fits next to others of so many bytes."""
    return taken + _length(key) + _length(value) <= MAX_BYTES


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
