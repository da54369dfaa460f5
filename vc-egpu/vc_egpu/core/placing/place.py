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

from vc_egpu.core.books.capacity import Assignment, Need, candidates, places_up_to
from vc_egpu.core.books.evenness import evenness
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.neighbours import Spread, counted
from vc_egpu.core.placing.nodes import Nodes
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import CardChoice, card_choice, node_order
from vc_egpu.core.placing.search import search
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
    for number, order in enumerate(islice(permutations(groups), _MAX_ORDERS)):
        if number and trial.effort.spent and not known:
            break
        trial.effort.placed(len(groups), len(trial.index.nodes))
        seated = _place_groups(trial, view, order)
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
    for group in groups_of(trial, view, members):
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


def _place_groups(trial: Trial, view: GangView, groups: Sequence[Group]) -> tuple[Seated, ...] | None:
    seated: list[Seated] = []
    for group in groups:
        placed = place_group(trial, view, group)
        seated += placed
        if len(placed) < len(group.members):
            trial.unseat(seated)
            return None
    return tuple(seated)


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
