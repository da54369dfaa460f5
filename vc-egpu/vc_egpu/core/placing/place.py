"""Place members: all of them at once, or none. Nodes first, then cards of each node.

Members of equal shape are placed as one group, and for one ask per pod the count of places is exact: a
gang of alike members is refused only if it does not fit. Mixed gangs are placed group by group, hardest
first; if that fails, in other orders, and then by a bounded search (:mod:`.search`).
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import Assignment, Need, candidates, not_full, rooms
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.placing.pack import BINPACK, SPREAD, Board, fill
from vc_egpu.core.placing.search import search
from vc_egpu.core.trial.trial import Seated, Trial

THOROUGH: Final = 4000
"""Steps of the bounded search where a refusal makes a gang wait."""
_MAX_ORDERS: Final = 6
_PER_MILLE: Final = 1000
_FIRST_ROWS: Final = 128
_SANE: Final = 1 << 40


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
        trial.effort.placed(len(groups))
        seated = _place_groups(trial, view, order)
        if seated is not None:
            return seated
    exact = len(groups) == 1 and len(groups[0].need.asks) <= 1
    if exact or effort <= 0:
        return None
    found = search(trial, [(group.members, group.need, group.mask) for group in groups], effort, known=known)
    if found is None:
        return None
    return tuple(trial.seat(member, need, row, assignment) for member, need, row, assignment in found)


def place_some(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[Seated, ...]:
    """Place and book as many as fit, each by itself, hardest shapes last to be refused."""
    seated: list[Seated] = []
    for group in groups_of(trial, view, members):
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
        need = trial.need(alike[0], view.gang.share_class)
        groups.append(Group(tuple(alike), need, trial.mask(view.gang, need.shape)))
    groups.sort(key=lambda group: _hardness(group.need))
    return groups


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
    policy = card_policy(need)
    rows = candidates(trial.ledger, need, group.mask)
    seated: list[Seated] = []
    while len(seated) < wanted:
        counts = _split(trial, view, need, rows, wanted - len(seated))
        if not counts or (not partly and sum(counts.values()) < wanted - len(seated)):
            break
        for row, count in counts.items():
            assignments = _fill_row(trial, need, row, count, policy)
            for assignment in assignments:
                seated.append(trial.seat(group.members[len(seated)], need, row, assignment))
            if len(assignments) < count:
                # Containers with several asks: what looked like room on this node is none.
                rows = rows[rows != row]
    return seated


def _fill_row(trial: Trial, need: Need, row: int, count: int, policy: str) -> list[Assignment]:
    if not need.asks:
        return [()] * count
    return fill(Board(trial.ledger, row), need, count, policy)


def card_policy(need: Need) -> str:
    """The order of a node's cards. Topology is not placed by yet: such asks are packed."""
    return SPREAD if need.shape.card_policy == SPREAD else BINPACK


def node_policy(view: GangView, need: Need) -> str:
    """The order of nodes: as asked, else spread for replicas of a high-priority service, else binpack."""
    if need.shape.node_policy in {BINPACK, SPREAD}:
        return need.shape.node_policy
    service = view.gang.single and view.gang.share_class is ShareClass.HIGH
    return SPREAD if service and need.uses_cards else BINPACK


def _split(trial: Trial, view: GangView, need: Need, rows: Ints, wanted: int) -> dict[int, int]:
    """How many members each row gets, by the node policy; rows where they disturb nobody come first."""
    fullness = _fullness(trial, need, rows)
    ranks = trial.index.ranks()[rows]
    if node_policy(view, need) == SPREAD:
        room, calm = rooms(trial.ledger, need, rows)
        columns = np.stack([rows, room, calm, fullness, ranks], axis=1)[room > 0]
        return _spread(trial.rows_of(view), columns, wanted)
    return _pack(trial, need, rows[np.argsort(ranks - fullness * len(trial.ledger.names))], wanted)


def _pack(trial: Trial, need: Need, rows: Ints, wanted: int) -> dict[int, int]:
    """Fill row after row. Looks at no more rows than needed: most decisions end in the first few hundred."""
    counts: dict[int, int] = {}
    spare: list[tuple[int, int]] = []
    for piece in _pieces(trial, need, rows):
        room, calm = rooms(trial.ledger, need, piece)
        some = np.flatnonzero(room)
        for row, most, still in zip(
            piece[some].tolist(), room[some].tolist(), calm[some].tolist(), strict=True
        ):
            count = min(still, wanted)
            if count:
                counts[row] = count
                wanted -= count
            if most > count:
                spare.append((row, most - count))
            if not wanted:
                return counts
    for row, most in spare:
        count = min(most, wanted)
        if count:
            counts[row] = counts.get(row, 0) + count
            wanted -= count
    return counts


def _pieces(trial: Trial, need: Need, rows: Ints) -> Iterator[Ints]:
    """The rows in order, in growing pieces; but for the first, without those that are full.

    The fullest come first: where the first few had no room, most of the next have none. Of what is left a
    few are nearly always enough.
    """
    start, size = 0, _FIRST_ROWS
    while start < len(rows):
        some = rows[start : start + size]
        if start:
            some = not_full(trial.ledger, need, some)
        start, size = start + size, size * 4
        for piece in (some[:_FIRST_ROWS], some[_FIRST_ROWS:]):
            if len(piece):
                yield piece


def _spread(taken: dict[int, int], columns: Ints, wanted: int) -> dict[int, int]:
    """One member at a time to the node with the fewest; ``columns``: row, room, calm room, fullness, rank."""
    counts: dict[int, int] = {}
    heap = [
        (still < 1, taken.get(row, 0), full, rank, row, limit, still)
        for row, limit, still, full, rank in columns.tolist()
    ]
    heapq.heapify(heap)
    while wanted and heap:
        _, there, full, rank, row, limit, still = heapq.heappop(heap)
        counts[row] = counts.get(row, 0) + 1
        wanted -= 1
        if counts[row] < limit:
            heapq.heappush(heap, (still <= counts[row], there + 1, full, rank, row, limit, still))
    return counts


def _fullness(trial: Trial, need: Need, rows: Ints) -> Ints:
    """How full the nodes are, per mille: their cards, or their cpu for members without cards."""
    ledger = trial.ledger
    if not need.asks:
        # Members without cards go where there are no cards to keep free cpu for.
        cpu = ledger.used[rows, 0] * _PER_MILLE // np.maximum(ledger.cap[rows, 0], 1)
        return np.asarray(cpu - 2 * _PER_MILLE * (ledger.row_cards[rows] > 0), np.int64)
    memory = (
        np.minimum(ledger.row_memory[rows], _SANE) * _PER_MILLE // np.maximum(ledger.row_memory_cap[rows], 1)
    )
    cores = np.minimum(ledger.row_cores[rows], _SANE) * _PER_MILLE
    cores //= np.maximum(ledger.row_cards[rows] * ledger.low_cap[rows], 1)
    return np.asarray(memory + cores, np.int64)
