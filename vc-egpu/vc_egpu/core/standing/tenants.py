"""What is on the cards that a gang waits for: what goes together, and when that is known to be gone."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vc_egpu.core.books.booking import Booking, Seat
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model.cluster import Instant, Pod, PodPhase
from vc_egpu.core.trial import recheck
from vc_egpu.core.trial.trial import Trial

Order = tuple[Instant, bool, int, Instant, str]


@dataclass(frozen=True, slots=True)
class Tenant:
    """What leaves its cards together: the members of a gang that run, or are on their way; or one pod."""

    gang: str
    bookings: tuple[Booking, ...]
    end: Instant
    """When it is known to have left; infinite: that is not known."""
    order: Order
    """The first to leave come first."""

    @property
    def cards(self) -> int:
        """How many cards it holds."""
        return len({(booking.row, seat.col) for booking in self.bookings for seat in booking.seats})

    def is_on(self, cards: Collection[tuple[int, int]]) -> bool:
        """Whether it holds one of these, by row and column."""
        return any((booking.row, seat.col) in cards for booking in self.bookings for seat in booking.seats)


@dataclass(slots=True)
class _Found:
    """One tenant, while its parts are collected."""

    gang: str
    serves: bool
    """It does not end: a service, or a pod of nobody's gang."""
    bookings: list[Booking]
    end: Instant = -math.inf
    began: Instant = math.inf

    def enter(self, bookings: Iterable[Booking], end: Instant, began: Instant) -> None:
        """One more part of it."""
        self.bookings += bookings
        self.end, self.began = max(self.end, end), min(self.began, began)


def tenants(trial: Trial, rows: Collection[int]) -> list[Tenant]:
    """All that hold cards on these nodes, or will by a plan: those first that are expected to leave first.

    Among those whose end is not known the ones on the emptiest nodes come first, then those that began first.
    Services come last: they do not end.
    """
    found: dict[str, _Found] = {}
    for row in sorted(rows):
        name = trial.ledger.names[row]
        if name is None:
            continue
        for uid in trial.index.pods_on.get(name, ()):
            pod = trial.index.pods[uid]
            if pod.shares and pod.gang is not None:
                entry = _entry(trial, found, pod.gang, str(uid))
                began = pod.started if pod.started is not None else trial.now
                entry.enter(trial.bookings_of((uid,)), _end(trial, pod), began)
        for gang, booking in trial.index.planned.on(name):
            if booking.seats:
                span_s = _planned_s(trial, gang)
                end = trial.now + span_s if span_s is not None else math.inf
                _entry(trial, found, gang, f"{gang} planned").enter([booking], end, trial.now)
    busy: Ints = (trial.ledger.sharers > 0).sum(axis=1)
    return sorted((_tenant(name, entry, busy) for name, entry in found.items()), key=lambda t: t.order)


def _entry(trial: Trial, found: dict[str, _Found], key: str, name: str) -> _Found:
    """``name``: of the part by itself. All of a gang leaves together, replicas do not."""
    gang = trial.index.gangs.get(key)
    alone = gang is None or gang.single
    return found.setdefault(name if alone else key, _Found(key, alone, []))


def _tenant(name: str, entry: _Found, busy: Ints) -> Tenant:
    fullest = max((int(busy[booking.row]) for booking in entry.bookings), default=0)
    order = (entry.end, entry.serves, fullest, entry.began, name)
    return Tenant(entry.gang, tuple(entry.bookings), entry.end, order)


def _end(trial: Trial, pod: Pod) -> Instant:
    if pod.phase is PodPhase.TERMINATING or pod.uid in trial.leaving or pod.uid in trial.suspending:
        return trial.now
    if pod.shape.runtime_s is None:
        return math.inf
    end = (pod.started if pod.started is not None else trial.now) + pod.shape.runtime_s
    return end if end >= trial.now else math.inf  # it should be over by now: nobody knows when it will be


def _planned_s(trial: Trial, gang: str) -> float | None:
    """How long the members of its plan run at most."""
    members = [entry.member for entry in trial.index.view(gang).planned]
    spans = [member.shape.runtime_s if member is not None else None for member in members]
    return max((span for span in spans if span is not None), default=None) if None not in spans else None


@dataclass(frozen=True, slots=True)
class Wait:
    """What a gang waits for on the cards that it claims."""

    tenants: tuple[Tenant, ...]
    """Those that have to leave; none: the cards are free."""
    bookings: tuple[Booking, ...]
    """What the claim takes of what they leave alone, in the order of the bookings that were asked about."""

    @property
    def end(self) -> Instant:
        """When all of them are known to have left; infinite: that is not known."""
        return max((tenant.end for tenant in self.tenants), default=-math.inf)

    @property
    def cost(self) -> tuple[Instant, int]:
        """The smaller, the sooner the cards are free."""
        return self.end, sum(tenant.cards for tenant in self.tenants)

    @property
    def gangs(self) -> tuple[str, ...]:
        """Whose pods they are."""
        return tuple(sorted({tenant.gang for tenant in self.tenants}))


