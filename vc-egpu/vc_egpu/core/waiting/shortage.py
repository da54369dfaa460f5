"""Why there is no place: how many members would find one, what is short, and why no gang goes for them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from vc_egpu.core.books import fit
from vc_egpu.core.books.between import places_for
from vc_egpu.core.books.booking import OF_HIGH
from vc_egpu.core.books.capacity import (
    MANY,
    AskNeed,
    Need,
    all_copies,
    parts_of,
    places,
    pods_by_groups,
    pods_by_host,
    pods_by_node,
)
from vc_egpu.core.books.ledger import Ints, Ledger
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import FULL_CORES_PERCENT, NodeName, PodShape
from vc_egpu.core.model.findings import (
    Beyond,
    CardSupply,
    Claimed,
    ContainerLack,
    Guaranteed,
    HostMemoryLack,
    Lack,
    LevelLack,
    NamedCards,
    NeighbourLack,
    NodeRequest,
    NoVictims,
    OwnClaim,
    Rule,
    Shortage,
    ShutNode,
    Spared,
    Standby,
)
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.neighbours import label_of
from vc_egpu.core.placing.place import Group, groups_of, part_of, subgroups_with_room
from vc_egpu.core.room import reclaim
from vc_egpu.core.room.causes import hunts_for, spares
from vc_egpu.core.room.victims import Guarantees, Prey, are_enough, prey
from vc_egpu.core.topology.groups import pods_by_cards
from vc_egpu.core.topology.network import Bound
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.levels import places_by_domain, present_rows
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting.diagnosis import request_of

_MOST_KINDS: Final = 4
"""Kinds of members that the finding looks at: each costs a look at all nodes."""
_MOST_SUBGROUPS: Final = 8
"""Subgroups of a gang that it looks at."""
_MOST_SHUT: Final = 3
"""Nodes that are closed to the members of which the finding says why."""


def shortage(
    trial: Trial,
    view: GangView,
    members: Sequence[Member],
    lacks: Member | None = None,
    *,
    tried: bool,
) -> Shortage:
    """No place for all of them now. ``tried``: making room was tried where the rules allow it, and failed.

    The finding looks at a few kinds of members, however many there are. ``lacks``: one of a kind that is
    known to have too few places.
    """
    every = _by_themselves(groups_of(trial, view, members))
    groups = _few(every, lacks)
    explained = trial.effort.explains(len(groups), len(trial.index.nodes))
    if not explained:
        groups = groups[:1]
    counts = [_places(trial, view, group) for group in groups]
    at = min(range(len(groups)), key=lambda at: counts[at] - len(groups[at].members))
    worst, free, wanted = groups[at], counts[at], len(groups[at].members)
    supply, beyond, standby = None, None, None
    shut: list[NodeName] = []
    if free < wanted and explained:
        by_cards = _by_cards(trial.ledger, worst)
        supply = _supply(trial.ledger, worst, by_cards)
        beyond = _beyond(trial, worst, by_cards, free)
        shut = _shut(trial.ledger, worst, by_cards)
        standby = _standby(trial, view, worst, free)
    claimed = _claimed(trial, view, worst, free) if free < wanted else None
    return Shortage(
        request=request_of(members),
        queue=view.gang.queue,
        wanted=wanted,
        free=min(free, wanted),
        task=worst.members[0].task if len(every) > 1 else "",
        each=None if worst.need.asks else _node_request(worst),
        cards=supply,
        beyond=beyond,
        shut=tuple(ShutNode(name, _shut_by(trial, view, worst, name)) for name in shut[:_MOST_SHUT]),
        shut_more=max(0, len(shut) - _MOST_SHUT),
        standby=standby,
        claimed=claimed,
        guaranteed=_guaranteed(trial, view, worst, free) if free < wanted else None,
        own=_own(trial, view),
        level=_level(trial, view, every, members),
        no_victims=_no_victims(trial, view, groups, worst) if explained and tried else _refused(trial, view),
        not_reclaimed=reclaim.why_not(trial, view, members) if tried else None,
        brief=not explained,
    )


def said_to(trial: Trial, view: GangView, members: Sequence[Member], known: Shortage) -> Shortage | None:
    """What is short for a gang that finds the same places, where nodes are closed to its members by name.

    What these nodes lack is said by its own needs. None for members of several shapes.
    """
    shapes = {member.shape_id: member.shape for member in members}
    if not any(shape.needs.ways for shape in shapes.values()):
        return known
    if len(shapes) > 1:
        return None
    [shape] = shapes.values()
    shut = tuple(ShutNode(node.name, _closed_by(trial, view, node.name, shape)) for node in known.shut)
    return replace(known, shut=shut)


def _by_themselves(groups: list[Group]) -> list[Group]:
    """The groups without what they need of each other: that comes with them."""
    found = []
    for group in groups:
        rules = group.need.shape.neighbours
        others = (other.need.shape.neighbours.selected_by for other in groups if other is not group)
        if rules.needs and any(not set(rules.needs).isdisjoint(selected) for selected in others):
            shape = replace(group.need.shape, neighbours=replace(rules, needs=()))
            found.append(replace(group, need=replace(group.need, shape=shape)))
        else:
            found.append(group)
    return found


def _level(
    trial: Trial, view: GangView, groups: Sequence[Group], members: Sequence[Member]
) -> LevelLack | None:
    """How near members have to be, where no domain of the network that they may have takes all of them."""
    again = {member.key for member in members}
    some = groups[:_MOST_KINDS]
    if view.gang.bound is not None:
        found = _lack(trial, view.gang.bound, some, present_rows(trial, view, again))
        if found is not None:
            return found
    names = dict.fromkeys(member.subgroup for group in some for member in group.members if member.subgroup)
    for name in islice(names, _MOST_SUBGROUPS):
        bound = view.gang.subgroups.get(name[0])
        if bound is not None:
            its = [replace(g, members=tuple(m for m in g.members if m.subgroup == name)) for g in some]
            found = _lack(trial, bound, its, present_rows(trial, view, again, name))
            if found is not None:
                return replace(found, subgroup=" ".join(name))
    return _together(trial, view, members) if view.gang.subgroups else None


def _together(trial: Trial, view: GangView, members: Sequence[Member]) -> LevelLack | None:
    """Each subgroup finds a domain by itself, and not all of them at the same time."""
    bound = next((bound for bound in view.gang.subgroups.values() if bound is not None), None)
    if bound is None:
        return None
    places, wanted = subgroups_with_room(trial, view, members)
    return LevelLack(bound, wanted, places, "", of_subgroups=True) if places < wanted else None


def _lack(trial: Trial, bound: Bound, groups: Sequence[Group], present: Sequence[int]) -> LevelLack | None:
    parts = [part_of(group) for group in groups if group.members]
    wanted = sum(count for _, _, count in parts)
    levels = trial.ledger.network.levels()
    height = levels.height(bound)
    if not height:
        return LevelLack(bound, wanted, 0, "")
    level = levels.at(height)
    places = places_by_domain(trial, level, parts)
    if present:
        holding = level.holding(present)
        if holding is None:
            return LevelLack(bound, wanted, 0, "", is_apart=True)
        places[np.arange(len(places)) != holding] = -1
    best = int(places.argmax())
    return LevelLack(bound, wanted, int(places[best]), level.names[best]) if places[best] < wanted else None


def _few(groups: list[Group], lacks: Member | None) -> list[Group]:
    """All groups where they are few; else the one that is known to lack places, or the hardest ones."""
    if len(groups) <= _MOST_KINDS:
        return groups
    known = [group for group in groups if lacks is not None and group.members[0].shape_id == lacks.shape_id]
    return known or groups[:_MOST_KINDS]


def _places(trial: Trial, view: GangView, group: Group, ledger: Ledger | None = None) -> int:
    """How many of the group find a place. Gangs that ask for the same on an equal ledger get one answer."""
    ledger = ledger if ledger is not None else trial.ledger
    if group.need.is_wide or view.gang.most_per_node:
        return places_for(ledger, group.need, group.mask, len(group.members))
    blocked, one = view.gang.blocked_nodes, group.members[0]
    kind = (one.shape_id, group.need.share_class, group.need.side)
    note = ("places", ledger.signature, ledger.apart, *kind, blocked)
    _, known = trial.notes.get(note, (0, None))
    if not isinstance(known, int):
        known = places_for(ledger, group.need, group.mask, len(group.members))
        trial.notes[note] = (0, known)
    return known


def _node_request(group: Group) -> NodeRequest:
    cpu, memory, ephemeral, _ = group.need.requests
    ports = tuple(port for _, _, port in group.need.ports)
    return NodeRequest(cpu, memory, ephemeral, group.need.scalars, ports)


# --- cards ---------------------------------------------------------------------------------------


def _by_cards(ledger: Ledger, group: Group, *, grouped: bool = True) -> Ints:
    """By row: for how many of these members the cards alone are enough. Not ``grouped``: if any cards of the
    node could go together."""
    by_cards, rows = np.full(len(ledger.names), MANY), np.arange(len(ledger.names))
    for ask in group.need.asks:
        count = all_copies(ledger, group.need, ask)
        found = pods_by_groups(ledger, ask, rows, count) if grouped else pods_by_cards(count, ask.cards)
        by_cards = np.minimum(by_cards, found)
    return by_cards


def _supply(ledger: Ledger, group: Group, by_cards: Ints) -> CardSupply | None:
    if not group.need.asks:
        return None
    first = group.need.asks[0]
    nodes = int((ledger.kind == first.kind).any(axis=1).sum())
    free_for, several = int(by_cards.sum()), any(ask.cards > 1 for ask in group.need.asks)
    any_set = int(_by_cards(ledger, group, grouped=False).sum()) if several and ledger.grouped else free_for
    cut = next((ask for ask in group.need.asks if ask.ask.slice), None)
    return CardSupply(
        first.ask.model,
        nodes,
        free_for,
        _named(ledger, group),
        off_for=_kept_off(ledger, group) - free_for if ledger.apart else 0,
        off_low=group.need.side == OF_HIGH,
        apart_for=any_set - free_for,
        no_place=_without_place(ledger, group, cut) if cut is not None else 0,
        slice=cut.ask.slice if cut is not None else "",
    )


def _kept_off(ledger: Ledger, group: Group) -> int:
    """For how many of these members the cards alone would be enough without the rule of sides."""
    asks = tuple(ask._replace(side=0) for ask in group.need.asks)
    return int(_by_cards(ledger, replace(group, need=replace(group.need, asks=asks))).sum())


def _without_place(ledger: Ledger, group: Group, ask: AskNeed) -> int:
    """Cards with memory and cores for such a slice, and no place for one next to what lies there."""
    usable = (ledger.kind == ask.kind) & ledger.usable & (ledger.alone == 0)
    memory = ledger.memory_cap - ledger.memory_used >= ask.memory_mib
    cores = ledger.all_cores + ask.cores_percent <= FULL_CORES_PERCENT
    return int((usable & memory & cores & (all_copies(ledger, group.need, ask) == 0)).sum())


def _named(ledger: Ledger, group: Group) -> NamedCards | None:
    """How many cards are left to pods that name cards: a name may be misspelt."""
    need, shape = group.need, group.need.shape
    if need.cards is None:
        return None
    cards = ledger.kind == need.asks[0].kind
    return NamedCards(
        cards=int(cards.sum()),
        left=int((cards & need.cards).sum()),
        uses=bool(shape.use_cards),
        avoids=bool(shape.avoid_cards),
    )


# --- nodes ---------------------------------------------------------------------------------------


def _beyond(trial: Trial, group: Group, by_cards: Ints, free: int) -> Beyond | None:
    """What keeps members out where cards do not; None where it is the cards."""
    open_to_them = int(by_cards[group.mask].sum())
    if open_to_them <= free:
        return None
    wanted = min(len(group.members), open_to_them)
    return Beyond(wanted, tuple(_lacks(trial.ledger, group, by_cards, wanted)))


def _lacks(ledger: Ledger, group: Group, by_cards: Ints, wanted: int) -> list[Lack]:
    """Each of the node's own resources that is too short by itself, where cards are not."""
    need, everywhere = group.need, np.arange(len(ledger.names))
    found: list[Lack] = []
    for part, lack in parts_of(need):
        room = np.minimum(by_cards, pods_by_node(ledger, part, everywhere))
        if int(room[group.mask].sum()) < wanted:
            found.append(lack)
    found += _neighbours(ledger, group, by_cards, wanted)
    if need.spills:
        hosts = np.minimum(by_cards, pods_by_host(ledger, need, everywhere))
        if int(hosts[group.mask].sum()) < wanted:
            found.append(_host_lack(ledger, group, by_cards))
    return found


