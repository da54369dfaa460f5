"""One card of a node as it would stand after what was placed on it so far. Small numbers, plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vc_egpu.core.books.booking import takes_side
from vc_egpu.core.books.capacity import AskNeed, Need
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.layouts.catalogue import NO_LAYOUT, Catalogue
from vc_egpu.core.trial.trial import Trial


@dataclass(slots=True)
class Slot:
    """One card's free amounts."""

    col: int
    kind: int
    memory_mib: int
    physical_mib: int
    high: int
    low: int
    calm: int
    """Cores that no share holds. Below zero where classes overlap already."""
    sharers: int
    """Shares on the card, suspended ones aside."""
    free_sharers: int
    blocked: bool
    """Not usable, or a whole card's share is on it."""
    flat: bool = False
    """High does not run over low: all shares together have one card's cores."""
    slices: int = NO_LAYOUT
    """Its state, by the catalogue."""
    catalogue: Catalogue | None = None
    """None: no card of the cluster has a layout."""
    swaps: int = 0
    """Shares on it that take turns."""
    sides: int = 0
    """What :func:`.booking.side_of` the shares is that were there before; 0 where no side keeps off."""
    before: list[tuple[str, int]] = field(default_factory=list)
    """What was seated here on paper, the last behind: (template, the state before)."""

    def takes(self, ask: AskNeed) -> bool:
        """Whether one more share like this fits."""
        if self.blocked or self.kind != ask.kind or self.free_sharers < 1:
            return False
        if self.memory_mib < ask.memory_mib or self.physical_mib < ask.physical_mib:
            return False
        mixed = self.swaps != (self.sharers if ask.ask.swap else 0)
        mixed = mixed or (self.sides > 0 and not takes_side(self.sides, ask.side))
        if mixed or (ask.alone and self.sharers) or (self.flat and self.calm < ask.cores_percent):
            return False
        if self.catalogue is not None and not self._cuts(ask, self.catalogue):
            return False
        if ask.cores_percent == 0:
            return True
        return (not ask.high or self.high >= ask.high) and (not ask.low or self.low >= ask.low)

    def room(self, ask: AskNeed) -> int:
        """How many shares like this fit."""
        if not self.takes(ask):
            return 0
        if ask.alone:
            return 1
        count = min(
            self.memory_mib // ask.memory_mib, self.physical_mib // ask.physical_mib, self.free_sharers
        )
        if ask.ask.slice and self.catalogue is not None:
            count = min(count, int(self.catalogue.copies(ask.ask.slice)[self.slices]))
        if self.flat and ask.cores_percent:
            count = min(count, self.calm // ask.cores_percent)
        if ask.cores_percent:
            if ask.high:
                count = min(count, self.high // ask.high)
            if ask.low:
                count = min(count, self.low // ask.low)
        return count

    def _cuts(self, ask: AskNeed, catalogue: Catalogue) -> bool:
        """Whether the card's layout lets such a share in."""
        if ask.ask.slice:
            return bool(catalogue.copies(ask.ask.slice)[self.slices] > 0)
        return bool(catalogue.whole[self.slices]) if ask.ask.whole else self.slices == NO_LAYOUT

    def lost(self, ask: AskNeed) -> int:
        """MiB of other slices that would not fit any more."""
        template = ask.ask.slice
        return self.catalogue.loss(self.slices, template) if template and self.catalogue is not None else 0

    def disturbs(self, ask: AskNeed) -> bool:
        """Whether a share like this takes time that another share holds, or loses time to one."""
        return ask.cores_percent > max(self.calm, 0)

    def seat(self, ask: AskNeed, sign: int = 1) -> None:
        """Take the room of one share, or give it back with ``sign`` -1."""
        self.memory_mib -= sign * ask.memory_mib
        self.physical_mib -= sign * ask.physical_mib
        self.high -= sign * ask.high
        self.low -= sign * ask.low
        self.calm -= sign * ask.cores_percent
        self.sharers += sign
        self.free_sharers -= sign
        if ask.alone:
            self.blocked = sign > 0
        if ask.ask.swap:
            self.swaps += sign
        if ask.ask.slice and self.catalogue is not None:
            self._cut(ask.ask.slice, sign, self.catalogue)

    def _cut(self, template: str, sign: int, catalogue: Catalogue) -> None:
        """Cut one slice, or take back the last one of its kind and cut what came behind it again."""
        if sign > 0:
            self.before.append((template, self.slices))
            self.slices = catalogue.after(self.slices, template)
            return
        at = max(place for place, (name, _) in enumerate(self.before) if name == template)
        later = [name for name, _ in self.before[at + 1 :]]
        self.slices = self.before[at][1]
        del self.before[at:]
        for name in later:
            self._cut(name, 1, catalogue)

    def state(self) -> tuple[int, ...]:
        """Cards of equal state are interchangeable."""
        return (
            self.kind,
            self.memory_mib,
            self.physical_mib,
            self.high,
            self.low,
            self.calm,
            self.sharers,
            self.free_sharers,
            self.blocked,
            self.flat,
            self.slices,
            self.swaps,
            self.sides,
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """Where cards are chosen for a pod: what a choice may look at beyond the cards that are open to it."""

    ledger: Ledger
    row: int
    slots: Sequence[Slot]
    """All cards of the node as they stand on paper."""
    cpu_milli: int
    """Free of the node's cpu before the pod is there."""
    need: Need
    trial: Trial | None
    """None: nothing is known but this node."""
