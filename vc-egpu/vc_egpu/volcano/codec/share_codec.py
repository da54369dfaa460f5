"""Asks and shares of a pod's containers: from its annotations and limits into the decision's values."""

from collections.abc import Mapping, Set
from dataclasses import replace

from vc_egpu.core.environments.needs import NO_NEEDS, Needs
from vc_egpu.core.layouts.table import ANYWHERE
from vc_egpu.core.model.cluster import AskOption, CardAsk, CardId, Share
from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.needs.pods import needs_in
from vc_egpu.volcano.needs.text import NeedsError
from vc_egpu.volcano.podspec.sums import units
from vc_egpu.volcano.words.annotations import Cards, Request, RequestNeeds


def asks_of(request: Request, limits_mib: Mapping[str, int]) -> tuple[CardAsk, ...]:
    """What the decision places, container by container; ``limits_mib``: see :func:`memory_limits`."""
    spill = request.oversubscribe or bool(request.swap)
    return tuple(
        CardAsk(
            container=name,
            model=ask.model,
            cards=ask.cards,
            memory_mib=ask.memory_mib,
            cores_percent=ask.cores_percent,
            native=ask.native,
            whole=ask.whole,
            spill=spill and not ask.whole and not ask.native and ask.slice is None,
            swap=bool(request.swap),
            host_limit_mib=limits_mib.get(name) if spill else None,
            slice=ask.slice or "",
            asked=(ask.asked_mib or 0, ask.asked_cores or 0),
        )
        for name, ask in request.containers.items()
    )


def options_of(request: Request, limits_mib: Mapping[str, int]) -> tuple[AskOption, ...]:
    """The same for each option of a pod that may take several. Needs that cannot be read are none."""
    found = []
    apart = any(option.needs is not None for option in request.options or ())
    for option in request.options or ():
        alone = request.model_copy(update={"containers": option.containers})
        needs = _needs(option.needs) if apart else None
        found.append(AskOption(option.name, asks_of(alone, limits_mib), needs))
    return tuple(found)


def _needs(said: RequestNeeds | None) -> Needs:
    try:
        return needs_in(said)
    except NeedsError:
        return NO_NEEDS


def memory_limits(spec: Document) -> dict[str, int]:
    """The containers' own memory limits in MiB, of those that have one; a pod-level limit bounds each."""
    pod_level = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
    limits = {}
    for container in containers_of(spec):
        own = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        given = [units(limit) >> 20 for limit in (own, pod_level) if limit is not None]
        if given:
            limits[str(container.get("name"))] = min(given)
    return limits


def as_resized(asks: tuple[CardAsk, ...], cards: Cards) -> tuple[CardAsk, ...]:
    """The asks of a pod that was resized: its cards say another size than its request."""
    return tuple(_as_resized(ask, cards) for ask in asks)


def _as_resized(ask: CardAsk, cards: Cards) -> CardAsk:
    shares = cards.containers.get(ask.container) or ()
    if not shares or ask.native or ask.slice:
        return ask
    size = shares[0].memory_mib, shares[0].cores
    if size == (ask.memory_mib, ask.cores_percent):
        return ask
    return replace(ask, memory_mib=size[0], cores_percent=size[1], whole=False)


def whole_in(asks: tuple[CardAsk, ...]) -> Set[str]:
    """The containers that have their cards for themselves."""
    return {ask.container for ask in asks if ask.whole}


def shares_of(cards: Cards, whole: Set[str]) -> tuple[tuple[str, Share], ...]:
    """What the pod's containers hold, by the cards annotation. ``whole``: see :func:`whole_in`."""
    return tuple(
        (
            name,
            Share(
                CardId(card.uuid),
                card.memory_mib,
                card.cores,
                whole=name in whole,
                native=cards.native,
                physical_mib=card.physical_mib,
                swap=bool(card.swap),
                slice=card.slice or "",
                start=ANYWHERE if card.start is None else card.start,
            ),
        )
        for name, shares in cards.containers.items()
        for card in shares
    )
