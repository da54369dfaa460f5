"""How many places a group of alike members has, counted row by row.

The search for victims gives back one gang after the other, and each sits on few nodes.
"""

from collections.abc import Iterable

import numpy as np

from vc_egpu.core.books.capacity import candidates, rooms
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.placing.place import Group


class RowCount:
    """The places of one group on a ledger: only rows on which something changed are counted again."""

    def __init__(self, ledger: Ledger, group: Group) -> None:
        self._ledger = ledger
        self._group = group
        self._open = np.zeros(len(ledger.names), np.bool_)
        self._room = np.zeros(len(ledger.names), np.int64)
        rows = candidates(ledger, group.need, group.mask)
        self._open[rows] = True
        self._room[rows] = rooms(ledger, group.need, rows)[0]

    def copy(self) -> "RowCount":
        """The same count, to go on from."""
        other = object.__new__(RowCount)
        other.__dict__.update(self.__dict__)
        other._room = self._room.copy()
        return other

    def is_enough_after(self, changed: Iterable[int]) -> bool:
        """Whether all members have places now that these rows changed. If not, the count stays as it was."""
        rows = np.array(sorted(set(changed)), np.int64)
        rows = rows[self._open[rows]]
        before = self._room[rows]
        self._room[rows] = rooms(self._ledger, self._group.need, rows)[0]
        if int(self._room.sum()) >= len(self._group.members):
            return True
        self._room[rows] = before
        return False
