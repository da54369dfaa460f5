"""Replacements: a running gang keeps the cards of a member that failed a short while ago.

A replacement is placed where there is room, not where the member before it was. So as many places are claimed
as members are still to come, and each is a free one.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.cluster import CardId, Instant, Pod, ShareClass, Snapshot, plan_key
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.trial import Seated, Trial


def find(trial: Trial, snapshot: Snapshot) -> None:
    """Claim the cards of members that failed a short while ago. :func:`book` keeps them from others."""
    gone = [pod for pod in snapshot.kept.values() if pod.uid not in trial.index.pods]
    failed = [trial.index.pods[uid] for uid in trial.index.notable.failed]
    # Jobs that ended leave failed members behind for days: in most gangs none failed lately.
    by_gang: dict[str, list[Pod]] = {
        pod.gang: []
        for pod in (*gone, *failed)
        if pod.gang is not None and lately(trial, pod.finished) and pod.gang in trial.index.gangs
    }
    if not by_gang:
        return
    for pod in sorted((*gone, *failed), key=lambda pod: str(pod.uid)):
        if pod.gang in by_gang:
            by_gang[pod.gang].append(pod)
    for key, pods in by_gang.items():
        view = trial.index.view(key)
        if not _lacks_any(view):
            continue
        recent = [pod for pod in pods if lately(trial, pod.finished)]
        for pod in _places_left(view, _unreplaced(view, pods), recent):
            claim = _claim(trial, view, pod)
            if claim is not None:
                trial.claims.add(claim)


def book(trial: Trial) -> None:
    """From now on what was found is kept from others."""
    for claim in trial.claims.of(ClaimKind.REPLACEMENT):
        trial.book(claim)


@contextmanager
def released(trial: Trial, view: GangView) -> Iterator[list[Claim]]:
    """While a gang is placed, its own claims are free. Those left in the list are booked again afterwards."""
    own = trial.claims.take(ClaimKind.REPLACEMENT, view.gang.key)
    for claim in own:
        trial.unbook(claim)
    yield own
    for claim in own:
        trial.book(claim)
        trial.claims.add(claim)


def hand_over(own: list[Claim], seated: Iterable[Seated]) -> None:
    """Each placed member ends one claim of its gang.

    First one whose cards it took, of its task; else that of the member before it under its name.
    """
    for entry in seated:
        if not own:
            return
        task = [claim for claim in own if claim.task == entry.member.task]
        there = [claim for claim in task if any(_overlap(b, entry.booking) for b in claim.bookings.values())]
        same = [claim for claim in task if entry.member.key in claim.bookings]
        own.remove((there or same or task or own)[0])


def lately(trial: Trial, at: Instant | None) -> bool:
    """Whether that is a short while ago; another clock may be ahead of ours by a little, not by hours."""
    if at is None:
        return False
    return -CLOCK_SKEW_S <= trial.now - at <= trial.policy.replacement_hold_s


def _claim(trial: Trial, view: GangView, pod: Pod) -> Claim | None:
    if pod.node is None or not pod.shares or not lately(trial, pod.finished):
        return None
    if pod.gone_by is not None and not view.missing:
        return None  # told to go from a gang that lacks no member: scaled down, or another revision comes
    shares = [share for _, share in pod.shares]
    several = view.gang.is_of_several
    booking = trial.ledger.booking(pod.node, pod.shape, shares, view.gang.share_class, several=several)
    if booking is None:
        return None
    bookings = {plan_key(pod): booking}
    return Claim(view.gang.key, ClaimKind.REPLACEMENT, bookings, pod.finished or 0.0, task=pod.task)


def _lacks_any(view: GangView) -> bool:
    if view.gang.share_class is ShareClass.LOW and not view.missing:
        return False  # surplus of low priority: it may have been evicted, and would be again
    return view.runs


def _unreplaced(view: GangView, failed: list[Pod]) -> list[Pod]:
    """Failed members in whose place there is no other yet. ``failed``: all there are, of whatever age.

    A member with a name of its own is replaced under that name. Others have only their UID. For them each pod
    that came after one of them failed stands for one of them.
    """
    there = {plan_key(pod) for pod in view.placed} | {entry.key for entry in view.planned}
    found = [pod for pod in failed if _is_named(pod) and plan_key(pod) not in there]
    nameless = sorted((pod for pod in failed if not _is_named(pod)), key=lambda pod: pod.finished or 0.0)
    known = {pod.uid: pod for pod in (*view.placed, *view.terminating, *view.succeeded, *failed)}
    later = sorted(pod.created for pod in known.values())
    for pod in reversed(nameless):
        if later and later[-1] >= (pod.finished or 0.0):
            later.pop()
        else:
            found.append(pod)
    return sorted(found, key=lambda pod: str(pod.uid))


def _is_named(pod: Pod) -> bool:
    return plan_key(pod) != str(pod.uid)


# --- which places are left -----------------------------------------------------------------------


def _places_left(view: GangView, unreplaced: Sequence[Pod], recent: Iterable[Pod]) -> list[Pod]:
    """Whose places to claim for the replacements of ``unreplaced``. ``recent``: all that failed lately.

    Where a replacement took another member's place, the place of the member it stands for is free instead.
    """
    since = _taken_since(view)
    missing = {pod.uid for pod in unreplaced}
    free: dict[str, list[Pod]] = {}
    for pod in recent:
        if pod.uid not in missing and not _is_taken(pod, since):
            free.setdefault(pod.task, []).append(pod)
    places = []
    for pod in unreplaced:
        others = free.get(pod.task)
        places.append(others.pop() if others and _is_taken(pod, since) else pod)
    return places


def _overlap(one: Booking, other: Booking) -> bool:
    """Whether both have a seat on the same card."""
    return one.row == other.row and not {seat.col for seat in one.seats}.isdisjoint(
        seat.col for seat in other.seats
    )


def _taken_since(view: GangView) -> dict[CardId, Instant]:
    """By card, when the youngest of the gang's members on it was made; those of its plan are to come."""
    since: dict[CardId, Instant] = {}
    for pod in view.placed:
        for _, share in pod.shares:
            since[share.card] = max(pod.created, since.get(share.card, pod.created))
    for entry in view.planned:
        since.update((share.card, math.inf) for _, share in entry.placement.shares)
    return since


def _is_taken(failed: Pod, since: dict[CardId, Instant]) -> bool:
    """Whether a member that came after it failed is on one of its cards."""
    finished = failed.finished or 0.0
    return any(since.get(share.card, -math.inf) >= finished for _, share in failed.shares)
