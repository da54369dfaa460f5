"""A typed client for Volcano's Job, PodGroup, Queue, Command and HyperNode. Usable by itself::

    import kubernetes
    from vc_egpu.volcano.api.client import VolcanoClient

    kubernetes.config.load_kube_config()
    volcano = VolcanoClient.of(kubernetes.client.ApiClient())
    for job in volcano.jobs.list("team-a"):
        print(job.key, job.status.state.phase)

It works over anything that can exchange JSON with an API server: the official package's ``ApiClient`` (errors
are then its ``ApiException``), or :class:`vc_egpu.kube.ApiConnection` (with :mod:`vc_egpu.kube.wire.errors`).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

from vc_egpu.volcano.api.command import Command, CommandAction
from vc_egpu.volcano.api.hypernode import HyperNode
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.api.meta import ApiObject, Json, ModelError
from vc_egpu.volcano.api.paths import segment
from vc_egpu.volcano.api.podgroup import PodGroup, PodGroupPhase
from vc_egpu.volcano.api.queue import Queue

T = TypeVar("T", bound=ApiObject)
Query = Mapping[str, str | int | bool | None]
PatchType = Literal["merge", "json"]
_PATCH_TYPES: Mapping[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}
_PAGE_SIZE = 500


class Connection(Protocol):
    """What the client needs of the connection to the API server."""

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = ...,
        query: Query | None = ...,
        timeout_s: float | None = ...,
    ) -> Json:
        """One exchange: the answer of a success as a document, an exception otherwise."""
        ...


class OfficialConnection:
    """The official package's ``ApiClient`` as a :class:`Connection`."""

    def __init__(self, api_client: Any) -> None:
        self._client = api_client

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Query | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """One exchange; raises ``kubernetes.client.ApiException``."""
        pairs = [(key, _query_value(value)) for key, value in (query or {}).items() if value is not None]
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = self._client.param_serialize(
            method,
            path,
            query_params=pairs,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*request, _request_timeout=timeout_s)
        data = answer.read()
        if not 200 <= answer.status < 300:
            from kubernetes.client import ApiException

            raise ApiException(http_resp=answer)
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError(f"{method} {path}: the answer is no JSON object")
        return document


class Api(Generic[T]):
    """The calls on one kind. Objects are typed on the way in and out."""

    def __init__(self, connection: Connection, model: type[T]) -> None:
        self._connection = connection
        self._model = model

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The request path; namespace None: all namespaces (or a cluster-wide kind).

        Raises :class:`~.paths.PathNameError`, a ``ValueError``, for a name that would address another object.
        """
        model, kind = self._model, self._model.__name__
        parts = ["/apis", model.GROUP, model.VERSION]
        if model.NAMESPACED and namespace is not None:
            parts += ["namespaces", segment(namespace, kind, "namespace")]
        elif model.NAMESPACED and name is not None:
            raise ValueError(f"{kind} {name!r}: a namespace is needed")
        parts.append(model.PLURAL)
        if name is not None:
            parts.append(segment(name, kind))
        if subresource:
            parts.append(segment(subresource, kind, "subresource"))
        return "/".join(parts)

    def _path_of(self, name: str, namespace: str | None, subresource: str = "") -> str:
        """The path of one object: a name that is missing must not mean all of them."""
        segment(name, self._model.__name__)
        return self.path(namespace, name, subresource)

    def get(self, name: str, namespace: str | None = None) -> T:
        """One object."""
        return self._parse(self._connection.request("GET", self._path_of(name, namespace)))

    def list(
        self,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        on_refused: Callable[[Json, ModelError], None] | None = None,
    ) -> Iterator[T]:
        """All objects, page by page; namespace None: of all namespaces.

        One that does not fit its model raises :class:`~.meta.ModelError`, which names it; with
        ``on_refused`` it is handed to that instead, and the list goes on.
        """
        model = self._model
        kind = {"apiVersion": f"{model.GROUP}/{model.VERSION}", "kind": model.__name__}
        token: str | None = None
        while True:
            query = {"limit": _PAGE_SIZE, "continue": token, "labelSelector": label_selector}
            page = self._connection.request("GET", self.path(namespace), query=query)
            for item in page.get("items") or ():
                document = kind | item
                try:
                    value = self._parse(document)
                except ModelError as error:
                    if on_refused is None:
                        raise ModelError(f"{error.kind} {_key(item)}", error.problems) from error
                    on_refused(document, error)
                else:
                    yield value
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return

    def create(self, value: T, *, dry_run: bool = False) -> T:
        """Create the object in its own namespace."""
        path = self.path(value.metadata.namespace or None)
        if self._model.NAMESPACED and not value.metadata.namespace:
            raise ValueError(f"{self._model.__name__} {value.metadata.name!r}: metadata.namespace is empty")
        query = {"dryRun": "All"} if dry_run else None
        return self._parse(self._connection.request("POST", path, value.document(), query=query))

    def replace(self, value: T) -> T:
        """Replace the object; refused if another client wrote since ``metadata.resourceVersion``.

        A PodGroup's status goes with it: Volcano's CRD has no status subresource there.
        """
        path = self._path_of(value.metadata.name, value.metadata.namespace or None)
        return self._parse(self._connection.request("PUT", path, value.document()))

    def replace_status(self, value: T) -> T:
        """Replace only the status of a Job or Queue."""
        path = self._path_of(value.metadata.name, value.metadata.namespace or None, "status")
        return self._parse(self._connection.request("PUT", path, value.document()))

    def patch(
        self,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        kind: PatchType = "merge",
        subresource: str = "",
    ) -> T:
        """Change parts: a merge patch (a document) or a JSON patch (a list of operations)."""
        return self._parse(
            self._connection.request(
                "PATCH", self._path_of(name, namespace, subresource), body, content_type=_PATCH_TYPES[kind]
            )
        )

    def delete(self, name: str, namespace: str | None = None, *, uid: str | None = None) -> None:
        """Delete the object; with ``uid`` only that very one."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        self._connection.request("DELETE", self._path_of(name, namespace), body)

    def _parse(self, document: Json) -> T:
        return self._model.parse(document)


