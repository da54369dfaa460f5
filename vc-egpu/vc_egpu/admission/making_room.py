"""Making room for a gang whose plan waits: suspend who can be suspended, then evict the others.

Suspending comes first, since it can be taken back: nobody is evicted until everybody who was to leave for a
while has left, so that an agent that does not answer costs nobody its work.
"""

from dataclasses import dataclass, replace
from typing import Final, Protocol

from vc_egpu.admission.execution.evictions import EvictionOrder, Evictions, whole_gangs
from vc_egpu.admission.execution.executor import Done, Executor
from vc_egpu.admission.execution.operations import Operation
from vc_egpu.admission.state.gangs import Group, called
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.suspension.suspending import Suspending
from vc_egpu.core.model.plan import Eviction
from vc_egpu.core.room.causes import RULES
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import BudgetExhausted, Stale, Temporary
from vc_egpu.volcano.codec.plans import PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod

SHIELD_S: Final = 60.0
"""A pod whose eviction was refused is no victim for this long."""


class Host(Protocol):
    """What the conductor lends."""

    mirror: Mirror
    executor: Executor
    api: ApiConnection
    evictions: Evictions
    clock: float

    def is_free(self, key: str) -> bool:
        """Whether nothing is under way for a gang, and nothing failed a moment ago."""

    def is_settled(self, key: str) -> bool:
        """Whether no member's gate can fall any more."""

    def next_id(self) -> str:
        """An id never given before."""

    def strip(self, key: str, group: Group, why: str) -> None:
        """Take the plan off a PodGroup."""

    def failed(self, done: Done) -> None:
        """Something failed for a gang."""

    def event(self, pod: DecodedPod, reason: str, note: str) -> None:
        """Warn about a pod."""

    def count(self, name: Operation, by: int = 1) -> None:
        """Add to a total of the metrics."""


@dataclass(slots=True)
class MakingRoom:
    """Owned by the conductor; begins orders and evictions, each once."""

    host: Host
    suspending: Suspending

    def make_for(self, key: str) -> None:
        """The next step for a gang whose plan waits for victims."""
        group = self.host.mirror.groups[key]
        if group.plan is None or not self.host.is_free(key):
            return
        if self._suspend_for(key, group, group.plan):
            return
        pods = self.host.evictions.left(self.host.mirror, group.plan.victims - group.plan.suspends)
        if not pods:
            return
        if self.host.mirror.around.overdrawn((pod.pod.namespace, pod.labels) for pod in pods):
            self.host.mirror.shield(group.plan.victims, self.host.clock + SHIELD_S)
            self.host.strip(key, group, "a PodDisruptionBudget does not let all its victims go together")
            return
        whole = whole_gangs(self.host.mirror, pods, group.plan.victims)
        if [victim for victim in whole if not self.host.is_settled(victim.gang.key)]:
            return  # all of them are asked about at once, and this comes again when they are
        rule = RULES[group.plan.cause]
        for pod in pods:
            self.host.event(pod, rule.event, rule.said(self._called(key, group)))
        self.host.count("evicted", len(pods))
        order = EvictionOrder(key, group.plan.plan_id, pods, group.plan.cause, whole)
        self.host.evictions.start(self.host.executor, self.host.api, order, self.host.clock)

    def _suspend_for(self, key: str, group: Group, plan: PlanRecord) -> bool:
        """Have those leave their cards who can; whether they are to be waited for first."""
        left = self.suspending.left(plan.suspends)
        why_order = RULES[plan.cause].said(self._called(key, group))
        for gang in sorted({str(pod.pod.gang) for pod in left}):
            pods = [pod.pod.uid for pod in left if pod.pod.gang == gang]
            why = self.suspending.order(gang, pods, self.host.next_id(), why_order, plan.cause)
            if why:
                self.host.strip(key, group, f"gang {gang} stays on its cards: {why}")
                break
        return bool(left)

    def _called(self, key: str, group: Group) -> str:
        return called(group, self.host.mirror.members.get(key, {}).values())

    def replace_broken(self, eviction: Eviction) -> None:
        """Pods that could not be brought back from a suspension: made anew, for nobody's sake."""
        pods = self.host.evictions.left(self.host.mirror, eviction.pods)
        if not pods or not self.host.is_free(eviction.gang) or not self.host.is_settled(eviction.gang):
            return
        rule = RULES[eviction.cause]
        for pod in pods:
            self.host.event(pod, rule.event, rule.said())
        self.host.count("evicted_broken", len(pods))
        whole = whole_gangs(self.host.mirror, pods, eviction.pods)
        order = EvictionOrder(eviction.gang, "", pods, eviction.cause, whole)
        self.host.evictions.start(self.host.executor, self.host.api, order, self.host.clock)

    def evicted(self, done: Done) -> None:
        """An order to evict ended."""
        gangs = self.host.evictions.finished(done, self.host.clock)
        self.host.mirror.dirty.update(gangs)
        if done.error is None:
            return
        done = replace(done, key=done.key.partition("#")[0])
        self.host.failed(done)
        again = isinstance(done.error, (Stale, Temporary)) and not isinstance(done.error, BudgetExhausted)
        group = self.host.mirror.groups.get(done.key)
        plan = group.plan if group is not None else None
        if group and plan and plan.plan_id == done.plan_id and plan.state == "waiting" and not again:
            self.host.mirror.shield(plan.victims, self.host.clock + SHIELD_S)
            self.host.strip(done.key, group, f"its victims cannot be evicted: {done.error}")
        else:
            self.host.mirror.tries.update(gangs)
