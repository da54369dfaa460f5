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


def free_milli(ledger: Ledger) -> Ints:
    """By (row, card): the free part of the card, 0 to 1000."""
    cap = np.maximum(ledger.memory_cap, 1)
    free = (ledger.memory_cap - ledger.memory_used) * CARD_MILLI // cap
    if ledger.row_cores.any():
        high = ledger.high_cap[:, None] - ledger.high_cores
        low = ledger.low_cap[:, None] - ledger.low_cores
        np.minimum(free, np.minimum(high, low) * _PER_PERCENT, out=free)
    np.clip(free, 0, CARD_MILLI, out=free)
    free *= ledger.usable & (ledger.alone == 0)
    return np.asarray(free, np.int64)


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


def card_memory(ledger: Ledger, kind: int) -> int:
    """MiB of a card of this kind, as much as may be promised; 1 where there is none."""
    found = ledger.memory_cap[ledger.kind == kind]
    return int(found.max(initial=1))


def part_of(ledger: Ledger, ask: AskNeed) -> int:
    """What a share counts of its card, 1 to 1000: the larger of its parts of memory and of cores."""
    return part(ask.memory_mib, card_memory(ledger, ask.kind), ask.cores_percent, alone=ask.alone)


def part(memory_mib: int, card_mib: int, cores_percent: int, *, alone: bool) -> int:
    """The same from plain amounts."""
    if alone:
        return CARD_MILLI
    by_memory = memory_mib * CARD_MILLI // max(card_mib, 1)
    return max(1, min(CARD_MILLI, max(by_memory, cores_percent * _PER_PERCENT)))
