"""Members of planned gangs: sent on their way one by one, and none while its plan is in doubt."""

from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.carrying import Carrying
from vc_egpu.admission.execution.evictions import MemberWrite
from vc_egpu.admission.execution.outcomes import FenceWrite, GateWrite
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.state.agenda import Why
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod


@dataclass(slots=True)
class Members:
    """What is known of their gates is in :class:`.carrying.Carrying`."""

    work: Work
    carrying: Carrying = field(default_factory=Carrying)
    refused: dict[str, str] = field(default_factory=dict)
    """Gangs whose plan cannot be carried out, because a write was refused, and why."""

    def take_over(self) -> None:
        """What an earlier leader sent for its plans may still be on its way."""
        mirror = self.work.mirror
        self.carrying.inherit(mirror.groups.values(), mirror.pods, self.work.clock)

    def carry(
        self, key: str, plan_id: str, outstanding: tuple[tuple[str, DecodedPod, PlannedMember], ...]
    ) -> None:
        """Give these members their cards, and lift their gates."""
        gang = self.work.mirror.state.gang(key)
        if gang is None or key in self.carrying.withheld:
            return
        if self.work.agenda.is_unreviewed(member.placement.node for _, _, member in outstanding):
            self.work.agenda.look_at(key)  # a node is not what it was: the decision looks at the plan first,
            self.work.agenda.try_again(key, Why.UNREVIEWED)  # and soon, whatever else happens
            return
        for _, pod, member in outstanding:
            if self.carrying.begin(pod.pod.uid):
                self.work.executor.carry(
                    key, pod, member, plan_id, gang.share_class, gang_pods=gang.min_member
                )

    def writes_of(self, key: str, plan: PlanRecord) -> tuple[MemberWrite, ...]:
        """The writes that will give the plan's members their cards, as far as their pods are there."""
        gang = self.work.mirror.state.gang(key)
        if gang is None:
            return ()
        there = self.work.mirror.members.get(key, {})
        found = ((there.get(member.uid), member.placement) for _, member in sorted(plan.members.items()))
        return tuple(
            (
                pod,
                partial(
                    writes.sending,
                    pod,
                    at,
                    plan_id=plan.plan_id,
                    share_class=gang.share_class,
                    gang_pods=gang.min_member,
                ),
            )
            for pod, at in found
            if pod is not None and pod.pod.phase is PodPhase.GATED
        )

    def look_at_withheld(self) -> None:
        """Each decision looks at all plans in force: it withholds gangs again, or lets them go on."""
        self.work.agenda.look_at(*self.carrying.withheld)
        self.carrying.withheld.clear()

    def withhold(self, key: str) -> None:
        """No gate of this gang falls until the next decision."""
        self.carrying.withheld.add(key)

    def is_settled(self, key: str) -> bool:
        """Whether no member's gate can fall any more; if not, sees to it, and has the gang looked at then."""
        members = self.work.mirror.members.get(key, {})
        if self.carrying.is_settled(key, members):
            return True
        if self.work.may_try(key):
            for uid in self.carrying.begin_unsettled(members):
                self.work.executor.fence(key, members[uid])
        return False

    def done(self, done: GateWrite | FenceWrite) -> None:
        """A write to a member ended."""
        self.work.enter(done)
        if done.gone:
            return  # stays marked until the watch says that the pod is gone
        self.carrying.ended(done.uid, done.error, self.work.clock)
        result = done.result
        match result:
            case Written():
                if isinstance(done, GateWrite):
                    self.work.count("ungated")
                    self.work.let_go["scheduler" if done.assumed is None else "direct"] += 1
            case Overtaken():
                if done.document is None:
                    self.work.failed(done)  # what stands there could not be read: not at once again
            case Later() | Unknown():
                self.work.failed(done)
            case Denied(reason=reason):
                self.work.failed(done)
                if isinstance(done, GateWrite):
                    self.takes_no_cards(done.gang, done.uid, reason)
            case _:
                assert_never(result)
        if isinstance(done, FenceWrite):
            # The pod's condition is one of its own now.
            self.work.reports.look_again((done.gang,), self.work.clock)
        self.work.agenda.look_at(done.gang)
        if self.carrying.is_released(done.gang, self.work.mirror.members.get(done.gang, ())):
            self.work.agenda.try_again(done.gang, Why.SETTLED)

    def takes_no_cards(self, key: str, uid: PodUid, reason: str) -> None:
        """The API server does not let us give a member its cards: the plan goes, and all of the gang with it.

        The pod is no member for a while, and its gang says why.
        """
        mirror = self.work.mirror
        pod, group = mirror.pods.get(uid), mirror.groups.get(key)
        if pod is None:
            return
        text = f"its cards cannot be written on it: {reason}"
        if group is not None and group.plan is not None:
            self.refused[key] = f"pod {pod.pod.name}: {text}"
            self.carrying.withheld.add(key)
        mirror.refuse_pod(uid, text, self.work.clock)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self.carrying.gone(uid)
