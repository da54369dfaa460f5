"""Jobs, Deployments and pods as a user writes them: plain documents."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localcluster.images import BUSYBOX_IMAGE
from vc_egpu.volcano.words import names

Json = dict[str, Any]
UNTIL_TOLD: Final = "trap exit TERM; while :; do sleep 0.2; done"
"""Runs until it gets SIGTERM."""
DEAF: Final = "trap '' TERM; until [ -e /tmp/done ]; do sleep 0.2; done"
"""Ignores SIGTERM; ends when its file is there."""
H20_MIB: Final = 98304


def shares(
    memory_mib: int | str | None = None,
    cores: int | str | None = None,
    *,
    cards: int | str = 1,
    model: str = "h20",
    percentage: int | str | None = None,
) -> Json:
    """Limits of one container: shares of ``cards`` cards of ``model``; nothing else named is whole cards."""
    asked: Json = {names.shared_resource(model): cards}
    if memory_mib is not None:
        asked[names.LIMIT_MEMORY] = memory_mib
    if percentage is not None:
        asked[names.LIMIT_MEMORY_PERCENTAGE] = percentage
    if cores is not None:
        asked[names.LIMIT_CORES] = cores
    return asked


def container(name: str = "main", limits: Mapping[str, Any] | None = None, command: str = UNTIL_TOLD) -> Json:
    """One container that passes Pod Security's level "restricted"."""
    return {
        "name": name,
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": dict(limits or {})},
    }


def pod_spec(*containers: Json, **more: Any) -> Json:
    """A pod's spec; ``more`` is merged into it."""
    return {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [copy.deepcopy(one) for one in containers],
        **more,
    }


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a Job: ``replicas`` equal pods."""

    limits: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    name: str = "worker"
    priority: str = ""
    command: str = UNTIL_TOLD
    more: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the pods' spec; ``containers`` in it replaces the one container."""
    min_available: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the pods."""

    def document(self) -> Json:
        """The entry of ``spec.tasks``."""
        spec = {"restartPolicy": "Never", **self.more}
        containers = spec.pop("containers", [container(limits=self.limits, command=self.command)])
        annotations = {names.PRIORITY: self.priority} if self.priority else {}
        metadata = {"annotations": {**annotations, **self.annotations}}
        task = {
            "name": self.name,
            "replicas": self.replicas,
            "template": {"metadata": metadata, "spec": pod_spec(*containers, **spec)},
        }
        if self.min_available is not None:
            task["minAvailable"] = self.min_available
        return task


RESTART_ON_EVICTION: Final = ({"event": "PodEvicted", "action": "RestartJob"},)


def job(
    name: str,
    *tasks: Task,
    queue: str | None,
    min_available: int | None = None,
    policies: tuple[Json, ...] = RESTART_ON_EVICTION,
    **more: Any,
) -> Json:
    """A Volcano Job; all members are needed unless ``min_available`` says less."""
    wanted = sum(task.replicas for task in tasks) if min_available is None else min_available
    spec: Json = {
        "minAvailable": wanted,
        "policies": [dict(policy) for policy in policies],
        "tasks": [task.document() for task in tasks],
        **more,
    }
    if queue is not None:
        spec["queue"] = queue
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": spec,
    }


def deployment(
    name: str, replicas: int, limits: Mapping[str, Any], *, queue: str | None, priority: str = "", **more: Any
) -> Json:
    """A Deployment of one-container pods."""
    annotations = {names.PRIORITY: priority} if priority else {}
    if queue is not None:
        annotations[names.QUEUE_NAME] = queue
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": pod_spec(container(limits=limits), **more),
            },
        },
    }


def stateful_set(name: str, replicas: int, limits: Mapping[str, Any], *, queue: str) -> Json:
    """The same pods under names that stay."""
    document = deployment(name, replicas, limits, queue=queue)
    document["kind"] = "StatefulSet"
    document["spec"]["serviceName"] = name
    return document


def pod(
    name: str,
    limits: Mapping[str, Any] | None = None,
    *,
    queue: str | None,
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> Json:
    """A bare pod."""
    found = dict(annotations or {})
    if queue is not None:
        found[names.QUEUE_NAME] = queue
    containers = more.pop("containers", [container(limits=limits)])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": found},
        "spec": pod_spec(*containers, **{"restartPolicy": "Never", **more}),
    }
