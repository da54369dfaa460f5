"""Make room for a high-priority gang by evicting low-priority ones, at the smallest harm.

Start from the whole set of candidates gone: if the gang does not fit even then, nobody is touched. Then
give back, in several orders, all that is not needed, and take the cheapest outcome; where few candidates
are concerned a complete search makes sure that it is the cheapest there is. Every set is tested by placing
the whole gang without it, never by sums.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from vc_egpu.core.booking import Booking
from vc_egpu.core.capacity import places, rooms
from vc_egpu.core.cluster import NodeName, Pod, PodUid
from vc_egpu.core.gangs import GangView, Member
from vc_egpu.core.ledger import Ints
from vc_egpu.core.place import Group, groups_of, place
from vc_egpu.core.plan import Eviction
from vc_egpu.core.trial import Seated, Trial
from vc_egpu.core.victims import (
    Candidate,
    Guarantees,
    Price,
    candidates,
    grouped,
    may_go,
    prey,
    price,
    soon_gone,
)

_EFFORT: Final = 600
"""Steps of the placement search in each test of a set of victims."""
_COMPLETE_GANGS: Final = 8
"""Up to so many candidate gangs all choices of victims are compared ..."""
_COMPLETE_TESTS: Final = 400
"""... as long as this many tests suffice."""
_MAX_SUBSETS: Final = 40
_WEIGHED: Final = 128


@dataclass(frozen=True, slots=True)
class Room:
    """The gang's place, booked on the trial's ledger, and who has to go for it."""

    seated: tuple[Seated, ...]
    evictions: tuple[Eviction, ...]
    price: Price


@dataclass(frozen=True, slots=True)
class Patience:
    """Nobody has to be evicted: there is room once these pods, which leave anyway, are gone."""

    pods: tuple[PodUid, ...]


def make_room(trial: Trial, view: GangView, members: Sequence[Member]) -> Room | Patience | None:
    """Find the cheapest victims without which all members fit, and book the members; None without any."""
    contest = _Contest(trial, view, members)
    leaving = soon_gone(trial)
    if leaving and contest.fits_without(leaving):
        return Patience(tuple(leaving))
    best = contest.cheapest()
    if best is None:
        return None
    lifted = trial.lift(pod.uid for pod in best)
    seated = place(trial, view, members)
    trial.put_back(lifted)
    if seated is None:
        return None
    return Room(seated, grouped(trial, [pod.uid for pod in best]), price(trial, best))


def make_room_for_some(trial: Trial, view: GangView, members: Sequence[Member]) -> Room | Patience | None:
    """Room for as many of the members as can have it, all of them, half of them, ... one of them."""
    count = len(members)
    while count:
        room = make_room(trial, view, members[:count])
        if room is not None:
            return room
        count //= 2
    return None


@dataclass(frozen=True, slots=True)
class _Atom:
    """Pods that go or stay together."""

    pods: tuple[Pod, ...]
    cards: int
    surplus: bool


class _Contest:
    """One gang's search for victims. The trial's ledger is as before after every call."""

    def __init__(self, trial: Trial, view: GangView, members: Sequence[Member]) -> None:
        self._trial = trial
        self._view = view
        self._members = members
        self._groups = groups_of(trial, view, members)
        self._guarantees = Guarantees(trial, view)

    def fits_without(self, uids: Iterable[PodUid]) -> bool:
        """Whether the whole gang finds a place once these pods are gone."""
        lifted = self._trial.lift(uids)
        try:
            return self._fits()
        finally:
            self._trial.put_back(lifted)

    def _fits(self) -> bool:
        if not self._enough_places():
            return False
        seated = place(self._trial, self._view, self._members, effort=_EFFORT)
        if seated is None:
            return False
        self._trial.unseat(seated)
        return True

    def _enough_places(self) -> bool:
        return all(
            places(self._trial.ledger, group.need, group.mask) >= len(group.members) for group in self._groups
        )

    def cheapest(self) -> tuple[Pod, ...] | None:
        """The victims; None if the gang does not fit whoever goes."""
        without = prey(self._trial).without
        if any(places(without, group.need, group.mask) < len(group.members) for group in self._groups):
            return None  # not even with everybody gone
        listed = candidates(self._trial, self._view, self._useful_nodes())
        most = self._trial.policy.max_victim_candidates
        for limit in sorted({min(most, len(listed)), len(listed)}):
            best = self._cheapest_of(listed[:limit])
            if best is not None:
                return best
        return None

    def _useful_nodes(self) -> set[NodeName]:
        ledger = self._trial.ledger
        useful = np.zeros(len(ledger.names), np.bool_)
        for group in self._groups:
            useful |= group.mask
        return {name for name, row in ledger.rows.items() if useful[row]}

    def _cheapest_of(self, listed: list[Candidate]) -> tuple[Pod, ...] | None:
        if not listed:
            return None
        best: tuple[Price, tuple[Pod, ...]] | None = None
        for order in self._orders(listed):
            found = _Reduction(self._trial, self._fits, self._guarantees).run(listed, order)
            if found is None:
                break
            priced = (price(self._trial, found), found)
            best = min(best, priced, key=lambda entry: entry[0]) if best is not None else priced
        if len(listed) <= _COMPLETE_GANGS:
            start = best if best is not None else None
            best = _Complete(self, listed, start).run()
        return best[1] if best is not None else None

    def allowed(self, pods: Iterable[Pod]) -> bool:
        """Whether the guarantees of the victims' queues hold."""
        return self._guarantees.allow(pods)

    def price(self, pods: Iterable[Pod]) -> Price:
        """The cost of a set of victims."""
        return price(self._trial, pods)

    def _orders(self, listed: list[Candidate]) -> Iterable[Callable[[_Atom], tuple[float, ...]]]:
        """What is given back first: the dearest, the cheapest; of few, what frees least for its cost."""
        yield lambda atom: (-atom.cards,)
        yield lambda atom: (atom.cards,)
        if len(listed) <= _WEIGHED:
            yield lambda atom: (-atom.cards / (1 + self._gain(atom)), -atom.cards)
            yield lambda atom: (self._gain(atom), -atom.cards)

    def _gain(self, atom: _Atom) -> int:
        """How many more places there are once the atom alone is gone."""
        ledger = self._trial.ledger
        rows = np.array(
            sorted({ledger.rows[pod.node] for pod in atom.pods if pod.node in ledger.rows}), np.int64
        )
        if not len(rows):
            return 0
        before = self._places(rows)
        lifted = self._trial.lift(pod.uid for pod in atom.pods)
        after = self._places(rows)
        self._trial.put_back(lifted)
        return after - before

    def _places(self, rows: Ints) -> int:
        return sum(self._places_of(group, rows) for group in self._groups)

    def _places_of(self, group: Group, rows: Ints) -> int:
        return int(rooms(self._trial.ledger, group.need, rows[group.mask[rows]])[0].sum())


