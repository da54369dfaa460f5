"""Place members: all of them at once, or none. Nodes first, then cards of each node.

Start with :func:`place`. Members of equal shape are placed as one group. For one ask per pod the count of
places is exact, so a gang of alike members is refused only if it does not fit. Mixed gangs are placed group
by group, hardest first. If that fails, other orders are tried, and then a bounded search (:mod:`.search`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import Assignment, Need, candidates, places_up_to, pods_fitting
from vc_egpu.core.books.evenness import evenness
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.neighbours import Spread, counted
from vc_egpu.core.model.policy import SPREAD
from vc_egpu.core.placing.nodes import Nodes
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import CardChoice, card_choice, node_order
from vc_egpu.core.placing.search import search
from vc_egpu.core.trial.levels import Part, held_to, levels_of, scopes
from vc_egpu.core.trial.trial import Seated, Trial

THOROUGH: Final = 4000
"""Steps of the bounded search where a refusal makes a gang wait."""
_MAX_ORDERS: Final = 6


@dataclass(frozen=True, slots=True)
class Group:
    """Members of equal shape."""

    members: tuple[Member, ...]
    need: Need
    mask: Flags


def place(
    trial: Trial, view: GangView, members: Sequence[Member], *, effort: int = THOROUGH, known: bool = False
) -> tuple[Seated, ...] | None:
    """Place all members and book them on the trial's ledger; None, and nothing booked, if not all fit.

    ``effort``: most steps of the search, within what the gang's turn has left. ``known``: they were found to
    fit a moment ago, so that a place is found again whatever it takes.
    """
    groups = groups_of(trial, view, members)
    if any(not group.need.possible for group in groups):
        return None
    if not _goes_by_levels(trial, view, groups):
        return _place_within(trial, view, groups, 0, effort=effort, known=known)
    keys = {member.key for member in members}
    for number, scope in enumerate(scopes(trial, view, [_part(group) for group in groups], keys)):
        if number and trial.effort.spent and not known and not scope.last:
            continue
        within = [replace(group, mask=group.mask & scope.mask) for group in groups]
        seated = _place_within(trial, view, within, scope.tier, effort=effort, known=known)
        if seated is not None:
            return seated
    return None


def _goes_by_levels(trial: Trial, view: GangView, groups: Sequence[Group]) -> bool:
    """Whether the levels of the network have a say: a gang may need a domain, or is better off in one."""
    if view.gang.highest_tier is not None:
        return True
    members = len(view.placed) + sum(len(group.members) for group in groups)
    if not trial.ledger.domains or view.gang.single or members < 2:
        return False
    return all(
        group.need.shape.node_policy != SPREAD and group.need.shape.neighbours.spread is None
        for group in groups
    )


def _part(group: Group) -> Part:
    return group.need, group.mask, len(group.members)


def _place_within(
    trial: Trial, view: GangView, groups: Sequence[Group], tier: int, *, effort: int, known: bool
) -> tuple[Seated, ...] | None:
    """The same for groups whose masks are of one domain of this tier; 0: levels have no say, or one node."""
    for number, order in enumerate(islice(permutations(groups), _MAX_ORDERS)):
        if number and trial.effort.spent and not known:
            break
        trial.effort.placed(len(groups), len(trial.index.nodes))
        seated = _place_groups(trial, view, order, tier)
        if seated is not None:
            return seated
    exact = len(groups) == 1 and len(groups[0].need.asks) <= 1
    spread = any(group.need.shape.neighbours.spread is not None for group in groups)
    if exact or spread or effort <= 0:
        return None
    found = search(trial, [(group.members, group.need, group.mask) for group in groups], effort, known=known)
    if found is None:
        return None
    return tuple(trial.seat(member, need, row, assignment) for member, need, row, assignment in found)


def place_some(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[Seated, ...]:
    """Place and book as many as fit, each by itself, hardest shapes last to be refused.

    Where there are many shapes, the gang's turn bounds how many are tried.
    """
    seated: list[Seated] = []
    groups = groups_of(trial, view, members)
    held = held_to(trial, view, [_part(group) for group in groups])
    for group in groups if held is None else [replace(each, mask=each.mask & held) for each in groups]:
        if not trial.effort.may_place:
            break
        trial.effort.placed(1, len(trial.index.nodes))
        if group.need.possible:
            seated += place_group(trial, view, group, partly=True)
    return tuple(seated)


def groups_of(trial: Trial, view: GangView, members: Sequence[Member]) -> list[Group]:
    """The members by shape, hardest shape first."""
    by_shape: dict[int, list[Member]] = {}
    for member in members:
        by_shape.setdefault(member.shape_id, []).append(member)
    groups = []
    for alike in by_shape.values():
        need = trial.need_in(view, alike[0])
        groups.append(Group(tuple(alike), need, trial.mask(view.gang, need.shape)))
    groups.sort(key=lambda group: _hardness(group.need))
    return groups


def room_for(trial: Trial, view: GangView, member: Member, wanted: int) -> int:
    """For how many members of this shape there are places by themselves; counted no further than wanted.

    Fewer than wanted: they find no place together with others either, in whatever order.
    """
    need = trial.need_in(view, member)
    return places_up_to(trial.ledger, need, trial.mask(view.gang, need.shape), wanted)


def _hardness(need: Need) -> tuple[int, ...]:
    cards = sum(ask.cards for ask in need.asks)
    memory = sum(ask.cards * ask.memory_mib for ask in need.asks)
    cores = sum(ask.cards * ask.cores_percent for ask in need.asks)
    alone = any(ask.alone for ask in need.asks)
    return (-int(alone), -cards, -memory, -cores, -need.requests[0], -need.requests[1])


def _place_groups(
    trial: Trial, view: GangView, groups: Sequence[Group], tier: int
) -> tuple[Seated, ...] | None:
    seated: list[Seated] = []
    for group in groups:
        placed = _place_near(trial, view, group, tier, {entry.row for entry in seated})
        seated += placed
        if len(placed) < len(group.members):
            trial.unseat(seated)
            return None
    return tuple(seated)


def _place_near(
    trial: Trial, view: GangView, group: Group, tier: int, used: set[int], *, partly: bool = False
) -> list[Seated]:
    """Place a group in a domain of this tier, over as few domains of the next lower one as it takes.

    The roomiest come first, and for the rest the one that is filled best. ``used``: rows where other members
    of the gang are; their domains come before others.
    """
    if tier <= 1 or group.need.shape.neighbours.spread is not None:
        return place_group(trial, view, group, partly=partly)
    room = pods_fitting(trial.ledger, group.need, group.mask)
    domains = levels_of(trial).domains(tier - 1)
    parts = {name: int(room[mask].sum()) for name, mask in domains.items() if room[mask].any()}
    known = {name for name in parts if any(domains[name][row] for row in used)}
    seated: list[Seated] = []
    while parts and len(seated) < len(group.members):
        left = group.members[len(seated) :]
        enough = [name for name, places in parts.items() if places >= len(left)]
        if enough:
            name = min(enough, key=lambda each: (each not in known, parts[each]))
        else:
            name = max(parts, key=lambda each: (each in known, parts[each]))
        there = Group(left[: parts.pop(name)], group.need, group.mask & domains[name])
        seated += _place_near(trial, view, there, tier - 1, used, partly=True)
    if len(seated) < len(group.members):  # nodes that are in no domain, or containers that shared cards
        rest = replace(group, members=group.members[len(seated) :])
        seated += place_group(trial, view, rest, partly=partly)
    return seated


def place_group(trial: Trial, view: GangView, group: Group, *, partly: bool = False) -> list[Seated]:
    """Place and book the group's members, or as many as fit with ``partly``.

    Without ``partly`` a group that does not fit may also come back in part, with what was tried booked.
    """
    need = group.need
    wanted = len(group.members)
    cards, order = card_choice(need, trial.policy), node_order(view, need, trial.policy)
    rows = candidates(trial.ledger, need, group.mask)
    seated: list[Seated] = []
    if need.shape.neighbours.spread is not None:
        seated, need = _lift(trial, group, need.shape.neighbours.spread, rows)
    while len(seated) < wanted:
        nodes = Nodes(trial, view, need, rows)
        counts = order.deal(nodes, order.scores(nodes), wanted - len(seated))
        if not counts or (not partly and sum(counts.values()) < wanted - len(seated)):
            break
        for row, count in counts.items():
            assignments = _fill_row(trial, need, row, count, cards)
            for assignment in assignments:
                seated.append(trial.seat(group.members[len(seated)], need, row, assignment))
            if len(assignments) < count:
                # Containers with several asks: what looked like room on this node is none.
                rows = rows[rows != row]
    return seated


def _lift(trial: Trial, group: Group, spread: Spread, rows: Ints) -> tuple[list[Seated], Need]:
    """Seat the members that the nodes with the fewest of them have to get, so that the spread is even.

    Then no node may count more than the spread allows: the answer's need says so for the other members.
    Nothing is seated where a node does not take what it has to: those with several asks look smaller.
    """
    need, ledger = group.need, trial.ledger
    rows = rows[np.argsort(trial.index.ranks()[rows])]  # rows are numbered as nodes came
    even = evenness(ledger, need, spread, rows, len(group.members))
    seated: list[Seated] = []
    for row, count in zip(rows.tolist(), even.lifts.tolist(), strict=True):
        assignments = _fill_row(trial, need, row, count, card_choice(need, trial.policy)) if count else []
        for assignment in assignments:
            seated.append(trial.seat(group.members[len(seated)], need, row, assignment))
        if len(assignments) < count:
            trial.unseat(seated)
            return [], replace(need, limits=((counted(spread.rule), 0),))
    return seated, replace(need, limits=(*need.limits, (counted(spread.rule), even.top)))


def _fill_row(trial: Trial, need: Need, row: int, count: int, cards: CardChoice) -> list[Assignment]:
    if not need.asks:
        return [()] * count
    return fill(Board(trial.ledger, row, trial), need, count, cards)
