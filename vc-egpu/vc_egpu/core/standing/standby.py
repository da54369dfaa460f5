"""Room kept for suspended gangs: who has waited long is not overtaken for ever by a stream of newcomers.

On each card of such a gang newcomers of low or no priority leave what it needs, beside themselves and
everybody else of their kind, for the moment in which those of high priority are gone. So what is kept is its
need less what high-priority shares hold there now: what they give back is not given away again. High-priority
gangs take no notice. Of two gangs on one card the one suspended first keeps room.
"""

from collections.abc import Sequence
from dataclasses import replace

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.cluster import NodeName, Pod, PodUid, ShareClass
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.trial.trial import Kept, Trial

_Place = tuple[int, int]
"""Row and column of a card."""


def keep(trial: Trial, away: Sequence[tuple[str, Sequence[Pod]]]) -> None:
    """Book it; ``away``: suspended gangs that want to come back and cannot yet, the oldest first."""
    claimed: set[_Place] = set()
    for gang, pods in away:
        asleep = [pod for pod in pods if pod.asleep and pod.node in trial.ledger.rows]
        if not asleep:
            continue
        away_s = trial.now - min(pod.suspended_since for pod in asleep)
        # Who left far in the future was told so by a clock that was wrong: nobody knows for how long.
        if -CLOCK_SKEW_S <= away_s < trial.policy.suspended_hold_s:
            continue
        awake = _awake(trial, asleep)
        places = {(booking.row, seat.col) for booking in awake.values() for seat in booking.seats}
        if places & claimed:
            continue
        claimed |= places
        trial.kept_back.append(_book(trial, gang, awake, _high(trial, asleep)))


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
    nodes: dict[NodeName, None] = dict.fromkeys(pod.node for pod in pods if pod.node is not None)
    for uid in (uid for node in nodes for uid in trial.index.pods_on.get(node, ())):
        booking = trial.booked(uid)
        if booking is None or trial.index.class_of(trial.index.pods[uid]) is not ShareClass.HIGH:
            continue
        for seat in booking.seats:
            memory_mib, physical_mib = held.get((booking.row, seat.col), (0, 0))
            held[booking.row, seat.col] = (memory_mib + seat.memory_mib, physical_mib + seat.physical_mib)
    return held


def _book(trial: Trial, gang: str, awake: dict[PodUid, Booking], high: dict[_Place, tuple[int, int]]) -> Kept:
    """Have its sleeping seats take what is kept. They stay asleep, nobody's neighbours."""
    asleep, cards, kept_mib, kept_cores = [], set(), 0, 0
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
            cards.add(place)
            kept_mib += seat.memory_mib - less
            kept_cores += seat.low
        asleep.append((uid, before))
        trial.rebook(uid, replace(before, seats=tuple(seats)))
    return Kept(gang, len(cards), kept_mib, kept_cores, tuple(asleep))
