"""How many pods each node gets where pods of a rule are spread evenly (:class:`.neighbours.Spread`).

The nodes that count are those that may take the pods and have cards of their kinds, full or not.
"""

from typing import NamedTuple

import numpy as np

from vc_egpu.core.books.capacity import Need, candidates, places, rooms
from vc_egpu.core.books.ledger import Flags, Ints, Ledger
from vc_egpu.core.model.neighbours import Spread, counted


class Evenness(NamedTuple):
    """By row, what an even spread asks for."""

    lifts: Ints
    """So many pods each row has to get, so that no row has too few."""
    most: Ints
    """So many pods each row may get, ``lifts`` among them."""
    top: int
    """No row may count more pods of the rule than this."""


def evenness(ledger: Ledger, need: Need, spread: Spread, rows: Ints, wanted: int) -> Evenness:
    """What ``wanted`` pods more mean for each of ``rows``: as many as can be seated so, and no more.

    The higher the fewest on a row, the more may go to the others. So that level is the highest that the pods
    can reach on all rows.
    """
    room, _ = rooms(ledger, need, rows)
    there = ledger.marks.on(counted(spread.rule), rows)
    low, high = (int(there.min()), int((there + room).min())) if len(rows) else (0, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.maximum(middle - there, 0).sum()) <= wanted:
            low = middle
        else:
            high = middle - 1
    lifts = np.maximum(low - there, 0)
    most = np.clip(low + spread.max_skew - there, 0, room)
    return Evenness(lifts, most, low + spread.max_skew)


def places_for(ledger: Ledger, need: Need, mask: Flags, wanted: int) -> int:
    """How many of ``wanted`` pods of this shape fit in all, spread as they ask for it."""
    spread = need.shape.neighbours.spread
    if spread is None:
        return places(ledger, need, mask)
    return int(evenness(ledger, need, spread, candidates(ledger, need, mask), wanted).most.sum())
