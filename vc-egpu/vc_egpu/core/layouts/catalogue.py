"""All layouts of a cluster with their states under one numbering, for arrays over all cards.

State 0 is a card without a layout: no slice fits there, and nothing else about it changes.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from vc_egpu.core.layouts.compiler import Compiled, Ints, compiled
from vc_egpu.core.layouts.table import ANYWHERE, Held, Layout

Flags = npt.NDArray[np.bool_]
NO_LAYOUT = 0


class Catalogue:
    """Grows as nodes come. A number that was given stays; arrays are replaced, never changed."""

    def __init__(self) -> None:
        self._bases: dict[Layout, int] = {}
        self._entries: list[tuple[int, Compiled]] = []
        self._entry_of: list[int] = [-1]
        """By state."""
        self._copies: dict[str, Ints] = {}
        self._whole: Flags = np.ones(1, np.bool_)
        self._full: Flags = np.zeros(1, np.bool_)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def enter(self, layout: Layout) -> int:
        """The state of an empty card of this layout."""
        base = self._bases.get(layout)
        if base is not None:
            return base
        tables = compiled(layout)
        base, rows = len(self._entry_of), tables.states + 1
        self._bases[layout] = base
        self._entry_of += [len(self._entries)] * rows
        self._entries.append((base, tables))
        whole, full = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        whole[0], full[-1] = layout.whole, True
        self._whole, self._full = np.append(self._whole, whole), np.append(self._full, full)
        self._copies = {}
        return base

    def copies(self, template: str) -> Ints:
        """By state: how many more slices of that template fit."""
        known = self._copies.get(template)
        if known is None:
            known = np.zeros(len(self._entry_of), np.int64)
            for base, tables in self._entries:
                index = tables.layout.index(template)
                if index >= 0:
                    known[base : base + tables.states + 1] = tables.copies[:, index]
            self._copies[template] = known
        return known

    @property
    def whole(self) -> Flags:
        """By state: whether the card may be given out as a whole."""
        return self._whole

    @property
    def full(self) -> Flags:
        """By state: whether the card holds what it cannot."""
        return self._full

    def state_of(self, layout: Layout, held: Iterable[Held]) -> int:
        """The state of a card of this layout that holds these."""
        return self.enter(layout) + compiled(layout).state_of(held)

    def place(self, state: int, template: str) -> int:
        """Where the next slice of that template is best begun; -1: anywhere, or it does not fit."""
        found = self._at(state, template)
        return ANYWHERE if found is None else int(found[0].place[found[1], found[2]])

    def after(self, state: int, template: str) -> int:
        """The state with one more slice there; the same state where it does not fit."""
        found = self._at(state, template)
        if found is None or found[0].after[found[1], found[2]] < 0:
            return state
        return state - found[1] + int(found[0].after[found[1], found[2]])

    def loss(self, state: int, template: str) -> int:
        """MiB of other slices that do not fit any more then."""
        found = self._at(state, template)
        return 0 if found is None else int(found[0].loss[found[1], found[2]])

    def _at(self, state: int, template: str) -> tuple[Compiled, int, int] | None:
        """(tables, row, column); None where the card has no such template."""
        entry = self._entry_of[state]
        if entry < 0:
            return None
        base, tables = self._entries[entry]
        index, row = tables.layout.index(template), state - base
        return None if index < 0 or row == tables.full else (tables, row, index)
