"""Objects of a large cluster, as an API server writes them, page by page: for measuring, nothing else.

Nodes of 8 cards, DaemonSet pods of other people on each of them, and gangs of 8 that run on the cards.
Everything is generated when it is asked for: the cluster itself takes no memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from vc_egpu.core.model.cluster import (
    Card,
    CardId,
    MemberPlacement,
    Mode,
    Node,
    NodeName,
    PodUid,
    Resources,
    Share,
)
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare, ContainerRequest, NodeCard, NodeCards, Request

Json = dict[str, Any]
GANG: Final = 8
CARDS: Final = 8
MEMORY_MIB: Final = 97871
TIME: Final = "2026-01-01T00:00:00Z"
MODELS: Final = f"models: [{{name: h20, products: [NVIDIA H20], memoryMiB: {MEMORY_MIB}}}]\n"
ASK: Final = ContainerRequest(model="h20", cards=1, memory_mib=24576, cores_percent=25)


@dataclass(frozen=True, slots=True)
class BigCluster:
    """How much of what there is; managed pods fill cards by quarters, so at most 32 fit on a node."""

    nodes: int
    foreign_per_node: int
    managed: int

    def __post_init__(self) -> None:
        if self.managed % GANG or self.managed > self.nodes * CARDS * 4:
            raise ValueError(f"{self.managed} managed pods: whole gangs of {GANG}, at most 32 on each node")

    def counts(self) -> dict[str, int]:
        """Objects by plural; what is not named has none."""
        foreign = self.nodes * self.foreign_per_node
        return {
            "nodes": self.nodes,
            "pods": foreign + self.managed,
            "podgroups": self.managed // GANG,
            "queues": 1,
        }

    def object(self, plural: str, number: int) -> bytes:
        """One object as JSON."""
        makers: dict[str, Callable[[int], Json]] = {
            "nodes": node,
            "podgroups": group,
            "queues": queue,
            "pods": self._pod,
        }
        return orjson.dumps(makers[plural](number))

    def page(self, plural: str, first: int, limit: int) -> Iterator[bytes]:
        """A part of the list."""
        for number in range(first, min(first + limit, self.counts().get(plural, 0))):
            yield self.object(plural, number)

    def _pod(self, number: int) -> Json:
        if number < self.managed:
            return member(number)
        which = number - self.managed
        return foreign_pod(which // self.foreign_per_node, which % self.foreign_per_node)


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def place_of(member_number: int) -> tuple[str, str]:
    """(node, card) of a member: four of them share a card."""
    card = member_number // 4
    name = node_name(card // CARDS)
    return name, f"GPU-{name}-{card % CARDS}"


def member_uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000001"


def node(number: int) -> Json:
    name = node_name(number)
    inventory = NodeCards(
        cards=tuple(
            NodeCard(uuid=f"GPU-{name}-{i}", index=i, model="h20", memory_mib=MEMORY_MIB)
            for i in range(CARDS)
        )
    )
    labels = {f"feature.example/{i}": f"value-{i}" for i in range(40)}
    images = [
        {
            "names": [f"registry.example/team/{i}@sha256:{'c' * 64}", f"registry.example/team/{i}:v1"],
            "sizeBytes": i,
        }
        for i in range(50)
    ]
    return {
        "metadata": {
            **metadata(name, f"uid-{name}"),
            "labels": {**labels, "kubernetes.io/hostname": name},
            "annotations": {names.NODE_CARDS: inventory.encode(), "other.example/note": "x" * 200},
        },
        "spec": {"providerID": f"cloud://{name}"},
        "status": {
            "allocatable": {"cpu": "128", "memory": "1024Gi", "pods": "250", "volcano.sh/vgpu-h20": "800"},
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "lastHeartbeatTime": TIME,
                    "lastTransitionTime": TIME,
                    "reason": f"Kubelet{kind}",
                    "message": "kubelet is posting its status",
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": images,
            "nodeInfo": {"kernelVersion": "6.1.0", "osImage": "Debian", "kubeletVersion": "v1.36.3"},
        },
    }


def queue(_: int) -> Json:
    return {
        "metadata": metadata("team", "uid-queue"),
        "spec": {"capability": {names.shared_resource("h20"): "1000000"}},
        "status": {"state": "Open"},
    }


def group(number: int) -> Json:
    """A gang that runs, its plan carried out."""
    first = number * GANG
    members = {f"w/{index}": _planned(first + index) for index in range(GANG)}
    record = PlanRecord(f"1-{number}", f"uid-group-{number}", "ready", members, created=1.0)
    nodes = {
        m.placement.node: _node(m.placement.node) for m in members.values() if m.placement.node is not None
    }
    return {
        "metadata": {
            **metadata(f"job-{number}", f"uid-group-{number}", "team"),
            "ownerReferences": [_owner("batch.volcano.sh/v1alpha1", "Job", f"job-{number}")],
            "annotations": {names.PLAN: plans.encode(record, nodes)},
        },
        "spec": {
            "minMember": GANG,
            "queue": "team",
            "minResources": {names.shared_resource("h20"): str(GANG), "cpu": "16"},
        },
        "status": {
            "phase": "Running",
            "running": GANG,
            "conditions": [
                {
                    "type": names.CONDITION_ADMITTED,
                    "status": "True",
                    "reason": "Admitted",
                    "message": f"{GANG} members placed",
                    "lastTransitionTime": TIME,
                }
            ],
        },
    }


def member(number: int) -> Json:
    """A pod of a gang, on its card."""
    gang, index = divmod(number, GANG)
    node_name_, card = place_of(number)
    uid = member_uid(number)
    share = CardShare(uuid=card, memory_mib=ASK.memory_mib, cores=ASK.cores_percent)
    cards = Cards(pod_uid=uid, node=node_name_, plan_id=f"1-{gang}", containers={"main": (share,)})
    document = _running(
        metadata(f"job-{gang}-w-{index}", uid, "team"), node_name_, [_container("main"), _container("logs")]
    )
    document["metadata"] |= {
        "labels": {
            names.MANAGED_LABEL: "true",
            "volcano.sh/job-name": f"job-{gang}",
            "volcano.sh/job-namespace": "team",
            names.JOB_QUEUE_NAME: "team",
            "volcano.sh/task-index": str(index),
        },
        "annotations": {
            names.REQUEST: Request(containers={"main": ASK}).encode(),
            names.CARDS: cards.encode(),
            names.GROUP_NAME: f"job-{gang}",
            names.TASK_SPEC: "w",
            names.TASK_INDEX: str(index),
            "volcano.sh/template-uid": f"job-{gang}-w",
        },
        "ownerReferences": [_owner("batch.volcano.sh/v1alpha1", "Job", f"job-{gang}")],
    }
    return document


def foreign_pod(number: int, which: int) -> Json:
    """One of a DaemonSet's."""
    name = f"daemon-{which}-{number:06x}"
    document = _running(
        metadata(name, f"{number:08x}-0000-4000-8000-1{which:011x}", "kube-system"),
        node_name(number),
        [_container(f"c{i}-{which}") for i in range(2)],
    )
    document["metadata"] |= {
        "labels": {"app": f"daemon-{which}", "pod-template-generation": "1"},
        "annotations": {"checksum/config": "a" * 64},
        "ownerReferences": [_owner("apps/v1", "DaemonSet", f"daemon-{which}")],
    }
    return document


