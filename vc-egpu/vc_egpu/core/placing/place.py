"""Place members: all of them at once, or none. Nodes first, then cards of each node.

Start with :func:`place`. Members of equal shape are placed as one group. For one ask per pod the count of
places is exact, so a gang of alike members is refused only if it does not fit. Mixed gangs are placed group
by group, hardest first. If that fails, other orders are tried, and then a bounded search (:mod:`.search`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final

import numpy as np

from vc_egpu.core.books.between import Choice, deal
from vc_egpu.core.books.capacity import Assignment, Need, candidates, places_up_to, rooms
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.placing.nodes import Nodes
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import CardChoice, NodeOrder, card_choice, node_order, spreads_out
from vc_egpu.core.placing.search import search, search_by_rules
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
    wide = any(group.need.speaks_of_domains for group in groups)
    if are_exact(groups) or effort <= 0:
        return None
    listed = [(group.members, group.need, group.mask) for group in groups]
    found = (search_by_rules if wide else search)(trial, listed, effort, known=known)
    if found is None:
        return None
    return tuple(trial.seat(member, need, row, assignment) for member, need, row, assignment in found)


def are_exact(groups: Sequence[Group]) -> bool:
    """Whether the count of places tells all: as many members as that find a place together."""
    return len(groups) == 1 and len(groups[0].need.asks) <= 1 and not groups[0].need.is_wide


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
    if need.is_wide:
        return _place_by_rules(trial, view, group, rows)
    seated: list[Seated] = []
    while len(seated) < wanted:
        nodes = Nodes(trial, view, need, rows)
        counts = order.deal(nodes, _scores(order, nodes), wanted - len(seated))
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


def _scores(order: NodeOrder, nodes: Nodes) -> Ints:
    """The policy's, below what the pods themselves prefer."""
    scores = order.scores(nodes)
    if not nodes.need.shape.prefers or not len(scores):
        return scores
    liked = nodes.trial.index.preferences(nodes.need.shape)[nodes.rows]
    low = scores.min()
    return np.asarray((scores - low) + (liked.max() - liked) * (scores.max() - low + 1), np.int64)


def _place_by_rules(trial: Trial, view: GangView, group: Group, rows: Ints) -> list[Seated]:
    """Seat the members one after the other, each where the rules between pods let it in."""
    need, ledger = group.need, trial.ledger
    room, calm = rooms(ledger, need, rows)
    rows, room, calm = rows[room > 0], room[room > 0], calm[room > 0]
    nodes = Nodes(trial, view, need, rows)
    order = node_order(view, need, trial.policy)
    rank = np.empty(len(rows), np.int64)
    rank[np.lexsort((nodes.ranks(), _scores(order, nodes)))] = np.arange(len(rows))
    there = trial.rows_of(view)
    taken = np.array([there.get(row, 0) for row in rows.tolist()], np.int64)
    choice = Choice(rows, room, calm, rank, taken if spreads_out(order) else None)
    cards = card_choice(need, trial.policy)
    while True:
        dealt = deal(ledger, need, choice, len(group.members))
        found: dict[int, list[Assignment]] = {}
        for position in dict.fromkeys(dealt):
            count = dealt.count(position)
            found[position] = _fill_row(trial, need, int(rows[position]), count, cards)
            if len(found[position]) < count:
                # Containers with several asks: what looked like room on this node is less.
                room[position] = len(found[position])
        if sum(map(len, found.values())) == len(dealt):
            break
    return [
        trial.seat(member, need, int(rows[position]), found[position].pop(0))
        for member, position in zip(group.members, dealt, strict=False)
    ]


def _fill_row(trial: Trial, need: Need, row: int, count: int, cards: CardChoice) -> list[Assignment]:
    if not need.asks:
        return [()] * count
    return fill(Board(trial.ledger, row, trial), need, count, cards)
