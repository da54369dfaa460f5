"""One node: which of its cards a pod's containers get. Small numbers, plain Python.

A :class:`Board` is a node's cards as they would stand after what was placed on it so far. Policies are
rows of a table, not branches. Where a policy's choice of cards leaves less room than there is, the choice
that keeps the most room is taken instead, so that no policy refuses what fits.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from vc_egpu.core.books.capacity import AskNeed, Assignment, Cols, Need
from vc_egpu.core.books.ledger import Flags, Ledger

BINPACK: Final = "binpack"
SPREAD: Final = "spread"
ROOMIEST: Final = "roomiest"
"""Not a user's policy: the cards that take the most further shares like this first. Keeps the most room."""

_NEVER: Final = -1


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
    """Cores that are nobody's: may be negative where classes overlap already."""
    sharers: int
    """Suspended ones aside."""
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
        """Whether a share like this takes somebody's time here, or has its own taken."""
        return ask.cores_percent > max(self.calm, 0)

    def seat(self, ask: AskNeed, sign: int = 1) -> None:
        """Take (or with ``sign`` -1 give back) the room of one share."""
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


_Key = Callable[[Slot, AskNeed], tuple[int, ...]]
_CHOICE: Final[dict[str, _Key]] = {
    BINPACK: lambda slot, ask: (slot.disturbs(ask), slot.physical_mib, min(slot.high, slot.low), slot.col),
    SPREAD: lambda slot, ask: (
        slot.disturbs(ask),
        slot.sharers,
        -slot.physical_mib,
        -min(slot.high, slot.low),
        slot.col,
    ),
    ROOMIEST: lambda slot, ask: (-slot.room(ask), slot.disturbs(ask), slot.col),
}