class _Reduction:
    """All candidates go; then as much as possible is given back, in one order."""

    def __init__(self, trial: Trial, fits: Callable[[], bool], guarantees: Guarantees) -> None:
        self._trial = trial
        self._fits = fits
        self._guarantees = guarantees
        self._lifted: dict[int, list[Booking]] = {}

    def run(
        self, listed: list[Candidate], order: Callable[[_Atom], tuple[float, ...]]
    ) -> tuple[Pod, ...] | None:
        """Who has to go at the end, or None if it does not fit even without all of them."""
        cores: list[_Atom] = []
        spare: dict[int, list[_Atom]] = {}
        evicted: list[Pod] = []
        for candidate in listed:
            if not self._guarantees.allow([*evicted, *candidate.pods]):
                continue
            evicted += candidate.pods
            singles = [_Atom((pod,), _cards(pod), surplus=True) for pod in candidate.surplus]
            going = {pod.uid for pod in candidate.surplus}
            rest = tuple(pod for pod in candidate.pods if pod.uid not in going)
            core = _Atom(rest, sum(_cards(pod) for pod in rest), surplus=False)
            cores.append(core)
            spare[id(core)] = singles
        everything = [*cores, *(atom for singles in spare.values() for atom in singles)]
        ranks = {id(atom): order(atom) for atom in everything}
        for atom in everything:
            self._lift(atom)
        try:
            if not self._fits():
                return None
            self._give_back(sorted(cores, key=lambda atom: ranks[id(atom)]))
            free = [single for core in cores if id(core) not in self._lifted for single in spare[id(core)]]
            self._give_back(sorted(free, key=lambda atom: ranks[id(atom)]))
            return tuple(pod for atom in everything if id(atom) in self._lifted for pod in atom.pods)
        finally:
            for atom in everything:
                self._return(atom)

    def _give_back(self, atoms: list[_Atom]) -> None:
        """Give back as many as possible, first ones first; by halves, so that few tests do."""
        if not atoms:
            return
        for atom in atoms:
            self._return(atom)
        if self._fits():
            return
        for atom in atoms:
            self._lift(atom)
        if len(atoms) > 1:
            half = len(atoms) // 2
            self._give_back(atoms[:half])
            self._give_back(atoms[half:])

    def _lift(self, atom: _Atom) -> None:
        self._lifted[id(atom)] = self._trial.lift(pod.uid for pod in atom.pods)

    def _return(self, atom: _Atom) -> None:
        self._trial.put_back(self._lifted.pop(id(atom), ()))


