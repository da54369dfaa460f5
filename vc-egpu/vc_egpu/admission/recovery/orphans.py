"""Pods that were bound without a plan: another client lifted their gate. They are removed. Pure."""

from dataclasses import dataclass, field
from typing import Final

from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.volcano.codec.pod_codec import DecodedPod

GRACE_S: Final = 3.0
"""A pod may be seen bound a moment before its annotation is read (lists and watches are not one moment)."""


@dataclass(slots=True)
class Orphans:
    """Since when, by UID."""

    since: dict[PodUid, float] = field(default_factory=dict)
    removed: set[PodUid] = field(default_factory=set)

    def note(self, pod: DecodedPod, clock: float) -> None:
        """A managed pod changed."""
        uid = pod.pod.uid
        if is_orphan(pod):
            if uid not in self.removed:
                self.since.setdefault(uid, clock)
        else:
            self.forget(uid)

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or no orphan."""
        self.since.pop(uid, None)
        self.removed.discard(uid)

    def failed(self, uid: PodUid, clock: float) -> None:
        """It could not be removed: once more, after another while."""
        if uid in self.removed:
            self.removed.discard(uid)
            self.since[uid] = clock

    def due(self, clock: float) -> list[PodUid]:
        """Those to remove now; each is named once."""
        due = [uid for uid, since in self.since.items() if clock - since >= GRACE_S]
        for uid in due:
            del self.since[uid]
        self.removed.update(due)
        return due

    def __bool__(self) -> bool:
        return bool(self.since)


def is_orphan(pod: DecodedPod) -> bool:
    """Bound, wants cards, and no plan speaks for it. Mirror pods of static pods are the kubelet's affair."""
    return (
        pod.bound
        and pod.pod.phase is PodPhase.PLACED
        and bool(pod.pod.shape.asks or pod.pod.shape.options)
        and not pod.pod.plan_id
        and not pod.is_static
    )
