"""Gangs that may take any of several models: a check that some of these must pass."""

from collections.abc import Callable, Mapping, Sequence

from vc_egpu.volcano.codec.request import PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.decision import Refusal

Check = Callable[[Sequence[PodAsk]], None]


def check(asks: Sequence[PodAsk], holds: Check, *, mixes: bool = False) -> list[str]:
    """Check a gang, by the asks of its tasks, for each model that all of them may take.

    Refuses where no model passes, as the first one is refused. Warns of those that do not pass now: a cap may
    be raised while the gang waits. ``mixes``: its tasks may take different models.
    """
    listed = [ask.options for ask in asks if ask.options and not ask.choice]
    if not listed:
        holds(asks)
        return []
    ways = [_all_with(asks, name) for name in listed[0] if all(name in options for options in listed)]
    if mixes:
        first = [next(iter(ask.ways)) if ask.options else ask for ask in asks]
        ways = ways or [("the first of each", first)]
    if not ways:
        raise Refusal(
            f"spec.tasks: the lists in {names.USE_MODELS} have no model in common, and all pods of a gang "
            f'take the same one; give them one list, or set {names.MIX_MODELS}: "true" on the templates'
        )
    refusals = {name: refusal for name, way in ways if (refusal := _refusal(holds, way)) is not None}
    if len(refusals) == len(ways):
        raise next(iter(refusals.values()))
    return [
        f"{name} of {names.USE_MODELS} is not taken as things are: {text}" for name, text in refusals.items()
    ]


def _all_with(asks: Sequence[PodAsk], name: str) -> tuple[str, list[PodAsk]]:
    return name, [_with(ask, name) for ask in asks]


def _with(ask: PodAsk, name: str) -> PodAsk:
    options: Mapping[str, PodAsk] = {} if ask.choice else ask.options
    return options.get(name, ask)


def _refusal(holds: Check, asks: Sequence[PodAsk]) -> Refusal | None:
    try:
        holds(asks)
    except Refusal as refusal:
        return refusal
    return None