def metadata(name: str, uid: str, namespace: str | None = None) -> Json:
    placed = {"namespace": namespace} if namespace is not None else {}
    written = [
        {
            "manager": "controller",
            "operation": "Update",
            "time": TIME,
            "fieldsV1": {"f:metadata": {f"f:{i}": {} for i in range(12)}},
        }
    ]
    return {
        "name": name,
        **placed,
        "uid": uid,
        "resourceVersion": "5",
        "creationTimestamp": TIME,
        "managedFields": written,
    }


def _running(about: Json, node_name_: str, containers: list[Json]) -> Json:
    tolerated = (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    )
    return {
        "metadata": about,
        "spec": {
            "nodeName": node_name_,
            "containers": containers,
            "volumes": [
                {"name": f"v{i}", "hostPath": {"path": f"/var/lib/{i}", "type": ""}} for i in range(4)
            ],
            "tolerations": [{"key": f"node.kubernetes.io/{key}", "operator": "Exists"} for key in tolerated],
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
        },
        "status": {
            "phase": "Running",
            "hostIP": "10.0.0.1",
            "podIP": "10.1.2.3",
            "startTime": TIME,
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": TIME}
                for kind in (
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                    "PodScheduled",
                )
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": f"registry.example/image@sha256:{'b' * 64}",
                    "containerID": f"containerd://{'d' * 64}",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": TIME}},
                }
                for container in containers
            ],
        },
    }


def _container(name: str) -> Json:
    return {
        "name": name,
        "image": f"registry.example/{name}:v1.2.3",
        "args": ["--verbosity=4", "--node=$(NODE_NAME)"],
        "env": [{"name": f"VARIABLE_{i}", "value": f"value-{i}-of-{name}"} for i in range(8)],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "200m", "memory": "256Mi"},
        },
        "volumeMounts": [{"name": f"v{i}", "mountPath": f"/x{i}"} for i in range(4)],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080},
            "periodSeconds": 10,
            "failureThreshold": 3,
        },
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
    }


def _owner(api_version: str, kind: str, name: str) -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": f"uid-of-{name}",
        "controller": True,
    }


def _planned(number: int) -> PlannedMember:
    name, card = place_of(number)
    share = Share(CardId(card), ASK.memory_mib, ASK.cores_percent)
    return PlannedMember(MemberPlacement(NodeName(name), (("main", share),)), PodUid(member_uid(number)))


def _node(name: NodeName) -> Node:
    cards = tuple(Card(CardId(f"GPU-{name}-{i}"), i, "h20", MEMORY_MIB) for i in range(CARDS))
    return Node(name, Resources(), cards=cards, mode=Mode.SHARED)
