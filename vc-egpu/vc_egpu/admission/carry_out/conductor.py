"""The conductor: begins all that a decision asks for, and takes in what came of it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from vc_egpu.admission.carry_out.members import Members
from vc_egpu.admission.carry_out.plans import Plans
from vc_egpu.admission.carry_out.resizes import Resizes
from vc_egpu.admission.carry_out.victims import Victims
from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.execution import outcomes, steps
from vc_egpu.admission.execution.operations import lacked
from vc_egpu.admission.execution.outcomes import (
    Done,
    EvictionRun,
    FenceWrite,
    GateWrite,
    GroupLookup,
    GroupReport,
    GroupWrite,
    OrderWrite,
    OrphanRemoval,
    PodReport,
    UnknownWrite,
)
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.recovery.rollback import RollBack, Rolling
from vc_egpu.admission.recovery.rolling import RollBacks
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.gangs import Group
from vc_egpu.admission.suspension import stranded
from vc_egpu.admission.suspension.suspending import DEFAULT_TIMEOUT_S, Order, Suspending
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Instant, PodPhase, PodUid
from vc_egpu.core.model.gangs import lacking, task_counts
from vc_egpu.core.model.plan import Plan, Withdrawal
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.room.causes import RULES
from vc_egpu.volcano.codec.plans import PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Conductor:
    """Owned by the loop's thread. One object for each noun; each calls only those that stand above it."""

    work: Work
    plans: Plans
    members: Members
    suspending: Suspending
    rolling: RollBacks
    victims: Victims
    resizes: Resizes

    @classmethod
    def on(
        cls,
        work: Work,
        authority: steps.Authority,
        *,
        suspend_timeout_s: float = DEFAULT_TIMEOUT_S,
        stranded_after_s: float = stranded.DEFAULT_AFTER_S,
    ) -> "Conductor":
        """A conductor for this work, with nothing under way."""
        plans, members = Plans(work, authority), Members(work)
        suspending = Suspending(
            work.mirror,
            work.executor,
            work.reports,
            suspend_timeout_s,
            work.counters,
            stranded_after_s,
            figures=work.figures,
        )
        rolling = RollBacks(work.mirror, work.reports)
        victims = Victims(work, plans, members, suspending)
        return cls(work, plans, members, suspending, rolling, victims, Resizes(work, plans))

    def take_over(self, authority: steps.Authority) -> None:
        """Act by this authority. What an earlier leader sent for its plans may still be on its way."""
        self.plans.authority = authority
        self.members.take_over()
        self.suspending.take_over(self.work.clock)

    # --- what a decision says --------------------------------------------------------------------

    def carry_out(self, plan: Plan, now: Instant) -> Mapping[str, Verdict]:
        """Begin all that a decision asks for; returns why gangs cannot be admitted after all."""
        verdicts, refused = dict(plan.verdicts), dict[str, Verdict]()
        self.members.look_at_withheld()
        for withdrawal in plan.withdrawals:
            self._withdraw(withdrawal)
        for readiness in plan.ready:
            self.plans.turn_ready(readiness.gang, readiness.plan_id, now)
        for admission in plan.admissions:
            if self._is_coming_back(admission.gang):
                del verdicts[admission.gang]
                continue
            refusal = self.plans.admit(admission, verdicts[admission.gang], now)
            if refusal is None:
                del verdicts[admission.gang]  # something is under way for it
                self.work.pass_over(admission.gang)
            elif refusal:
                verdicts[admission.gang] = refused[admission.gang] = Verdict(Reason.EXCEEDS_CAP, refusal)
                self.work.mirror.bar(admission.gang, refusal, self.work.clock, now)
        self.plans.note(plan)
        for resume in plan.resumes:
            self.suspending.resume(resume)
        for wish in plan.suspensions:
            self.suspending.order(
                wish.gang, wish.pods, Order(self.plans.next_id(), RULES[wish.cause].said(), wish.cause)
            )
        for eviction in plan.evictions:
            self.victims.replace(eviction)
        for wish_of_size in plan.resizes:
            self.resizes.begin(wish_of_size, now)
        decided = {w.gang for w in plan.withdrawals} | {r.gang for r in plan.ready}
        for key in self.work.mirror.waiting - decided:
            self.victims.make_room_for(key)
        self.work.reports.note(verdicts, self.work.clock)
        return refused

    def _withdraw(self, withdrawal: Withdrawal) -> None:
        group = self.work.mirror.groups.get(withdrawal.gang)
        if group is None or group.plan is None or group.plan.plan_id != withdrawal.plan_id:
            return
        if not self.work.is_free(withdrawal.gang):
            self.members.withhold(withdrawal.gang)
            self.work.pass_over(withdrawal.gang)
        elif self.members.is_settled(withdrawal.gang):
            self.plans.strip(withdrawal.gang, group, withdrawal.why)

    # --- what the objects ask for ----------------------------------------------------------------

    def drive(self, key: str) -> None:
        """Do the next step for a gang, if there is one and nothing is under way."""
        group = self.work.mirror.groups.get(key)
        if self.work.may_follow(key):
            self.suspending.drive(key, self.work.clock)
            self.resizes.drive(key, self.suspending.telling.wall())
        if not self.work.is_free(key):
            return
        if group is None:
            self.work.retries.succeeded(key)
            self.work.reports.forget(key)
            self.rolling.forget(key)
            self.suspending.forget(key)
            self.members.refused.pop(key, None)
            return
        if key in self.members.refused and not self._is_withdrawn(key, group):
            return
        rolling = self.rolling.get(key)
        if rolling is not None and self._roll_on(key, group, rolling):
            return
        members = self.work.mirror.members.get(key, {})
        self.victims.make_again(key, group.decoded.gang.choice)
        match steps.next_step(group, members, self.plans.authority):
            case steps.Strip(why=why):
                if self.members.is_settled(key):
                    self.plans.strip(key, group, why)
            case steps.Carry(members=outstanding) if group.plan is not None:
                self.members.carry(key, group.plan.plan_id, outstanding)
            case steps.BindToPods(uids=uids) if group.plan is not None:
                self.plans.bind(key, group, group.plan, uids)
            case steps.Enqueue():
                self.plans.enqueue(key, group)
            case _:
                pass

    def is_leaving(self, uid: PodUid) -> bool:
        """Whether a pod that was asked to go is on its way, whatever it was asked for."""
        return self.rolling.is_leaving(uid) and self.victims.is_leaving(uid)

    def roll_back(self, key: str, group: Group, back: RollBack, now: Instant) -> None:
        """Take a gang's plan away, remember the back-off, then have its pods made once more."""
        if not self.work.is_busy(key):
            self.work.count("rolled_back")
            for refusal in back.refusals:
                self.work.by_kubelets[lacked(refusal)] += 1
            self.rolling.begin(key, group, back, now)

    def _roll_on(self, key: str, group: Group, rolling: Rolling) -> bool:
        """The next step of a roll-back, as often as it takes; whether its plan stands still."""
        if rolling.is_noted and group.decoded.rolled_back != rolling.record:
            if self.members.is_settled(key):
                self.plans.strip(key, group, rolling.why, rolling.record)
            return True
        if pods := self.rolling.left(key, self.work.evictions.begun):
            self.victims.roll_back(key, pods)
        if self.rolling.get(key) is None:
            self.work.agenda.try_again(key, Why.SETTLED)
        return False

    def _is_coming_back(self, key: str) -> bool:
        """Whether members of a gang still have to go: a plan that counts them would let the others go alone.

        Replicas are planned one by one, whatever becomes of another.
        """
        group = self.work.mirror.groups.get(key)
        return group is not None and not group.decoded.gang.single and self.rolling.get(key) is not None

    def _is_withdrawn(self, key: str, group: Group) -> bool:
        """A write without which the plan cannot be carried out was refused: begin the roll-back of the gang.

        Not before it is known which of its gates fell: whether that is so.
        """
        if not self.members.is_settled(key):
            return False
        why = self.members.refused.pop(key)
        pods = self._let_go_in_part(key, group)
        back = RollBack(
            pods=tuple(pod for pod in pods if not pod.pod.bare),
            why=why,
            nodes=frozenset(),
            left_alone=tuple(pod for pod in pods if pod.pod.bare),
        )
        self.work.count("rolled_back")
        self.rolling.begin(key, group, back, self.suspending.telling.wall())
        return True

    def _let_go_in_part(self, key: str, group: Group) -> tuple[DecodedPod, ...]:
        """Members that have their cards, where the gang is not complete without those that get none."""
        members = self.work.mirror.members.get(key, {})
        gang = group.decoded.gang
        there = [m for m in members.values() if m.pod.phase in {PodPhase.PLACED, PodPhase.SUCCEEDED}]
        short = lacking(gang, task_counts([m.pod.task for m in there]))
        if gang.single or not (short or len(there) < gang.min_member):
            return ()
        placed = (m for m in there if m.pod.phase is PodPhase.PLACED)
        return tuple(sorted(placed, key=lambda m: m.pod.name))

    # --- what came of it -------------------------------------------------------------------------

    def done(self, done: Done) -> None:
        """Take in one outcome."""
        match done:
            case GroupWrite():
                self._group_done(done)
            case UnknownWrite():
                self.work.is_unknown(done)
            case GateWrite() | FenceWrite():
                self.members.done(done)
            case EvictionRun():
                self.victims.done(done)
            case OrderWrite():
                self._order_done(done)
            case GroupReport() | PodReport():
                self._report_done(done)
            case OrphanRemoval():
                self.work.count("orphans")
                orphan = self.work.mirror.pods.get(done.uid)
                self.work.figures.evicted([orphan] if orphan is not None else [], Cause.BYPASS)
            case GroupLookup():
                self._found(done)
            case _:
                assert_never(done)

    def _group_done(self, done: GroupWrite) -> None:
        standing = self.work.mirror.groups.get(done.gang)
        waited = standing.plan if standing is not None else None
        self.plans.done(done)
        result = done.result
        match result:
            case Written() | Overtaken() | Later() | Unknown():
                pass  # read and decided again
            case Denied(reason=reason):
                why = f"the API server does not take its {outcomes.word_for(done)} on the PodGroup: {reason}"
                self._group_refused(done, waited, why)
            case _:
                assert_never(result)

    def _group_refused(self, done: GroupWrite, waited: PlanRecord | None, why: str) -> None:
        now = self.suspending.telling.wall()
        match done.purpose:
            case "plan":
                self.work.mirror.bar(done.gang, why, self.work.clock, now)
                if waited is not None and waited.plan_id == done.plan_id:
                    self.members.refused[done.gang] = why
            case "strip":
                # Where a note of a roll-back was to be left, its pods go without it.
                if self.rolling.without_note(done.gang):
                    self.work.mirror.bar(done.gang, why, self.work.clock, now)
            case "enqueue" | "reserve" | "choice" | "move":
                pass  # nothing was begun; tried again with the back-off
            case _:
                assert_never(done.purpose)

    def _found(self, done: GroupLookup) -> None:
        if done.document is None or done.gang in self.work.mirror.groups:
            return
        logger.warning("gang %s: its PodGroup is there, and no watch has told of it", done.gang)
        self.work.count("found_unwatched")
        self.work.enter(done)

    def _report_done(self, done: GroupReport | PodReport) -> None:
        self.suspending.telling.told(done)
        self.work.enter(done)
        result = done.result
        match result:
            case Written():
                pass
            case Overtaken():
                if isinstance(done, GroupReport):
                    self.work.reports.look_again((done.gang,), self.work.clock)
            case Later() | Unknown():
                self.work.reports.look_again((done.gang,), self.work.clock)
            case Denied():
                # Said again when there is something else to say: an event has told of it.
                self.work.is_refused(done, result)
            case _:
                assert_never(result)

    def _order_done(self, done: OrderWrite) -> None:
        if not done.gone:
            self.work.enter(done)
        if done.error is not None and not done.gone:
            self.work.failed(done)
        elif done.error is None:
            self.work.retries.succeeded(done.gang)
        if done.purpose == "resize":
            self.resizes.done(done)
        else:
            self.suspending.done(done, self.work.clock)

    def pod_gone(self, uid: PodUid) -> None:
        """A pod left the mirror."""
        self.members.gone(uid)
        self.work.evictions.gone(uid)
        self.suspending.gone(uid)
        self.resizes.gone(uid)
