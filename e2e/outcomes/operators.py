"""Gangs as operators make them: a PodGroup of their own kind, and pods that name it. Plain documents.

ConfigMaps stand for the operators' kinds (RayCluster, MPIJob): an owner has to exist, or the garbage
collector takes what it owns away.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.volcano import names

from outcomes.workload import Json, container, pod_spec

OWNER_KIND: Final = ("v1", "ConfigMap")


def owner(name: str) -> Json:
    """What a team would write: the operator makes the rest."""
    return {"apiVersion": OWNER_KIND[0], "kind": OWNER_KIND[1], "metadata": {"name": name}}


def reference(obj: Json) -> Json:
    """To the controller of what carries it; ``obj`` as the API server knows it."""
    metadata = obj["metadata"]
    return {
        "apiVersion": obj.get("apiVersion", "v1"),
        "kind": obj.get("kind", "Pod"),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def group(name: str, by: Json, members: int, least: Mapping[str, Any], *, queue: str = "") -> Json:
    """The PodGroup; ``least`` as operators sum it up, limits per card included."""
    spec: Json = {"minMember": members, "minResources": {key: str(value) for key, value in least.items()}}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "ownerReferences": [reference(by)]},
        "spec": {**spec, "queue": queue} if queue else spec,
    }


def metadata(name: str, group_name: str, *, task: str = "", queue: str = "", by: Json | None = None) -> Json:
    """Of a pod, or of a template where no owner is named."""
    annotations = {names.GROUP_NAME: group_name}
    annotations |= {names.TASK_SPEC: task} if task else {}
    annotations |= {names.QUEUE_NAME: queue} if queue else {}
    found: Json = {"labels": {"app": name.rpartition("-")[0] or name}, "annotations": annotations}
    return found | ({"name": name, "ownerReferences": [reference(by)]} if by is not None else {})


def pod(name: str, by: Json, group_name: str, limits: Mapping[str, Any] | None, task: str) -> Json:
    """A pod that the operator makes itself."""
    spec = pod_spec(container(limits=limits), schedulerName="volcano", restartPolicy="Always")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, group_name, task=task, by=by),
        "spec": spec,
    }


def batch_job(name: str, by: Json, group_name: str) -> Json:
    """A launcher: a batch Job whose pod asks for no card."""
    template = {
        "metadata": metadata(name, group_name),
        "spec": pod_spec(container(), schedulerName="volcano", restartPolicy="Never"),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "ownerReferences": [reference(by)]},
        "spec": {"template": template},
    }


def stateful_set(
    name: str,
    replicas: int,
    group_name: str,
    limits: Mapping[str, Any],
    *,
    queue: str,
    by: Json | None = None,
) -> Json:
    """Leaders, or the workers of one of them (``by`` is the leading pod)."""
    template = {
        "metadata": metadata(name, group_name, queue=queue),
        "spec": pod_spec(container(limits=limits), schedulerName="volcano"),
    }
    template["metadata"]["labels"] = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, **({"ownerReferences": [reference(by)]} if by is not None else {})},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }
