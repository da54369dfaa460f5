"""The pods of a Job, as Volcano's controllers make them: names, labels, annotations, volumes, plugins."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from vc_egpu.jobs.rules.plugins import Plugin, pod_name
from vc_egpu.volcano.api.job import Job, Task
from vc_egpu.volcano.api.meta import Json
from vc_egpu.volcano.words import names

_NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
_COOLDOWN_TIME: Final = "volcano.sh/cooldown-time"
_INHERITED_ANNOTATIONS: Final = (
    names.PREEMPTABLE,
    _COOLDOWN_TIME,
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
)
_INHERITED_LABELS: Final = (names.PREEMPTABLE, _COOLDOWN_TIME)


def owner_reference(job: Job) -> Json:
    """The Job as the controller of what is made for it."""
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def build_pod(job: Job, task: Task, index: int, plugins: Sequence[Plugin], local_scheduler: str) -> Json:
    """The pod ``index`` of a task of a completed Job.

    ``local_scheduler`` replaces ``volcano`` (and nothing) as the scheduler's name; empty: names stay.
    """
    template = task.template
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job.metadata.name, task.name, index),
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
            "labels": _labels(job, task, index),
            "annotations": _annotations(job, task, index),
        },
        "spec": _copy(template.spec),
    }
    if template.metadata.finalizers:
        pod["metadata"]["finalizers"] = list(template.metadata.finalizers)
    spec = pod["spec"]
    scheduler = spec.get("schedulerName") or job.spec.scheduler_name
    if local_scheduler and scheduler in {"", names.SCHEDULER_VOLCANO}:
        scheduler = local_scheduler
    if scheduler:
        spec["schedulerName"] = scheduler
    if job.spec.priority_class_name and not spec.get("priorityClassName"):
        spec["priorityClassName"] = job.spec.priority_class_name
    if spec.get("hostNetwork") is True and not spec.get("dnsPolicy"):
        # Volcano's webhook does: the node's own DNS knows no Service, and pods no other's name.
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    _mount_volumes(job, spec)
    for plugin in plugins:
        plugin.adorn(pod, task, index)
    return pod


def _copy(spec: Json) -> Json:
    """A pod spec of its own, in which null is absent, as it is for the API server."""
    text = orjson.dumps(spec)  # by far the quickest deep copy
    copied: Json = orjson.loads(text)
    return _without_nulls(copied) if b"null" in text else copied


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def claim_name(job: Job, index: int) -> str:
    """The claim behind ``spec.volumes[index]``: the user's, or the one made for the Job."""
    named = job.spec.volumes[index].volume_claim_name
    return named or f"{job.metadata.name}-volume-{index}"


def build_claims(job: Job) -> list[Json]:
    """The claims that the Job asks to be made, without owner."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim_name(job, index), "namespace": job.metadata.namespace},
            "spec": volume.volume_claim,
        }
        for index, volume in enumerate(job.spec.volumes)
        if volume.volume_claim is not None
    ]


def _labels(job: Job, task: Task, index: int) -> dict[str, str]:
    own = job.metadata.labels
    inherited: dict[str, str] = {key: own[key] for key in _INHERITED_LABELS if key in own}
    return {
        **task.template.metadata.labels,
        names.TASK_INDEX: str(index),
        names.JOB_NAME: job.metadata.name,
        names.TASK_SPEC: task.name,
        names.JOB_NAMESPACE: job.metadata.namespace,
        names.JOB_QUEUE_NAME: job.spec.queue,
        **inherited,
    }


def _annotations(job: Job, task: Task, index: int) -> dict[str, str]:
    own = job.metadata.annotations
    inherited: dict[str, str] = {key: own[key] for key in _INHERITED_ANNOTATIONS if key in own}
    # A pod with this mark is deleted and made again. From the template, the mark would come back each time.
    template = {k: v for k, v in task.template.metadata.annotations.items() if k != names.OUT_OF_SYNC}
    annotations = {
        **template,
        names.TASK_INDEX: str(index),
        names.TASK_SPEC: task.name,
        names.GROUP_NAME: job.pod_group_name(),
        names.JOB_NAME: job.metadata.name,
        names.JOB_QUEUE_NAME: job.spec.queue,
        names.JOB_VERSION: str(job.status.version),
        names.TEMPLATE_UID: f"{job.metadata.name}-{task.name}",
        names.JOB_RETRY_COUNT: str(job.status.retry_count),
        **inherited,
    }
    if task.topology_policy:
        annotations[_NUMA_POLICY] = task.topology_policy
    return annotations


def _mount_volumes(job: Job, spec: Json) -> None:
    volumes: dict[str, str] = {}
    prefix = job.metadata.name[:40].replace(".", "-")  # a volume's name is a label
    for index, volume in enumerate(job.spec.volumes):
        claim = claim_name(job, index)
        if claim not in volumes:
            volumes[claim] = f"{prefix}-vol-{index}"
            spec.setdefault("volumes", []).append(
                {"name": volumes[claim], "persistentVolumeClaim": {"claimName": claim}}
            )
        for container in spec.get("containers") or ():
            container.setdefault("volumeMounts", []).append(
                {"name": volumes[claim], "mountPath": volume.mount_path}
            )
