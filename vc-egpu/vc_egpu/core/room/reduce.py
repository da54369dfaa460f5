"""The search for a set of victims: give back what is not needed, or compare all choices of few."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol

from vc_egpu.core.model.cluster import Pod, PodUid
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


class Reduction:
    """All candidates go; then as much as possible is given back, in one order."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._lifted: dict[int, Callable[[], None]] = {}

    def run(
        self, listed: list[Candidate], order: Callable[[Atom], tuple[float, ...]]
    ) -> tuple[Pod, ...] | None:
        """The victims left at the end; None if the gang does not fit even without all candidates."""
        cores: list[Atom] = []
        spare: dict[int, list[Atom]] = {}
        allowance = self._contest.allowance()
        for candidate in listed:
            able = allowance.most_of(candidate)
            if not able:
                continue
            singles = [Atom((pod,), cards_of(pod), surplus=True) for pod in candidate.surplus if pod in able]
            going = {pod.uid for pod in candidate.surplus}
            rest = tuple(pod for pod in able if pod.uid not in going)
            core = Atom(rest, sum(cards_of(pod) for pod in rest), surplus=False)
            cores.append(core)
            spare[id(core)] = singles
        everything = [*cores, *(atom for singles in spare.values() for atom in singles)]
        ranks = {id(atom): order(atom) for atom in everything}
        for atom in everything:
            self._lift(atom)
        try:
            if not self._contest.fits():
                return None
            self._give_back(sorted(cores, key=lambda atom: ranks[id(atom)]))
            free = [single for core in cores if id(core) not in self._lifted for single in spare[id(core)]]
            self._give_back(sorted(free, key=lambda atom: ranks[id(atom)]))
            return tuple(pod for atom in everything if id(atom) in self._lifted for pod in atom.pods)
        finally:
            for atom in everything:
                self._return(atom)

    def _give_back(self, atoms: list[Atom]) -> None:
        """Give back as many as possible, first ones first; by halves, so that few tests do."""
        if not atoms:
            return
        for atom in atoms:
            self._return(atom)
        if self._contest.fits():
            return
        for atom in atoms:
            self._lift(atom)
        if len(atoms) > 1:
            half = len(atoms) // 2
            self._give_back(atoms[:half])
            self._give_back(atoms[half:])

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
