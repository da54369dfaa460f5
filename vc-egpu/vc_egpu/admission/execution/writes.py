"""The bodies of all writes that carry a decision out. Pure: values in, JSON documents out.

Every one is conditional on the object's UID, and on its resourceVersion where it depends on what was read.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from vc_egpu.admission.execution.results import NotSent
from vc_egpu.core.model.cluster import Instant, MemberPlacement, Node, NodeName, Share, ShareClass
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.room.lateness import once_more
from vc_egpu.volcano import room
from vc_egpu.volcano.codec import gang_notes, plans
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup, Document
from vc_egpu.volcano.codec.plans import PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.podspec.way import is_direct
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare

Json = dict[str, Any]
CLASS_NAME: Final[Mapping[ShareClass, Any]] = {
    ShareClass.HIGH: "high",
    ShareClass.UNSET: "unset",
    ShareClass.LOW: "low",
}
_UNSCHEDULABLE: Final = "Unschedulable"
"""The reason that autoscalers look for: a larger cluster would help."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def timestamp(now: Instant) -> str:
    """As the API server writes times."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def group_patch(
    group: DecodedGroup,
    *,
    annotations: Mapping[str, str | None] | None = None,
    condition: Document | None = None,
    phase: str | None = None,
) -> Json:
    """A merge patch of a PodGroup, only if no other client wrote to it since it was read."""
    body: Json = {"metadata": {"uid": group.gang.uid, "resourceVersion": group.resource_version}}
    if annotations:
        body["metadata"]["annotations"] = dict(annotations)
    status: Json = {}
    if condition is not None:
        others = [c for c in group.conditions if c.get("type") != condition["type"]]
        status["conditions"] = [*others, condition]
    if phase is not None:
        status["phase"] = phase
    if status:
        body["status"] = status
    return body


def unrecorded(body: Json, group: DecodedGroup) -> Json:
    """This merge patch of a PodGroup, which also drops the record of the writers of its fields.

    Only where the PodGroup is a Job controller's: no client applies it. The API server begins no such record
    again, and each later write costs it a third less.
    """
    if group.owner is None or not group.owner.is_volcano_job:
        return body
    return {**body, "metadata": {**body["metadata"], "managedFields": [{}]}}


def strip_patch(
    group: DecodedGroup, rolled_back: str | None = None, *, victim_at: Instant | None = None
) -> Json:
    """A merge patch that takes the plan off a PodGroup.

    In the same write it notes a roll-back (its back-off, encoded), or when the gang went for others.
    """
    annotations: dict[str, str | None] = {names.PLAN: None}
    if victim_at is not None:
        times = once_more(group.gang.victim_at, victim_at)
        annotations[names.VICTIM_AT] = gang_notes.encode_victim_at(times)
    if rolled_back is not None:
        annotations[names.ROLLED_BACK] = rolled_back
    return group_patch(group, annotations=annotations)


def condition(*, admitted: bool, reason: str, message: str, now: Instant) -> Json:
    """Our condition, on PodGroups and pods alike."""
    return {
        "type": names.CONDITION_ADMITTED,
        "status": "True" if admitted else "False",
        "reason": reason,
        "message": message[:1024],
        "lastTransitionTime": timestamp(now),
    }


def pod_condition_patch(pod: DecodedPod, value: Document) -> Json:
    """A strategic merge patch of a pod's status.

    A pod that no scheduler looks at says as well, in Kubernetes' own words, why it is not scheduled.
    """
    conditions = [value]
    if value["status"] == "False" and pod.waiting and is_direct(pod.source["spec"]):
        short = value["reason"] in {Reason.WAITING_FOR_CARDS.value, Reason.WAITING_FOR_TURN.value}
        reason = _UNSCHEDULABLE if short else value["reason"]
        conditions.append({**value, "type": "PodScheduled", "reason": reason})
    return {"metadata": {"uid": pod.pod.uid}, "status": {"conditions": conditions}}


def pod_patch(pod: DecodedPod, annotations: Mapping[str, str | None]) -> Json:
    """A merge patch of a pod's annotations, only if no other client wrote to it since it was read."""
    metadata = {"uid": pod.pod.uid, "resourceVersion": pod.resource_version}
    return {"metadata": {**metadata, "annotations": dict(annotations)}}


def plan_patch(
    group: DecodedGroup,
    record: PlanRecord,
    verdict: Verdict,
    nodes: Mapping[NodeName, Node],
    now: Instant,
    *,
    choice: str = "",
) -> Json:
    """A plan, the condition that goes with it, and the choice that it was made with, where that is new.

    Raises :class:`plans.PlanTooLargeError`.
    """
    is_ready = record.state == "ready"
    value = condition(
        admitted=is_ready,
        reason=(verdict.reason if is_ready else Reason.WAITING_FOR_EVICTION).value,
        message=verdict.message,
        now=now,
    )
    annotations: dict[str, str | None] = {names.PLAN: plans.encode(record, nodes)}
    if group.reserved:
        annotations[names.RESERVED] = None  # it has its place
    if choice:
        annotations[names.CHOICE] = choice
    return group_patch(group, annotations=annotations, condition=value)


def fence_patch(pod: DecodedPod, now: Instant) -> Json:
    """A strategic merge patch of a pod's status that surely changes it, and with it the resourceVersion.

    A version stands in the text, since a patch that changes nothing leaves the resourceVersion alone.
    """
    text = f"its plan is taken back; nothing decided before version {pod.resource_version or '0'} counts"
    value = condition(admitted=False, reason=Reason.WAITING_FOR_CARDS.value, message=text, now=now)
    return pod_condition_patch(pod, value)


