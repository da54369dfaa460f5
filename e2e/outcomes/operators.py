"""Gangs as operators make them: a PodGroup of their own kind, and pods that name it. Plain documents.

ConfigMaps stand for the operators' kinds (RayCluster, MPIJob): an owner has to exist, or the garbage
collector takes what it owns away.
"""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from rigs.gangs import owner_reference
from vc_egpu.volcano.words import names

from outcomes import workload
from outcomes.workload import Json, container, pod_spec

_OF_VOLCANO: Final = {"schedulerName": names.SCHEDULER_VOLCANO}


def owner(name: str) -> Json:
    """What a team would write: the operator makes the rest."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def absent_owner(api_version: str, kind: str, name: str) -> Json:
    """An object of a kind that the cluster does not have: only references to it are there.

    The garbage collector cannot look for such an owner, so it takes nothing away.
    """
    metadata = {"name": name, "uid": str(uuid.uuid4())}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def group(name: str, by: Json, members: int, least: Mapping[str, Any], *, queue: str = "") -> Json:
    """The PodGroup; ``least`` as operators sum it up, limits per card included."""
    spec: Json = {"minMember": members, "minResources": {key: str(value) for key, value in least.items()}}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "ownerReferences": [owner_reference(by)]},
        "spec": {**spec, "queue": queue} if queue else spec,
    }


def pod(name: str, by: Json, group_name: str, limits: Mapping[str, Any] | None, task: str) -> Json:
    """A pod that the operator makes itself; its label ``app`` is its name without the last word."""
    annotations = {names.GROUP_NAME: group_name} | ({names.TASK_SPEC: task} if task else {})
    found = workload.pod(
        name, limits, queue=None, annotations=annotations, **_OF_VOLCANO, restartPolicy="Always"
    )
    found["metadata"] |= {
        "labels": {"app": name.rpartition("-")[0]},
        "ownerReferences": [owner_reference(by)],
    }
    return found


def batch_job(name: str, by: Json, group_name: str) -> Json:
    """A launcher: a batch Job whose pod asks for no card."""
    template = {
        "metadata": {"annotations": {names.GROUP_NAME: group_name}},
        "spec": pod_spec(container(), **_OF_VOLCANO, restartPolicy="Never"),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "ownerReferences": [owner_reference(by)]},
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
    found = workload.stateful_set(name, replicas, limits, queue=queue)
    found["spec"]["podManagementPolicy"] = "Parallel"
    found["spec"]["template"]["metadata"]["annotations"][names.GROUP_NAME] = group_name
    found["spec"]["template"]["spec"] |= _OF_VOLCANO
    if by is not None:
        found["metadata"]["ownerReferences"] = [owner_reference(by)]
    return found
