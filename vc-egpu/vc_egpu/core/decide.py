"""The decision, step by step. Start here.

``decide`` looks at one snapshot and says what is to be done; it never does it, and it reads no clock.
"""

from collections.abc import Collection, Iterable

from vc_egpu.core import caps, hold, order, preempt, ready, say
from vc_egpu.core.caps import Limit
from vc_egpu.core.cluster import Instant, QueueName, ShareClass, Snapshot
from vc_egpu.core.gangs import GangView, Member
from vc_egpu.core.place import place, place_some
from vc_egpu.core.plan import Admission, Eviction, Plan
from vc_egpu.core.policy import Policy
from vc_egpu.core.reasons import Reason, Verdict
from vc_egpu.core.record import Recorder
from vc_egpu.core.state import index_of
from vc_egpu.core.trial import Seated, Trial


def decide(snapshot: Snapshot, policy: Policy, now: Instant, only: Collection[str] | None = None) -> Plan:
    """Decide, for every waiting gang, to admit it, to make room for it, or why it waits.

    Deterministic: equal arguments give equal plans. No gang is admitted in part. A low-priority pod is
    evicted only for a high-priority gang all of which fits once it is gone.

    ``only`` names the gangs to try; plans in force are looked at in any case. Gangs not named get no
    verdict.
    """
    trial = Trial(index_of(snapshot), policy, now)
    record = Recorder(snapshot.revision)
    hold.review(trial, record)  # plans in force: kept, turned ready, or withdrawn
    hold.keep_failed(trial, snapshot)  # cards of failed members wait for the replacements
    for view in order.turns(_waiting(trial, record, only), *_queues(trial)):  # 1. who asks first
        unready = ready.check(trial, view)
        if unready is not None:
            record.waits(view, unready)
            continue
        with hold.released(trial, view) as kept:
            outcome = _admit(trial, record, view)  # 2. to 5., below
            kept.replaced_by(outcome)
    return record.plan()  # 6. one verdict for every gang


def _waiting(trial: Trial, record: Recorder, only: Collection[str] | None) -> Iterable[GangView]:
    index = trial.index
    for key in index.gangs if only is None else only:
        if key in index.gangs and not record.decided(key):
            view = index.view(key)
            if ready.waits(view):
                yield view


def _queues(trial: Trial) -> tuple[order.PriorityOf, order.ShareOf]:
    def priority(name: QueueName) -> int:
        queue = trial.queues.get(name)
        return queue.priority if queue is not None else 0

    def share(name: QueueName) -> float:
        return caps.share(trial.queues.get(name), trial.use_of(name))

    return priority, share


def _admit(trial: Trial, record: Recorder, view: GangView) -> tuple[Seated, ...]:
    """Steps 2 to 5 for one gang: what its minimum lacks all at once, then the surplus one by one."""
    core = ready.core(view)
    if not core:
        return _admit_surplus(trial, record, view, ())
    limit = _cap(trial, view, core)  # 2. may the tenant have it
    if limit is not None:
        easier = ready.core(view, easiest_first=True)
        if _cap(trial, view, easier) is not None:
            record.waits(view, say.over_cap(limit, core))
            return ()
        core = easier
    verdict = say.no_model(trial, core) or record.refused(view)
    if verdict is not None:
        record.waits(view, verdict)
        return ()
    seated, evictions = _place_core(trial, view, core)
    if seated is None:
        verdict = say.no_room(trial, view, core)
        record.refuse_alike(view, verdict)
        record.waits(view, verdict)
        return ()
    trial.charge(view.gang.queue, trial.amounts_of(entry.member for entry in seated))
    if evictions:
        _hold(trial, record, view, seated, evictions)
        return seated
    return _admit_surplus(trial, record, view, seated)


def _place_core(
    trial: Trial, view: GangView, core: tuple[Member, ...]
) -> tuple[tuple[Seated, ...] | None, tuple[Eviction, ...]]:
    seated = place(trial, view, core)  # 3. does all of it fit at once
    if seated is None and len(core) < len(view.waiting):
        easier = ready.core(view, easiest_first=True)
        if _cap(trial, view, easier) is None:
            seated = place(trial, view, easier)
    if seated is not None or not _may_preempt(trial, view):
        return seated, ()
    room = preempt.make_room(trial, view, core)  # 4. whom would it cost
    return (None, ()) if room is None else (room.seated, room.evictions)


def _admit_surplus(
    trial: Trial, record: Recorder, view: GangView, core: tuple[Seated, ...]
) -> tuple[Seated, ...]:
    """Members above the minimum, each by itself: as many as caps and room allow."""
    chosen = {entry.member.key for entry in core}
    rest = [member for member in view.waiting if member.key not in chosen]
    allowed, limit = _within_cap(trial, view, rest)
    seated = (*core, *place_some(trial, view, allowed))
    surplus = {entry.member.key for entry in seated} - chosen
    trial.charge(view.gang.queue, trial.amounts_of(m for m in allowed if m.key not in surplus), -1)
    left = [member for member in rest if member.key not in surplus]
    if not seated and allowed and _may_preempt(trial, view):
        room = preempt.make_room_for_some(trial, view, allowed)
        if room is not None:
            trial.charge(view.gang.queue, trial.amounts_of(entry.member for entry in room.seated))
            _hold(trial, record, view, room.seated, room.evictions)
            return room.seated
    if seated:
        record.admits(_admission(trial, view, seated), say.admitted(len(seated), len(left)))
    elif left:
        blocked = next((member for member in allowed if member.key not in surplus), None)
        if blocked is not None:
            verdict = say.no_model(trial, [blocked]) or say.no_room(trial, view, [blocked])
        elif limit is not None:
            verdict = say.over_cap(limit, left[:1])
        else:
            verdict = Verdict(Reason.ADMITTED, "all members are placed")
        record.waits(view, say.surplus(view, len(left), verdict))
    return seated


def _within_cap(trial: Trial, view: GangView, members: list[Member]) -> tuple[list[Member], Limit | None]:
    """The members that the caps allow one after the other, charged; and the first cap that forbade one."""
    allowed: list[Member] = []
    first: Limit | None = None
    refused: set[int] = set()
    for member in members:
        if member.shape_id in refused:
            continue
        limit = _cap(trial, view, (member,))
        if limit is None:
            trial.charge(view.gang.queue, trial.amounts_of((member,)))
            allowed.append(member)
        else:
            refused.add(member.shape_id)
            first = first or limit
    return allowed, first


def _cap(trial: Trial, view: GangView, members: tuple[Member, ...]) -> Limit | None:
    ask = trial.amounts_of(members)
    return caps.check(trial, view.gang.queue, ask, unnamed_unlimited=trial.policy.unnamed_model_unlimited)


def _may_preempt(trial: Trial, view: GangView) -> bool:
    return trial.policy.preemption and view.gang.share_class is ShareClass.HIGH


def _hold(
    trial: Trial,
    record: Recorder,
    view: GangView,
    seated: tuple[Seated, ...],
    evictions: tuple[Eviction, ...],
) -> None:
    """5. What is freed is kept for the gang: its members stay booked, its victims are nobody else's."""
    for eviction in evictions:
        trial.leaving.update(dict.fromkeys(sorted(eviction.pods)))
    verdict = say.evicting(evictions, preempt.cost(trial, evictions))
    record.admits(_admission(trial, view, seated, evictions), verdict)


def _admission(
    trial: Trial, view: GangView, seated: tuple[Seated, ...], evictions: tuple[Eviction, ...] = ()
) -> Admission:
    members = {entry.member.key: trial.placement(entry) for entry in seated}
    return Admission(view.gang.key, members, evictions)
