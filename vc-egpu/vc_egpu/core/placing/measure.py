"""What is left on nodes, in one unit: thousandths of a card, whatever its model and memory.

A card's free part is the lesser of its free memory and of its free cores. It is 0 where the card takes
nothing: not usable, or a share that stands alone is on it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import AskNeed
from vc_egpu.core.books.ledger import Ints, Ledger
from vc_egpu.core.model.cluster import FULL_CORES_PERCENT
from vc_egpu.core.placing.slot import Slot

CARD_MILLI: Final = 1000
_PER_PERCENT: Final = CARD_MILLI // FULL_CORES_PERCENT


def free_milli(ledger: Ledger, rows: Ints | slice = slice(None)) -> Ints:
    """By (row, card): the free part of the card, 0 to 1000."""
    cap = np.maximum(ledger.memory_cap[rows], 1)
    free = (ledger.memory_cap[rows] - ledger.memory_used[rows]) * CARD_MILLI // cap
    high = ledger.high_cap[rows][:, None] - ledger.high_cores[rows]
    low = ledger.low_cap[rows][:, None] - ledger.low_cores[rows]
    np.minimum(free, np.minimum(high, low) * _PER_PERCENT, out=free)
    np.clip(free, 0, CARD_MILLI, out=free)
    free *= ledger.usable[rows] & (ledger.alone[rows] == 0)
    return np.asarray(free, np.int64)


class Free:
    """What is free by row, for one ledger and its copies: only rows that have changed are looked at again."""

    def __init__(self) -> None:
        self.milli: Ints = np.zeros((0, 0), np.int64)
        """By (row, card): :func:`free_milli`."""
        self.cpu: Ints = np.zeros(0, np.int64)
        """By row: :func:`free_cpu`."""
        self.total: Ints = np.zeros(0, np.int64)
        """By row: the free parts of all cards together."""
        self.intact: Ints = np.zeros(0, np.int64)
        """By row: cards with nothing on them."""
        self._states: Ints = np.zeros(0, np.int64)

    def look(self, ledger: Ledger) -> Ints:
        """Bring all of it up to date; the rows that have changed."""
        if self.milli.shape != ledger.kind.shape:
            rows = len(ledger.names)
            self.milli = np.zeros(ledger.kind.shape, np.int64)
            self.cpu, self.total, self.intact = (np.zeros(rows, np.int64) for _ in range(3))
            self._states = np.full(rows, -1, np.int64)
        changed = np.flatnonzero(self._states != ledger.states)
        if len(changed):
            free = free_milli(ledger, changed)
            self.milli[changed] = free
            self.total[changed] = free.sum(axis=1)
            self.intact[changed] = (free == CARD_MILLI).sum(axis=1)
            self.cpu[changed] = ledger.cap[changed, 0] - ledger.used[changed, 0]
            self._states[changed] = ledger.states[changed]
        return changed


def free_of(ledger: Ledger, row: int, slots: Sequence[Slot]) -> list[int]:
    """The same for the cards of one node as they stand on paper."""
    caps = ledger.memory_cap[row].tolist()
    found = []
    for slot in slots:
        free = slot.memory_mib * CARD_MILLI // max(caps[slot.col], 1)
        free = min(free, min(slot.high, slot.low) * _PER_PERCENT)
        found.append(0 if slot.blocked else max(0, min(free, CARD_MILLI)))
    return found


def free_cpu(ledger: Ledger) -> Ints:
    """By row: milli-CPU that no pod requests. Below zero where more is requested than there is."""
    return np.asarray(ledger.cap[:, 0] - ledger.used[:, 0], np.int64)


def part_of(ledger: Ledger, ask: AskNeed) -> int:
    """What a share counts of its card, 1 to 1000: the larger of its parts of memory and of cores."""
    return part(ask.memory_mib, ledger.memory_of(ask.kind), ask.cores_percent, alone=ask.alone)


def part(memory_mib: int, card_mib: int, cores_percent: int, *, alone: bool) -> int:
    """The same from plain amounts."""
    if alone:
        return CARD_MILLI
    by_memory = memory_mib * CARD_MILLI // max(card_mib, 1)
    return max(1, min(CARD_MILLI, max(by_memory, cores_percent * _PER_PERCENT)))
