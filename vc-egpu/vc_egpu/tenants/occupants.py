"""What is still in a tenant: what runs, what would run again, what is kept, what hangs below its queue."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.tenants.document import Tenant
from vc_egpu.volcano.words import names

Json = dict[str, Any]
_MOST_NAMED: Final = 8
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_GROUP_OVER: Final = frozenset({"Completed"})
_MAKERS: Final = (
    resources.VOLCANO_JOBS,
    resources.DEPLOYMENTS,
    resources.STATEFUL_SETS,
    resources.DAEMON_SETS,
    resources.BATCH_JOBS,
    resources.CRON_JOBS,
)


@dataclass(frozen=True, slots=True)
class Occupants:
    """Names of what is there."""

    running: tuple[str, ...]
    """Pods that have not finished."""
    elsewhere: tuple[str, ...]
    """Gangs of other namespaces in the tenant's queue, ``namespace/name``."""
    queues_below: tuple[str, ...]
    makers: tuple[str, ...]
    """``Kind name`` of what makes pods. It goes with the namespace."""
    volumes: tuple[str, ...]
    """PersistentVolumeClaims: their data may go with them."""

    def sentences(self) -> list[str]:
        """One for each sort of thing that is there."""
        said = (
            ("queues are below it; give them another parent, or remove their tenants", self.queues_below),
            ("gangs of other namespaces are in its queue", self.elsewhere),
            ("pods have not finished", self.running),
            ("PersistentVolumeClaims hold data", self.volumes),
            ("objects make pods", self.makers),
        )
        return [f"{len(found)} {what}: {few(list(found), _MOST_NAMED)}" for what, found in said if found]


def look(api: ApiConnection, tenant: Tenant) -> Occupants:
    """Everything that is there now."""
    groups = api.list(resources.POD_GROUPS).items
    return Occupants(
        running=tuple(sorted(_name(pod) for pod in _pods(api, tenant) if not _finished(pod))),
        elsewhere=tuple(sorted(_elsewhere(groups, tenant))),
        queues_below=tuple(sorted(_below(api.list(resources.QUEUES).items, tenant.queue))),
        makers=tuple(_makers(api, tenant)),
        volumes=tuple(
            sorted(map(_name, api.list(resources.PERSISTENT_VOLUME_CLAIMS, tenant.namespace).items))
        ),
    )


def held_by(api: ApiConnection, tenant: Tenant) -> list[str]:
    """What keeps the namespace from going: pods with their finalizers, and what the namespace itself says."""
    said = []
    for pod in _pods(api, tenant):
        finalizers = pod["metadata"].get("finalizers") or ()
        kept = f" (finalizers {few(list(finalizers), _MOST_NAMED)})" if finalizers else ""
        said.append(f"pod {_name(pod)} is still there{kept}")
    try:
        namespace = api.get(resources.NAMESPACES, tenant.namespace)
    except NotFound:
        return said
    conditions = (namespace.get("status") or {}).get("conditions") or ()
    said += [str(one["message"]) for one in conditions if one.get("status") == "True" and one.get("message")]
    return said


def _pods(api: ApiConnection, tenant: Tenant) -> list[Json]:
    return api.list(resources.PODS, tenant.namespace, transform=_light).items


def _light(pod: Json) -> Json:
    metadata = {key: pod["metadata"].get(key) for key in ("name", "finalizers")}
    return {"metadata": metadata, "status": {"phase": (pod.get("status") or {}).get("phase")}}


def _finished(pod: Json) -> bool:
    return pod["status"]["phase"] in _FINISHED


def _name(document: Json) -> str:
    return str(document["metadata"]["name"])


def _elsewhere(groups: Iterable[Json], tenant: Tenant) -> Iterable[str]:
    for group in groups:
        namespace = group["metadata"].get("namespace")
        over = (group.get("status") or {}).get("phase") in _GROUP_OVER
        if (
            (group.get("spec") or {}).get("queue") == tenant.queue
            and namespace != tenant.namespace
            and not over
        ):
            yield f"{namespace}/{_name(group)}"


def _below(queues: Iterable[Json], name: str) -> Iterable[str]:
    return (_name(queue) for queue in queues if (queue.get("spec") or {}).get("parent") == name)


def _makers(api: ApiConnection, tenant: Tenant) -> Iterable[str]:
    for resource in _MAKERS:
        for item in _listed(api, resource, tenant.namespace):
            owners = item["metadata"].get("ownerReferences") or ()
            if not any(owner.get("controller") for owner in owners):
                yield f"{_shown(resource)} {_name(item)}"


def _listed(api: ApiConnection, resource: Resource, namespace: str) -> list[Json]:
    try:
        return api.list(resource, namespace).items
    except NotFound:
        return []  # a kind that this cluster does not have


def _shown(resource: Resource) -> str:
    return f"Volcano {resource.kind}" if resource.group == resources.VOLCANO_JOBS.group else resource.kind


def label_of(document: Json) -> str:
    """The tenant whose object it is; empty for nobody's."""
    return str((document["metadata"].get("labels") or {}).get(names.TENANT_LABEL) or "")
