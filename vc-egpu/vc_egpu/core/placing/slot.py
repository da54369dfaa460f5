"""One card of a node as it would stand after what was placed on it so far. Small numbers, plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass

from vc_egpu.core.books.capacity import AskNeed, Need
from vc_egpu.core.books.ledger import Ledger
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

    def takes(self, ask: AskNeed) -> bool:
        """Whether one more share like this fits."""
        if self.blocked or self.kind != ask.kind or self.free_sharers < 1:
            return False
        if self.memory_mib < ask.memory_mib or self.physical_mib < ask.physical_mib:
            return False
        if ask.alone and self.sharers:
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
        if ask.cores_percent:
            if ask.high:
                count = min(count, self.high // ask.high)
            if ask.low:
                count = min(count, self.low // ask.low)
        return count

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
