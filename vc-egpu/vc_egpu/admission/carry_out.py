"""From decisions to operations: what is begun, what is under way, what comes of it.

Owned by the loop's thread. Until an operation's :class:`.executor.Done` comes back its gang or pod is marked.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vc_egpu.admission.execution import steps, writes
from vc_egpu.admission.execution.carrying import Carrying
from vc_egpu.admission.execution.evictions import EvictionOrder, Evictions, plainly
from vc_egpu.admission.execution.executor import Done, Executor, Kind
from vc_egpu.admission.execution.operations import Operation, Totals, from_zero
from vc_egpu.admission.execution.retries import Retries
from vc_egpu.admission.making_room import MakingRoom
from vc_egpu.admission.recovery.rollback import RollBack, Rolling
from vc_egpu.admission.recovery.rolling import RollBacks
from vc_egpu.admission.state.gangs import Group, plan_for
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.suspension import stranded
from vc_egpu.admission.suspension.suspending import DEFAULT_TIMEOUT_S, Suspending
from vc_egpu.admission.telling.reports import Reports, group_reference, pod_reference
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Instant, PodPhase, PodUid
from vc_egpu.core.model.plan import Admission, Plan
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.room.causes import RULES
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.kube.wire.errors import Refused, Stale, TooManyRequests
from vc_egpu.volcano.codec import plans, trim
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord, PlanTooLargeError
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.words import names

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Conductor:
    """See the module. ``clock`` arguments are monotonic seconds that stand still without an API server."""

    mirror: Mirror
    executor: Executor
    api: ApiConnection
    reports: Reports
    authority: steps.Authority
    evictions: Evictions = field(default_factory=Evictions)
    clock: float = 0.0
    dropped: set[str] = field(default_factory=set)
    counters: Totals = field(default_factory=from_zero)
    """Totals since this process leads, by name, for the metrics."""
    nominates: bool = False
    """vc-scheduler binds, and enqueues by itself where it has room."""
    _plans_made: int = 0
    _busy: set[str] = field(default_factory=set)
    _carrying: Carrying = field(default_factory=Carrying)
    _retries: Retries = field(default_factory=Retries)
    _unknown: dict[str, Done] = field(default_factory=dict)
    _passed_over: set[str] = field(default_factory=set)
    """Gangs for which a decision came while they were written to: decided again once that is over."""
    rolling: RollBacks = field(init=False)
    suspend_timeout_s: float = DEFAULT_TIMEOUT_S
    stranded_after_s: float = stranded.DEFAULT_AFTER_S
    suspending: Suspending = field(init=False)
    room: MakingRoom = field(init=False)

    def __post_init__(self) -> None:
        self.rolling = RollBacks(self.mirror, self.reports)
        self.suspending = Suspending(
            self.mirror,
            self.executor,
            self.reports,
            self.suspend_timeout_s,
            self.counters,
            self.stranded_after_s,
        )
        self.room = MakingRoom(self, self.suspending)

    def take_over(self, authority: steps.Authority) -> None:
        """Act by this authority. What an earlier leader sent for its plans may still be on its way."""
        self.authority = authority
        self._carrying.inherit(self.mirror.groups.values(), self.mirror.pods)
        self.suspending.take_over(self.clock)

    # --- what a decision says --------------------------------------------------------------------

    def carry_out(self, plan: Plan, now: Instant) -> Mapping[str, Verdict]:
        """Begin all that a decision asks for; returns why gangs cannot be admitted after all."""
        verdicts, refused = dict(plan.verdicts), dict[str, Verdict]()
        # Every decision looks at all plans in force: what was withheld is named again, or goes on.
        self.mirror.dirty.update(self._carrying.withheld)
        self._carrying.withheld.clear()
        for withdrawal in plan.withdrawals:
            group = self.mirror.groups.get(withdrawal.gang)
            if group is None or group.plan is None or group.plan.plan_id != withdrawal.plan_id:
                continue
            if not self.is_free(withdrawal.gang):
                self._carrying.withheld.add(withdrawal.gang)
                self._passed_over |= self._busy & {withdrawal.gang}
            elif self.is_settled(withdrawal.gang):
                self.strip(withdrawal.gang, group, withdrawal.why)
        for readiness in plan.ready:
            self._turn_ready(readiness.gang, readiness.plan_id, now)
        for admission in plan.admissions:
            refusal = self._admit(admission, verdicts[admission.gang], now)
            if refusal is None:
                del verdicts[admission.gang]  # something is under way for it
                self._passed_over |= self._busy & {admission.gang}
            elif refusal:
                verdicts[admission.gang] = refused[admission.gang] = Verdict(Reason.EXCEEDS_CAP, refusal)
        for resume in plan.resumes:
            self.suspending.resume(resume)
        for wish in plan.suspensions:
            self.suspending.order(wish.gang, wish.pods, self.next_id(), RULES[wish.cause].said(), wish.cause)
        for eviction in plan.evictions:
            self.room.replace_broken(eviction)
        for key in self.mirror.waiting - {w.gang for w in plan.withdrawals} - {r.gang for r in plan.ready}:
            self.room.make_for(key)
        self.reports.note(verdicts, self.clock)
        return refused

    def _admit(self, admission: Admission, verdict: Verdict, now: Instant) -> str | None:
        """Write a gang's plan; returns why that cannot be done, None where it cannot be done now."""
        key = admission.gang
        group = self.mirror.groups.get(key)
        if group is None or group.outstanding or not self.is_free(key):
            return None
        record = plan_for(admission, group, self.mirror.members.get(key, {}), self.next_id(), now)
        return self._write_plan(key, group, record, verdict, now)

    def _turn_ready(self, key: str, plan_id: str, now: Instant) -> None:
        group = self.mirror.groups.get(key)
        if group is None or group.plan is None or group.plan.plan_id != plan_id or not self.is_free(key):
            return
        verdict = Verdict(Reason.ADMITTED, f"{len(group.plan.members)} members have their cards")
        self._write_plan(key, group, group.plan.ready(), verdict, now)

    def _write_plan(self, key: str, group: Group, record: PlanRecord, verdict: Verdict, now: Instant) -> str:
        try:
            body = writes.plan_patch(group.decoded, record, verdict, self.mirror.nodes, now)
        except PlanTooLargeError as error:
            return str(error)
        self.mirror.book(key, record)
        self._write("plan", key, group, body, record.plan_id)
        return ""

    def next_id(self) -> str:
        """An id for a plan or an order, never given before."""
        self._plans_made += 1
        return plans.plan_id(self.authority.epoch, self._plans_made)

    def strip(self, key: str, group: Group, why: str, rolled_back: str | None = None) -> None:
        """Take the plan off a PodGroup."""
        logger.info("gang %s: plan removed: %s", key, why)
        body = writes.strip_patch(group.decoded, rolled_back)
        self._write("strip", key, group, body)

    def _write(self, kind: Kind, key: str, group: Group, body: writes.Json, plan_id: str = "") -> None:
        self._busy.add(key)
        self.executor.write_group(kind, key, group.decoded, body, plan_id)

    def is_free(self, key: str) -> bool:
        """Whether nothing is under way for a gang, and nothing failed a moment ago."""
        return (
            key not in self._busy
            and key not in self.evictions.stripped
            and self._retries.may_try(key, self.clock)
        )

    def is_settled(self, key: str) -> bool:
        """Whether no member's gate can fall any more; if not, sees to it, and has the gang looked at then."""
        members = self.mirror.members.get(key, {})
        if self._carrying.is_settled(key, members):
            return True
        if self._retries.may_try(key, self.clock):
            for uid in self._carrying.begin_unsettled(members):
                self.executor.fence(key, members[uid])
        return False

    # --- what the objects ask for ----------------------------------------------------------------

    def drive(self, key: str) -> None:
        """Do the next step for a gang, if there is one and nothing is under way."""
        group = self.mirror.groups.get(key)
        if key not in self.evictions.stripped and self._retries.may_try(key, self.clock):
            self.suspending.drive(key, self.clock)
        if not self.is_free(key):
            return
        if group is None:
            self._retries.succeeded(key)
            self.reports.forget(key)
            self.rolling.forget(key)
            self.suspending.forget(key)
            return
        rolling = self.rolling.get(key)
        if rolling is not None and self._roll_on(key, group, rolling):
            return
        members = self.mirror.members.get(key, {})
        match steps.next_step(group, members, self.authority):
            case steps.Strip(why=why):
                if self.is_settled(key):
                    self.strip(key, group, why)
            case steps.Carry(members=outstanding):
                self._carry(key, group, outstanding)
            case steps.BindToPods(uids=uids) if group.plan is not None:
                self._bind(key, group, group.plan, uids)
            case steps.Enqueue():
                self.enqueue(key, group)
            case _:
                pass

    def _carry(
        self, key: str, group: Group, outstanding: tuple[tuple[str, DecodedPod, PlannedMember], ...]
    ) -> None:
        assert group.plan is not None  # noqa: S101 - a Carry step has a plan
        gang = self.mirror.state.gang(key)
        if gang is None or key in self._carrying.withheld:
            return
        if {member.placement.node for _, _, member in outstanding} & self.mirror.inventory.unreviewed:
            self.mirror.dirty.add(key)  # a node is not what it was: the decision looks at the plan first,
            self.mirror.tries.add(key)  # and soon, whatever else happens
            return
        for _, pod, member in outstanding:
            if self._carrying.begin(pod.pod.uid):
                self.executor.carry(key, pod, member, group.plan.plan_id, gang.share_class)

    def _bind(self, key: str, group: Group, plan: PlanRecord, uids: Mapping[str, PodUid]) -> None:
        members = {
            k: replace(member, uid=uids[k]) if k in uids else member for k, member in plan.members.items()
        }
        record = replace(plan, members=members)
        body = writes.group_patch(
            group.decoded, annotations={names.PLAN: plans.encode(record, self.mirror.nodes)}
        )
        self.mirror.book(key, record)
        self._write("plan", key, group, body, record.plan_id)

    def enqueue(self, key: str, group: Group) -> None:
        """Let the Job's controller make the pods; one that did not hear of it hears it anew."""
        if self.is_free(key):
            unheard = group.decoded.phase == steps.ENQUEUED
            self.count("enqueued_again" if unheard else "enqueued")
            phase = steps.PENDING if unheard else steps.ENQUEUED
            self._write("enqueue", key, group, writes.group_patch(group.decoded, phase=phase))

    def roll_back(self, key: str, group: Group, back: RollBack, now: Instant) -> None:
        """Take a gang's plan away, remember the back-off, then make its pods come anew."""
        if key not in self._busy:
            self.count("rolled_back")
            self.rolling.begin(key, group, back, now)

    def _roll_on(self, key: str, group: Group, rolling: Rolling) -> bool:
        """The next step of a roll-back, as often as it takes; whether its plan stands still."""
        if group.decoded.rolled_back != rolling.record:
            if self.is_settled(key):
                self.strip(key, group, rolling.why, rolling.record)
            return True
        if pods := self.rolling.left(key, self.evictions.begun):
            self.evictions.start(
                self.executor, self.api, EvictionOrder(key, "", pods, Cause.ROLLBACK), self.clock
            )
        return False

    # --- what came of it -------------------------------------------------------------------------

    def done(self, done: Done) -> None:
        """Take in one outcome."""
        match done.kind:
            case "plan" | "strip" | "enqueue":
                self._group_done(done)
            case "read":
                # Nobody knows whether the write happened: what was booked stays booked until somebody does.
                self.failed(done)
                self._unknown[done.key] = done
            case "carry" | "fence":
                self._carry_done(done)
            case "evict":
                self.room.evicted(done)
            case "suspend" | "resume":
                self._order_done(done)
            case "condition":
                self.suspending.telling.told(done)
                if done.document is not None:
                    self._enter(done)
                elif not isinstance(done.error, Stale) or done.uid is None:
                    self.reports.look_again((done.key,), self.clock)
            case "orphan":
                self.count("orphans")
                self.evictions.by_cause[Cause.BYPASS] += 1
            case "found":
                self._found(done)

    def _found(self, done: Done) -> None:
        if done.document is None or done.key in self.mirror.groups:
            return
        logger.warning("gang %s: its PodGroup is there, and no watch has told of it", done.key)
        self.count("found_unwatched")
        self._enter(done)

    def _group_done(self, done: Done) -> None:
        self._busy.discard(done.key)
        if done.document is not None and not done.gone:
            self._enter(done)
        group = self.mirror.groups.get(done.key)
        written = group is not None and group.plan is not None and group.plan.plan_id == done.plan_id
        may_come = not isinstance(done.error, (Stale, Refused, TooManyRequests))
        if done.kind == "plan" and not written and may_come:
            self.dropped.add(done.plan_id)
        if done.kind == "plan":
            self.mirror.unbook(done.key)
        if done.error is None:
            self._retries.succeeded(done.key)
        else:
            self.failed(done)
        self.mirror.dirty.add(done.key)
        if done.error is not None or done.kind == "strip" or done.key in self._passed_over:
            self._passed_over.discard(done.key)
            self.mirror.tries.add(done.key)

    def _carry_done(self, done: Done) -> None:
        assert done.uid is not None  # noqa: S101 - executor.carry names the pod
        if done.document is not None:
            self._enter(done)
        if done.gone:
            return  # stays marked until the watch says that the pod is gone
        self._carrying.ended(done.uid, done.error)
        if done.error is None and done.kind == "carry":
            self.count("ungated")
        elif done.error is not None and not isinstance(done.error, Stale):
            self.failed(done)
        if done.kind == "fence":
            self.reports.look_again((done.key,), self.clock)  # the pod's condition is one of its own now
        self.mirror.dirty.add(done.key)
        if self._carrying.is_released(done.key, self.mirror.members.get(done.key, ())):
            self.mirror.tries.add(done.key)

    def _order_done(self, done: Done) -> None:
        if done.document is not None and not done.gone:
            self._enter(done)
        if done.error is not None and not done.gone:
            self.failed(done)
        elif done.error is None:
            self._retries.succeeded(done.key)
        self.suspending.done(done)

    def press(self, uid: PodUid) -> None:
        """Volcano's lever had no effect: evict plainly, and say so."""
        pod = self.mirror.pods.get(uid)
        if pod is None or pod.pod.phase is PodPhase.TERMINATING:
            self.evictions.gone(uid)
            return
        self.count("lever_failed")
        self.event(pod, "EvictedPlainly", "its controller did not replace it within 10 s of being asked")
        self.evictions.start(self.executor, self.api, plainly(pod), self.clock)

    def pod_gone(self, uid: PodUid) -> None:
        """A pod left the mirror."""
        self._carrying.gone(uid)
        self.evictions.gone(uid)
        self.suspending.gone(uid)

    def due(self) -> float | None:
        """When a gang that failed is to be tried again (on ``clock``)."""
        return self._retries.next_at()

    def wake_due(self) -> None:
        """Try those again whose time has come."""
        for key in self._retries.due(self.clock):
            unknown = self._unknown.pop(key, None)
            group = self.mirror.groups.get(key)
            if unknown is not None and group is not None:
                self.executor.read_group(key, group.decoded, unknown.plan_id, unknown.error)
            elif unknown is not None:
                self._busy.discard(key)
            self.mirror.dirty.add(key)
            self.mirror.tries.add(key)

    def is_busy(self, key: str) -> bool:
        """Whether a write to the gang's PodGroup is under way."""
        return key in self._busy

    def _enter(self, done: Done) -> None:
        assert done.document is not None  # noqa: S101 - callers checked
        plural = "podgroups" if done.uid is None else "pods"
        self.mirror.apply(plural, Change(ChangeKind.MODIFIED, trim.of(plural, done.document)))

    def failed(self, done: Done) -> None:
        """Something failed for a gang: tried again later, and said where trying will not help."""
        delay_s = self._retries.failed(done.key, done.error, self.clock, is_read=done.kind == "read")
        logger.info("gang %s: %s failed, again in %.2f s: %s", done.key, done.kind, delay_s, done.error)
        self.count("write_failures")
        group = self.mirror.groups.get(done.key)
        if isinstance(done.error, Refused) and group is not None:
            about = group_reference(done.key, group.decoded)
            self.reports.events.event(about, "Warning", "WriteRefused", f"{done.kind}: {done.error}")

    def event(self, pod: DecodedPod, reason: str, note: str) -> None:
        """Warn about a pod."""
        self.reports.events.event(pod_reference(pod), "Warning", reason, note)

    def count(self, name: Operation, by: int = 1) -> None:
        """Add to a total of the metrics."""
        self.counters[name] += by