class _Complete:
    """All choices of victims among few gangs, cheapest first as far as known; bounded by a count of tests."""

    def __init__(
        self, contest: _Contest, listed: list[Candidate], best: tuple[Price, tuple[Pod, ...]] | None
    ) -> None:
        self._contest = contest
        self._best = best
        self._options = [_options(candidate) for candidate in listed]
        self._most = [candidate.pods for candidate in listed]
        self._tests = _COMPLETE_TESTS

    def run(self) -> tuple[Price, tuple[Pod, ...]] | None:
        """The best choice found."""
        self._descend(0, ())
        return self._best

    def _test(self, pods: tuple[Pod, ...]) -> bool:
        self._tests -= 1
        return self._contest.fits_without(pod.uid for pod in pods)

    def _descend(self, depth: int, chosen: tuple[Pod, ...]) -> None:
        if self._tests <= 0:
            return
        if self._best is not None and self._contest.price(chosen) >= self._best[0]:
            return
        if chosen and not self._contest.allowed(chosen):
            return
        if depth == len(self._options):
            if self._test(chosen):
                self._best = (self._contest.price(chosen), chosen)
            return
        rest = tuple(pod for pods in self._most[depth:] for pod in pods)
        if not self._test((*chosen, *rest)):
            return
        for option in self._options[depth]:
            self._descend(depth + 1, (*chosen, *option))


def _options(candidate: Candidate) -> list[tuple[Pod, ...]]:
    """What may go of one gang: nobody, some surplus, or everybody; cheapest first."""
    spare = len(candidate.pods) + len(candidate.view.succeeded) - candidate.view.gang.min_member
    options: list[tuple[Pod, ...]] = [()]
    for count in range(1, min(spare, len(candidate.pods) - 1) + 1):
        for group in combinations(candidate.pods, count):
            if len(options) >= _MAX_SUBSETS:
                break
            if may_go(candidate.view, candidate.pods, {pod.uid for pod in group}):
                options.append(group)
    options.append(candidate.pods)
    return sorted(options, key=lambda pods: sum(_cards(pod) for pod in pods))


def _cards(pod: Pod) -> int:
    return len({share.card for _, share in pod.shares})
