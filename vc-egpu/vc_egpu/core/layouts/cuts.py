"""Which slices of fixed size lie on which cards, and the state of each card that follows from them.

A state is counted from all that is held, and never stepped from the one before. So what is taken back leaves
nothing behind, whatever overlapped meanwhile.
"""

from collections.abc import Mapping, Sequence

from vc_egpu.core.layouts.catalogue import NO_LAYOUT, Catalogue
from vc_egpu.core.layouts.compiler import Ints
from vc_egpu.core.layouts.table import Held, Layout

Ground = tuple[Layout | None, tuple[Held, ...]]
"""A card's layout, and the slices on it that are not ours."""


class Cuts:
    """Facts of nodes are shared with copies, as the ledger's are. What is held is each copy's own."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self._grounds: dict[int, tuple[Ground, ...]] = {}
        """By row: its cards, in the order of columns. Rows without layouts are not in here."""
        self._held: dict[int, Mapping[int, tuple[Held, ...]]] = {}
        """By row and column. Mappings are replaced, never changed in place."""

    def __bool__(self) -> bool:
        return bool(self.catalogue)

    def copy(self) -> "Cuts":
        """To try things on."""
        other = object.__new__(Cuts)
        other.catalogue, other._grounds, other._held = self.catalogue, self._grounds, dict(self._held)
        return other

    def enter(self, row: int, grounds: Sequence[Ground], states: Ints) -> None:
        """The cards of a node; what is held on them stays."""
        states[row] = NO_LAYOUT
        if all(layout is None for layout, _ in grounds):
            self._grounds.pop(row, None)
            return
        self._grounds[row] = tuple(grounds)
        for col in range(len(grounds)):
            self._count(row, col, states)

    def cut(self, row: int, col: int, one: Held, sign: int, states: Ints) -> None:
        """Book a slice, or take it back with ``sign`` -1."""
        here = dict(self._held.get(row, {}))
        held = list(here.get(col, ()))
        if sign > 0:
            held.append(one)
        elif one in held:
            held.remove(one)
        if held:
            here[col] = tuple(held)
        else:
            here.pop(col, None)
        if here:
            self._held[row] = here
        else:
            self._held.pop(row, None)
        self._count(row, col, states)

    def held(self, row: int, col: int) -> tuple[Held, ...]:
        """What lies on the card, of ours and of others."""
        grounds = self._grounds.get(row, ())
        foreign = grounds[col][1] if col < len(grounds) else ()
        return (*foreign, *self._held.get(row, {}).get(col, ()))

    def _count(self, row: int, col: int, states: Ints) -> None:
        grounds = self._grounds.get(row, ())
        layout = grounds[col][0] if col < len(grounds) else None
        if layout is not None:
            states[row, col] = self.catalogue.state_of(layout, self.held(row, col))
