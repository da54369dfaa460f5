"""Victims of a gang whose plan waits: those that can be suspended are, then the others are evicted.

Suspending comes first, since it can be taken back. No pod is evicted until all that were to leave for a while
have left. An agent that does not answer therefore costs no pod its work.
"""

from dataclasses import dataclass, replace
from typing import Final, assert_never

from vc_egpu.admission.carry_out.members import Members
from vc_egpu.admission.carry_out.plans import Plans
from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.execution.evictions import EvictionOrder, plainly, whole_gangs
from vc_egpu.admission.execution.outcomes import EvictionRun
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.state import owners
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.gangs import Group, called
from vc_egpu.admission.state.refusals import AGAIN_S
from vc_egpu.admission.suspension.suspending import Order, Suspending
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Instant, PodPhase, PodUid
from vc_egpu.core.model.gangs import is_made_otherwise
from vc_egpu.core.model.plan import Eviction
from vc_egpu.core.room.causes import RULES
from vc_egpu.kube.wire.errors import BudgetExhausted
from vc_egpu.volcano.codec.plans import PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod

_CHOICE: Final = "#choice"
"""After the name of a gang: the order that has its pods made again, which no other of the gang waits for."""
SHIELD_S: Final = 60.0
"""A pod that a budget guards is no victim for this long, nor are the others that were to go with it."""


def waits_otherwise(member: DecodedPod, choice: str) -> bool:
    """Whether a pod waits that was made before this choice, and has a controller that makes another."""
    pod = member.pod
    waits = pod.phase is PodPhase.GATED and owners.may_be_removed(member.owner)
    return waits and is_made_otherwise(pod.shape, choice, pod.task)


