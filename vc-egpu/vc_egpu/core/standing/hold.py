"""What is held for somebody: plans in force, and the cards of failed members of running gangs.

A plan in force is looked at again in every decision, since the world goes on while its victims leave:
it is turned ready once they are gone, and withdrawn if it cannot hold any more or is not needed any more.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.cluster import (
    Instant,
    Pod,
    PodPhase,
    PodUid,
    ShareClass,
    Snapshot,
    SuspensionState,
    plan_key,
)
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.plan import Eviction, Readiness, Suspension, Withdrawal
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.placing import place
from vc_egpu.core.queues import caps
from vc_egpu.core.room import victims
from vc_egpu.core.standing.replaced import overlap, places_left
from vc_egpu.core.trial import recheck, silent_nodes
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Seated, Trial
from vc_egpu.core.waiting import ready, say

_FINISHED = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
_LEAVING = frozenset({SuspensionState.SUSPENDING, SuspensionState.SUSPENDED})


# --- plans in force ------------------------------------------------------------------------------


def review(trial: Trial, record: Recorder) -> None:
    """Every plan in force: still waiting, ready now, being carried out, or void."""
    views = [trial.index.view(key) for key in sorted(trial.index.planned.bookings)]
    views = [view for view in views if view.planned]
    for view in views:
        going, dozing = victims_left(trial, view)
        trial.leaving.update(dict.fromkeys(going))
        trial.told_to_leave(dozing)
        # Those that have left their cards already stay away until the plan is carried out.
        if view.gang.plan is not None and (going or dozing):
            trial.suspending.update(dict.fromkeys(sorted(view.gang.plan.suspends)))
    calm = _calm_rows(trial, views)
    for view in views:
        plan = view.gang.plan
        carried_out = plan is not None and not plan.victims
        if carried_out and not _members_gone(trial, view) and _still(trial, view, calm):
            record.waits(view, _carried_out(view))
        else:
            _review_one(trial, record, view)


def _calm_rows(trial: Trial, views: list[GangView]) -> set[int]:
    """Rows that plans in force use and on which nothing is beyond its limits, those plans included."""
    bookings = trial.index.planned.bookings
    rows = sorted({booking.row for view in views for booking in bookings[view.gang.key].values()})
    if not rows:
        return set()
    used = np.array(rows, np.int64)
    return set(used[trial.ledger.within_limits(used)].tolist())


def _still(trial: Trial, view: GangView, calm: set[int]) -> bool:
    """Whether a ready plan certainly holds: its nodes are open to it, and nothing is over its limits.

    The quick way for the many plans that are being carried out; the careful one is :func:`_void`.
    """
    index, key = trial.index, view.gang.key
    plan_id = view.gang.plan.plan_id if view.gang.plan is not None else ""
    bookings = index.planned.bookings[key]
    known, generation = index.reviewed.get(key, ("", -1))
    for entry in view.planned:
        node = entry.placement.node
        if node is None:
            continue
        booking = bookings.get(entry.key)
        if booking is None or booking.row not in calm:
            return False
        fresh = known == plan_id and index.node_changes.get(node, 0) <= generation
        if not fresh and recheck.why_closed(trial, view, entry):
            return False
    index.reviewed[key] = (plan_id, index.generation)
    return True


def victims_left(trial: Trial, view: GangView) -> tuple[list[PodUid], list[PodUid]]:
    """Victims of the gang's plan whose cards are still their own: to be evicted, and to be suspended."""
    plan = view.gang.plan
    if plan is None:
        return [], []
    left = [uid for uid in sorted(plan.victims) if not _gone(trial, uid, suspends=uid in plan.suspends)]
    return [uid for uid in left if uid not in plan.suspends], [uid for uid in left if uid in plan.suspends]


def _gone(trial: Trial, uid: PodUid, *, suspends: bool) -> bool:
    pod = trial.index.pods.get(uid)
    if pod is not None:
        return pod.phase in _FINISHED or (suspends and pod.asleep)
    return not silent_nodes.still_held(trial.index, uid)


def _review_one(trial: Trial, record: Recorder, view: GangView) -> None:
    plan = view.gang.plan
    if plan is None:
        return
    going, dozing = victims_left(trial, view)
    why = _void(trial, view, going, dozing)
    if why:
        verdict = Verdict(Reason.WAITING_FOR_CARDS, f"its place is given up: {why}", {"plan": plan.plan_id})
        record.withdraws(Withdrawal(view.gang.key, plan.plan_id, why), verdict)
    elif not plan.victims:
        record.waits(view, _carried_out(view))
    elif not dozing and _are_in_nobodys_way(trial, view, going):
        verdict = say.admitted(len(view.planned), len(view.waiting), tried=False)
        record.turns_ready(Readiness(view.gang.key, plan.plan_id), verdict)
    else:
        record.waits(
            view,
            makes_room(
                trial, victims.grouped(trial, going, plan.cause), victims.suspended(trial, dozing, plan.cause)
            ),
        )