def _neighbours(ledger: Ledger, group: Group, by_cards: Ints, wanted: int) -> list[Lack]:
    """Rules between pods that leave too few places by themselves, where cards are enough."""
    need, found = group.need, list[Lack]()
    packed = tuple(limit for limit in need.limits if limit[0] == need.packed)
    rules = tuple(limit for limit in need.limits if limit[0] != need.packed)
    own = [mark for mark, most in rules if mark in need.marks and most == 1]
    label = next((label for mark in own if (label := label_of(mark))), "")
    for rule, limits in ((Rule.ALONE if own else Rule.AWAY, rules), (Rule.PACKED, packed)):
        room = by_cards.copy()
        ledger.marks.bound(room, need.marks, limits, np.arange(len(room)))
        left = int(room[group.mask].sum())
        if left < wanted:
            found.append(NeighbourLack(rule, wanted, left))
    if not found and need.is_wide:
        free = min(wanted, places(ledger, need, group.mask))
        for rule, part in _parts_of_rules(need):
            left = places_for(ledger, part, group.mask, len(group.members))
            if left < free:
                found.append(NeighbourLack(rule, wanted, left, label if rule is Rule.ALONE else ""))
                break
    return found


def _parts_of_rules(need: Need) -> Iterator[tuple[Rule, Need]]:
    """The need with one kind of its rules alone, and at last with all of them."""
    rules, shape = need.shape.neighbours, need.shape
    none = replace(shape, neighbours=replace(rules, needs=(), spreads=()))
    if any(label_of(mark) for mark, _ in need.limits):
        yield Rule.ALONE, replace(need, shape=none, reach=())
    if rules.needs:
        near = replace(shape, neighbours=replace(rules, spreads=()))
        yield Rule.NEAR, replace(need, shape=near, reach=(), limits=())
    if rules.spreads:
        even = replace(shape, neighbours=replace(rules, needs=()))
        yield Rule.EVEN, replace(need, shape=even, limits=())
    yield Rule.TOGETHER, need


