"""The search for a set of victims: give back what is not needed, or compare all choices of few."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol

import numpy as np

from vc_egpu.core.books.capacity import candidates, rooms
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import Pod, PodUid
from vc_egpu.core.placing.place import Group
from vc_egpu.core.room.causes import Price
from vc_egpu.core.room.lateness import Lateness
from vc_egpu.core.room.victims import Allowance, Candidate, may_go

_COMPLETE_TESTS: Final = 400
"""All choices are compared as long as this many tests suffice."""
_MAX_SUBSETS: Final = 40


@dataclass(frozen=True, slots=True)
class Going:
    """Victims: those that are evicted, and those that are suspended for a while."""

    evicted: tuple[Pod, ...] = ()
    asleep: tuple[Pod, ...] = ()

    def __add__(self, other: "Going") -> "Going":
        """Both together."""
        return Going(self.evicted + other.evicted, self.asleep + other.asleep)

    def __bool__(self) -> bool:
        """Whether any pod goes."""
        return bool(self.evicted or self.asleep)


Weight = tuple[Lateness, int, int, Price, Price]
"""The last stage of those that are evicted, cards of those evicted and of those suspended, and what settles
ties among equals."""


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


class Contest(Protocol):
    """What the search asks: one gang that wants room, and one way of having others gone."""

    def take(self, uids: Iterable[PodUid]) -> Callable[[], None]:
        """Have these pods gone; call the answer to undo it."""
        ...

    def fits(self) -> bool:
        """Whether the whole gang finds a place now."""
        ...

    def fits_with(self, going: Going) -> bool:
        """Whether it does once these are evicted and suspended."""
        ...

    def might_fit_without(self, uids: Iterable[PodUid]) -> bool:
        """False only if it does not fit whichever of these pods are gone."""
        ...

    def row_count(self) -> RowCount | None:
        """The places that there are now; None where these do not tell whether the whole gang fits."""
        ...

    def rows_of(self, pods: Iterable[Pod]) -> tuple[int, ...]:
        """Where these pods are booked."""
        ...

    def allowance(self) -> Allowance:
        """A fresh count of which victims may go together."""
        ...

    def may_go(self, going: Going) -> bool:
        """Whether these may go together, as they go."""
        ...

    def weight(self, going: Going) -> Weight:
        """What it costs. More of them never weigh less."""
        ...


@dataclass(frozen=True, slots=True)
class Atom:
    """Pods that go or stay together."""

    pods: tuple[Pod, ...]
    cards: int
    surplus: bool
    rows: tuple[int, ...] = ()
    """Where they are booked."""


Order = Callable[[Atom], tuple[float, ...]]
"""What is given back first: the smallest."""


class Reduction:
    """All candidates go; then as much as possible is given back, in one order after the other."""

    def __init__(self, contest: Contest, listed: Sequence[Candidate]) -> None:
        self._contest = contest
        self._lifted: dict[int, Callable[[], None]] = {}
        self._at_first: RowCount | None = None
        """Places while all are gone; None where places alone do not tell."""
        self._count: RowCount | None = None
        self._cores: list[Atom] = []
        self._spare: dict[int, list[Atom]] = {}
        """By core, the members above the minimum."""
        allowance = contest.allowance()
        for candidate in listed:
            able = allowance.most_of(candidate)
            if not able:
                continue
            spare = [pod for pod in candidate.surplus if pod in able]
            singles = [self._atom((pod,), surplus=True) for pod in spare]
            going = {pod.uid for pod in candidate.surplus}
            rest = tuple(pod for pod in able if pod.uid not in going)
            core = self._atom(rest, surplus=False)
            self._cores.append(core)
            self._spare[id(core)] = singles
        self._all = [*self._cores, *(atom for singles in self._spare.values() for atom in singles)]

    def run(self, orders: Iterable[Order]) -> Iterator[tuple[Pod, ...]]:
        """The victims that each order leaves at the end; none if the gang does not fit even without all."""
        if not self._is_enough():
            return
        rankings = [{id(atom): order(atom) for atom in self._all} for order in orders]
        tried: set[tuple[int, ...]] = set()
        try:
            for ranks in rankings:
                sequence = tuple(sorted(ranks, key=ranks.__getitem__))
                if sequence not in tried:  # equal ones leave the same
                    tried.add(sequence)
                    yield self._reduce(ranks)
        finally:
            self._return_all()

    def _is_enough(self) -> bool:
        try:
            self._lift_all()
            fits = self._contest.fits()
            self._at_first = self._contest.row_count() if fits else None
            return fits
        finally:
            self._return_all()

    def _reduce(self, ranks: Mapping[int, tuple[float, ...]]) -> tuple[Pod, ...]:
        self._lift_all()
        self._count = self._at_first.copy() if self._at_first is not None else None
        self._give_back(sorted(self._cores, key=lambda atom: ranks[id(atom)]))
        spare = (self._spare[id(core)] for core in self._cores if id(core) not in self._lifted)
        free = [single for singles in spare for single in singles]
        self._give_back(sorted(free, key=lambda atom: ranks[id(atom)]))
        return tuple(pod for atom in self._all if id(atom) in self._lifted for pod in atom.pods)

    def _lift_all(self) -> None:
        for atom in self._all:
            if id(atom) not in self._lifted:
                self._lift(atom)

    def _return_all(self) -> None:
        for atom in self._all:
            self._return(atom)

    def _give_back(self, atoms: Sequence[Atom]) -> None:
        """Give back as many as possible, first ones first; more and more at once, so that few tests do."""
        at, size = 0, 1
        while at < len(atoms):
            part = atoms[at : at + size]
            if not self._returns(part):
                self._give_back_some(part)
            at, size = at + len(part), 2 * size

    def _give_back_some(self, atoms: Sequence[Atom]) -> None:
        """The same for such as cannot all be given back."""
        if len(atoms) < 2:
            return
        first, rest = atoms[: len(atoms) // 2], atoms[len(atoms) // 2 :]
        if self._returns(first):
            self._give_back_some(rest)
        else:
            self._give_back_some(first)
            self._give_back(rest)

    def _returns(self, atoms: Iterable[Atom]) -> bool:
        """Give all of these back if the gang fits all the same."""
        for atom in atoms:
            self._return(atom)
        if self._is_enough_with(atoms):
            return True
        for atom in atoms:
            self._lift(atom)
        return False

    def _is_enough_with(self, atoms: Iterable[Atom]) -> bool:
        """Whether the gang fits now that these have been given back."""
        if self._count is None:
            return self._contest.fits()
        return self._count.is_enough_after(row for atom in atoms for row in atom.rows)

    def _atom(self, pods: tuple[Pod, ...], *, surplus: bool) -> Atom:
        cards = sum(cards_of(pod) for pod in pods)
        return Atom(pods, cards, surplus, self._contest.rows_of(pods))

    def _lift(self, atom: Atom) -> None:
        self._lifted[id(atom)] = self._contest.take(pod.uid for pod in atom.pods)

    def _return(self, atom: Atom) -> None:
        undo = self._lifted.pop(id(atom), None)
        if undo is not None:
            undo()


class Complete:
    """All choices of victims among few gangs, cheapest first as far as known; bounded by a count of tests."""

    def __init__(self, contest: Contest, options: Sequence[Sequence[Going]], best: Going | None) -> None:
        """``options``: of each gang, what may go of it, the cheapest first: see :func:`parts`.
        ``best``: a choice that is known to be enough."""
        self._contest = contest
        self._best = best
        self._least = contest.weight(best) if best is not None else None
        self._options = options
        self._most = [_all_of(ways) for ways in options]
        self._tests = _COMPLETE_TESTS

    def run(self) -> Going | None:
        """The best choice found."""
        self._descend(0, Going())
        return self._best

    def _descend(self, depth: int, chosen: Going) -> None:
        if self._tests <= 0:
            return
        weight = self._contest.weight(chosen)
        if self._least is not None and weight >= self._least:
            return
        if chosen and not self._contest.may_go(chosen):
            return
        self._tests -= 1
        if depth == len(self._options):
            if self._contest.fits_with(chosen):
                self._best, self._least = chosen, weight
            return
        rest = [uid for uids in self._most[depth:] for uid in uids]
        gone = [pod.uid for pod in (*chosen.evicted, *chosen.asleep)]
        if not self._contest.might_fit_without((*gone, *rest)):
            return
        for option in self._options[depth]:
            self._descend(depth + 1, chosen + option)


def _all_of(ways: Iterable[Going]) -> tuple[PodUid, ...]:
    return tuple(dict.fromkeys(pod.uid for going in ways for pod in (*going.evicted, *going.asleep)))


def parts(candidate: Candidate) -> list[tuple[Pod, ...]]:
    """What may go of one gang: no pod, some surplus, or all of it; cheapest first."""
    view = candidate.view
    spare = len(candidate.pods) + len(view.succeeded) - view.gang.min_member
    # Skip tasks at their minimum: enumerating their sets explodes.
    able = [pod for pod in candidate.pods if may_go(view, candidate.pods, {pod.uid})]
    found: list[tuple[Pod, ...]] = [()]
    for count in range(1, min(spare, len(able), len(candidate.pods) - 1) + 1):
        for group in combinations(able, count):
            if len(found) >= _MAX_SUBSETS:
                break
            if may_go(view, candidate.pods, {pod.uid for pod in group}):
                found.append(group)
    found.append(candidate.pods)
    return sorted(found, key=lambda pods: sum(cards_of(pod) for pod in pods))


def cards_of(pod: Pod) -> int:
    """Cards that the pod holds."""
    return len({share.card for _, share in pod.shares})
