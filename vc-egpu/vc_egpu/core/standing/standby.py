"""Standby: room claimed for suspended gangs, so that newcomers do not overtake them without end.

A gang that has been suspended for long claims what it needs on its cards, less what high-priority shares take
there. These are shares that run and shares of plans in force. Newcomers of low or no priority leave that much
free, and what the high ones give back later is not given away again. High-priority gangs take no notice. If
two gangs were on one card, the one suspended first has the claim.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.cluster import Instant, NodeName, Pod, PodUid, ShareClass
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.trial import Trial

_Place = tuple[int, int]
"""Row and column of a card."""


def claim(trial: Trial, away: Sequence[tuple[str, Sequence[Pod]]]) -> None:
    """Make and book the claims. ``away``: suspended gangs that cannot come back yet, the oldest first."""
    claimed: set[_Place] = set()
    for gang, pods in away:
        asleep = [pod for pod in pods if pod.asleep and pod.node in trial.ledger.rows]
        if not asleep:
            continue
        since = min(pod.suspended_since for pod in asleep)
        # An order from far in the future was dated by a wrong clock: how old it is cannot be known.
        if -CLOCK_SKEW_S <= trial.now - since < trial.policy.suspended_hold_s:
            continue
        awake = _awake(trial, asleep)
        places = {(booking.row, seat.col) for booking in awake.values() for seat in booking.seats}
        if places & claimed:
            continue
        claimed |= places
        made = _claim(trial, gang, awake, _high(trial, asleep), since)
        trial.claims.add(made)
        trial.book(made)


def _awake(trial: Trial, pods: Sequence[Pod]) -> dict[PodUid, Booking]:
    """What they take once they run again."""
    found = {}
    for pod in pods:
        booking = trial.awake(pod)
        if booking is not None and trial.booked(pod.uid) is not None:
            found[pod.uid] = booking
    return found


def _high(trial: Trial, pods: Sequence[Pod]) -> dict[_Place, tuple[int, int]]:
    """By card of these pods' nodes: memory that high-priority shares hold, in all and on the card itself."""
    held: dict[_Place, tuple[int, int]] = {}
    for booking in _high_bookings(trial, dict.fromkeys(pod.node for pod in pods if pod.node is not None)):
        for seat in booking.seats:
            memory_mib, physical_mib = held.get((booking.row, seat.col), (0, 0))
            held[booking.row, seat.col] = (memory_mib + seat.memory_mib, physical_mib + seat.physical_mib)
    return held


def _high_bookings(trial: Trial, nodes: Iterable[NodeName]) -> Iterator[Booking]:
    """What is booked on these nodes with high priority, for pods and for what is planned."""
    index = trial.index
    for node in nodes:
        for uid in index.pods_on.get(node, ()):
            booking = trial.booked(uid)
            if booking is not None and index.class_of(index.pods[uid]) is ShareClass.HIGH:
                yield booking
        for gang, booking in index.planned.on(node):
            if index.gangs[gang].share_class is ShareClass.HIGH:
                yield booking


def _claim(
    trial: Trial,
    gang: str,
    awake: dict[PodUid, Booking],
    high: dict[_Place, tuple[int, int]],
    since: Instant,
) -> Claim:
    """Its sleeping seats take what is claimed. They stay asleep, and so no neighbours of anyone."""
    bookings: dict[str, Booking] = {}
    instead_of: dict[PodUid, Booking] = {}
    for uid, booking in awake.items():
        before = trial.booked(uid)
        if before is None:
            continue
        seats = []
        for sleeping, seat in zip(before.seats, booking.seats, strict=True):
            place = (booking.row, seat.col)
            memory_mib, physical_mib = high.get(place, (0, 0))
            less, less_physical = min(memory_mib, seat.memory_mib), min(physical_mib, seat.physical_mib)
            high[place] = (memory_mib - less, physical_mib - less_physical)
            seats.append(
                sleeping._replace(
                    memory_mib=seat.memory_mib - less,
                    physical_mib=seat.physical_mib - less_physical,
                    low=seat.low,
                )
            )
        bookings[uid] = replace(before, seats=tuple(seats))
        instead_of[uid] = before
    return Claim(gang, ClaimKind.STANDBY, bookings, since, ShareClass.HIGH, instead_of=instead_of)