def is_bound_by_volcano(pod: DecodedPod) -> bool:
    """Whether vc-scheduler binds it, which needs the nominated node before the gate falls."""
    return (pod.source.get("spec") or {}).get("schedulerName") == names.SCHEDULER_VOLCANO


def nominate_patch(pod: DecodedPod, placement: MemberPlacement) -> Json:
    """A merge patch of the status: vc-scheduler tries this node first, without asking its fit-error cache."""
    return {"metadata": {"uid": pod.pod.uid}, "status": {"nominatedNodeName": placement.node}}


def carry_patch(
    pod: DecodedPod,
    placement: MemberPlacement,
    *,
    plan_id: str,
    share_class: ShareClass,
    gang_pods: int = 1,
    resource_version: str | None = None,
) -> Json:
    """The one merge patch that sends a pod on its way: cards, pin, gate."""
    metadata: Json = {
        "uid": pod.pod.uid,
        "resourceVersion": resource_version or pod.resource_version,
    }
    spec: Json = {"schedulingGates": _other_gates(pod)}
    if placement.node is not None:
        spec["affinity"] = {
            "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": _pinned_terms(pod, placement.node)}}
        }
    if annotations := _cards(pod, placement, plan_id, share_class, gang_pods):
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


def binding(
    pod: DecodedPod, placement: MemberPlacement, *, plan_id: str, share_class: ShareClass, gang_pods: int = 1
) -> Json:
    """The one Binding that sends a pod on its way: its node and its cards, as one fact.

    The API server copies the annotations onto the pod in the write that sets its node. It holds the Binding
    to the version that is named, as it does patches. Raises :class:`.results.NotSent` for a member without a
    node, and where the pod's annotations leave no room. The API server does not look at that, and would take
    no later write of that pod.
    """
    if placement.node is None:
        raise NotSent(f"pod {pod.pod.name}: its plan names no node, so nothing can bind it")
    annotations = _cards(pod, placement, plan_id, share_class, gang_pods)
    if not all(room.fits(pod.annotation_bytes, key, text) for key, text in annotations.items()):
        raise NotSent(
            f"metadata.annotations: they take {pod.annotation_bytes} bytes, its cards need more than is left "
            f"of {room.MAX_BYTES}"
        )
    metadata = {
        "name": pod.pod.name,
        "namespace": pod.pod.namespace,
        "uid": pod.pod.uid,
        "resourceVersion": pod.resource_version,
    }
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node},
    }


def sending(
    pod: DecodedPod, placement: MemberPlacement, *, plan_id: str, share_class: ShareClass, gang_pods: int = 1
) -> Json:
    """The write that sends a pod on its way: a Binding, or a merge patch of the pod."""
    body = binding if is_direct(pod.source["spec"]) else carry_patch
    return body(pod, placement, plan_id=plan_id, share_class=share_class, gang_pods=gang_pods)


def as_bound(pod: DecodedPod, binding: Json) -> Json:
    """The pod as it stands after this Binding, until the watch shows it. A Binding is answered without it."""
    source, annotations = pod.source, binding["metadata"].get("annotations") or {}
    metadata = source["metadata"]
    return {
        **source,
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}},
        "spec": {**source["spec"], "nodeName": binding["target"]["name"]},
    }


def _cards(
    pod: DecodedPod, placement: MemberPlacement, plan_id: str, share_class: ShareClass, gang_pods: int
) -> dict[str, str]:
    """The annotation with its cards; nothing for a member that has none."""
    if not placement.shares or placement.node is None:
        return {}
    cards = Cards(
        pod_uid=pod.pod.uid,
        node=placement.node,
        plan_id=plan_id,
        share_class=CLASS_NAME[share_class],
        core_policy="soft" if pod.core_policy == "soft" else "hard",
        native=any(share.native for _, share in placement.shares),
        gang_pods=gang_pods if gang_pods > 1 else None,
        containers=card_shares(placement.shares),
    )
    return {names.CARDS: cards.encode()}


def ungate_patch(pod: DecodedPod) -> Json:
    """Lift our gate and nothing else (removal of the product)."""
    return {
        "metadata": {"uid": pod.pod.uid, "resourceVersion": pod.resource_version},
        "spec": {"schedulingGates": _other_gates(pod)},
    }


def _other_gates(pod: DecodedPod) -> list[Json] | None:
    return [{"name": gate} for gate in pod.gates if gate != names.GATE] or None


def _pinned_terms(pod: DecodedPod, node: str) -> list[Json]:
    """The pod's own terms, each narrowed to the node; a gated pod's terms may be narrowed, never widened."""
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = (pod.affinity or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    only = len(terms) == 1 and not terms[0]
    return [
        {**term, "matchFields": [*(term.get("matchFields") or ()), pin]} if term or only else {}
        for term in terms
    ]


def card_shares(shares: Iterable[tuple[str, Share]]) -> dict[str, tuple[CardShare, ...]]:
    """These (container, share), by container as the cards annotation has them."""
    containers: dict[str, tuple[CardShare, ...]] = {}
    for name, share in shares:
        entry = CardShare(
            uuid=share.card,
            memory_mib=share.memory_mib,
            cores=share.cores_percent,
            physical_mib=share.physical_mib,
            swap=True if share.swap else None,
            slice=share.slice or None,
            start=share.start if share.start >= 0 else None,
        )
        containers[name] = (*containers.get(name, ()), entry)
    return containers
