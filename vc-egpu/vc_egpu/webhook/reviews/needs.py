"""What programs need of their nodes, at the door: of a template, and of a pod with its alternatives."""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.core.waiting.diagnosis import lack
from vc_egpu.core.waiting.say import verdict
from vc_egpu.volcano.codec import options
from vc_egpu.volcano.codec.request import PodAsk
from vc_egpu.volcano.needs import pods
from vc_egpu.volcano.needs.pods import Read
from vc_egpu.volcano.needs.text import NeedsError
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Request
from vc_egpu.webhook.protocol.context import Context, annotations_of, spec_of
from vc_egpu.webhook.protocol.decision import Json, Refusal

MOST_BYTES: Final = 16 * 1024
"""All alternatives of a pod together: they stand in its annotation."""


def of_template(
    annotations: Mapping[str, Any], spec: Json, path: str, context: Context, ask: PodAsk
) -> list[str]:
    """The warnings; refuses what no row of the table could ever meet, also in one alternative."""
    by_alternative = _by_alternative(annotations, spec, path, context)
    found = {"": _of(annotations, spec, path, context), **by_alternative}
    said = [warning for each in found.values() for warning in each.warnings]
    return list(dict.fromkeys([*said, *_met_nowhere(ask, found, path, context)]))


def _met_nowhere(ask: PodAsk, found: Mapping[str, Read], path: str, context: Context) -> list[str]:
    """A warning where no node of today meets what the program needs, whichever way the pod takes.

    ``found``: by option; under the empty name for those that have no needs of their own. No warning
    where one way can be met, or where no node has its cards: that is told while the pod waits.
    """
    ways = {ask.choice: ask} if ask.choice or not ask.options else ask.options
    lacks = []
    for name, way in ways.items():
        needs = found.get(name, found[""]).needs
        if needs is None or any(one.native for one in way.containers.values()):
            return []
        lacking = lack(pods.needs_in(needs), context.offers.crowd(way.models))
        if lacking is None:
            return []
        lacks.append(verdict(lacking).message)
    what = "; ".join(dict.fromkeys(lacks))
    said = names.ISOLATION if names.ISOLATION in what else names.NEEDS
    return [f'{path}["{said}"]: it will wait, since the program {what}']


def with_needs(
    request: Request, known: Request | None, pod: Json, path: str, context: Context, *, ask: PodAsk
) -> tuple[Request, list[str]]:
    """The request with what the pod's program needs, and the warnings.

    The pod is as it came, before an alternative was put in; ``ask`` is what it asks for now. ``known``:
    what the webhook wrote on it before. Such a pod has its alternative already, and the others cannot be
    read off it any more.
    """
    if known is not None and any(option.needs is not None for option in known.options or ()):
        kept = {option.name: option.needs for option in known.options or ()}
        return options.with_needs(request, {**kept, "": known.needs}), []
    annotations, spec = annotations_of(pod), spec_of(pod)
    each = _by_alternative(annotations, spec, path, context)
    if not any(read.needs is not None for read in each.values()):
        read = _of(annotations, spec, path, context)
        nowhere = _met_nowhere(ask, {"": read}, path, context)
        return request.model_copy(update={"needs": read.needs}), [*read.warnings, *nowhere]
    texts = [text for read in each.values() if read.needs is not None for text in read.needs.ways]
    if (size := sum(map(len, texts))) > MOST_BYTES:
        raise Refusal(
            f'{path}["{names.ALTERNATIVES}"]: what its alternatives need takes {size} bytes, the limit is '
            f"{MOST_BYTES}; name builds, as torch==2.6+cu124"
        )
    by_name = {name: read.needs for name, read in each.items()}
    warnings = dict.fromkeys(warning for read in each.values() for warning in read.warnings)
    nowhere = _met_nowhere(ask, {"": Read(), **each}, path, context)
    return options.with_needs(request, {**by_name, "": by_name.get(request.choice or "")}), [
        *warnings,
        *nowhere,
    ]


def _by_alternative(
    annotations: Mapping[str, Any], spec: Json, path: str, context: Context
) -> dict[str, Read]:
    """What each alternative needs, if the pod has any."""
    try:
        return options.needs_of_alternatives(annotations, spec, context.table, context.settings.environments)
    except (AnnotationError, NeedsError) as error:
        raise Refusal(f'{path}["{names.ALTERNATIVES}"]: {error}') from error


def _of(annotations: Mapping[str, Any], spec: Json, path: str, context: Context) -> Read:
    try:
        return pods.read(annotations, spec, context.settings.environments)
    except NeedsError as error:
        raise Refusal(f'{path}["{names.NEEDS}"]: {error}') from error
