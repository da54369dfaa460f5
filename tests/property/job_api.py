"""An API server in memory for random lives of the Job controller: it refuses writes as a life wishes.

It holds what a real one holds: names are unique, versions and UIDs are preconditions, and a pod that is bound
goes only once its kubelet says so. Its watches report in order, and late. It also judges every write.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson
from vc_egpu.jobs.known.pods import trim
from vc_egpu.kube import Change, ChangeKind, Resource
from vc_egpu.kube.resources import (
    COMMANDS,
    CONFIG_MAPS,
    NETWORK_POLICIES,
    POD_GROUPS,
    PODS,
    QUEUES,
    SERVICES,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import error_of

Json = dict[str, Any]
RESOURCES: Final[dict[str, Resource]] = {
    resource.plural: resource
    for resource in (
        COMMANDS, CONFIG_MAPS, NETWORK_POLICIES, POD_GROUPS, PODS, QUEUES, SERVICES, VOLCANO_JOBS,
    )
}  # fmt: skip
WATCHED: Final = (QUEUES, POD_GROUPS, PODS, COMMANDS, VOLCANO_JOBS)


class Died(BaseException):
    """The controller is killed here."""


class Judge:
    """What must be true of the controller's writes; a life says more."""

    def created(self, resource: Resource, body: Json) -> None: ...

    def deleted(self, resource: Resource, present: Json) -> None: ...

    def status_written(self, present: Json, body: Json) -> None: ...


class Server:
    """``exchange`` is all that :class:`~vc_egpu.kube.ApiConnection` asks of a transport."""

    def __init__(self, judge: Judge, now: Callable[[], str]) -> None:
        self.objects: dict[str, Json] = {}
        self.untold: dict[Resource, list[Change]] = {resource: [] for resource in WATCHED}
        self.answer: Callable[[str, str], tuple[int, bool]] = lambda method, path: (0, False)
        """For a write, by method and path of the object: the status of a failure or 0, and whether it happens
        all the same."""
        self.writes = 0
        self.last_write: int | None = None
        """The controller is killed before it has written more than so often."""
        self._judge = judge
        self._now = now
        self._version = 100

    # --- for the controller --------------------------------------------------------------------------

    def exchange(self, method: str, path: str, body: Any = None, *, query: Any = None, **_: object) -> bytes:
        """One request; raises KubeError."""
        if method == "GET":
            present = self.objects.get(path)
            if present is None:
                raise error_of(404, None, context=f"GET {path}")
            return orjson.dumps(present)
        if self.last_write is not None and self.writes >= self.last_write:
            raise Died
        self.writes += 1
        about = f"{path}/{body['metadata']['name']}" if method == "POST" else path
        code, happens = self.answer(method, about)
        if code and not happens:
            raise error_of(code, {"message": "the test says no"}, context=f"{method} {path}")
        answer = self._write(method, path, orjson.loads(orjson.dumps(body)), dry_run=bool(query))
        if code:
            raise error_of(code, None, context=f"{method} {path}")
        return orjson.dumps(answer)

    def close(self) -> None: ...

    def _write(self, method: str, path: str, body: Json, *, dry_run: bool) -> Json:
        if method == "POST":
            resource = RESOURCES[path.rsplit("/", 1)[1]]
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise error_of(409, {"reason": "AlreadyExists"}, context=f"POST {path}")
            self._judge.created(resource, body)
            return self.put(path, {"status": {}, **body, "kind": resource.kind})
        place = path.removesuffix("/status")
        present = self.objects.get(place)
        if present is None:
            raise error_of(404, None, context=f"{method} {path}")
        wanted = (body.get("preconditions") if method == "DELETE" else body.get("metadata")) or {}
        for name in ("uid", "resourceVersion"):
            if wanted.get(name, present["metadata"][name]) != present["metadata"][name]:
                raise error_of(409, None, context=f"{method} {path}")
        if dry_run:
            return present
        if method == "DELETE":
            self._judge.deleted(resource_of(place), present)
            return self.delete(place)
        if method == "PUT":
            self._judge.status_written(present, body)
            return self.put(place, {**present, "status": body["status"]})
        return self.put(place, merged(present, body))

    # --- for everybody -------------------------------------------------------------------------------

    def put(self, path: str, document: Json) -> Json:
        """Store it, and report it later."""
        before = self.objects.get(path)
        self._version += 1
        metadata = {"creationTimestamp": self._now(), "uid": f"u{self._version}", **document["metadata"]}
        stored = {**document, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        self.objects[path] = stored
        self._tell(path, ChangeKind.ADDED if before is None else ChangeKind.MODIFIED, stored, before)
        return stored

    def delete(self, path: str) -> Json:
        """As by any client: a pod on a node gets notice, all else is gone."""
        present = self.objects[path]
        on_node = (present.get("spec") or {}).get("nodeName")
        if resource_of(path) is PODS and on_node and phase_of(present) in {"Pending", "Running"}:
            if "deletionTimestamp" in present["metadata"]:
                return present
            metadata = {**present["metadata"], "deletionTimestamp": self._now()}
            return self.put(path, {**present, "metadata": metadata})
        return self.remove(path)

    def remove(self, path: str) -> Json:
        """It is gone."""
        present = self.objects.pop(path)
        self._version += 1
        gone = {**present, "metadata": {**present["metadata"], "resourceVersion": str(self._version)}}
        self._tell(path, ChangeKind.DELETED, gone, present)
        return {"kind": "Status"} if resource_of(path) is not PODS else gone

    def all(self, resource: Resource) -> dict[str, Json]:
        """The objects of a kind by their paths, in their order."""
        return {path: value for path, value in sorted(self.objects.items()) if resource_of(path) is resource}

    def _tell(self, path: str, kind: ChangeKind, new: Json, old: Json | None) -> None:
        resource = resource_of(path)
        if resource in self.untold:
            self.untold[resource].append(Change(kind, seen(resource, new), old and seen(resource, old)))


def resource_of(path: str) -> Resource:
    """The kind of the object at this path."""
    return RESOURCES[path.rsplit("/", 2)[1]]


def seen(resource: Resource, document: Json) -> Json:
    """A copy as the controller's watch keeps it."""
    copy: Json = orjson.loads(orjson.dumps(document))
    return trim(copy) if resource is PODS else copy


def phase_of(pod: Json) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def merged(present: Json, patch: Json) -> Json:
    """RFC 7386."""
    result = dict(present)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = merged(old if isinstance(old, dict) else {}, value)
        else:
            result[key] = value
    return result
