"""API objects of a small cluster, as the stack writes them: two nodes, training and inference on one card."""

from pathlib import Path
from typing import Any

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    Cards,
    CardShare,
    ContainerRequest,
    NodeCard,
    NodeCards,
    Request,
)

Json = dict[str, Any]
MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
MEMORY_MIB = 98304


def node(
    name: str,
    *cards: NodeCard,
    problem: str = "",
    warning: str = "",
    driver: str = "570.1",
    compute: str = "library",
    mps_namespace: str = "",
    **metadata: Any,
) -> Json:
    inventory = NodeCards(
        agent_version="0.1.0",
        driver_version=driver,
        problem=problem,
        warning=warning,
        compute=compute,
        mps_namespace=mps_namespace,
        cards=cards,
    )
    return {
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.present": "true"},
            "annotations": {names.NODE_CARDS: inventory.encode(), **metadata.get("annotations", {})},
        },
        "spec": {"unschedulable": metadata.get("unschedulable", False)},
        "status": {
            "conditions": [{"type": "Ready", "status": metadata.get("ready", "True")}],
            "allocatable": {"volcano.sh/vgpu-h20": "400"},
            "nodeInfo": {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.4.2"},
        },
    }


def card(uuid: str, index: int = 0, **fields: Any) -> NodeCard:
    return NodeCard(uuid=uuid, index=index, model="h20", memory_mib=MEMORY_MIB, **fields)


def pod(
    name: str,
    *,
    cards: dict[str, tuple[int, int]] | None = None,
    share_class: str = "unset",
    group: str = "",
    phase: str = "Running",
    gated: bool = False,
    namespace: str = "ml",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    native: bool = False,
    verdict: Json | None = None,
) -> Json:
    """``cards``: UUID to (MiB, cores)."""
    annotations = {**(annotations or {}), **({names.GROUP_NAME: group} if group else {})}
    if share_class != "unset":
        annotations[names.PRIORITY] = share_class
    if cards is not None:
        shares = tuple(CardShare(uuid=uuid, memory_mib=m, cores=c) for uuid, (m, c) in cards.items())
        annotations[names.CARDS] = Cards(
            pod_uid=f"uid-{name}",
            node="n1",
            plan_id="1-1",
            share_class=share_class,  # type: ignore[arg-type]
            native=native,
            containers={"main": shares},
        ).encode()
        memory_mib, cores = next(iter(cards.values()))
        ask = ContainerRequest(
            model="h20", cards=len(cards), memory_mib=memory_mib, cores_percent=cores, native=native
        )
        annotations[names.REQUEST] = Request(containers={"main": ask}).encode()
    kind, owner_name = owner or ("", "")
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
            "labels": {names.MANAGED_LABEL: "true", **(labels or {})},
            "ownerReferences": [{"kind": kind, "name": owner_name, "controller": True}] if owner else [],
        },
        "spec": {"schedulingGates": [{"name": names.GATE}] if gated else []}
        | ({} if gated else {"nodeName": "n1"}),
        "status": {"phase": phase, "conditions": [verdict] if verdict else []},
    }


def verdict(reason: str, message: str) -> Json:
    return {
        "type": names.CONDITION_ADMITTED,
        "status": "True" if reason == "Admitted" else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:10Z",
    }


def group(name: str, queue: str, *, job: str = "", said: Json | None = None, members: int = 1) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "ownerReferences": [_volcano_job(job)] if job else [],
        },
        "spec": {"queue": queue, "minMember": members},
        "status": {"phase": "Inqueue", "conditions": [said] if said else []},
    }


def _volcano_job(name: str) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }


def queue(name: str, *, parent: str = "", state: str = "Open", **capability: int) -> Json:
    """``capability`` by the end of the name: ``h20=4, h20_memory=100``."""
    spec: Json = {
        "capability": {f"volcano.sh/vgpu-{key.replace('_', '-')}": value for key, value in capability.items()}
    }
    if parent:
        spec["parent"] = parent
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"state": state}}