class VolcanoClient:
    """Typed access to Volcano's objects, and its verbs."""

    def __init__(self, connection: Connection) -> None:
        self.jobs = Api(connection, Job)
        self.pod_groups = Api(connection, PodGroup)
        self.queues = Api(connection, Queue)
        self.commands = Api(connection, Command)
        self.hyper_nodes = Api(connection, HyperNode)

    @classmethod
    def of(cls, api_client: Any) -> "VolcanoClient":
        """Over the official package's ``kubernetes.client.ApiClient``."""
        return cls(OfficialConnection(api_client))

    def suspend(self, job: Job) -> Command:
        """Stop a Job's pods and keep the Job (AbortJob)."""
        return self.command(job, CommandAction.ABORT_JOB)

    def resume(self, job: Job) -> Command:
        """Start a suspended Job again; counts as a retry."""
        return self.command(job, CommandAction.RESUME_JOB)

    def open_queue(self, queue: Queue) -> Command:
        """Let a queue take work."""
        return self.command(queue, CommandAction.OPEN_QUEUE)

    def close_queue(self, queue: Queue) -> Command:
        """Let a queue take nothing new; what runs goes on."""
        return self.command(queue, CommandAction.CLOSE_QUEUE)

    def command(self, target: Job | Queue, action: CommandAction, *, reason: str = "") -> Command:
        """Send an order to the controllers; Commands for queues go into the namespace ``default``."""
        namespace = target.metadata.namespace or "default"
        return self.commands.create(Command.to(target, action, namespace=namespace, reason=reason))

    def enqueue(self, name: str, namespace: str, *, resource_version: str | None = None) -> PodGroup:
        """Move a Pending PodGroup on to Inqueue, so that Volcano's controllers make its pods."""
        body: Json = {"status": {"phase": PodGroupPhase.INQUEUE.value}}
        if resource_version is not None:
            body["metadata"] = {"resourceVersion": resource_version}
        return self.pod_groups.patch(name, body, namespace)


def _key(item: Json) -> str:
    metadata = item.get("metadata") or {}
    return "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)


def _query_value(value: str | int | bool) -> str:  # noqa: FBT001 - a value, not a switch
    return str(value).lower() if isinstance(value, bool) else str(value)