@dataclass(slots=True)
class Victims:
    """Begins orders and evictions, each once."""

    work: Work
    plans: Plans
    members: Members
    suspending: Suspending

    def make_room_for(self, key: str) -> None:
        """The next step for a gang whose plan waits for victims."""
        group = self.work.mirror.groups[key]
        if group.plan is None or not self.work.is_free(key):
            return
        if self._suspend_for(key, group, group.plan):
            return
        pods = self.work.evictions.left(self.work.mirror, group.plan.victims - group.plan.suspends)
        if not pods:
            return
        if self.work.mirror.around.overdrawn((pod.pod.namespace, pod.labels) for pod in pods):
            self.work.mirror.shield(group.plan.victims, self.work.clock + SHIELD_S)
            self.plans.strip(key, group, "a PodDisruptionBudget does not let all its victims go together")
            return
        whole = whole_gangs(self.work.mirror, pods, group.plan.victims)
        if [victim for victim in whole if not self.members.is_settled(victim.gang.key)]:
            return  # all of them are asked about at once, and this comes again when they are
        rule = RULES[group.plan.cause]
        for pod in pods:
            told = rule.said(self._called(key, group), group.plan.accounts)
            self.work.event(pod, rule.event, told)
        self.work.count("evicted", len(pods))
        tried = self.members.writes_of(key, group.plan)
        noted_at = self.suspending.telling.wall()
        self._start(EvictionOrder(key, group.plan.plan_id, pods, group.plan.cause, whole, noted_at, tried))

    def _suspend_for(self, key: str, group: Group, plan: PlanRecord) -> bool:
        """Have those leave their cards that can; whether they are to be waited for first."""
        left = self.suspending.left(plan.suspends)
        why_order = RULES[plan.cause].said(self._called(key, group), plan.accounts)
        for gang in sorted({str(pod.pod.gang) for pod in left}):
            pods = [pod.pod.uid for pod in left if pod.pod.gang == gang]
            order = Order(
                self.plans.next_id(), why_order, plan.cause, off_quota=self._frees_quota(gang, plan)
            )
            why = self.suspending.order(gang, pods, order)
            if why:
                self.plans.strip(key, group, f"gang {gang} stays on its cards: {why}")
                break
        return bool(left)

    def _frees_quota(self, gang: str, plan: PlanRecord) -> bool:
        """Whether the gang makes room in a cap that it counts in itself."""
        state = self.work.mirror.state
        known = state.gang(gang)
        return plan.relieves is not None and known is not None and state.is_below(known.queue, plan.relieves)

    def _called(self, key: str, group: Group) -> str:
        return called(group, self.work.mirror.members.get(key, {}).values())

    def replace(self, eviction: Eviction) -> None:
        """Make pods go for which no gang waits: they could not be brought back, or have other cards."""
        pods = self.work.evictions.left(self.work.mirror, eviction.pods)
        if not pods or not self.work.is_free(eviction.gang) or not self.members.is_settled(eviction.gang):
            return
        if eviction.cause is Cause.DEFRAGMENTATION:
            self._let_move(eviction, pods)
        elif eviction.cause is Cause.DRAIN:
            self.work.count("evicted", len(pods))
            self._send_off(eviction, pods, RULES[eviction.cause].said())
        else:
            self._replace_broken(eviction, pods)

    def _let_move(self, eviction: Eviction, pods: tuple[DecodedPod, ...]) -> None:
        """The gang's new place stands on its PodGroup: it may leave the old one."""
        if self.work.mirror.around.overdrawn((pod.pod.namespace, pod.labels) for pod in pods):
            self.work.mirror.shield(eviction.pods, self.work.clock + SHIELD_S)
            group = self.work.mirror.groups.get(eviction.gang)
            if group is not None and group.move is not None:
                self.plans.move(eviction.gang, group.move.give_up(self.suspending.telling.wall()))
            return
        self.work.count("evicted", len(pods))
        self._send_off(
            eviction, pods, RULES[eviction.cause].said("other work"), self.suspending.telling.wall()
        )

    def _replace_broken(self, eviction: Eviction, pods: tuple[DecodedPod, ...]) -> None:
        for pod in pods:
            self.work.figures.came_of(pod, "broken")
        self.work.count("evicted_broken", len(pods))
        self._send_off(eviction, pods, RULES[eviction.cause].said())

    def _send_off(
        self, eviction: Eviction, pods: tuple[DecodedPod, ...], why: str, noted_at: Instant | None = None
    ) -> None:
        """Tell why they go, and have them go for themselves."""
        for pod in pods:
            self.work.event(pod, RULES[eviction.cause].event, why)
        whole = whole_gangs(self.work.mirror, pods, eviction.pods)
        self._start(EvictionOrder(eviction.gang, "", pods, eviction.cause, whole, noted_at))

    def make_again(self, key: str, choice: str) -> None:
        """Pods that wait and were made before the choice of their gang go, and their controller makes others.

        No Job counts a try for it. What they ask for is written on them, and never changes.
        """
        order = f"{key}{_CHOICE}"
        if not choice or order in self.work.evictions.under_way:
            return
        members = self.work.mirror.members.get(key, {}).values()
        begun = self.work.evictions.begun
        pods = tuple(m for m in members if waits_otherwise(m, choice) and m.pod.uid not in begun)
        if pods:
            self.work.count("made_again", len(pods))
            self._start(EvictionOrder(order, "", pods, cause=None))

    def is_leaving(self, uid: PodUid) -> bool:
        """Whether a pod that was asked to go for a choice goes; True for one that was not asked for that."""
        pod = self.work.mirror.pods.get(uid)
        group = self.work.mirror.groups.get(pod.pod.gang or "") if pod is not None else None
        return pod is None or group is None or not waits_otherwise(pod, group.decoded.gang.choice)

    def roll_back(self, key: str, pods: tuple[DecodedPod, ...]) -> None:
        """Pods of a gang that was let go and does not arrive: their controller replaces them."""
        self._start(EvictionOrder(key, "", pods, Cause.ROLLBACK))

    def press(self, uid: PodUid) -> None:
        """Volcano's lever had no effect: evict plainly, and say so."""
        pod = self.work.mirror.pods.get(uid)
        if pod is None or pod.pod.phase is PodPhase.TERMINATING:
            self.work.evictions.gone(uid)
            return
        self.work.count("lever_failed")
        self.work.event(pod, "EvictedPlainly", "its controller did not replace it within 10 s of being asked")
        self._start(plainly(pod))

    def _start(self, order: EvictionOrder) -> None:
        self.work.evictions.start(self.work.executor, self.work.api, order, self.work.clock)

    def done(self, done: EvictionRun) -> None:
        """An order to evict ended."""
        gangs = self.work.evictions.finished(done, self.work.clock)
        self.work.agenda.look_at(*gangs)
        for uid in done.plainly:
            self._was_plain(uid)
        if done.error is None:
            return
        done = replace(done, gang=done.gang.partition("#")[0])
        self.work.failed(done)
        result = done.result
        match result:
            case Written():
                pass
            case Overtaken() | Unknown(is_fault=False):
                self._try_again(gangs)
            case Later():
                if not (isinstance(done.error, BudgetExhausted) and self._stays(done, SHIELD_S)):
                    self._try_again(gangs)
            case Unknown():
                if not self._stays(done, SHIELD_S):
                    self._try_again(gangs)
            case Denied(reason=reason):
                if done.member is not None:
                    self.members.takes_no_cards(done.gang, done.member, reason)
                elif not self._stays(done, AGAIN_S):
                    self._try_again(gangs)
            case _:
                assert_never(result)

    def _try_again(self, gangs: list[str]) -> None:
        for gang in gangs:
            self.work.agenda.try_again(gang, Why.VICTIMS_STAY)

    def _stays(self, done: EvictionRun, for_s: float) -> bool:
        """Victims of a waiting plan cannot be evicted: it goes, and they are left alone for a while.

        Those at which the order stopped, or all of them where it is not known. Whether there is such a plan.
        """
        group = self.work.mirror.groups.get(done.gang)
        plan = group.plan if group is not None else None
        if group is None or plan is None or plan.plan_id != done.plan_id or plan.state != "waiting":
            return False
        stopped = self.work.mirror.members.get(done.stopped_by, {}).keys() & plan.victims
        self.work.mirror.shield(stopped or plan.victims, self.work.clock + for_s)
        self.plans.strip(done.gang, group, f"its victims cannot be evicted: {done.error}")
        return True

    def _was_plain(self, uid: PodUid) -> None:
        self.work.count("lever_failed")
        self.work.refused["lever"] += 1
        pod = self.work.mirror.pods.get(uid)
        if pod is not None:
            note = "its controller cannot be asked: the pod takes no such annotation"
            self.work.event(pod, "EvictedPlainly", note)