def _are_in_nobodys_way(trial: Trial, view: GangView, going: Sequence[PodUid]) -> bool:
    """Whether all members have their places beside the victims that are not gone yet.

    A gang goes whole, and on nodes that this plan has nothing to do with some take longer, or for ever where
    the kubelet is silent. All were told: what is ready has no victims that anybody would still delete.
    """
    if any((pod := trial.index.pods.get(uid)) and pod.phase is not PodPhase.TERMINATING for uid in going):
        return False
    if not going:
        return True  # looked at already
    with _off_the_ledger(trial, view):
        return not _no_room(trial, view)


@contextmanager
def _off_the_ledger(trial: Trial, view: GangView) -> Iterator[None]:
    """While a plan's own bookings are not counted."""
    known = trial.index.planned.bookings[view.gang.key]
    own = [booking for entry in view.planned if (booking := known.get(entry.key)) is not None]
    for booking in own:
        trial.ledger.remove(booking)
    try:
        yield
    finally:
        for booking in own:
            trial.ledger.add(booking)


def makes_room(trial: Trial, evictions: Sequence[Eviction], suspensions: Sequence[Suspension]) -> Verdict:
    """What is said of a gang that waits until these are gone, or suspended."""
    left: tuple[Eviction | Suspension, ...] = (*evictions, *suspensions)
    return say.making_room(evictions, suspensions, victims.cards_held(trial, left))


def _carried_out(view: GangView) -> Verdict:
    """The gates of a plan fall: the same words as when it was made, but for who is not in it."""
    plan_id = view.gang.plan.plan_id if view.gang.plan is not None else ""
    there = sum(pod.plan_id != plan_id for pod in (*view.placed, *view.succeeded))
    return say.admitted(len(view.planned) + view.carried, len(view.waiting), there, tried=False)


def _void(trial: Trial, view: GangView, going: list[PodUid], dozing: list[PodUid]) -> str:
    """Why the plan does not hold any more; empty if it does."""
    why = _members_gone(trial, view)
    plan = view.gang.plan
    if why or plan is None:
        return why
    if plan.victims and (going or dozing):
        why = _not_allowed(trial, view) or _cannot_sleep(trial, dozing)
        if why:
            return why
    with _off_the_ledger(trial, view):
        slept = trial.sleep(dozing)
        lifted = trial.lift(going)
        try:
            why = _no_room(trial, view)
        finally:
            trial.put_back(lifted)
            trial.wake(slept)
        if not why and (going or dozing) and _untouched(trial, plan.victims) and _fits_elsewhere(trial, view):
            how = "evicting" if plan.victims - plan.suspends else "suspending"
            why = f"it fits without {how} anybody now"
    return why


def _members_gone(trial: Trial, view: GangView) -> str:
    absent = [entry for entry in view.planned if entry.member is None]
    plan = view.gang.plan
    if plan is None:
        return ""
    if not absent:
        # A replacement's plan names only itself; another member may have gone before it was carried out.
        short = not view.carried and view.present < view.gang.min_member
        return f"{view.present} of {view.gang.min_member} members are there" if short else ""
    recent = _lately(trial, plan.created) or _being_made(trial, view)
    enough = view.present - len(absent) >= view.gang.min_member
    if recent and (view.carried or view.gang.template or enough):
        return ""  # its replacement, or its first pod, is on its way
    # The others cannot go on without: no gate falls before each planned member has its pod.
    return f"{len(absent)} of its planned members are gone"


def _being_made(trial: Trial, view: GangView) -> bool:
    """Whether a gang that was planned from its template gets its pods now: victims may have taken long."""
    pods = (trial.index.pods[uid] for uid in trial.index.pods_of.get(view.gang.key, ()))
    return bool(view.gang.template) and any(_lately(trial, pod.created) for pod in pods)


def _not_allowed(trial: Trial, view: GangView) -> str:
    shut = ready.which_closed(trial, view.gang.queue)
    if shut is not None:
        return f"the queue {shut} is closed"
    members = [entry.member for entry in view.planned if entry.member is not None]
    ask = trial.amounts_of(members)
    # The plan itself is counted in the queue's use already.
    trial.charge(view.gang.queue, ask, -1)
    limit = caps.check(trial, view.gang.queue, ask, unnamed_unlimited=trial.policy.unnamed_model_unlimited)
    trial.charge(view.gang.queue, ask)
    return (
        f"the cap on {limit.resource} of the queue {limit.queue} is {limit.cap} now"
        if limit is not None
        else ""
    )


def _untouched(trial: Trial, victims: Iterable[PodUid]) -> bool:
    pods = [trial.index.pods.get(uid) for uid in victims]
    return all(pod is not None and pod.phase is PodPhase.PLACED and not pod.suspend_ordered for pod in pods)


