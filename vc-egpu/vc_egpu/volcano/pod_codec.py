"""Pods, as plain JSON documents, into the values that a decision takes: see :mod:`vc_egpu.volcano.codec`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Final

from vc_egpu.core.cluster import (
    CardId,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Resources,
    ShareClass,
    Toleration,
)
from vc_egpu.volcano import names
from vc_egpu.volcano.annotations import AnnotationError, Cards, Request
from vc_egpu.volcano.codec import (
    Document,
    Owner,
    Terms,
    instant,
    names_in,
    node_terms,
    owner_of,
    share_class,
)
from vc_egpu.volcano.codec_resources import pod_requests
from vc_egpu.volcano.model_table import ModelTable
from vc_egpu.volcano.share_codec import asks_of, memory_limits, shares_of

ClaimTerms = Callable[[str, str], Terms]
"""(namespace, claim) to the node terms of the volume it is bound to; empty: anywhere, or unknown."""

_decode_request = lru_cache(maxsize=8192)(Request.decode)


@dataclass(frozen=True, slots=True)
class DecodedPod:
    """A pod for the decision, and what the processes need to write to it."""

    pod: Pod
    resource_version: str
    managed: bool = False
    """Carries our label, gate or request: the admission layer answers for it."""
    gated: bool = False
    bound: bool = False
    problem: str = ""
    """Non-empty: it is no member of anything until this is put right."""
    share_class: ShareClass | None = None
    """From its own annotation; None: not named."""
    priority_value: int = 0
    owner: Owner | None = None
    queue: str = ""
    gates: tuple[str, ...] = ()
    affinity: Document | None = None
    core_policy: str = "hard"
    labels: Mapping[str, str] = field(default_factory=dict)
    admitted: tuple[str, str, str] | None = None
    """(status, reason, message) of our condition, or None."""
    refusal: str = ""
    """Why the kubelet refused the pod, if it did."""
    start_error: str = ""
    """Why our agent keeps a container from starting, if it does."""
    out_of_sync: bool = False
    is_static: bool = False
    """The mirror of a pod that the kubelet runs from a file."""
    source: Document = field(default_factory=dict, compare=False, repr=False)
    """What it was read from; a later version of the same pod is read against it."""


def pod(
    document: Document,
    table: ModelTable,
    claim_terms: ClaimTerms | None = None,
    before: DecodedPod | None = None,
) -> DecodedPod:
    """A pod, ours or not. Raises ``KeyError``, ``TypeError`` or ``ValueError`` only for what is no pod.

    ``before``: an earlier reading of the same pod; what decides where it fits is taken over where the
    document says the same (most changes of a pod are changes of its status).
    """
    metadata, spec = document["metadata"], document["spec"]
    gates = tuple(gate["name"] for gate in spec.get("schedulingGates") or ())
    known = before.pod.shape if before is not None and _same_shape(before.source, document) else None
    base = _base(document, gates, known)
    if _is_managed(metadata, gates):
        read = partial(_shape, document, base.shape.requests, table=table, claim_terms=claim_terms)
        return _managed(document, base, gates, known or read)
    ports = () if known is not None else _host_ports(spec)
    return DecodedPod(
        replace(base, shape=replace(base.shape, host_ports=ports)) if ports else base,
        metadata["resourceVersion"],
        bound=base.node is not None,
        source=document,
    )


def _is_managed(metadata: Document, gates: tuple[str, ...]) -> bool:
    return (
        (metadata.get("labels") or {}).get(names.MANAGED_LABEL) == "true"
        or names.GATE in gates
        or names.REQUEST in (metadata.get("annotations") or {})
    )


def _base(document: Document, gates: tuple[str, ...], known: PodShape | None) -> Pod:
    """What holds for any pod; ``known``: its shape, where an earlier reading gave it."""
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    return Pod(
        uid=PodUid(metadata["uid"]),
        namespace=metadata["namespace"],
        name=metadata["name"],
        shape=known or PodShape(requests=pod_requests(spec)),
        phase=_phase(metadata, status, gates),
        node=NodeName(spec["nodeName"]) if spec.get("nodeName") else None,
        created=instant(metadata.get("creationTimestamp")),
        started=instant(status.get("startTime")) or None,
        finished=_finished(status),
        gone_by=instant(metadata.get("deletionTimestamp")) or None,
    )


def _managed(
    document: Document,
    base: Pod,
    gates: tuple[str, ...],
    shape: PodShape | Callable[[Request], PodShape],
) -> DecodedPod:
    """A pod that the admission layer answers for; ``shape``, or how to read it from the ask."""
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    problems: list[str] = []
    request = _annotation(_decode_request, annotations, names.REQUEST, problems) or Request()
    cards = _cards(annotations, base.uid, problems)
    member = replace(
        base,
        shape=shape if isinstance(shape, PodShape) else shape(request),
        node=base.node or (NodeName(cards.node) if cards is not None else None),
        gang=f"{metadata['namespace']}/{group_name(metadata, annotations)}",
        task=str(annotations.get(names.TASK_SPEC, "")),
        index=_index(str(annotations.get(names.TASK_INDEX, ""))),
        shares=shares_of(cards, request) if cards is not None else (),
        plan_id=cards.plan_id if cards is not None else "",
        other_gates=tuple(gate for gate in gates if gate != names.GATE),
    )
    return DecodedPod(
        source=document,
        pod=member,
        resource_version=metadata["resourceVersion"],
        managed=True,
        gated=names.GATE in gates,
        bound=bool(spec.get("nodeName")),
        problem="; ".join(problems),
        share_class=share_class(annotations),
        priority_value=int(spec.get("priority") or 0),
        owner=owner_of(metadata),
        queue=annotations.get(names.QUEUE_NAME) or labels.get(names.JOB_QUEUE_NAME) or "",
        gates=gates,
        affinity=spec.get("affinity"),
        core_policy=request.core_policy,
        labels=labels,
        admitted=_admitted(status.get("conditions") or ()),
        refusal=refusal_of(status),
        start_error=_start_error(status),
        out_of_sync=names.OUT_OF_SYNC in annotations,
        is_static="kubernetes.io/config.mirror" in annotations,
    )


def _index(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else -1


_SHAPING: Final = ("containers", "initContainers", "tolerations", "affinity", "nodeSelector", "volumes")


def _same_shape(before: Document, now: Document) -> bool:
    """Whether two versions of a pod ask for the same place. A pin is part of it."""
    old, new = before["spec"], now["spec"]
    return (
        before["metadata"].get("annotations") == now["metadata"].get("annotations")
        and all(old.get(key) == new.get(key) for key in _SHAPING)
        and old.get("resources") == new.get("resources")
        and not any("persistentVolumeClaim" in volume for volume in new.get("volumes") or ())
    )


def group_name(metadata: Document, annotations: Document) -> str:
    """The PodGroup that a pod names, else the one that its controller's pods share, else its own."""
    named = annotations.get(names.GROUP_NAME)
    if named:
        return str(named)
    owner = owner_of(metadata)
    return f"podgroup-{owner.uid if owner is not None else metadata['uid']}"


