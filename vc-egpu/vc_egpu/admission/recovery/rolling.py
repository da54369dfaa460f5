"""Roll-backs under way: first the plan goes, in one write with the back-off, then all the pods.

Kept in memory only: a leader that takes over sees the same pods in the same trouble, and begins again.
"""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.admission.recovery.rollback import RollBack, Rolling
from vc_egpu.admission.state import backoffs
from vc_egpu.admission.state.gangs import Group
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import Reports, group_reference, pod_reference
from vc_egpu.core.model.cluster import Instant, PodPhase, PodUid
from vc_egpu.volcano.codec.pod_codec import DecodedPod

_STAYS: Final = frozenset({PodPhase.PLACED, PodPhase.FAILED})
"""What is rolled back and shows this has not gone: the kubelet fails what it refuses, and leaves it there."""


@dataclass(slots=True)
class RollBacks:
    """By gang."""

    mirror: Mirror
    reports: Reports
    _under_way: dict[str, Rolling] = field(default_factory=dict)

    def begin(self, key: str, group: Group, back: RollBack, now: Instant) -> None:
        """Remember what has to go, and say so."""
        costly = group.plan is not None and group.plan.costly
        before = backoffs.decode(group.decoded.rolled_back)
        value = before.again(
            now, back.nodes, back.why, packed=back.packed, costly=costly, kubelet=bool(back.refusals)
        )
        # What an earlier one has not done yet goes on: those pods count for nothing a second time.
        earlier = self.left(key, ()) if key in self._under_way else ()
        pods = {pod.pod.uid: pod for pod in (*earlier, *back.pods)}
        record = backoffs.encode(value)
        self._under_way[key] = Rolling(tuple(pods.values()), record, f"rolled back: {back.why}")
        self.mirror.agenda.look_at(key)
        text = f"rolled back: {back.why}; tried again in {value.until - now:.0f} s"
        if back.packed > 1:
            text += f", first with at most {value.most} of its members on a node"
        if back.packed and costly:
            text += "; no gang goes for it again until a node is added that takes its members"
        elif back.refusals:
            text += "; no gang goes for it until that node is tried again"
        self.reports.events.event(group_reference(key, group.decoded), "Warning", "RolledBack", text)
        note = f"{back.why}; no controller would replace this pod, so it is left alone"
        for pod in back.left_alone:
            self.reports.events.event(pod_reference(pod), "Warning", "RolledBack", note)

    def without_note(self, key: str) -> bool:
        """The write that takes the plan away and leaves the note is refused; whether one was due."""
        rolling = self._under_way.get(key)
        if rolling is not None:
            self._under_way[key] = replace(rolling, is_noted=False)
        return rolling is not None

    def get(self, key: str) -> Rolling | None:
        """The gang's, if there is one."""
        return self._under_way.get(key)

    def forget(self, key: str) -> None:
        """The gang is gone."""
        self._under_way.pop(key, None)

    def left(self, key: str, begun: Container[PodUid]) -> tuple[DecodedPod, ...]:
        """Pods that were not asked to go yet; once all have gone the roll-back is over."""
        pods = [pod for pod in self._under_way[key].pods if not self._is_gone(pod.pod.uid)]
        if not pods:
            del self._under_way[key]
        return tuple(pod for pod in pods if pod.pod.uid not in begun)

    def is_leaving(self, uid: PodUid) -> bool:
        """Whether a pod that was asked to go goes, or has ended; what is rolled back has to be gone."""
        pod = self.mirror.pods.get(uid)
        rolling = self._under_way.get(pod.pod.gang or "") if pod is not None else None
        if rolling is not None and any(other.pod.uid == uid for other in rolling.pods):
            return self._is_gone(uid)
        return pod is None or pod.pod.phase is not PodPhase.PLACED

    def _is_gone(self, uid: PodUid) -> bool:
        pod = self.mirror.pods.get(uid)
        return pod is None or pod.pod.phase not in _STAYS
