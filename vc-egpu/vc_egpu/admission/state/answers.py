"""What pods are told about suspension and what their nodes' agents answer, as the decision takes it.

Orders and answers are on the API server, in annotations: a new leader knows from them alone where every pod
is. Remembered here is what failed lately, and what may not wait for a watch. Orders that are taken back count
as gone from the moment their removal begins, since their cards are wanted again.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from vc_egpu.core.model.cluster import Instant, NodeName, Pod, PodUid, SuspensionState
from vc_egpu.volcano import room
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.codec.suspension import (
    MAX_REASON,
    NodeSuspension,
    PodSuspension,
    SuspendOrder,
    answer_to,
)
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError

_NOTHING: Mapping[PodUid, PodSuspension] = {}
_PAUSED = "true"
_MALFORMED = "its node's agent reports what cannot be read"
_UNREPORTED = answer_to(None, None)
"""Asked for at every event of every pod."""

logger = logging.getLogger(__name__)

_decode_order = lru_cache(maxsize=4096)(SuspendOrder.decode)


class Answers:
    """One thread owns it. Everything that it says about a pod is in :meth:`enter`."""

    def __init__(self) -> None:
        self.lifting: set[PodUid] = set()
        """Pods whose order is being taken back."""
        self.unfit: dict[PodUid, str] = {}
        """Pods that are not to be suspended for now, and why."""
        self.unreturning: dict[PodUid, str] = {}
        """Pods whose order the API server does not let us take off, and why: they cannot be brought back."""
        self.late: set[PodUid] = set()
        """Pods that should have come back to their cards long ago."""
        self.stranded: set[PodUid] = set()
        """Pods that left their cards, and those have been gone for too long."""
        self._said: dict[NodeName, Mapping[PodUid, PodSuspension]] = {}
        self._texts: dict[NodeName, str] = {}
        self._broken: set[NodeName] = set()

    # --- nodes -----------------------------------------------------------------------------------

    def put(self, document: Document) -> set[PodUid]:
        """A node is there, or changed; the pods about which it says something else now."""
        metadata = document["metadata"]
        name = NodeName(metadata["name"])
        text = str((metadata.get("annotations") or {}).get(names.NODE_SUSPENSION) or "")
        if self._texts.get(name, "") == text:
            return set()
        self._texts[name] = text
        self._broken.discard(name)
        said: Mapping[PodUid, PodSuspension] = _NOTHING
        try:
            pods = NodeSuspension.decode(text).pods if text else {}
            said = {PodUid(uid): report for uid, report in pods.items()}
        except AnnotationError as error:
            self._broken.add(name)
            logger.warning("node %s: annotation %s is malformed: %s", name, names.NODE_SUSPENSION, error)
        return self._replace(name, said)

    def remove(self, name: NodeName) -> set[PodUid]:
        """A node is gone; the pods about which it said something."""
        self._texts.pop(name, None)
        self._broken.discard(name)
        return self._replace(name, _NOTHING)

    def _replace(self, name: NodeName, said: Mapping[PodUid, PodSuspension]) -> set[PodUid]:
        before = self._said.pop(name, _NOTHING)
        if said:
            self._said[name] = said
        if name in self._broken:
            return set(before)
        return {uid for uid in before.keys() | said.keys() if before.get(uid) != said.get(uid)}

    # --- pods ------------------------------------------------------------------------------------

    def enter(self, decoded: DecodedPod) -> DecodedPod:
        """The pod with what is known about its suspension; the same one where nothing is."""
        pod = decoded.pod
        stands = order_of(decoded)
        order = None if pod.uid in self.lifting else stands
        answer = self._about(decoded, stands)
        known = (
            order is not None,
            order.number if order is not None else (0, 0),
            float(order.since) if order is not None else 0.0,
            answer.state,
            answer.suspendable and pod.uid not in self.unfit and has_room(decoded),
            # A wish that failed lately is none: what is left of the gang's suspension ends.
            is_paused(decoded) and pod.uid not in self.unfit,
            pod.uid in self.late,
            pod.uid in self.stranded,
            order is not None and order.off_quota,
        )
        if known == seen(pod):
            return decoded  # nearly always, and at every event of every pod
        fresh = replace(
            pod,
            suspend_ordered=known[0],
            suspend_order=known[1],
            suspended_since=known[2],
            suspension=known[3],
            suspendable=known[4],
            pause_wished=known[5],
            overdue=known[6],
            stranded=known[7],
            off_quota=known[8],
        )
        return replace(decoded, pod=fresh)

    def about(self, decoded: DecodedPod) -> PodSuspension:
        """What the pod's own node says about it; no other node is heard."""
        return self._about(decoded, order_of(decoded))

    def _about(self, decoded: DecodedPod, stands: SuspendOrder | None) -> PodSuspension:
        node = decoded.pod.node
        if why := self.unreturning.get(decoded.pod.uid):
            return PodSuspension(state=SuspensionState.FAILED, reason=why[:MAX_REASON])
        report = self._said.get(node, _NOTHING).get(decoded.pod.uid) if node is not None else None
        if report is None and node in self._broken:
            return PodSuspension(reason=_MALFORMED)
        return _UNREPORTED if report is None else answer_to(stands, report)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self.lifting.discard(uid)
        self.unfit.pop(uid, None)
        self.unreturning.pop(uid, None)
        self.late.discard(uid)
        self.stranded.discard(uid)


def order_of(decoded: DecodedPod) -> SuspendOrder | None:
    """The order that stands on a pod. What is no order, or was meant for another pod, is none."""
    text = _annotations(decoded).get(names.SUSPEND)
    if not text:
        return None
    try:
        order = _decode_order(text)
    except AnnotationError:
        return None
    return order if order.pod_uid == decoded.pod.uid else None


def has_room(decoded: DecodedPod) -> bool:
    """Whether an order fits on the pod next to its other annotations, or stands there already."""
    return bears_order(decoded) or decoded.annotation_bytes + room.ORDER_BYTES <= room.MAX_BYTES


def is_paused(decoded: DecodedPod) -> bool:
    """Whether a user wishes it to be suspended, be it possible or not."""
    return _annotations(decoded).get(names.PAUSE) == _PAUSED


def bears_order(decoded: DecodedPod) -> bool:
    """Whether the annotation stands on the pod, readable or not: an agent may go by it."""
    return names.SUSPEND in _annotations(decoded)


def seen(pod: Pod) -> tuple[bool, tuple[int, int], Instant, SuspensionState, bool, bool, bool, bool, bool]:
    """All that a decision sees of a pod's suspension."""
    return (
        pod.suspend_ordered,
        pod.suspend_order,
        pod.suspended_since,
        pod.suspension,
        pod.suspendable,
        pod.pause_wished,
        pod.overdue,
        pod.stranded,
        pod.off_quota,
    )


def _annotations(decoded: DecodedPod) -> Mapping[str, str]:
    return (decoded.source.get("metadata") or {}).get("annotations") or {}