def _phase(metadata: Document, status: Document, gates: tuple[str, ...]) -> PodPhase:
    if status.get("phase") == "Succeeded":
        # Told to go and ended well for it, it has not done its work: it is no member that succeeded.
        return PodPhase.FAILED if metadata.get("deletionTimestamp") else PodPhase.SUCCEEDED
    if status.get("phase") == "Failed":
        return PodPhase.FAILED
    if metadata.get("deletionTimestamp"):
        return PodPhase.TERMINATING
    return PodPhase.GATED if names.GATE in gates else PodPhase.PLACED


def _finished(status: Document) -> float | None:
    """When a pod that is over ended: its last container's end, else the moment the kubelet took it."""
    if status.get("phase") not in {"Succeeded", "Failed"}:
        return None
    ends = [
        instant(((c.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for c in status.get("containerStatuses") or ()
    ]
    changes = [instant(c.get("lastTransitionTime")) for c in status.get("conditions") or ()]
    return max([*ends, *changes, instant(status.get("startTime"))], default=0.0)


def _annotation(
    decode: Callable[[str], Any], annotations: Document, name: str, problems: list[str]
) -> Any:  # the caller knows which model `decode` makes
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return decode(text)
    except AnnotationError as error:
        problems.append(f"annotation {name} is malformed: {error}")
        return None


def _cards(annotations: Document, uid: PodUid, problems: list[str]) -> Cards | None:
    """The cards that were written for this very pod."""
    cards: Cards | None = _annotation(Cards.decode, annotations, names.CARDS, problems)
    if cards is not None and cards.pod_uid != uid:
        problems.append(f"annotation {names.CARDS} was written for another pod ({cards.pod_uid})")
        return None
    return cards


def _shape(
    document: Document,
    requests: Resources,
    request: Request,
    table: ModelTable,
    claim_terms: ClaimTerms | None,
) -> PodShape:
    metadata, spec = document["metadata"], document["spec"]
    annotations = metadata.get("annotations") or {}
    volumes = _volume_terms(metadata["namespace"], spec, claim_terms)
    terms = _and_terms(_affinity_terms(spec), volumes)
    get = annotations.get
    return PodShape(
        asks=asks_of(request, memory_limits(spec) if request.oversubscribe else {}),
        requests=requests,
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity_terms=terms,
        tolerations=tuple(
            Toleration(
                t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or ""
            )
            for t in spec.get("tolerations") or ()
        ),
        host_ports=_host_ports(spec),
        use_cards=_card_names(
            get(names.USE_CARDS), get(names.VOLCANO_USE_GPU_UUID), get(names.HAMI_USE_GPU_UUID)
        ),
        avoid_cards=_card_names(
            get(names.AVOID_CARDS), get(names.VOLCANO_NO_USE_GPU_UUID), get(names.HAMI_NO_USE_GPU_UUID)
        ),
        use_models=names_in(get(names.USE_MODELS, ""))
        | models_like(get(names.HAMI_USE_GPU_TYPE, ""), table),
        avoid_models=names_in(get(names.AVOID_MODELS, ""))
        | models_like(get(names.HAMI_NO_USE_GPU_TYPE, ""), table),
        card_policy=str(get(names.CARD_POLICY, "")),
        node_policy=str(get(names.NODE_POLICY, "")),
    )


def _card_names(*texts: str | None) -> frozenset[CardId]:
    return frozenset(CardId(name) for text in texts if text for name in names_in(text))


def models_like(text: str, table: ModelTable) -> frozenset[str]:
    """HAMi names products by parts of their names; the models whose products hold one of the parts."""
    parts = [part.lower() for part in names_in(text)]
    return frozenset(
        model.name
        for model in table.models
        if any(part in product.lower() for part in parts for product in (model.name, *model.products))
    )


def _host_ports(spec: Document) -> tuple[tuple[str, str, int], ...]:
    containers = [*(spec.get("containers") or ())]
    containers += [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return tuple(
        (port.get("hostIP") or "", port.get("protocol") or "TCP", int(port["hostPort"]))
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _affinity_terms(spec: Document) -> Terms:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return node_terms(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))


def _volume_terms(namespace: str, spec: Document, claim_terms: ClaimTerms | None) -> Iterable[Terms]:
    if claim_terms is None:
        return
    for volume in spec.get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            yield claim_terms(namespace, claim["claimName"])


def _and_terms(terms: Terms, others: Iterable[Terms]) -> Terms:
    for other in others:
        if other:
            terms = tuple(a + b for a in terms or ((),) for b in other)
    return terms


def _admitted(conditions: Iterable[Document]) -> tuple[str, str, str] | None:
    for condition in conditions:
        if condition["type"] == names.CONDITION_ADMITTED:
            return condition["status"], condition.get("reason") or "", condition.get("message") or ""
    return None


def refusal_of(status: Document) -> str:
    """Why the kubelet refused a pod: it fails it before any container was made. Empty where it did not."""
    if status.get("phase") != "Failed" or status.get("containerStatuses"):
        return ""
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    known = reason in {"UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError"}
    # Kubelets of late begin so whatever the reason: a node that shuts down, or has too little disk.
    refused = known or reason.startswith("OutOf") or message.startswith("Pod was rejected")
    return f"{reason}: {message}" if refused else ""


def _start_error(status: Document) -> str:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        message = str(waiting.get("message") or "")
        if "PreStartContainer" in message or "CDI device" in message:
            return message[:512]
    return ""
