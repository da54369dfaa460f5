"""One node: which of its cards a pod's containers get.

A :class:`Board` is a node's cards as they would stand after what was placed on it so far. The policy
(:mod:`.policies`) chooses the set of cards for an ask. Where its choice seats fewer pods than wanted, the
choice that keeps the most room is tried instead. So no policy refuses what fits.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import repeat
from typing import Final

from vc_egpu.core.books.booking import TURNS
from vc_egpu.core.books.capacity import AskNeed, Assignment, Cols, Need
from vc_egpu.core.books.ledger import Flags, Ledger
from vc_egpu.core.model.cluster import FULL_CORES_PERCENT
from vc_egpu.core.placing.policies import ROOMIEST, CardChoice
from vc_egpu.core.placing.slot import Scene, Slot
from vc_egpu.core.trial.trial import Trial

_NEVER: Final = -1


class Board:
    """The cards of one node, on paper."""

    def __init__(self, ledger: Ledger, row: int, trial: Trial | None = None) -> None:
        self.row = row
        self._trial = trial
        self._ledger = ledger
        self._cpu_milli = int(ledger.cap[row, 0] - ledger.used[row, 0])
        self.host_free = int(ledger.host_cap[row] - ledger.host_used[row])
        """Host memory in MiB that is left to spill to."""
        high_cap, low_cap = int(ledger.high_cap[row]), int(ledger.low_cap[row])
        sharers_cap = int(ledger.max_sharers[row])
        catalogue = ledger.cuts.catalogue if ledger.cuts else None
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
            ledger.flat[row].tolist(),
            ledger.slices[row].tolist(),
            ledger.sides[row].tolist() if ledger.apart else repeat(0, ledger.kind.shape[1]),
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
                (FULL_CORES_PERCENT if flat else min(high_cap, low_cap)) - total,
                sharers - asleep,
                sharers_cap - sharers,
                not usable or 0 < alone < TURNS,
                flat,
                slices,
                catalogue,
                alone // TURNS,
                sides,
            )
            for col, (
                kind,
                usable,
                memory,
                physical,
                high,
                low,
                total,
                sharers,
                asleep,
                alone,
                flat,
                slices,
                sides,
            ) in enumerate(columns)
            if kind >= 0
        ]

    @property
    def links_are_alike(self) -> bool:
        """Whether no card is worth more than another by how it is linked."""
        wiring = self._ledger.wired[self.row]
        return wiring is None or wiring.uniform

    def _open(self, ask: AskNeed, allowed: Flags | None) -> list[Slot]:
        if allowed is None:
            return [slot for slot in self.slots if slot.takes(ask)]
        return [slot for slot in self.slots if slot.takes(ask) and allowed[self.row, slot.col]]

    def _pools(self, cards: list[Slot], ask: AskNeed) -> list[list[Slot]]:
        """The open cards as sets within which any may go together, by the node's rule; the best set first."""
        grouping = self._ledger.grouped.get(self.row)
        if grouping is None or not ask.alone:
            return [cards]
        by_col = {slot.col: slot for slot in cards}
        return [[by_col[col] for col in pool] for pool in grouping.pools(tuple(by_col), ask.cards)]

    def _best(self, choice: CardChoice, cards: list[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        for pool in self._pools(cards, ask):
            slots = choice.best(pool, ask, scene)
            if len(slots) == ask.cards:
                return slots
        return ()

    def _ratio(self, need: Need) -> int:
        return self._ledger.ratio_for(self.row, need.share_class)

    def _host_of(self, need: Need) -> int:
        """What a pod takes of the host's memory; more than there is where it does not fit."""
        if not need.spills:
            return 0
        host_mib = need.host_mib(self._ratio(need))
        return host_mib if host_mib is not None and host_mib <= max(self.host_free, 0) else _NEVER

    def choose(self, need: Need, choice: CardChoice) -> Assignment | None:
        """Seat one pod by the policy's choice of cards; None, and nothing taken, if it does not fit."""
        host_mib = self._host_of(need)
        if host_mib == _NEVER:
            return None
        taken: list[tuple[AskNeed, Sequence[Slot]]] = []
        # The largest ask first: it has the fewest cards to go to.
        order = sorted(range(len(need.asks)), key=lambda i: _hardness(need.asks[i]))
        scene = Scene(self._ledger, self.row, self.slots, self._cpu_milli, need, self._trial)
        chosen: dict[int, Cols] = {}
        for position in order:
            ask = need.asks[position].here(self._ratio(need))
            slots = self._best(choice, self._open(ask, need.cards), ask, scene)
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
        self._cpu_milli -= need.requests[0]
        return tuple(chosen[position] for position in range(len(need.asks)))

    def choose_whole(self, need: Need, count: int, choice: CardChoice) -> list[Assignment]:
        """:meth:`choose` of up to ``count`` pods at once, each of which takes one card as a whole.

        Whole cards have nothing to do with each other, so they are ranked once.
        """
        ask = need.asks[0].here(self._ratio(need))
        scene = Scene(self._ledger, self.row, self.slots, self._cpu_milli, need, self._trial)
        slots = choice.best(self._open(ask, need.cards), ask._replace(cards=count), scene)
        for slot in slots:
            slot.seat(ask)
        self._cpu_milli -= len(slots) * need.requests[0]
        return [((slot.col,),) for slot in slots]

    def undo(self, need: Need, assignment: Assignment) -> None:
        """Give back what :meth:`choose` or :meth:`take` seated."""
        self._seat(need, assignment, -1)

    def take(self, need: Need, assignment: Assignment) -> None:
        """Seat one pod on given columns."""
        self._seat(need, assignment, 1)

    def _seat(self, need: Need, assignment: Assignment, sign: int) -> None:
        by_col = {slot.col: slot for slot in self.slots}
        self._cpu_milli -= sign * need.requests[0]
        for general, cols in zip(need.asks, assignment, strict=True):
            ask = general.here(self._ratio(need))
            self.host_free -= sign * ask.host_mib
            for col in cols:
                by_col[col].seat(ask, sign)

    def choices(self, need: Need, choice: CardChoice, *, distinct: bool) -> Generator[Assignment]:
        """Every essentially different way to seat one pod, in the policy's order for a search.

        Nothing stays taken once it is exhausted or closed. ``distinct``: tell apart cards of equal state as
        well, because some shape names cards.
        """
        if self._host_of(need) != _NEVER:
            yield from self._choices(need, choice, (), distinct=distinct)

    def _choices(
        self, need: Need, choice: CardChoice, chosen: Assignment, *, distinct: bool
    ) -> Iterator[Assignment]:
        position = len(chosen)
        if position == len(need.asks):
            yield chosen
            return
        ask = need.asks[position].here(self._ratio(need))
        seen: set[tuple[object, ...]] = set()
        pools = self._pools(self._open(ask, need.cards), ask)
        for group in (group for pool in pools for group in choice.every(pool, ask)):
            mark = tuple(sorted((*slot.state(), slot.col if distinct else -1) for slot in group))
            if mark in seen:
                continue
            seen.add(mark)
            for slot in group:
                slot.seat(ask)
            try:
                columns = tuple(slot.col for slot in group)
                yield from self._choices(need, choice, (*chosen, columns), distinct=distinct)
            finally:  # a caller that has seen enough closes this half-way
                for slot in group:
                    slot.seat(ask, -1)


def _hardness(ask: AskNeed) -> tuple[int, int, int, int]:
    return (-int(ask.alone), -ask.cards, -ask.memory_mib, -ask.cores_percent)


def _is_one_whole_card(need: Need) -> bool:
    return len(need.asks) == 1 and need.asks[0].alone and need.asks[0].cards == 1


def fill(board: Board, need: Need, count: int, choice: CardChoice) -> list[Assignment]:
    """Seat up to ``count`` pods. With one ask per pod, fewer only where no choice of cards seats more."""
    if not need.asks:
        return [()] * count
    placed = _fill_by(board, need, count, choice)
    if len(placed) == count or choice is ROOMIEST:
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


def _fill_by(board: Board, need: Need, count: int, choice: CardChoice) -> list[Assignment]:
    if choice.card_by_card and board.links_are_alike and not need.spills and _is_one_whole_card(need):
        return board.choose_whole(need, count, choice)
    placed: list[Assignment] = []
    while len(placed) < count:
        assignment = board.choose(need, choice)
        if assignment is None:
            break
        placed.append(assignment)
    return placed