class Board:
    """The cards of one node, on paper."""

    def __init__(self, ledger: Ledger, row: int) -> None:
        self.row = row
        self._ledger = ledger
        self.host_free = int(ledger.host_cap[row] - ledger.host_used[row])
        """Host memory in MiB that is left to spill to."""
        high_cap, low_cap = int(ledger.high_cap[row]), int(ledger.low_cap[row])
        sharers_cap = int(ledger.max_sharers[row])
        columns = zip(
            ledger.kind[row].tolist(),
            ledger.usable[row].tolist(),
            (ledger.memory_cap[row] - ledger.memory_used[row]).tolist(),
            (ledger.physical_cap[row] - ledger.physical_used[row]).tolist(),
            ledger.high_cores[row].tolist(),
            ledger.low_cores[row].tolist(),
            ledger.all_cores[row].tolist(),
            ledger.sharers[row].tolist(),
            ledger.asleep[row].tolist(),
            ledger.alone[row].tolist(),
            strict=True,
        )
        self.slots = [
            Slot(
                col,
                kind,
                memory,
                physical,
                high_cap - high,
                low_cap - low,
                min(high_cap, low_cap) - total,
                sharers - asleep,
                sharers_cap - sharers,
                not usable or alone > 0,
            )
            for col, (kind, usable, memory, physical, high, low, total, sharers, asleep, alone) in enumerate(
                columns
            )
            if kind >= 0
        ]

    def _open(self, ask: AskNeed, allowed: Flags | None) -> list[Slot]:
        if allowed is None:
            return [slot for slot in self.slots if slot.takes(ask)]
        return [slot for slot in self.slots if slot.takes(ask) and allowed[self.row, slot.col]]

    def _ratio(self, need: Need) -> int:
        return self._ledger.ratio_for(self.row, need.share_class)

    def _host_of(self, need: Need) -> int:
        """What a pod takes of the host's memory; more than there is where it does not fit."""
        if not need.spills:
            return 0
        host_mib = need.host_mib(self._ratio(need))
        return host_mib if host_mib is not None and host_mib <= max(self.host_free, 0) else _NEVER

    def choose(self, need: Need, policy: str) -> Assignment | None:
        """Seat one pod by the policy's order of cards; None (and nothing taken) if it does not fit."""
        key = _CHOICE[policy]
        host_mib = self._host_of(need)
        if host_mib == _NEVER:
            return None
        taken: list[tuple[AskNeed, list[Slot]]] = []
        # The largest ask first: it has the fewest cards to go to.
        order = sorted(range(len(need.asks)), key=lambda i: _hardness(need.asks[i]))
        chosen: dict[int, Cols] = {}
        for position in order:
            ask = need.asks[position].here(self._ratio(need))
            slots = sorted(self._open(ask, need.cards), key=lambda slot: key(slot, ask))[: ask.cards]
            if len(slots) < ask.cards:
                for earlier, seats in taken:
                    for slot in seats:
                        slot.seat(earlier, -1)
                return None
            for slot in slots:
                slot.seat(ask)
            taken.append((ask, slots))
            chosen[position] = tuple(sorted(slot.col for slot in slots))
        self.host_free -= host_mib
        return tuple(chosen[position] for position in range(len(need.asks)))

    def undo(self, need: Need, assignment: Assignment) -> None:
        """Give back what :meth:`choose` or :meth:`take` seated."""
        self._seat(need, assignment, -1)

    def take(self, need: Need, assignment: Assignment) -> None:
        """Seat one pod on given columns."""
        self._seat(need, assignment, 1)

    def _seat(self, need: Need, assignment: Assignment, sign: int) -> None:
        by_col = {slot.col: slot for slot in self.slots}
        for general, cols in zip(need.asks, assignment, strict=True):
            ask = general.here(self._ratio(need))
            self.host_free -= sign * ask.host_mib
            for col in cols:
                by_col[col].seat(ask, sign)

    def choices(self, need: Need, *, distinct: bool) -> Generator[Assignment]:
        """Every essentially different way to seat one pod, tightest first; nothing stays taken once it is
        exhausted or closed.

        ``distinct``: tell apart cards of equal state as well, because some shape names cards.
        """
        if self._host_of(need) != _NEVER:
            yield from self._choices(need, 0, (), distinct)

    def _choices(self, need: Need, position: int, chosen: Assignment, distinct: bool) -> Iterator[Assignment]:  # noqa: FBT001  private
        if position == len(need.asks):
            yield chosen
            return
        ask = need.asks[position].here(self._ratio(need))
        slots = sorted(self._open(ask, need.cards), key=lambda slot: _CHOICE[BINPACK](slot, ask))
        seen: set[tuple[object, ...]] = set()
        for group in combinations(slots, ask.cards):
            mark = tuple(sorted((*slot.state(), slot.col if distinct else -1) for slot in group))
            if mark in seen:
                continue
            seen.add(mark)
            for slot in group:
                slot.seat(ask)
            try:
                yield from self._choices(
                    need, position + 1, (*chosen, tuple(slot.col for slot in group)), distinct
                )
            finally:  # whoever has seen enough closes this half-way
                for slot in group:
                    slot.seat(ask, -1)


def _hardness(ask: AskNeed) -> tuple[int, int, int, int]:
    return (-int(ask.alone), -ask.cards, -ask.memory_mib, -ask.cores_percent)


def fill(board: Board, need: Need, count: int, policy: str) -> list[Assignment]:
    """Seat up to ``count`` pods; fewer only where no choice of cards seats more (for one ask per pod)."""
    if not need.asks:
        return [()] * count
    placed = _fill_by(board, need, count, policy)
    if len(placed) == count or policy == ROOMIEST:
        return placed
    for assignment in placed:
        board.undo(need, assignment)
    again = _fill_by(board, need, count, ROOMIEST)
    if len(again) > len(placed):
        return again
    for assignment in again:
        board.undo(need, assignment)
    for assignment in placed:
        board.take(need, assignment)
    return placed


def _fill_by(board: Board, need: Need, count: int, policy: str) -> list[Assignment]:
    placed: list[Assignment] = []
    while len(placed) < count:
        assignment = board.choose(need, policy)
        if assignment is None:
            break
        placed.append(assignment)
    return placed