def _host_lack(ledger: Ledger, group: Group, by_cards: Ints) -> HostMemoryLack | ContainerLack:
    """The node's host memory, or a container's own limit, on the node that has most left of it.

    Several may have as much: then the first by name, since the order of rows comes from the past.
    """
    need = group.need
    rows = np.flatnonzero(group.mask & (by_cards > 0))
    left = np.maximum(ledger.host_cap[rows] - ledger.host_used[rows], 0)
    row = min(rows[left == left.max()].tolist(), key=lambda row: ledger.names[row])
    ratio = ledger.ratio_for(row, need.share_class)
    for ask in need.asks:
        host_mib, limit = ask.here(ratio).host_mib, ask.ask.host_limit_mib
        if limit is not None and host_mib > limit:
            return ContainerLack(ask.ask.container, host_mib, limit)
    return HostMemoryLack(need.host_mib(ratio) or 0, int(left.max()))


def _shut(ledger: Ledger, group: Group, by_cards: Ints) -> list[NodeName]:
    """Nodes with room that do not take these members, where the others are not enough."""
    if int(by_cards[group.mask].sum()) >= len(group.members):
        return []
    room = np.minimum(by_cards, pods_by_node(ledger, group.need, np.arange(len(ledger.names))))
    shut = np.flatnonzero((room > 0) & ~group.mask).tolist()
    return sorted(name for row in shut if (name := ledger.names[row]) is not None)


