"""Make room for a gang by suspending or evicting others, at the smallest harm.

Start with all candidates gone: if the gang does not fit even then, no pod is touched. Then give back, in
several orders, all that is not needed, and take the cheapest outcome. Among few candidates a complete search
makes sure that no set is cheaper. Every set is tested by placing the whole gang without it, never by sums.

Candidates that can be suspended are tried alone first: any suspension costs less than any eviction. If that
is not enough, as few as possible are evicted too, and then as few as possible suspended.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import rooms
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import NodeName, Pod, PodUid
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.plan import Eviction, Suspension
from vc_egpu.core.placing.place import Group, are_exact_anywhere, groups_of, place
from vc_egpu.core.room.causes import Price, hunts_for, taking
from vc_egpu.core.room.hunt import Hunt
from vc_egpu.core.room.lateness import Lateness, lateness, stages
from vc_egpu.core.room.reclaim import Excess, accounts, asked
from vc_egpu.core.room.reduce import Atom, Complete, Going, Reduction, RowCount, Weight, parts
from vc_egpu.core.room.relief import Relief
from vc_egpu.core.room.victims import (
    Allowance,
    Candidate,
    Guarantees,
    are_enough,
    candidates,
    goes_in_part,
    grouped,
    prey,
    sleepers,
    soon_asleep,
    soon_gone,
    suspended,
)
from vc_egpu.core.trial.trial import Seated, Trial

_EFFORT: Final = 600
"""Steps of the placement search in each test of a set of victims."""
_COMPLETE_GANGS: Final = 8
"""Up to so many candidate gangs all choices of victims are compared."""
_WEIGHED: Final = 128

Harm = tuple[bool, Lateness, int, int, Price, Price]
"""Whether any is evicted, the last stage of those that go, cards of those evicted and of those suspended, and
what settles ties among equals."""


@dataclass(frozen=True, slots=True)
class Room:
    """The gang's place, booked on the trial's ledger, and the victims that go for it."""

    seated: tuple[Seated, ...]
    evictions: tuple[Eviction, ...]
    suspensions: tuple[Suspension, ...]
    harm: Harm
    hunt: Hunt
    round: int
    """The number of the hunt: what an earlier one finds is preferred."""
    accounts: tuple[Account, ...] = ()
    """See :attr:`.plan.Admission.accounts`."""


@dataclass(frozen=True, slots=True)
class Patience:
    """No victim is needed: there is room once these pods have left, as they were told to before."""

    pods: tuple[PodUid, ...]


def make_room(trial: Trial, view: GangView, members: Sequence[Member]) -> Room | Patience | None:
    """Find the cheapest victims without which all members fit, and book the members; None without any.

    One hunt after the other is tried, up to the first that finds enough.
    """
    hunts = list(hunts_for(trial, view, members))
    widest = {hunt.cause: hunt for hunt in hunts}  # each round of a cause takes in those before it
    hopeless: set[Cause] = set()
    for number, hunt in enumerate(hunts):
        contest = _Contest(trial, view, members, hunt)
        if not number:
            found = _patience(trial, contest)
            if found is not None:
                return found
            hopeless = {cause for cause, last in widest.items() if not contest.might_fit_after(last)}
        best = contest.cheapest() if hunt.cause not in hopeless else None
        room = contest.room(best, number) if best is not None else None
        if room is not None:
            return room
    return None


def make_room_by(trial: Trial, view: GangView, members: Sequence[Member], hunt: Hunt) -> Room | None:
    """The same by this hunt alone."""
    contest = _Contest(trial, view, members, hunt)
    best = contest.cheapest()
    return contest.room(best, 0) if best is not None else None


def _patience(trial: Trial, contest: "_Contest") -> Patience | None:
    """Whether no victim is needed."""
    leaving, dozing = soon_gone(trial), soon_asleep(trial)
    with _slept(trial, dozing):
        if (leaving or dozing) and contest.fits_without(leaving):
            # A pod can be terminating and suspending at once.
            return Patience(tuple(dict.fromkeys((*leaving, *dozing))))
    return None


def _uids(listed: Iterable[Candidate]) -> list[PodUid]:
    """All that go with these."""
    return [pod.uid for candidate in listed for pod in candidate.pods]


@contextmanager
def _slept(trial: Trial, uids: Iterable[PodUid]) -> Iterator[None]:
    """While these pods are suspended on paper. What is placed meanwhile stays."""
    done = trial.sleep(uids)
    try:
        yield
    finally:
        trial.wake(done)


def make_room_for_some(trial: Trial, view: GangView, members: Sequence[Member]) -> Room | Patience | None:
    """Room for as many of the members as can have it, the first ones first."""
    best: Room | None = None
    enough, too_many = 0, len(members) + 1
    while enough + 1 < too_many and not (best is not None and trial.effort.spent):
        count = (enough + too_many) // 2 if too_many <= len(members) else len(members)
        room = make_room(trial, view, members[:count])
        if isinstance(room, Patience):
            return room
        if room is None:
            too_many = count
        else:
            trial.unseat(room.seated)  # more of them are tried on the same ledger
            best, enough = room, count
    if best is not None:
        trial.reseat(best.seated)
    return best


class _Contest:
    """One gang's search for victims. The trial's ledger is as before after every call."""

    def __init__(self, trial: Trial, view: GangView, members: Sequence[Member], hunt: Hunt) -> None:
        self._trial = trial
        self._hunt = hunt
        self._price = taking(hunt.cause).price
        self._view = view
        self._members = members
        self._groups = groups_of(trial, view, members)
        self._guarantees = Guarantees(trial, view)
        ask = trial.amounts_of(members, view.gang.share_class)
        self._relief = Relief(trial, view.gang.queue, ask) if hunt.relieves is not None else None
        self._suspends = False
        self._late: dict[str, Lateness] = {}
        self._gains: dict[tuple[int, bool, tuple[PodUid, ...]], int] = {}
        self._evicted: tuple[Pod, ...] = ()
        """Victims that are settled: the allowance for further ones counts them."""
        # Suspended pods move to the host before the evicted ones have left it.
        self._host_free = trial.ledger.host_cap - trial.ledger.host_used

    def fits_without(self, uids: Iterable[PodUid]) -> bool:
        """Whether the whole gang finds a place once these pods are gone, or suspended."""
        undo = self.take(uids)
        try:
            return self.fits()
        finally:
            undo()

    def might_fit_without(self, uids: Iterable[PodUid]) -> bool:
        """False only if it does not fit whichever of these pods are gone.

        A suspended pod takes host memory, which the gang may need itself: fewer suspended can be better.
        """
        with self._gone(uids):
            return self.fits()

    @contextmanager
    def _gone(self, uids: Iterable[PodUid]) -> Iterator[None]:
        """While these pods are gone, from their cards and from their queues."""
        gone = list(uids)
        lifted, undo = self._trial.lift(gone), self._leave_queues(gone)
        try:
            yield
        finally:
            undo()
            self._trial.put_back(lifted)

    def _leave_queues(self, uids: Iterable[PodUid]) -> Callable[[], None]:
        return self._relief.without(uids) if self._relief is not None else lambda: None

    def fits_with(self, going: Going) -> bool:
        """Whether it does once these are evicted and suspended."""
        away = [pod.uid for pod in going.asleep]
        undo = self._leave_queues(away)
        try:
            with _slept(self._trial, away), self._gone(pod.uid for pod in going.evicted):
                return self.fits()
        finally:
            undo()

    def may_go(self, going: Going) -> bool:
        """Whether guarantees and lines hold, and hosts take those that are suspended."""
        settled = Allowance(self._trial, self._guarantees, excess=self._excess())
        settled.takes(self._evicted)
        return settled.takes(going.evicted) and settled.suspending(self._host_free).takes(going.asleep)

    def weight(self, going: Going) -> Weight:
        """The cost of a set of victims."""
        first, second = self.price(going.evicted), self.price(going.asleep)
        return (self._latest(going.evicted), first[0], second[0], first, second)

    def _latest(self, pods: Iterable[Pod]) -> Lateness:
        for key in {str(pod.gang) for pod in pods} - self._late.keys():
            self._late[key] = lateness(self._trial, self._trial.index.view(key))
        return max((self._late[str(pod.gang)] for pod in pods), default=Lateness.USUAL)

    def take(self, uids: Iterable[PodUid]) -> Callable[[], None]:
        """Have these pods gone, or suspended where that is searched for; call the answer to undo it."""
        trial, gone = self._trial, list(uids)
        return_to_queues = self._leave_queues(gone)
        slept = trial.sleep(gone) if self._suspends else []
        lifted = trial.lift(gone) if not self._suspends else []

        def undo() -> None:
            trial.put_back(lifted)
            trial.wake(slept)
            return_to_queues()

        return undo

    def fits(self) -> bool:
        if self._relief is not None and not self._relief.is_enough():
            return False
        if not self._enough_places():
            return False
        if are_exact_anywhere(self._view, self._groups):
            self._trial.effort.placed(1, len(self._trial.index.nodes))
            return True
        seated = place(self._trial, self._view, self._members, effort=_EFFORT)
        if seated is None:
            return False
        self._trial.unseat(seated)
        return True

    def row_count(self) -> RowCount | None:
        """The places that there are now; None where these do not tell whether the whole gang fits."""
        if self._relief is not None or not are_exact_anywhere(self._view, self._groups):
            return None
        return RowCount(self._trial.ledger, self._groups[0])

    def rows_of(self, pods: Iterable[Pod]) -> tuple[int, ...]:
        """Where these pods are booked."""
        bookings = self._trial.bookings_of(pod.uid for pod in pods)
        return tuple({booking.row: None for booking in bookings})

    def _enough_places(self) -> bool:
        return are_enough(self._trial.ledger, self._groups)

    def might_fit_after(self, hunt: Hunt) -> bool:
        """False only if there is no place for the gang although all that this hunt may take are gone."""
        return prey(self._trial, hunt).takes(self._trial, self._view, self._groups)

    def cheapest(self) -> Going | None:
        """The victims; None if the gang does not fit whichever of them go."""
        if not self.might_fit_after(self._hunt):
            return None  # not even with all candidates gone
        useful = self._useful_nodes() if self._relief is None else set(self._trial.index.nodes)
        found = candidates(self._trial, self._view, useful, self._hunt)
        if self._relief is not None and not self._might_be_allowed(found):
            return None
        able = self._sleepers(found, useful)
        for part in self._parts(able):
            asleep = self._asleep_of(part)
            if asleep is not None:
                return Going(asleep=asleep)
        listed = [candidate for candidate in found if candidate.evictable]
        for part in self._parts(listed):
            best = self._by_eviction(part, self._others(found, part), useful)
            if best is not None:
                return best
        return None

    def _sleepers(self, found: Sequence[Candidate], useful: set[NodeName]) -> list[Candidate]:
        """Those that may be suspended; none where all of them go to other cards."""
        return [] if taking(self._hunt.cause).moves else sleepers(self._trial, found, useful)

    def _might_be_allowed(self, found: Sequence[Candidate]) -> bool:
        """Whether the caps allow the members once all of these are gone."""
        known = prey(self._trial, self._hunt)
        if self._relief is not None and len(found) == len(known.listed):
            return self._relief.is_enough_without(known.quota(self._trial))
        undo = self._leave_queues([pod.uid for candidate in found for pod in candidate.pods])
        try:
            return self._relief is None or self._relief.is_enough()
        finally:
            undo()

    def room(self, best: Going, number: int) -> Room | None:
        """The members booked, with the chosen victims gone. ``number``: of this hunt."""
        trial, hunt = self._trial, self._hunt
        evicted, asleep = [pod.uid for pod in best.evicted], [pod.uid for pod in best.asleep if pod.shares]
        with _slept(trial, asleep):
            lifted = trial.lift(evicted)
            seated = place(trial, self._view, self._members, known=True)
            trial.put_back(lifted)
        if seated is None:
            return None
        going = grouped(trial, evicted, hunt.cause), suspended(trial, asleep, hunt.cause)
        told: tuple[Account, ...] = ()
        if hunt.cause is Cause.RECLAIM:
            asks = asked(trial, self._members)
            told = accounts(trial, self._view, asks, (*best.evicted, *best.asleep))
        return Room(seated, *going, self.harm(best), hunt, number, told)

    def _parts(self, listed: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        """The candidates to be tried together: stage by stage, and the cheapest ones of a stage first."""
        most = self._trial.policy.max_victim_candidates
        for stage in stages(listed):
            for limit in sorted({min(most, len(stage)), len(stage)}):
                yield stage[:limit]

    @staticmethod
    def _others(found: list[Candidate], part: list[Candidate]) -> list[Candidate]:
        """Those that are not evicted with this part. They may still be suspended, which loses nothing."""
        last = max((candidate.lateness for candidate in part), default=Lateness.USUAL)
        return [candidate for candidate in found if not candidate.evictable or candidate.lateness > last]

    def harm(self, going: Going) -> Harm:
        """The cost of this choice, to be compared with others of the gang's."""
        late, evicted, asleep, first, second = self.weight(going)
        last = late if going.evicted else self._latest(going.asleep)
        return (bool(going.evicted), last, evicted, asleep, first, second)

    def _by_eviction(
        self, listed: list[Candidate], stay: list[Candidate], useful: set[NodeName]
    ) -> Going | None:
        """As few evictions as possible, with all others suspended that can be, or none; then few suspensions.

        ``stay``: candidates that may be suspended and never evicted.
        """
        choices = []
        evicted = self._reduced(listed)
        if evicted is not None:
            choices.append(Going(evicted))
        able = self._sleepers([*listed, *stay], useful)
        first, last = self._together(able), self._together(able[::-1])
        # Hosts may have no room for all of them: then the first ones decide which are left out.
        for asleep in (first,) if set(_uids(first)) == set(_uids(last)) else (first, last):
            choices += self._while_asleep(asleep, listed, able)
        return self._complete(listed, able, min(choices, key=self.weight, default=None))

    def _while_asleep(
        self, asleep: list[Candidate], listed: list[Candidate], able: list[Candidate]
    ) -> Iterator[Going]:
        """The cheapest to be evicted while these are suspended, with the suspensions that are needed then.

        No gang is both. Where the cheapest was, it is tried as the one and as the other.
        """
        evicted = self._cheapest_while_asleep(asleep, listed)
        if evicted is None:
            return
        both = {str(pod.gang) for pod in evicted} & {one.key for one in asleep}
        mixed = self._mixed(evicted, able)
        if mixed is not None:
            yield mixed
        if not both:
            return
        for awake, others in ((both, set()), (set(), both)):
            further = self._cheapest_while_asleep(
                [one for one in asleep if one.key not in awake],
                [one for one in listed if one.key not in others],
            )
            mixed = self._mixed(further, able) if further is not None else None
            if mixed is not None:
                yield mixed

    def _cheapest_while_asleep(
        self, asleep: list[Candidate], listed: list[Candidate]
    ) -> tuple[Pod, ...] | None:
        """The cheapest to be evicted while these are suspended."""
        uids = _uids(asleep)
        if not uids:
            return None
        undo = self._leave_queues(uids)
        try:
            with _slept(self._trial, uids):
                return self._reduced(listed)
        finally:
            undo()

    def _together(self, able: list[Candidate]) -> list[Candidate]:
        """As many as may be suspended at once, first ones first; of some only members above the minimum."""
        allowance = Allowance(self._trial, self._guarantees, self._host_free, self._excess())
        found = ((candidate, allowance.most_of(candidate)) for candidate in able)
        return [replace(candidate, pods=pods) for candidate, pods in found if pods]

    def _mixed(self, evicted: tuple[Pod, ...], able: list[Candidate]) -> Going | None:
        """These evictions, and the suspensions that are still needed then."""
        gangs = {pod.gang for pod in evicted}
        others = [one for one in able if one.key not in gangs]
        self._evicted = evicted
        with self._gone(pod.uid for pod in evicted):
            asleep = () if self.fits() else self._asleep_of(others)
        self._evicted = ()
        return Going(evicted, asleep) if asleep is not None else None

    def _asleep_of(self, able: list[Candidate]) -> tuple[Pod, ...] | None:
        """The cheapest of these that have to be suspended; None if all of them are not enough."""
        self._suspends = True
        try:
            found = self._reduced(able)
        finally:
            self._suspends = False
        best = self._complete([], able, Going(asleep=found) if found is not None else None)
        return best.asleep if best is not None else None

    def _useful_nodes(self) -> set[NodeName]:
        ledger = self._trial.ledger
        useful = np.zeros(len(ledger.names), np.bool_)
        for group in self._groups:
            useful |= group.mask
        return {name for name, row in ledger.rows.items() if useful[row]}

    def _reduced(self, listed: list[Candidate]) -> tuple[Pod, ...] | None:
        """The cheapest of several ways to give back what is not needed."""
        best: tuple[Price, tuple[Pod, ...]] | None = None
        # Not all gangs of a queue that gives back may go together: its small ones may do, or a large one.
        for able in (listed, listed[::-1]) if self._hunt.cause is Cause.RECLAIM else (listed,):
            for found in Reduction(self, able).run(self._orders(able)) if able else ():
                priced = (self.price(found), found)
                best = min(best, priced, key=lambda entry: entry[0]) if best is not None else priced
        return best[1] if best is not None else None

    def _complete(self, listed: list[Candidate], able: list[Candidate], best: Going | None) -> Going | None:
        """The best of all choices, where they are few. ``listed`` may be evicted, ``able`` suspended."""
        options: dict[str, list[Going]] = {one.key: [Going()] for one in (*listed, *able)}
        if len(options) > _COMPLETE_GANGS and listed and able:
            return self._complete(listed, [], best)
        if not 0 < len(options) <= _COMPLETE_GANGS:
            return best
        for one in listed:
            ways = parts(one) if goes_in_part(one.view, self._hunt) else [one.pods]
            options[one.key] += [Going(evicted=pods) for pods in ways if pods]
        for one in able:
            options[one.key] += [Going(asleep=pods) for pods in parts(one) if pods]
        return Complete(self, [sorted(ways, key=self.weight) for ways in options.values()], best).run()

    def allowance(self) -> Allowance:
        """Whether the guarantees of the victims' queues hold, and hosts take those that are suspended."""
        settled = Allowance(self._trial, self._guarantees, excess=self._excess())
        settled.takes(self._evicted)
        return settled.suspending(self._host_free) if self._suspends else settled

    def _excess(self) -> Excess | None:
        return Excess(self._trial, self._hunt) if self._hunt.cause is Cause.RECLAIM else None

    def price(self, pods: Iterable[Pod]) -> Price:
        """The cost of a set of victims."""
        return self._price(self._trial, pods)

    def _orders(self, listed: list[Candidate]) -> Iterable[Callable[[Atom], tuple[float, ...]]]:
        """What is given back first: the dearest, the cheapest; of few, what frees least for its cost."""
        yield lambda atom: (-atom.cards,)
        yield lambda atom: (atom.cards,)
        if len(listed) <= _WEIGHED:
            yield lambda atom: (-atom.cards / (1 + self._gain(atom)), -atom.cards)
            yield lambda atom: (self._gain(atom), -atom.cards)

    def _gain(self, atom: Atom) -> int:
        """How many more places there are once the atom alone is gone. Several orders ask for it."""
        mark = (self._trial.ledger.signature, self._suspends, tuple(pod.uid for pod in atom.pods))
        known = self._gains.get(mark)
        if known is None:
            known = self._gains[mark] = self._more_places(atom)
        return known

    def _more_places(self, atom: Atom) -> int:
        ledger = self._trial.ledger
        rows = np.array(
            sorted({ledger.rows[pod.node] for pod in atom.pods if pod.node in ledger.rows}), np.int64
        )
        if not len(rows):
            return 0
        before = self._places(rows)
        undo = self.take(pod.uid for pod in atom.pods)
        after = self._places(rows)
        undo()
        return after - before

    def _places(self, rows: Ints) -> int:
        return sum(self._places_of(group, rows) for group in self._groups)

    def _places_of(self, group: Group, rows: Ints) -> int:
        return int(rooms(self._trial.ledger, group.need, rows[group.mask[rows]])[0].sum())
