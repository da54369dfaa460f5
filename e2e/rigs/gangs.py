"""Gangs as values, and the objects that a Job's controller and the webhook would make of them."""

from dataclasses import dataclass, field
from typing import Any

from stack.fakes import H20_MEMORY_MIB
from stack.kit import condition
from vc_egpu.kube.resources import POD_GROUPS, VOLCANO_JOBS
from vc_egpu.volcano.codec.request import totals_of
from vc_egpu.volcano.podspec.way import Way, way_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, Request

Json = dict[str, Any]


@dataclass(frozen=True)
class Gang:
    """A gang of equal members, as a Job's controller and the webhook would make it."""

    name: str
    members: int
    memory_mib: int = H20_MEMORY_MIB
    cores: int = 0
    cards: int = 1
    whole: bool = False
    priority: str = ""
    queue: str = "team"
    min_member: int | None = None
    namespace: str = "default"
    cpu: str = "100m"
    without_cards: int = 0
    """The last so many members ask for no cards."""
    by_scheduler: bool = False
    """A scheduler binds them, as with the setting ``binder: scheduler``."""
    extra: Json = field(default_factory=dict)
    """Merged into the pod's spec."""


def admitted(obj: Json) -> Json | None:
    """Our condition on a PodGroup or pod."""
    return condition(obj, names.CONDITION_ADMITTED)


def job(gang: Gang) -> Json:
    """The owner: real, or the garbage collector would take everything away."""
    task = {"name": "worker", "replicas": gang.members, "template": {"spec": {"containers": []}}}
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": gang.name, "namespace": gang.namespace},
        "spec": {"queue": gang.queue, "minAvailable": gang.min_member or gang.members, "tasks": [task]},
    }


def owner_reference(owner: Json) -> Json:
    """As its controller writes it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def podgroup(gang: Gang, owner: Json | None = None) -> Json:
    """The PodGroup of a gang, as of its Job if there is one."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {
            "name": gang.name,
            "namespace": gang.namespace,
            "annotations": {names.PRIORITY: gang.priority} if gang.priority else {},
            "ownerReferences": [owner_reference(owner)] if owner else [],
        },
        "spec": {"minMember": gang.min_member or gang.members, "queue": gang.queue},
        "status": {"phase": "Inqueue"},
    }


def pod(gang: Gang, owner: Json | None = None, index: int = 0) -> Json:
    """One member that waits, as the webhook leaves it; bare without an owner."""
    ask = ContainerRequest(
        model="h20",
        cards=gang.cards,
        memory_mib=gang.memory_mib,
        cores_percent=100 if gang.whole else gang.cores,
        whole=gang.whole,
    )
    asks = {"main": ask} if index < gang.members - gang.without_cards else {}
    totals = {name: str(amount) for name, amount in totals_of(ask).items()} if asks else {}
    annotations = {
        names.REQUEST: Request(containers=asks).encode(),
        names.GROUP_NAME: gang.name,
        names.TASK_SPEC: "worker",
        names.TASK_INDEX: str(index),
    }
    if gang.priority:
        annotations[names.PRIORITY] = gang.priority
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang.name}-worker-{index}",
            "namespace": gang.namespace,
            "labels": {names.MANAGED_LABEL: "true", "gang": gang.name},
            "annotations": annotations,
            "ownerReferences": [owner_reference(owner)] if owner else [],
        },
        "spec": {
            **_waiting(gang, asks=bool(asks)),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {
                        "requests": {"cpu": gang.cpu, "memory": "16Mi", **totals},
                        "limits": totals,
                    },
                }
            ],
            **gang.extra,
        },
    }


def _waiting(gang: Gang, *, asks: bool) -> Json:
    """What holds a member back, by the way that it goes."""
    if asks and way_of(gang.extra, by_scheduler=gang.by_scheduler).way is Way.DIRECT:
        return {"schedulerName": names.SCHEDULER_DIRECT}
    return {"schedulingGates": [{"name": names.GATE}]}
