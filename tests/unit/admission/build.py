"""API objects as they come from a watch, for the tests beside this file."""

import itertools
import uuid
from typing import Any

from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare, ContainerRequest, NodeCard, NodeCards, Request
from vc_egpu.volcano.words.model_table import ModelTable

Json = dict[str, Any]
TABLE = ModelTable.from_yaml("models: [{name: h20, products: [NVIDIA H20], memoryMiB: 98304}]")
GIVEN: Json = {
    "resources": {"requests": {"cpu": "7", "memory": "12Gi"}, "limits": {"cpu": "50"}},
    "allocatedResources": {"cpu": "9", "memory": "11Gi"},
}
"""What a status says of a container, or of a pod, that is being resized."""
_versions = itertools.count(1)


def version() -> str:
    """A resourceVersion above all earlier ones."""
    return str(next(_versions))


def added(document: Json) -> Change:
    return Change(ChangeKind.ADDED, document)


def deleted(document: Json) -> Change:
    return Change(ChangeKind.DELETED, document)


def node(name: str = "n1", cards: int = 4, **changes: Any) -> Json:
    inventory = NodeCards(
        cards=tuple(
            NodeCard(uuid=f"GPU-{name}-{i}", index=i, model="h20", memory_mib=98304) for i in range(cards)
        )
    )
    return {
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "resourceVersion": version(),
            "annotations": {names.NODE_CARDS: changes.pop("inventory", inventory.encode())},
            "labels": {"kubernetes.io/hostname": name},
        },
        "spec": changes.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "volcano.sh/vgpu-h20": "400"},
            "conditions": [{"type": "Ready", "status": "True"}],
            **changes,
        },
    }


def queue(name: str = "team", cap: int = 1000) -> Json:
    return {
        "metadata": {"name": name, "uid": f"queue-{name}", "resourceVersion": version()},
        "spec": {"capability": {"volcano.sh/vgpu-h20": str(cap)}},
    }


def group(name: str = "g", members: int = 2, uid: str = "", **changes: Any) -> Json:
    annotations = changes.pop("annotations", {})
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": f"job-{name}",
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"group-{name}",
            "resourceVersion": version(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "minMember": members,
            "queue": "team",
            "minResources": changes.pop("least", {"volcano.sh/vgpu-h20": str(members)}),
        },
        "status": {"phase": "Inqueue", **changes},
    }


def pod(name: str = "g-w-0", gang: str = "g", index: int = 0, uid: str = "", **changes: Any) -> Json:
    """A gated member that asks for one share of 30000 MiB and 30 cores."""
    ask = ContainerRequest(model="h20", cards=1, memory_mib=30000, cores_percent=30)
    annotations = {
        names.REQUEST: Request(containers={"main": ask}).encode(),
        names.GROUP_NAME: gang,
        names.TASK_SPEC: "w",
        names.TASK_INDEX: str(index),
        **changes.pop("annotations", {}),
    }
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": gang,
        "uid": f"job-{gang}",
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
            "resourceVersion": version(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": annotations,
            "ownerReferences": changes.pop("owners", [owner]),
            **changes.pop("metadata", {}),
        },
        "spec": {
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            **changes.pop("spec", {}),
        },
        "status": changes,
    }


def let_go(
    document: Json,
    plan_id: str,
    *,
    card: str = "GPU-n1-0",
    bound: bool = False,
    **status: Any,
) -> Json:
    """The same pod after its gate fell."""
    node_name = card.split("-")[1]
    share = CardShare(uuid=card, memory_mib=30000, cores=30)
    cards = Cards.model_validate(
        {
            "pod_uid": document["metadata"]["uid"],
            "node": node_name,
            "plan_id": plan_id,
            "share_class": document["metadata"]["annotations"].get(names.PRIORITY, "unset"),
            "containers": {"main": (share,)},
        }
    )
    metadata = {
        **document["metadata"],
        "resourceVersion": version(),
        "annotations": {**document["metadata"]["annotations"], names.CARDS: cards.encode()},
    }
    spec = {key: value for key, value in document["spec"].items() if key != "schedulingGates"}
    if bound:
        spec["nodeName"] = node_name
    return {"metadata": metadata, "spec": spec, "status": status}
