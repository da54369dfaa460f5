"""Small findings, made from what the caller knows already. The long one is :mod:`.shortage`."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from vc_egpu.core.environments.needs import Crowd, Needs, wanting
from vc_egpu.core.model.causes import Account
from vc_egpu.core.model.findings import (
    AboveMinimum,
    CardRequest,
    Finding,
    Limit,
    MakingRoom,
    NodesWithout,
    NoEnvironment,
    NoModel,
    OverCap,
    Placed,
    Request,
    RoomSoon,
)
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.plan import Eviction, Suspension
from vc_egpu.core.trial.trial import Trial


def request_of(members: Sequence[Member]) -> Request:
    """What these members ask for together, by kind of card."""
    kinds: dict[tuple[str, int, int, bool, bool, str, tuple[int, int]], int] = {}
    for member in members:
        for ask in member.shape.asks:
            amounts = (ask.model, ask.memory_mib, ask.cores_percent, ask.native, ask.whole)
            key = (*amounts, ask.slice, ask.asked)
            kinds[key] = kinds.get(key, 0) + ask.cards
    cards = tuple(
        CardRequest(model, count, memory_mib, cores, native, whole, template, asked)
        for (model, memory_mib, cores, native, whole, template, asked), count in kinds.items()
    )
    return Request(len(members), cards)


def over_cap(limit: Limit, members: Sequence[Member]) -> OverCap:
    """A cap forbids these members."""
    return OverCap(request_of(members), limit)


def no_model(trial: Trial, members: Sequence[Member]) -> NoModel | None:
    """The first model that no node has in the way it is asked for; None where all are there."""
    for member in members:
        for ask in member.shape.asks:
            if not trial.has_kind(ask.model, native=ask.native):
                return NoModel(ask.model, ask.native)
    return None


def no_nodes(trial: Trial, members: Sequence[Member]) -> NoModel | NoEnvironment | None:
    """Why no node could take these members, however empty it is; None where one might."""
    return no_model(trial, members) or no_environment(trial, members)


def no_environment(trial: Trial, members: Sequence[Member]) -> NoEnvironment | None:
    """What the first member's program needs and no node with its cards has; None where each finds a node."""
    for shape in {id(member.shape): member.shape for member in members if member.shape.needs.ways}.values():
        kinds = dict.fromkeys((ask.model, ask.native) for ask in shape.asks)
        found = lack(shape.needs, trial.crowd(tuple(kinds)))
        if found is not None:
            return found
    return None


@lru_cache(maxsize=4096)
def lack(needs: Needs, crowd: Crowd) -> NoEnvironment | None:
    """Nodes by the first thing that they lack, most of them first; None where a node lacks nothing."""
    wants = wanting(needs, crowd)
    if not wants:
        return None
    nodes: Counter[tuple[str, str, bool]] = Counter()
    have: dict[tuple[str, str, bool], dict[str, None]] = {}
    for _, count, want in wants:
        key = (want.needed, want.fact, bool(want.has))
        nodes[key] += count
        have.setdefault(key, {}).update({want.has: None} if want.has else {})
    without = tuple(
        NodesWithout(count, needed, fact, tuple(have[needed, fact, told]))
        for (needed, fact, told), count in nodes.most_common()
    )
    return NoEnvironment(needs.text, sum(count for _, count in crowd), without)


def room_soon(view: GangView, members: Sequence[Member], pods: Sequence[object]) -> RoomSoon:
    """There is room once these pods are gone, which leave anyway."""
    return RoomSoon(request_of(members), view.gang.queue, len(pods))


def making_room(
    evictions: Sequence[Eviction],
    suspensions: Sequence[Suspension],
    cards: int,
    accounts: Sequence[Account] = (),
) -> MakingRoom:
    """These go for the gang, or leave their cards. ``cards``: what they hold."""
    return MakingRoom(
        evicted=tuple(sorted(entry.gang for entry in evictions)),
        evicted_pods=sum(len(entry.pods) for entry in evictions),
        suspended=tuple(sorted(entry.gang for entry in suspensions)),
        suspended_pods=sum(len(entry.pods) for entry in suspensions),
        cards=cards,
        accounts=tuple(accounts),
    )


def placed(view: GangView, members: int, surplus: int, rule: str = "") -> Placed:
    """So many of the gang's members get their place now, by this rule of placement."""
    return Placed(members, surplus, there=len(view.placed) + len(view.succeeded), rule=rule)


def above_minimum(view: GangView, waiting: int, why: Finding) -> AboveMinimum:
    """The gang runs and would grow. ``why`` is about the next of those that wait."""
    return AboveMinimum(len(view.placed) + len(view.succeeded), waiting, why)