def _shut_by(trial: Trial, view: GangView, group: Group, name: NodeName) -> str:
    return _closed_by(trial, view, name, group.need.shape)


def _closed_by(trial: Trial, view: GangView, name: NodeName, shape: PodShape) -> str:
    if name in view.gang.blocked_nodes:
        return "refused a member lately"
    return fit.why_not(trial.index.nodes[name], shape) or "not ready"


# --- other gangs ---------------------------------------------------------------------------------


def _kept(
    trial: Trial, kind: ClaimKind, view: GangView, group: Group, free: int
) -> tuple[int, list[Claim]] | None:
    """How many members would fit without what is claimed against the gang, and these claims.

    None where no more would fit than do now.
    """
    claims = trial.claims.against(kind, view)
    if not claims:
        return None
    fit_without = min(_places(trial, view, group, _ledger_without(trial, claims)), len(group.members))
    return (fit_without, claims) if fit_without > free else None


def _ledger_without(trial: Trial, claims: Sequence[Claim]) -> Ledger:
    """The ledger without these claims, which are booked. Many gangs ask for the same one in turn."""
    note, now = ("without", *claims), trial.ledger.signature
    then, known = trial.notes.get(note, (0, None))
    if then == now and isinstance(known, Ledger):
        return known
    with trial.without(claims):
        found = trial.ledger.copy()
    trial.notes[note] = (now, found)
    return found


