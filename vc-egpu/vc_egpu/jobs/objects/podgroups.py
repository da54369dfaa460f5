"""PodGroups: what a Job's says, what pods of other controllers share, and in which phase a gang is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.jobs.objects import requests
from vc_egpu.jobs.objects.pods import owner_reference
from vc_egpu.volcano.api.job import Job, Task
from vc_egpu.volcano.api.meta import Json
from vc_egpu.volcano.api.podgroup import PodGroupPhase
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import KNOBS
from vc_egpu.volcano.words.makers import controller_of

_MAX_DIGITS: Final = 9


def inherited(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that a PodGroup takes over from what it is made for.

    From the stack's own annotations it takes only those that users write. Only the stack writes the others.
    If the controller copied them from a Job, the Job's author could forge a plan.
    """
    return {
        key: value
        for key, value in annotations.items()
        if key != names.LAST_APPLIED and (not key.startswith(f"{names.DOMAIN}/") or key in KNOBS)
    }


def job_group(job: Job, class_values: Mapping[str, int]) -> Json:
    """The PodGroup of a completed Job, in phase Inqueue: on a cluster without Volcano we are the enqueuer.

    ``class_values``: priority classes by name, for the order in which tasks make up ``minResources``.
    """
    annotations = inherited(job.metadata.annotations)
    annotations[names.JOB_VERSION] = str(job.status.version)
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": job.pod_group_name(),
            "namespace": job.metadata.namespace,
            "annotations": annotations,
            "labels": dict(job.metadata.labels),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": job_group_spec(job, class_values),
        "status": {"phase": PodGroupPhase.INQUEUE.value},
    }


def job_group_spec(job: Job, class_values: Mapping[str, int]) -> Json:
    """The part of the PodGroup that follows the Job when it is scaled."""
    spec: Json = {
        "minMember": job.spec.min_available,
        "minTaskMember": {task.name: _at_least(task) for task in job.spec.tasks},
        "queue": job.spec.queue,
        "minResources": requests.render(_min_resources(job, class_values)),
    }
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    if job.spec.network_topology is not None:
        spec["networkTopology"] = job.spec.network_topology.document()
    return spec


def queue_of(group: Mapping[str, Any]) -> str:
    """The queue that a PodGroup names."""
    return (group.get("spec") or {}).get("queue") or "default"


def changes(wanted: Json, present: Mapping[str, Any]) -> Json:
    """A merge patch of what differs between the wanted and the present spec; empty if nothing does."""
    patch: Json = {}
    for key, value in wanted.items():
        old = present.get(key)
        if value == old:
            continue
        if isinstance(value, dict) and isinstance(old, Mapping):
            patch[key] = {**value, **{gone: None for gone in old if gone not in value}}
        else:
            patch[key] = value
    return patch


def _at_least(task: Task) -> int:
    return task.replicas if task.min_available is None else task.min_available


def _min_resources(job: Job, class_values: Mapping[str, int]) -> requests.Amounts:
    """Requests of the gang: its tasks by priority, each first with what it needs at least."""

    def value(task: Task) -> int:
        name = task.template.spec.get("priorityClassName") or job.spec.priority_class_name or ""
        return class_values.get(name, 0)

    tasks = sorted(job.spec.tasks, key=value, reverse=True)
    left = job.spec.min_available
    sums: requests.Amounts = {}
    if left < job.total_min_available():
        shares = [(task, task.replicas) for task in tasks]
    else:
        shares = [(task, _at_least(task)) for task in tasks]
        shares += [(task, task.replicas - _at_least(task)) for task in tasks]
    for task, most in shares:
        count = min(left, most)
        sums = requests.add(sums, requests.times(requests.of_pod(task.template.spec), count))
        left -= count
    return sums


# --- phase --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang, as the gang's phase sees it."""

    phase: str
    bound: bool
    terminating: bool

    @property
    def finished(self) -> bool:
        """Whether none of its containers runs again."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What the status of a PodGroup says."""

    phase: PodGroupPhase
    running: int
    succeeded: int
    failed: int

    def document(self) -> Json:
        """As a merge patch of the status; zeroes are absent, as Volcano writes them."""
        counts = {"running": self.running, "succeeded": self.succeeded, "failed": self.failed}
        return {"phase": self.phase.value, **{key: value or None for key, value in counts.items()}}


