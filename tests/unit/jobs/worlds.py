"""Worlds for the tests of the Job controller's decisions, made with few words."""

from typing import Any

from vc_egpu.jobs.rules.defaults import complete
from vc_egpu.jobs.rules.draft import Decision
from vc_egpu.jobs.rules.views import Eviction, GroupView, Order, PodPhase, PodView, World
from vc_egpu.volcano.api.job import Job, JobAction, JobPhase
from vc_egpu.volcano.api.podgroup import PodGroupPhase

NOW = 1_750_000_000.0
UID = "11111111-2222"


def task(name: str = "w", replicas: int = 2, **more: Any) -> dict[str, Any]:
    """A task as it stands in a Job; ``more`` in camel case."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job(*tasks: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> Job:
    """A completed Job ``train``; without tasks one of two pods."""
    return complete(
        Job.parse(
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {
                    "name": "train",
                    "namespace": "team",
                    "uid": UID,
                    "creationTimestamp": "2025-06-15T15:00:00Z",
                },
                "spec": {"tasks": list(tasks) or [task()], **spec},
                "status": status or {},
            }
        )
    )


def in_phase(phase: JobPhase, reason: str = "", **more: Any) -> dict[str, Any]:
    """A status in this phase."""
    return {"state": {"phase": phase.value, "reason": reason}, **more}


def pod(name: str = "w-0", phase: PodPhase = PodPhase.RUNNING, **more: Any) -> PodView:
    """The pod ``train-<name>``; its task is the part of the name before the index."""
    more.setdefault("ready", phase is PodPhase.RUNNING)
    if phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        more.setdefault("ended_at", NOW - 1)
    values = {"uid": f"uid-{name}", "version": 0, "created_at": NOW - 60, **more}
    return PodView(name=f"train-{name}", task=name.rsplit("-", 1)[0], phase=phase, **values)


def group(phase: PodGroupPhase = PodGroupPhase.INQUEUE, version: int = 0, **more: Any) -> GroupView:
    """The Job's PodGroup."""
    return GroupView(name=f"train-{UID}", uid="uid-pg", phase=phase, version=version, **more)


def world(of: Job, *pods: PodView, **more: Any) -> World:
    """The Job with these pods, a PodGroup in phase Inqueue and a clock at ``NOW``."""
    more.setdefault("group", group(version=of.status.version))
    return World(job=of, pods=pods, now=more.pop("now", NOW), **more)


def evicted(name: str = "w-0", version: int = 0, at: float = NOW - 1) -> Eviction:
    """Somebody deleted the pod ``train-<name>``."""
    return Eviction(f"train-{name}", f"old-uid-{name}", name.rsplit("-", 1)[0], version, at)


def order(action: JobAction) -> Order:
    """A Command."""
    return Order("cmd", "uid-cmd", action)


def phase_of(decision: Decision) -> JobPhase | None:
    """The phase that a decision writes; None if it leaves the status alone."""
    return JobPhase(decision.status["state"]["phase"]) if decision.status is not None else None


def killed(decision: Decision) -> set[str]:
    return {kill.pod.name.removeprefix("train-") for kill in decision.kills}
