"""Members of planned gangs: sent on their way one by one, and none while its plan is in doubt."""

from dataclasses import dataclass, field

from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.execution.carrying import Carrying
from vc_egpu.admission.execution.outcomes import FenceWrite, GateWrite
from vc_egpu.admission.state.agenda import Why
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.kube.wire.errors import Stale
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.codec.pod_codec import DecodedPod


@dataclass(slots=True)
class Members:
    """What is known of their gates is in :class:`.carrying.Carrying`."""

    work: Work
    carrying: Carrying = field(default_factory=Carrying)

    def take_over(self) -> None:
        """What an earlier leader sent for its plans may still be on its way."""
        self.carrying.inherit(self.work.mirror.groups.values(), self.work.mirror.pods)

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
                self.work.executor.carry(key, pod, member, plan_id, gang.share_class)

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
        self.carrying.ended(done.uid, done.error)
        if done.error is None and isinstance(done, GateWrite):
            self.work.count("ungated")
        elif done.error is not None and not isinstance(done.error, Stale):
            self.work.failed(done)
        if isinstance(done, FenceWrite):
            # The pod's condition is one of its own now.
            self.work.reports.look_again((done.gang,), self.work.clock)
        self.work.agenda.look_at(done.gang)
        if self.carrying.is_released(done.gang, self.work.mirror.members.get(done.gang, ())):
            self.work.agenda.try_again(done.gang, Why.SETTLED)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self.carrying.gone(uid)