def group_status(min_member: int, members: Sequence[Member], before: PodGroupPhase | None) -> GroupCounts:
    """The phase of a gang from its members.

    Enough members hold their places: Running, or Completed when all of them succeeded. Fewer, while others
    still run and none is on its way out: Unknown (the gang broke). Otherwise Inqueue, never Pending.
    """
    running = sum(m.phase == "Running" and not m.terminating for m in members)
    succeeded = sum(m.phase == "Succeeded" for m in members)
    failed = sum(m.phase == "Failed" for m in members)
    leaving = sum(m.terminating and not m.finished for m in members)
    placed = sum(m.bound and not m.terminating and not m.finished for m in members)
    holding = placed + leaving + succeeded
    if holding and holding >= min_member:
        all_done = succeeded == holding
        phase = PodGroupPhase.COMPLETED if all_done else PodGroupPhase.RUNNING
        if leaving and not placed and not all_done:
            phase = before or PodGroupPhase.INQUEUE
    elif running and not leaving and before in {PodGroupPhase.RUNNING, PodGroupPhase.UNKNOWN}:
        phase = PodGroupPhase.UNKNOWN
    elif leaving and before is not None:
        phase = before
    else:
        phase = PodGroupPhase.INQUEUE
    return GroupCounts(phase, running, succeeded, failed)


# --- pods of other controllers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LooseGroup:
    """The gang of a pod whose controller is no Volcano Job."""

    name: str
    min_member: int
    queue: str


def loose_group(
    pod: Mapping[str, Any], owner: Mapping[str, Any] | None, namespace_annotations: Mapping[str, str]
) -> LooseGroup:
    """Which PodGroup a pod without one belongs to.

    ``owner``: the pod's controller object, if it has one and it could be read. The queue comes from the pod,
    then its controller, then the namespace; the size of the gang from the pod, then its controller.
    """
    metadata = pod["metadata"]
    reference = controller_of(pod)
    sources: list[Mapping[str, str]] = [metadata.get("annotations") or {}]
    if owner is not None:
        sources.append((owner.get("metadata") or {}).get("annotations") or {})
    size = _first(names.GROUP_MIN_MEMBER, sources)
    queue = _first(names.QUEUE_NAME, [*sources, namespace_annotations]) or "default"
    uid = reference["uid"] if reference else metadata["uid"]
    is_number = size is not None and size.isdecimal() and len(size) <= _MAX_DIGITS
    min_member = max(1, int(size)) if size is not None and is_number else 1
    return LooseGroup(f"{names.LOOSE_GROUP}{uid}", min_member, queue)


def loose_group_document(group: LooseGroup, pod: Mapping[str, Any]) -> Json:
    """The PodGroup itself; it goes with the pod's controller, or with the bare pod."""
    metadata, spec = pod["metadata"], pod["spec"]
    reference = controller_of(pod)
    owner = reference or _own_reference(pod)
    taken = inherited(metadata.get("annotations") or {})
    keep = {names.PREEMPTABLE, *KNOBS}
    group_spec: Json = {
        "minMember": group.min_member,
        "queue": group.queue,
        "minResources": requests.render(requests.times(requests.of_pod(spec), group.min_member)),
    }
    if spec.get("priorityClassName"):
        group_spec["priorityClassName"] = spec["priorityClassName"]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": group.name,
            "namespace": metadata["namespace"],
            "annotations": {key: value for key, value in taken.items() if key in keep},
            "ownerReferences": [owner],
        },
        "spec": group_spec,
        "status": {"phase": PodGroupPhase.INQUEUE.value},
    }


def _own_reference(pod: Mapping[str, Any]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }


def _first(key: str, sources: Sequence[Mapping[str, str]]) -> str | None:
    return next((source[key] for source in sources if key in source), None)