def _cannot_sleep(trial: Trial, dozing: Iterable[PodUid]) -> str:
    """Why a victim will not leave its cards: it was able to when the plan was made, and is not any more."""
    for uid in dozing:
        pod = trial.index.pods.get(uid)
        if pod is None or pod.phase is not PodPhase.PLACED or pod.suspend_ordered:
            continue
        if pod.suspension in _LEAVING:
            continue  # its node's answer was heard before the order on it was seen: these are two watches
        if not victims.may_be_suspended(trial, pod):
            return f"pod {pod.namespace}/{pod.name} cannot be suspended now"
    return ""


def _fits_elsewhere(trial: Trial, view: GangView) -> bool:
    members = [entry.member for entry in view.planned if entry.member is not None]
    with _kept_for_others(trial, view):
        seated = place.place(trial, view, members, effort=0)
        if seated is None:
            return False
        trial.unseat(seated)
    return True


def _no_room(trial: Trial, view: GangView) -> str:
    """Why some planned member cannot have its place; its own bookings and its victims are off the ledger."""
    seated: list[Booking] = []
    try:
        for entry in view.planned:
            why = recheck.why_not(trial, view, entry)
            if why:
                return why
            booking = recheck.booking_of(trial, view, entry)
            if booking is not None:
                trial.ledger.add(booking)
                seated.append(booking)
    finally:
        for booking in seated:
            trial.ledger.remove(booking)
    return ""


# --- cards of failed members ---------------------------------------------------------------------


@dataclass(slots=True)
class Kept:
    """The cards that one running gang keeps for replacements."""

    failed: list[tuple[Pod, Booking]] = field(default_factory=list)

    def replaced_by(self, seated: Iterable[Seated]) -> None:
        """Each placed member ends the keeping of one failed member's cards: those that it took, of its task,
        else its own predecessor's."""
        for entry in seated:
            if not self.failed:
                return
            task = [pair for pair in self.failed if pair[0].task == entry.member.task]
            there = [pair for pair in task if overlap(pair[1], entry.booking)]
            same = [pair for pair in task if plan_key(pair[0]) == entry.member.key]
            self.failed.remove((there or same or task or self.failed)[0])


def find_kept(trial: Trial, snapshot: Snapshot) -> None:
    """Find the cards of members that failed a short while ago: :func:`book_kept` keeps them from others."""
    gone = [pod for pod in snapshot.kept.values() if pod.uid not in trial.index.pods]
    failed = [trial.index.pods[uid] for uid in trial.index.notable.failed]
    # Jobs that ended leave failed members behind for days: of most gangs none failed lately.
    by_gang: dict[str, list[Pod]] = {
        pod.gang: []
        for pod in (*gone, *failed)
        if pod.gang is not None and _lately(trial, pod.finished) and pod.gang in trial.index.gangs
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
        lately = [pod for pod in pods if _lately(trial, pod.finished)]
        for pod in places_left(view, _unreplaced(view, pods), lately):
            if pod.node is None or not pod.shares or not _lately(trial, pod.finished):
                continue
            if pod.gone_by is not None and not view.missing:
                continue  # told to go from a gang that lacks nobody: scaled down, or another revision comes
            shares = [share for _, share in pod.shares]
            booking = trial.ledger.booking(pod.node, pod.shape, shares, view.gang.share_class)
            if booking is not None:
                trial.kept.setdefault(key, []).append((pod, booking))


def book_kept(trial: Trial) -> None:
    """From now on what was found is kept."""
    for pairs in trial.kept.values():
        for _, booking in pairs:
            trial.ledger.add(booking)


@contextmanager
def _kept_for_others(trial: Trial, view: GangView) -> Iterator[None]:
    """While plans are reviewed nothing is kept, except here: this gang may not have the cards either."""
    bookings = [b for key, pairs in trial.kept.items() if key != view.gang.key for _, b in pairs]
    for booking in bookings:
        trial.ledger.add(booking)
    try:
        yield
    finally:
        for booking in bookings:
            trial.ledger.remove(booking)


def _lately(trial: Trial, at: Instant | None) -> bool:
    """Whether that is a short while ago; another clock may be ahead of ours by a little, not by hours."""
    if at is None:
        return False
    return -CLOCK_SKEW_S <= trial.now - at <= trial.policy.replacement_hold_s


def _lacks_any(view: GangView) -> bool:
    if view.gang.share_class is ShareClass.LOW and not view.missing:
        return False  # surplus of low priority: it may have been evicted, and would be again
    return view.runs


def _unreplaced(view: GangView, failed: list[Pod]) -> list[Pod]:
    """Failed members in whose place nobody is yet. ``failed``: all there are, of whatever age.

    A member with a name of its own is replaced under that name. Others have their UID for a name: each pod
    that came after one of them failed, and has been on its way since, stands for one of them.
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


@contextmanager
def released(trial: Trial, view: GangView) -> Iterator[Kept]:
    """While the gang itself is placed, what is kept for it is free; afterwards what is still kept is not."""
    kept = Kept(trial.kept.pop(view.gang.key, []))
    for _, booking in kept.failed:
        trial.ledger.remove(booking)
    yield kept
    for _, booking in kept.failed:
        trial.ledger.add(booking)
    if kept.failed:
        trial.kept[view.gang.key] = kept.failed
