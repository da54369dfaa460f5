"""Takes a tenant away, in an order that leaves nothing half open.

The door closes first: without the verb ``use`` nobody submits. Then what is there is read again. Where
something runs, the door opens again and nothing is taken. The namespace goes before the queue, which the
webhook keeps while cards in it count in a queue above.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.wire.errors import KubeError, NotFound, Refused, Temporary
from vc_egpu.tenants import live, occupants, render
from vc_egpu.tenants.document import Tenant
from vc_egpu.tenants.drift import key_of
from vc_egpu.tenants.occupants import Occupants, label_of
from vc_egpu.tenants.writing import FIELD_MANAGER, Written

Json = dict[str, Any]
Progress = Callable[[str], None]
POLL_S: Final = 0.5


class StillThereError(RuntimeError):
    """Nothing was taken away; the text says what is still there."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was taken away, and what is left."""

    written: tuple[Written, ...]
    left: tuple[str, ...]
    """Sentences; empty where nothing of the tenant is left."""


def remove(
    api: ApiConnection,
    tenant: Tenant,
    *,
    evict: bool,
    delete_volumes: bool,
    timeout_s: float,
    progress: Progress,
) -> Removed:
    """Take the tenant away. Raises :class:`StillThereError` where something stands against it."""
    found = live.read(api, tenant, ())
    mine = [document for document in found.objects.values() if label_of(document) == tenant.name]
    _check(occupants.look(api, tenant), tenant, evict=evict, delete_volumes=delete_volumes)
    doors = [document for document in mine if document["kind"] == "ClusterRoleBinding"]
    for door in doors:
        _delete(api, door)
    try:
        _check(occupants.look(api, tenant), tenant, evict=evict, delete_volumes=delete_volumes)
    except (StillThereError, KubeError):
        _open_again(api, doors)
        raise
    return _take(api, tenant, mine, timeout_s=timeout_s, progress=progress)


def _check(there: Occupants, tenant: Tenant, *, evict: bool, delete_volumes: bool) -> None:
    against = []
    if there.queues_below or there.elsewhere:
        against.append("empty its queue first")
    if there.running and not evict:
        against.append("--evict ends what runs")
    if there.volumes and not delete_volumes:
        against.append("--delete-volumes takes the claims, and with most storage classes the data")
    if against:
        lines = [f"  {sentence}" for sentence in there.sentences()]
        head = f"tenant {tenant.name}: nothing was taken away ({'; '.join(against)}). Still there:"
        raise StillThereError("\n".join([head, *lines]))


def _take(
    api: ApiConnection, tenant: Tenant, mine: Iterable[Json], *, timeout_s: float, progress: Progress
) -> Removed:
    by_kind: dict[str, list[Json]] = {}
    for document in mine:
        by_kind.setdefault(document["kind"], []).append(document)
    deadline = time.monotonic() + timeout_s
    written = [Written(*key_of(one), "removed") for one in by_kind.pop("ClusterRoleBinding", [])]
    for namespace in by_kind.pop("Namespace", []):
        _delete(api, namespace)
        progress(f"namespace {tenant.namespace} goes, with all in it")
        while _is_there(api, namespace):
            if time.monotonic() >= deadline:
                held = occupants.held_by(api, tenant)
                return Removed(tuple(written), (*held, f"namespace {tenant.namespace} is still going"))
            time.sleep(POLL_S)
        written.append(Written(*key_of(namespace), "removed"))
    left = []
    for document in [*by_kind.pop("Queue", []), *by_kind.pop("ClusterRole", [])]:
        said = _delete_when_free(api, document, deadline)
        if said:
            left.append(said)
        else:
            written.append(Written(*key_of(document), "removed"))
    return Removed(tuple(written), tuple(left))


def _delete_when_free(api: ApiConnection, document: Json, deadline: float) -> str:
    """Why it is still there; empty once it is gone. A queue below another is kept while its cards count."""
    while True:
        try:
            _delete(api, document)
        except Refused as error:
            if time.monotonic() >= deadline:
                return f"{document['kind']} {document['metadata']['name']}: {error.message}"
        else:
            return ""
        time.sleep(POLL_S)


def _is_there(api: ApiConnection, namespace: Json) -> bool:
    try:
        found = api.get(resources.NAMESPACES, str(namespace["metadata"]["name"]))
    except NotFound:
        return False
    except Temporary:
        return True
    return bool(found["metadata"].get("uid") == namespace["metadata"].get("uid"))


def _delete(api: ApiConnection, document: Json) -> None:
    kind, namespace, name = key_of(document)
    try:
        api.delete(render.KINDS[kind], name, namespace or None, uid=document["metadata"].get("uid"))
    except NotFound:
        return


def _open_again(api: ApiConnection, doors: Iterable[Json]) -> None:
    for door in doors:
        old: Json = door["metadata"]
        metadata = {key: old[key] for key in ("name", "labels") if key in old}
        body: Json = {
            "apiVersion": resources.CLUSTER_ROLE_BINDINGS.api_version,
            **{key: door[key] for key in ("kind", "roleRef", "subjects") if key in door},
            "metadata": metadata,
        }
        kind, _, name = key_of(door)
        api.patch(render.KINDS[kind], name, body, kind="apply", field_manager=FIELD_MANAGER, force=True)
