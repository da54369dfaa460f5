"""Simulated nodes: Node objects that kwok keeps alive, on which pods start and end at once.

Annotations on a pod steer its life, each a Go duration such as ``5s``:

* ``vc-egpu.local/succeed-after``, ``vc-egpu.local/fail-after``: its containers end with code 0 or 1;
* ``vc-egpu.local/terminate-after``: it stays that long after its deletion (a victim that ignores SIGTERM).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from localcluster.api import Api
from localcluster.errors import LocalClusterError

ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
SUCCEED_AFTER = "vc-egpu.local/succeed-after"
FAIL_AFTER = "vc-egpu.local/fail-after"
TERMINATE_AFTER = "vc-egpu.local/terminate-after"
_LEASE_S = 40
_CONDITIONS = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class KwokNode:
    """One simulated node. ``extended`` are extended resources, by full name."""

    name: str
    cpu: int = 64
    memory_mib: int = 512 * 1024
    pods: int = 110
    extended: Mapping[str, int] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()

    def __post_init__(self) -> None:
        for field in ("cpu", "memory_mib", "pods"):
            if getattr(self, field) < 1:
                raise LocalClusterError(
                    f"kwok node {self.name}: {field} {getattr(self, field)} must be at least 1"
                )

    def to_object(self) -> dict[str, Any]:
        """The Node object, Ready from its first moment."""
        capacity = {
            "cpu": str(self.cpu),
            "memory": f"{self.memory_mib}Mi",
            "ephemeral-storage": "1Ti",
            "pods": str(self.pods),
            **{name: str(count) for name, count in self.extended.items()},
        }
        usual = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {**usual, "type": "kwok", **self.labels},
                "annotations": {**ANNOTATION, **self.annotations},
            },
            "spec": {"taints": [dict(taint) for taint in self.taints]},
            "status": {
                "phase": "Running",
                "capacity": capacity,
                "allocatable": capacity,
                "addresses": [{"type": "Hostname", "address": self.name}],
                "conditions": [
                    {"type": kind, "status": value, "reason": why} for kind, value, why in _CONDITIONS
                ],
                "nodeInfo": _node_info(),
            },
        }


NodeTemplate = Callable[[int, str], KwokNode]


def default_template(_index: int, name: str) -> KwokNode:
    """A node of 64 cores and 512 GiB."""
    return KwokNode(name)


def create_nodes(api: Api, count: int, template: NodeTemplate, prefix: str, first: int = 0) -> list[str]:
    """Create ``count`` nodes named ``<prefix><index>``, several at once; returns their names."""
    names = [f"{prefix}{index}" for index in range(first, first + count)]
    nodes = [template(index, name).to_object() for index, name in enumerate(names, first)]
    api.create_all("/api/v1/nodes", nodes)
    return names


def _node_info() -> dict[str, str]:
    blank = ("bootID", "kernelVersion", "machineID", "osImage", "systemUUID", "kubeProxyVersion")
    known = {"architecture": "amd64", "operatingSystem": "linux"}
    return {**dict.fromkeys(blank, ""), **known, "kubeletVersion": "kwok", "containerRuntimeVersion": "kwok"}


def rules() -> list[dict[str, Any]]:
    """What kwok may do."""
    return [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch", "update"]},
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "verbs": ["get", "list", "watch", "patch", "update", "delete"],
        },
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "list", "watch", "create", "patch", "update"],
        },
    ]


def configuration() -> list[dict[str, Any]]:
    """The documents of kwok's configuration file."""
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            # Never routed, so a simulated pod cannot be taken for a real one.
            "cidr": "100.64.0.0/12",
            "nodeLeaseDurationSeconds": _LEASE_S,
            "nodeLeaseParallelism": 16,
            "nodePlayStageParallelism": 16,
            "podPlayStageParallelism": 16,
        },
    }
    return [options, *_node_stages(), *_pod_stages()]


def _stage(name: str, kind: str, where: list[tuple[str, str, list[str]]], **rest: Any) -> dict[str, Any]:
    expressions = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, values in where
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            **rest,
        },
    }