def wait_for(trial: Trial, bookings: Sequence[Booking]) -> Wait | None:
    """What has to leave until all of these fit, the soonest first; None where that would not be enough."""
    rows = {booking.row for booking in bookings}
    cards = {(booking.row, seat.col) for booking in bookings for seat in booking.seats}
    listed = tenants(trial, rows)
    listed.sort(key=lambda tenant: (not tenant.is_on(cards), tenant.order))
    for booking in bookings:
        trial.ledger.add(booking)
    gone: list[Tenant] = []
    try:
        with lifted(trial) as lift:
            for tenant in listed:
                if _hold(trial, bookings):
                    break
                lift.take(tenant)
                gone.append(tenant)
            if not _hold(trial, bookings):
                return None
            for tenant in gone[-2::-1]:  # the last one was needed
                lift.give_back(tenant)
                if _hold(trial, bookings):
                    gone.remove(tenant)
                else:
                    lift.take(tenant)
    finally:
        for booking in bookings:
            trial.ledger.remove(booking)
    return Wait(tuple(gone), _beyond(bookings, gone))


def _hold(trial: Trial, bookings: Iterable[Booking]) -> bool:
    ledger = trial.ledger
    return all(
        recheck.cards_hold(trial, booking)
        and bool((ledger.used[booking.row] <= ledger.cap[booking.row]).all())
        for booking in bookings
    )


class Lift:
    """Tenants that are off the ledger for a while."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._gone: dict[str, Tenant] = {}

    def take(self, tenant: Tenant) -> None:
        """Off the ledger."""
        self._gone[tenant.order[-1]] = tenant
        for booking in tenant.bookings:
            self._trial.ledger.remove(booking)

    def give_back(self, tenant: Tenant) -> None:
        """And on it again."""
        self._trial.put_back(self._gone.pop(tenant.order[-1]).bookings)

    def end(self) -> None:
        """All of them are back."""
        for tenant in self._gone.values():
            self._trial.put_back(tenant.bookings)
        self._gone.clear()


@contextmanager
def lifted(trial: Trial) -> Iterator[Lift]:
    """Tenants that are lifted meanwhile are back afterwards."""
    lift = Lift(trial)
    try:
        yield lift
    finally:
        lift.end()


# --- what a claim takes --------------------------------------------------------------------------


def _beyond(bookings: Iterable[Booking], gone: Iterable[Tenant]) -> tuple[Booking, ...]:
    """The bookings, less what those that have to leave give back: until then both are on the ledger."""
    seats: dict[tuple[int, int], list[int]] = {}
    requests: dict[int, list[int]] = {}
    for booking in (booking for tenant in gone for booking in tenant.bookings):
        requests[booking.row] = [
            a + b for a, b in zip(requests.get(booking.row, [0] * 4), booking.requests, strict=True)
        ]
        for seat in booking.seats:
            left = seats.setdefault((booking.row, seat.col), [0] * 5)
            amounts = (seat.memory_mib, seat.physical_mib, seat.cores_percent, seat.high, seat.low)
            seats[booking.row, seat.col] = [a + b for a, b in zip(left, amounts, strict=True)]
    rest = []
    for booking in bookings:
        taken = tuple(_less(seat, seats.get((booking.row, seat.col))) for seat in booking.seats)
        cpu, memory, ephemeral, pods = _take(requests.get(booking.row, [0] * 4), booking.requests)
        asked = cpu, memory, ephemeral, pods
        rest.append(replace(booking, seats=taken, requests=asked, ports=()))
    return tuple(rest)


def _less(seat: Seat, freed: list[int] | None) -> Seat:
    if freed is None:
        return seat
    amounts = (seat.memory_mib, seat.physical_mib, seat.cores_percent, seat.high, seat.low)
    memory_mib, physical_mib, cores, high, low = _take(freed, amounts)
    return seat._replace(
        memory_mib=memory_mib, physical_mib=physical_mib, cores_percent=cores, high=high, low=low
    )


def _take(freed: list[int], amounts: Sequence[int]) -> list[int]:
    """What is left of these amounts after what is freed, which is used up."""
    rest = []
    for at, amount in enumerate(amounts):
        used = min(freed[at], amount)
        freed[at] -= used
        rest.append(amount - used)
    return rest