def _cards_of(claims: Iterable[Claim]) -> int:
    return sum(claim.cards for claim in claims)


def _gangs_of(claims: Iterable[Claim]) -> tuple[str, ...]:
    return tuple(sorted({claim.gang for claim in claims}))


def _standby(trial: Trial, view: GangView, group: Group, free: int) -> Standby | None:
    """Room that suspended gangs keep, where more members would fit without it."""
    kept = _kept(trial, ClaimKind.STANDBY, view, group, free)
    if kept is None:
        return None
    fit_without, claims = kept
    return Standby(
        fit=fit_without,
        memory_mib=sum(claim.memory_mib for claim in claims),
        cores_percent=sum(claim.cores_percent for claim in claims),
        cards=_cards_of(claims),
        gangs=_gangs_of(claims),
        hold_s=trial.policy.suspended_hold_s,
    )


def _claimed(trial: Trial, view: GangView, group: Group, free: int) -> Claimed | None:
    """Cards that are claimed for gangs that wait longer, where more members would fit without that."""
    kept = _kept(trial, ClaimKind.RESERVATION, view, group, free)
    return Claimed(kept[0], _cards_of(kept[1]), _gangs_of(kept[1])) if kept is not None else None


def _guaranteed(trial: Trial, view: GangView, group: Group, free: int) -> Guaranteed | None:
    """Cards that are kept for other queues, where more members would fit without that."""
    kept = _kept(trial, ClaimKind.GUARANTEE, view, group, free)
    if kept is None:
        return None
    queues = tuple(sorted({claim.queue for claim in kept[1]}))
    return Guaranteed(kept[0], _cards_of(kept[1]), queues)


def _own(trial: Trial, view: GangView) -> OwnClaim | None:
    claim = trial.claims.own(view.gang.key)
    if claim is None:
        return None
    rows = {booking.row for booking in claim.bookings.values()}
    names = sorted(name for row in rows if (name := trial.ledger.names[row]) is not None)
    return OwnClaim(claim.cards, tuple(names), claim.since, claim.waits_for, claim.until)


def _refused(trial: Trial, view: GangView) -> NoVictims | None:
    why = Spared.NODE_REFUSED if view.gang.takes_free_room else Spared.REFUSED
    return NoVictims(why) if spares(trial, view) else None


def _no_victims(trial: Trial, view: GangView, groups: Sequence[Group], worst: Group) -> NoVictims | None:
    """Why making room by priority failed. ``worst``: the group of which most members lack a place."""
    hunts = list(hunts_for(trial, view, worst.members))
    hunt = next((hunt for hunt in hunts if hunt.cause is Cause.PRIORITY), None)
    if hunt is None:
        return _refused(trial, view)
    coming = trial.coming_back()
    free = _places(trial, view, worst)
    lifted = trial.lift(pod.uid for pod in coming)
    more = _places(trial, view, worst)
    trial.put_back(lifted)
    if more > free:
        return NoVictims(Spared.COMING_BACK, tuple(sorted({str(pod.gang) for pod in coming})))
    everybody = prey(trial, hunt)
    if everybody.takes(trial, view, groups) and _is_guaranteed(trial, view, everybody):
        return NoVictims(Spared.GUARANTEED)
    if everybody.spared is not None and are_enough(everybody.spared, groups):
        return NoVictims(Spared.PROTECTED)
    return NoVictims(Spared.NOT_ENOUGH)


def _is_guaranteed(trial: Trial, view: GangView, everybody: Prey) -> bool:
    """Whether not all of them may go at once."""
    guarantees = Guarantees(trial, view)
    pods = (pod for candidate in everybody.listed for pod in candidate.pods)
    return not guarantees.allow(guarantees.amounts(pods))