_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_DELETED = ".metadata.deletionTimestamp"
_NODE_STATUS = "{{ $now := Now }}\nphase: Running\nconditions:\n" + "".join(
    f'- type: {kind}\n  status: "{value}"\n  reason: {why}\n'
    "  lastHeartbeatTime: {{ $now | Quote }}\n  lastTransitionTime: {{ $now | Quote }}\n"
    for kind, value, why in _CONDITIONS
)


def _node_stages() -> list[dict[str, Any]]:
    return [
        _stage("node-ready", "Node", [(_READY, "NotIn", ["True"])], next={"statusTemplate": _NODE_STATUS}),
        # The lease says that the node lives; the conditions follow rarely.
        _stage(
            "node-heartbeat",
            "Node",
            [(_READY, "In", ["True"])],
            delay={"durationMilliseconds": 600_000, "jitterDurationMilliseconds": 660_000},
            next={"statusTemplate": _NODE_STATUS},
        ),
    ]


# podIP alone: podIPs is merged, and a stage that is played twice would add a second address.
_POD_RUNNING = """\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "Ready" "ContainersReady" }}
- type: {{ $type }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
{{ range .spec.readinessGates }}
- type: {{ .conditionType | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
{{ with PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
podIP: {{ index . 0 | Quote }}
{{ end }}
"""  # noqa: E501 -- a template line of kwok's cannot be broken


def _ended(phase: str, exit_code: int, reason: str) -> str:
    return f"""\
{{{{ $now := Now }}}}
phase: {phase}
conditions:
- type: Ready
  status: "False"
  reason: PodCompleted
  lastTransitionTime: {{{{ $now | Quote }}}}
- type: ContainersReady
  status: "False"
  reason: PodCompleted
  lastTransitionTime: {{{{ $now | Quote }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {exit_code}
      reason: {reason}
      startedAt: {{{{ $now | Quote }}}}
      finishedAt: {{{{ $now | Quote }}}}
{{{{ end }}}}
"""


def _pod_stages() -> list[dict[str, Any]]:
    def annotation(name: str) -> str:
        return f'.metadata.annotations["{name}"]'

    def after(name: str) -> dict[str, Any]:
        return {"durationFrom": {"expressionFrom": annotation(name)}}

    alive: tuple[str, str, list[str]] = (_DELETED, "DoesNotExist", [])
    running: tuple[str, str, list[str]] = (".status.phase", "In", ["Running"])
    deleted: tuple[str, str, list[str]] = (_DELETED, "Exists", [])
    # One that others still hold would be deleted over and over.
    free: tuple[str, str, list[str]] = (".metadata.finalizers", "DoesNotExist", [])
    # kwok deletes by name. Its own delete changes the pod once more before it is gone, and a second delete
    # would hit whatever has that name by then.
    no_grace = ".metadata.deletionGracePeriodSeconds == 0"
    once: tuple[str, str, list[str]] = (no_grace, "In", ["false"])
    ends = ((SUCCEED_AFTER, "Succeeded", 0, "Completed"), (FAIL_AFTER, "Failed", 1, "Error"))
    return [
        _stage(
            "pod-run",
            "Pod",
            [alive, (".status.phase", "In", ["Pending"])],
            next={"statusTemplate": _POD_RUNNING},
        ),
        *(
            _stage(
                f"pod-{phase.lower()}",
                "Pod",
                [alive, running, (annotation(name), "Exists", [])],
                delay=after(name),
                next={"statusTemplate": _ended(phase, code, reason)},
            )
            for name, phase, code, reason in ends
        ),
        _stage(
            "pod-delete",
            "Pod",
            [deleted, free, once, (annotation(TERMINATE_AFTER), "DoesNotExist", [])],
            next={"delete": True},
        ),
        _stage(
            "pod-delete-late",
            "Pod",
            [deleted, free, once, (annotation(TERMINATE_AFTER), "Exists", [])],
            delay=after(TERMINATE_AFTER),
            next={"delete": True},
        ),
        # Still there: the delete was cut off between its two writes. Given up when the pod goes.
        _stage(
            "pod-delete-again",
            "Pod",
            [deleted, free, (no_grace, "In", ["true"])],
            delay={"durationMilliseconds": 1000},
            next={"delete": True},
        ),
    ]
