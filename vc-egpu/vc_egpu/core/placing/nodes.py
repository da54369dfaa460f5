"""The nodes that one group of alike members may go to, and the two ways to deal members to nodes.

A policy gives each node a score, the lowest first. Nodes of equal score go by their names.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import AskNeed, Need, calm_for, copies, not_full, rooms
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.measured.use import FULL_POINTS
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.trial.trial import Trial

_PER_MILLE: Final = 1000
_PER_POINT: Final = _PER_MILLE // FULL_POINTS
_FIRST_ROWS: Final = 128
_SANE: Final = 1 << 40
_MOST_BITS: Final = 60


@dataclass(frozen=True, slots=True)
class Nodes:
    """Rows of the ledger that may take members of a gang, for a policy to put in order."""

    trial: Trial
    view: GangView
    need: Need
    rows: Ints

    def ranks(self) -> Ints:
        """By row: the node's place in the order of names."""
        return self.trial.index.ranks()[self.rows]

    def fullness(self) -> Ints:
        """By row: how full the node is, per mille. Its cards count, or its cpu for members without cards."""
        ledger, rows = self.trial.ledger, self.rows
        if not self.need.asks:
            # Members without cards go where there are no cards to keep free cpu for.
            cpu = ledger.used[rows, 0] * _PER_MILLE // np.maximum(ledger.cap[rows, 0], 1)
            return np.asarray(cpu - 2 * _PER_MILLE * (ledger.row_cards[rows] > 0), np.int64)
        memory = np.minimum(ledger.row_memory[rows], _SANE) * _PER_MILLE
        memory //= np.maximum(ledger.row_memory_cap[rows], 1)
        cores = np.minimum(ledger.row_cores[rows], _SANE) * _PER_MILLE
        cores //= np.maximum(ledger.row_cards[rows] * ledger.low_cap[rows], 1)
        return np.asarray(memory + cores, np.int64)


def short_of(nodes: Nodes, ask: AskNeed, uses_points: int) -> Ints | None:
    """By row: how much of the compute that the work will use is taken by others there, in points.

    It is the measured use of the last card that the ask would get, of those that have memory for it. Cards
    that nobody measured count as idle. None where that tells no two nodes apart.
    """
    trial, rows = nodes.trial, nodes.rows
    ledger = trial.ledger
    points = trial.index.busy.compute(rows, ledger.kind.shape[1], trial.now, CLOCK_SKEW_S)
    if points is None:
        return None
    short = points
    short += uses_points - FULL_POINTS
    if ledger.signature != trial.index.ledger.signature:
        new = ledger.sharers.take(rows, 0) - trial.index.ledger.sharers.take(rows, 0)
        short += np.maximum(new, 0) * uses_points  # placed by this decision, and not measured yet
    np.maximum(short, 0, out=short)
    free = ledger.memory_cap.take(rows, 0)
    free -= ledger.memory_used.take(rows, 0)
    is_shut = free < ask.memory_mib
    is_shut |= ledger.kind.take(rows, 0) != ask.kind
    is_shut |= ~ledger.usable.take(rows, 0)
    if not ask.ask.swap:
        is_shut |= ledger.alone.take(rows, 0) != 0
    short[is_shut] = FULL_POINTS
    np.minimum(short, FULL_POINTS, out=short)
    last = min(ask.cards, short.shape[1]) - 1
    found = short.min(axis=1) if not last else np.partition(short, last, axis=1)[:, last]
    return found if len(found) and found.min() < found.max() else None


def busyness(nodes: Nodes) -> Ints | None:
    """By row: how busy the node is measured to be, on the scale of :meth:`Nodes.fullness`.

    Its busiest part counts. A node without figures counts as busy as it is booked. None: no node has any, or
    members take no cards, so that a scheduler has the last word.
    """
    trial = nodes.trial
    points = trial.index.busy.points(nodes.rows, trial.now, CLOCK_SKEW_S) if nodes.need.asks else None
    if points is None:
        return None
    return np.asarray(np.where(points < 0, nodes.fullness(), 2 * _PER_POINT * points), np.int64)


def reach(nodes: Nodes) -> Ints | None:
    """By row: 0 for nodes whose best set for the largest ask is linked best, then 1 and on.

    None where that tells no two nodes apart. Nodes that tell of no links come last.
    """
    ledger, rows, need = nodes.trial.ledger, nodes.rows, nodes.need
    wired = [ledger.wired[row] for row in rows.tolist()]
    ask = max(need.asks, key=lambda ask: ask.cards, default=None)
    width = ledger.kind.shape[1]
    if ask is None or ask.cards < 2 or width > _MOST_BITS or not any(wired):
        return None
    open_to = copies(ledger, need, ask, rows)[0] > 0
    masks = (open_to @ (1 << np.arange(width, dtype=np.int64))).tolist()
    known: dict[tuple[int, int], int] = {}
    found = np.zeros(len(rows), np.int64)
    for at, (wiring, mask) in enumerate(zip(wired, masks, strict=True)):
        if wiring is None:
            continue
        key = (id(wiring), mask)
        if key not in known:
            columns = [col for col in range(width) if mask >> col & 1]
            known[key] = wiring.attainable(columns, ask.cards)
        found[at] = known[key]
    classes, by_row = np.unique(-found, return_inverse=True)
    return np.asarray(by_row, np.int64) if len(classes) > 1 else None


def fill_up(nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
    """Deal members node after node. Shares that disturb no other share come first, on all nodes.

    It looks at no more rows than needed: most decisions end in the first few hundred.
    """
    order = np.argsort(nodes.ranks() + scores * len(nodes.trial.ledger.names))
    counts: dict[int, int] = {}
    spare: list[tuple[int, int]] = []
    spare_room = 0
    for rows in _pieces(nodes.trial, nodes.need, nodes.rows[order]):
        has_spare = spare_room >= wanted  # then only places that disturb no other are still of use
        piece = calm_for(nodes.trial.ledger, nodes.need, rows) if has_spare else rows
        room, calm = rooms(nodes.trial.ledger, nodes.need, piece)
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
                spare_room += most - count
            if not wanted:
                return counts
    for row, most in spare:
        count = min(most, wanted)
        if count:
            counts[row] = counts.get(row, 0) + count
            wanted -= count
    return counts


def _pieces(trial: Trial, need: Need, rows: Ints) -> Iterator[Ints]:
    """The rows in order, in growing pieces. All pieces but the first leave out rows that are full.

    Where the first few rows had no room, most of the next have none either.
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


def one_by_one(nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
    """Deal one member at a time to the node with the fewest of the gang."""
    room, calm = rooms(nodes.trial.ledger, nodes.need, nodes.rows)
    columns = np.stack([nodes.rows, room, calm, scores, nodes.ranks()], axis=1)[room > 0]
    taken = nodes.trial.rows_of(nodes.view)
    counts: dict[int, int] = {}
    heap = [
        (still < 1, taken.get(row, 0), score, rank, row, limit, still)
        for row, limit, still, score, rank in columns.tolist()
    ]
    heapq.heapify(heap)
    while wanted and heap:
        _, there, score, rank, row, limit, still = heapq.heappop(heap)
        counts[row] = counts.get(row, 0) + 1
        wanted -= 1
        if counts[row] < limit:
            heapq.heappush(heap, (still <= counts[row], there + 1, score, rank, row, limit, still))
    return counts
