"""Plans in force: every decision looks at each of them again.

The world goes on while the victims of a plan leave. The plan turns ready once they are gone. It is withdrawn
when it cannot hold any more, or is not needed any more.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.causes import Account
from vc_egpu.core.model.cluster import PodPhase, PodUid, Snapshot, SuspensionState
from vc_egpu.core.model.findings import GivenUp, Placed
from vc_egpu.core.model.gangs import OVER, GangView, short_of, task_of
from vc_egpu.core.model.plan import Eviction, Readiness, Suspension, Withdrawal
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.placing import place
from vc_egpu.core.queues import caps
from vc_egpu.core.room import victims
from vc_egpu.core.room.relief import quota_of
from vc_egpu.core.standing import lending, replacements
from vc_egpu.core.standing.replacements import lately
from vc_egpu.core.trial import recheck, silent_nodes
from vc_egpu.core.trial.claims import Claim
from vc_egpu.core.trial.levels import why_apart
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import diagnosis, ready, say

_LEAVING = frozenset({SuspensionState.SUSPENDING, SuspensionState.SUSPENDED})


def review(trial: Trial, record: Recorder, snapshot: Snapshot) -> None:
    """Every plan in force: still waiting, ready now, being carried out, or void.

    Plans come before replacements, whose claims are booked only once all plans have been looked at.
    """
    replacements.find(trial, snapshot)
    _review_plans(trial, record)
    replacements.book(trial)


def _review_plans(trial: Trial, record: Recorder) -> None:
    plans = trial.claims.plans()
    for view, _ in plans:
        going, dozing = victims_left(trial, view)
        trial.leaving.update(dict.fromkeys(going))
        trial.told_to_leave(dozing)
        # Those that have left their cards already stay away until the plan is carried out.
        if view.gang.plan is not None and (going or dozing):
            trial.suspending.update(dict.fromkeys(sorted(view.gang.plan.suspends)))
            trial.forgo(quota_of(trial, (*going, *dozing), view.gang.plan.relieves))
    calm = _calm_rows(trial, [claim for _, claim in plans])
    for view, claim in plans:
        plan = view.gang.plan
        carried_out = plan is not None and not plan.victims
        whole = not _members_gone(trial, view) and not why_apart(trial, view)
        if carried_out and whole and _still(trial, view, claim, calm):
            record.waits(view, _carried_out(view))
        else:
            _review_one(trial, record, view, claim)


def withdraw_needless(trial: Trial, record: Recorder) -> None:
    """Withdraw plans whose victims need not go any more, and that no victim was told of.

    After all that is kept for others is booked: what is not free for a gang in its turn is not free here.
    """
    for view, claim in trial.claims.plans():
        plan, key = view.gang.plan, view.gang.key
        if plan is None or record.reason(key) is not Reason.WAITING_FOR_EVICTION:
            continue
        left = [uid for part in victims_left(trial, view) for uid in part]
        if not left or not _untouched(trial, plan.victims):
            continue
        if _without_victims(trial, view, claim, left):
            why = f"it fits without {'an eviction' if plan.victims - plan.suspends else 'a suspension'} now"
            verdict = say.verdict(GivenUp(plan.plan_id, why))
            record.withdraws(Withdrawal(key, plan.plan_id, why), verdict)
            trial.keep_quota(left)


def _calm_rows(trial: Trial, claims: list[Claim]) -> set[int]:
    """Rows that plans in force use and on which nothing is beyond its limits, those plans included."""
    rows = sorted({booking.row for claim in claims for booking in claim.bookings.values()})
    if not rows:
        return set()
    used = np.array(rows, np.int64)
    return set(used[trial.ledger.within_limits(used)].tolist())


def _still(trial: Trial, view: GangView, claim: Claim, calm: set[int]) -> bool:
    """Whether a ready plan certainly holds: its nodes are open to it, and nothing is over its limits.

    The quick way for the many plans that are being carried out; the careful one is :func:`_void`.
    """
    index, key = trial.index, view.gang.key
    plan_id = view.gang.plan.plan_id if view.gang.plan is not None else ""
    known, generation = index.reviewed.get(key, ("", -1))
    for entry in view.planned:
        node = entry.placement.node
        if node is None:
            continue
        booking = claim.bookings.get(entry.key)
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
        return pod.phase in OVER or (suspends and pod.asleep)
    return not silent_nodes.still_held(trial.index, uid)


def _review_one(trial: Trial, record: Recorder, view: GangView, claim: Claim) -> None:
    plan = view.gang.plan
    if plan is None:
        return
    going, dozing = victims_left(trial, view)
    why = _void(trial, view, claim, going, dozing)
    if why:
        verdict = say.verdict(GivenUp(plan.plan_id, why))
        record.withdraws(Withdrawal(view.gang.key, plan.plan_id, why), verdict)
        trial.keep_quota((*going, *dozing))
    elif not plan.victims:
        record.waits(view, _carried_out(view))
    elif not dozing and _leave_room(trial, view, claim, going):
        verdict = say.verdict(Placed(len(view.planned), len(view.waiting), tried=False, rule=plan.rule))
        record.turns_ready(Readiness(view.gang.key, plan.plan_id), verdict)
    else:
        record.waits(
            view,
            makes_room(
                trial,
                victims.grouped(trial, going, plan.cause),
                victims.suspended(trial, dozing, plan.cause),
                plan.accounts,
            ),
        )


def _leave_room(trial: Trial, view: GangView, claim: Claim, going: Sequence[PodUid]) -> bool:
    """Whether all members have their places although some victims are not gone yet.

    A gang goes whole. On nodes that have nothing to do with this plan some of its pods take longer, or for
    ever where the kubelet is silent. All victims must have been told: a ready plan has none left to delete.
    """
    if any((pod := trial.index.pods.get(uid)) and pod.phase is not PodPhase.TERMINATING for uid in going):
        return False
    if not going:
        return True  # looked at already
    with trial.without((claim,)):
        return not _no_room(trial, view)


def makes_room(
    trial: Trial,
    evictions: Sequence[Eviction],
    suspensions: Sequence[Suspension],
    accounts: Sequence[Account] = (),
) -> Verdict:
    """What is said of a gang that waits until these are gone, or suspended."""
    left: tuple[Eviction | Suspension, ...] = (*evictions, *suspensions)
    found = diagnosis.making_room(evictions, suspensions, victims.cards_held(trial, left), accounts)
    return say.verdict(found)


def _carried_out(view: GangView) -> Verdict:
    """The gates of a plan fall: the same words as when it was made, but for who is not in it."""
    plan = view.gang.plan
    plan_id, rule = (plan.plan_id, plan.rule) if plan is not None else ("", "")
    there = sum(pod.plan_id != plan_id for pod in (*view.placed, *view.succeeded))
    placed = len(view.planned) + view.carried
    return say.verdict(Placed(placed, len(view.waiting), there, tried=False, rule=rule))


def _void(trial: Trial, view: GangView, claim: Claim, going: list[PodUid], dozing: list[PodUid]) -> str:
    """Why the plan does not hold any more; empty if it does."""
    why = _members_gone(trial, view) or why_apart(trial, view)
    plan = view.gang.plan
    if why or plan is None:
        return why
    if plan.victims and (going or dozing):
        why = _not_allowed(trial, view) or _cannot_sleep(trial, dozing)
        if why:
            return why
    with trial.without((claim,)):
        slept = trial.sleep(dozing)
        lifted = trial.lift(going)
        try:
            why = _no_room(trial, view)
        finally:
            trial.put_back(lifted)
            trial.wake(slept)
    return why


def _members_gone(trial: Trial, view: GangView) -> str:
    absent = [entry for entry in view.planned if entry.member is None]
    plan = view.gang.plan
    if plan is None:
        return ""
    if not absent:
        # A replacement's plan names only itself; another member may have gone before it was carried out.
        short = None if view.carried else short_of(view.gang, view.present_tasks())
        whose = f" of task {short.task}" if short is not None and short.task else ""
        return f"{short.have} of {short.wanted} members{whose} are there" if short is not None else ""
    recent = lately(trial, plan.created) or _being_made(trial, view)
    tasks = Counter(view.present_tasks()) - Counter(task_of(entry.key) for entry in absent)
    enough = short_of(view.gang, tasks.elements()) is None
    if recent and (view.carried or view.gang.template or enough):
        return ""  # its replacement, or its first pod, is on its way
    # The others cannot go on without: no gate falls before each planned member has its pod.
    return f"{len(absent)} of its planned members are gone"


def _being_made(trial: Trial, view: GangView) -> bool:
    """Whether a gang that was planned from its template gets its pods now: victims may have taken long."""
    pods = (trial.index.pods[uid] for uid in trial.index.pods_of.get(view.gang.key, ()))
    return bool(view.gang.template) and any(lately(trial, pod.created) for pod in pods)


def _not_allowed(trial: Trial, view: GangView) -> str:
    shut = ready.which_closed(trial, view.gang.queue)
    if shut is not None:
        return f"the queue {shut} is closed"
    members = [entry.member for entry in view.planned if entry.member is not None]
    ask = trial.amounts_of(members, view.gang.share_class)
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


def _fits_elsewhere(trial: Trial, view: GangView, claim: Claim) -> bool:
    """Whether its members find places now, with no more free for them than a gang finds in its turn."""
    members = [entry.member for entry in view.planned if entry.member is not None]
    with lending.aside(trial, view), replacements.released(trial, view), trial.without((claim,)):
        seated = place.place(trial, view, members, effort=0)
        if seated is None:
            return False
        trial.unseat(seated)
    return True


def _without_victims(trial: Trial, view: GangView, claim: Claim, going: Sequence[PodUid]) -> bool:
    """Whether the gang needs none of its victims: its caps allow it with them, and it fits next to them."""
    trial.keep_quota(going)
    try:
        return not _not_allowed(trial, view) and _fits_elsewhere(trial, view, claim)
    finally:
        plan = view.gang.plan
        trial.forgo(quota_of(trial, going, plan.relieves if plan is not None else None))


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
