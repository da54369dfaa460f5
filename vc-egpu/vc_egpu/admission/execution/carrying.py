"""Which members' gates may fall any moment. While one may, the plan that books its cards stays.

A write that lifts a gate can be answered: it happened, or it can not happen any more. Or its outcome is
unknown, and the API server may still do it. Then the pod is written to once more before its plan goes. Writes
of ours are conditional on the pod's resourceVersion: after this one no earlier one can land. Where that write
is refused, time settles it: no API server works on a request for ever. Pure.
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written, result_of
from vc_egpu.admission.state.gangs import Group
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.kube.wire.errors import KubeError

LANDS_WITHIN_S: Final = 90.0
"""No write lands later than this after it was sent: the API server gives up a request after 60 s."""


@dataclass(slots=True)
class Carrying:
    """Members by UID, gangs by key."""

    under_way: set[PodUid] = field(default_factory=set)
    """A write is on a thread."""
    unsettled: set[PodUid] = field(default_factory=set)
    """A write was sent, by us or by an earlier leader, and no answer says what became of it."""
    withheld: set[str] = field(default_factory=set)
    """Gangs whose plan or members shall go once all this is settled: no gate of theirs falls meanwhile."""
    _since: dict[PodUid, float] = field(default_factory=dict)
    """When it was last heard that nothing is known of a write; on the conductor's clock."""

    def inherit(self, groups: Iterable[Group], pods: Container[PodUid], clock: float = 0.0) -> None:
        """Members of ready plans whose gates an earlier leader may have begun to lift."""
        for group in groups:
            if group.plan is not None and group.plan.state == "ready":
                members = (group.plan.members[key].uid for key in group.outstanding)
                self._doubt((uid for uid in members if uid in pods), clock)

    def _doubt(self, uids: Iterable[PodUid], clock: float) -> None:
        for uid in uids:
            self.unsettled.add(uid)
            self._since[uid] = clock

    def _settle(self, uid: PodUid) -> None:
        self.unsettled.discard(uid)
        self._since.pop(uid, None)

    def begin(self, uid: PodUid) -> bool:
        """A write begins; False where one is under way."""
        if uid in self.under_way:
            return False
        self.under_way.add(uid)
        return True

    def ended(self, uid: PodUid, error: KubeError | None, clock: float = 0.0) -> None:
        """It ended: with an answer, or without."""
        self.under_way.discard(uid)
        result = result_of(error)
        match result:
            case Written() | Overtaken():
                # The version that earlier writes were made for is not there any more.
                self._settle(uid)
            case Later():
                pass
            case Unknown():
                self._doubt((uid,), clock)
            case Denied():
                if clock - self._since.get(uid, clock) >= LANDS_WITHIN_S:
                    self._settle(uid)
            case _:
                assert_never(result)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self.under_way.discard(uid)
        self._settle(uid)

    def begin_unsettled(self, uids: Iterable[PodUid]) -> list[PodUid]:
        """Those of these whose earlier write is to be made sure of; a write to each of them begins."""
        return [uid for uid in uids if uid in self.unsettled and self.begin(uid)]

    def is_settled(self, gang: str, uids: Collection[PodUid]) -> bool:
        """Whether no gate of these members can fall any more; if not, the gang is withheld until then."""
        if self.under_way.isdisjoint(uids) and self.unsettled.isdisjoint(uids):
            self.withheld.discard(gang)
            return True
        self.withheld.add(gang)
        return False

    def is_released(self, gang: str, uids: Iterable[PodUid]) -> bool:
        """Whether something waits for this gang's members, and may be tried again now."""
        return gang in self.withheld and self.under_way.isdisjoint(uids)
