"""The calls: get, list, create, update, patch, delete, evict on any :class:`Resource`."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from vc_egpu.kube import answers
from vc_egpu.kube.resources import PODS, SELF_SUBJECT_REVIEWS, Resource
from vc_egpu.kube.wire import config
from vc_egpu.kube.wire.errors import Gone, ImpossibleName, Refused, Unavailable
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.kube.wire.transport import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Fence,
    Json,
    Query,
    Stream,
    TooLargeError,
    Transport,
    parse,
)
from vc_egpu.volcano.api.paths import PathNameError

PatchKind = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]
PAGE_SIZE: Final = 500
"""As kubectl reads: a page is held whole, and a Job may be 50 KB."""
MOST_PAGE_BYTES: Final = 32 * 1024 * 1024
"""In memory it is ten times as much. A user who may create pods may create hundreds of a megabyte each."""
_PATCH_TYPES: Final[Mapping[PatchKind, str]] = {
    "merge": MERGE_PATCH,
    "json": JSON_PATCH,
    "strategic": STRATEGIC_PATCH,
    "apply": APPLY_PATCH,
}


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The items of a list and the version of the whole, from which a watch may go on."""

    items: list[Json]
    resource_version: str


class ApiConnection:
    """A thread-safe connection to one API server. Objects are plain JSON documents.

    Every method raises :class:`~.wire.errors.KubeError` and nothing else for what the server or the network
    does. It never repeats a write on its own. The outcome of a failed write may be unknown, and only the
    caller knows whether it may be repeated. A name that would address another object is not sent
    (:class:`~.wire.errors.ImpossibleName`, a ``NotFound``).
    """

    def __init__(self, transport: Transport, *, fence: Fence | None = None) -> None:
        self._transport = transport
        self._fence = fence
        self._limited = True

    @classmethod
    def connect(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        pool_size: int = 32,
        timeout_s: float = 30.0,
        user_agent: str = "vc-egpu",
        qps: float | None = None,
        burst: int | None = None,
        patience_s: float = 0.0,
    ) -> "ApiConnection":
        """Load the configuration (see :func:`vc_egpu.kube.wire.config.load`); connects at the first request.

        ``qps``/``burst`` bound this client's requests (but see :meth:`unlimited`); without them the server's
        own fairness is the limit. ``patience_s``: see :class:`Transport`.
        """
        limit = TokenBucket(qps, burst if burst is not None else max(1, int(qps * 2))) if qps else None
        endpoint = config.load(kubeconfig, context)
        transport = Transport(
            endpoint,
            pool_size=pool_size,
            timeout_s=timeout_s,
            user_agent=user_agent,
            limit=limit,
            patience_s=patience_s,
        )
        return cls(transport)

    @classmethod
    def with_token(
        cls,
        server: str,
        ca_file: str | Path | None,
        token: str,
        *,
        pool_size: int = 8,
        timeout_s: float = 15.0,
        user_agent: str = "vc-egpu",
    ) -> "ApiConnection":
        """A connection with somebody's bearer token and nothing of our own: no file, no certificate.

        ``server`` is a URL. Raises :class:`~.wire.config.ConfigError` where it is none.
        """
        endpoint = config.with_token(server, ca_file, token)
        return cls(Transport(endpoint, pool_size=pool_size, timeout_s=timeout_s, user_agent=user_agent))

    @classmethod
    def without_credentials(
        cls,
        server: str,
        ca_file: str | Path | None,
        *,
        pool_size: int = 32,
        timeout_s: float = 15.0,
        user_agent: str = "vc-egpu",
    ) -> "ApiConnection":
        """A connection that has no credentials itself: see :meth:`bearing`. Raises as :meth:`with_token`."""
        endpoint = config.without_credentials(server, ca_file)
        return cls(Transport(endpoint, pool_size=pool_size, timeout_s=timeout_s, user_agent=user_agent))

    def bearing(self, token: str) -> "ApiConnection":
        """The same connection, for the bearer of this token alone. Many users share its sockets so.

        Raises :class:`~.wire.errors.Unauthorized` for what can be no token.
        """
        other = copy.copy(self)
        other._transport = self._transport.bearing(token)
        return other

    def bearer_token(self) -> str | None:
        """The token that requests go out with; None: certificates say whose they are.

        Raises :class:`~.wire.errors.Unauthorized` where it cannot be read.
        """
        return self._transport.bearer_token()

    def own_review(self) -> Json:
        """A SelfSubjectReview: whom the API server takes these credentials for, and when it said so.

        Raises :class:`~.wire.errors.KubeError`. Every user may ask for it.
        """
        review = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind}
        return self.create(SELF_SUBJECT_REVIEWS, {**review, "metadata": {}})

    def metadata_only(self) -> "ApiConnection":
        """The same connection, whose lists and watches bring no more than the metadata of each object.

        A server that does not know how sends whole objects.
        """
        other = copy.copy(self)
        other._transport = self._transport.metadata_only()
        return other

    def fenced(self, fence: Fence) -> "ApiConnection":
        """The same connection, on which writes are held back (:class:`LeaseLost`) once the fence is down."""
        other = copy.copy(self)
        other._fence = fence
        return other

    def unlimited(self) -> "ApiConnection":
        """The same connection, for the few requests that stand in no line: a lease is lost by waiting."""
        other = copy.copy(self)
        other._limited = False
        return other

    def close(self) -> None:
        """Give up idle connections (also those of fenced copies)."""
        self._transport.close()

    # --- any path ------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: Query | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """One exchange with any path; the answer as a document."""
        data = self._transport.exchange(
            method,
            path,
            body,
            content_type=content_type,
            query=query,
            timeout_s=timeout_s,
            fence=self._fence,
            limited=self._limited,
        )
        return parse(data, f"{method} {path}")

    def request_text(self, path: str, *, query: Query | None = None, timeout_s: float | None = None) -> str:
        """GET a path that does not answer with JSON (logs, ``/readyz``)."""
        return self._transport.exchange("GET", path, query=query, timeout_s=timeout_s).decode(
            "utf-8", "replace"
        )

    def stream(self, path: str, query: Query, *, idle_timeout_s: float) -> Stream:
        """Open a watch; most callers want :class:`vc_egpu.kube.watch.Reflector`."""
        return self._transport.stream(path, query, idle_timeout_s=idle_timeout_s)

    # --- reads ---------------------------------------------------------------------------------------

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, *, timeout_s: float | None = None
    ) -> Json:
        """One object; :class:`NotFound` if there is none."""
        path = _path_of(resource, name, namespace)
        return answers.one(resource, self.request("GET", path, timeout_s=timeout_s), f"GET {path}")

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        transform: Callable[[Json], Json] | None = None,
        not_older_than: str = "",
    ) -> ObjectList:
        """All objects, as of one version; read page by page. ``transform`` says what is kept of each: a big
        cluster whole, as it comes, takes gigabytes.

        ``not_older_than``: any version from that on will do. The server then answers at once and whole, from
        its memory. Otherwise it reads all objects of the kind, whatever the selectors say. It refuses if it
        is itself behind that version.
        """
        query: dict[str, str | int | bool | None] = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        if not_older_than:
            query |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
        else:
            query["limit"] = page_size
        items: list[Json] = []
        begun_anew = False
        while True:
            try:
                page = self._page(_path(resource, namespace), query)
            except TooLargeError:
                query = {key: query[key] for key in query if not key.startswith("resourceVersion")}
                query["limit"] = max(1, int(query.get("limit") or page_size) // 8)
                continue
            except Gone:
                if "continue" not in query:
                    raise
                # The pages' version was compacted away under us. Once more from the first page; should that
                # be too slow again, one unpaged answer is always consistent, if large.
                items.clear()
                query.pop("continue")
                if begun_anew:
                    query.pop("limit")
                begun_anew = True
                continue
            metadata = page.get("metadata") or {}
            found = page.get("items") or ()
            items.extend(map(transform, found) if transform is not None else found)
            token = metadata.get("continue")
            if not token:
                return ObjectList(items, str(metadata.get("resourceVersion") or ""))
            query["continue"] = token
            query["limit"] = min(page_size, 2 * int(query.get("limit") or page_size))

    def _page(self, path: str, query: Query) -> Json:
        """One page; a smaller one will do where it is too large and may be smaller."""
        may_be_smaller = "resourceVersion" in query or query.get("limit", 1) != 1
        most = MOST_PAGE_BYTES if may_be_smaller else None
        data = self._transport.exchange("GET", path, query=query, limited=self._limited, most_bytes=most)
        return answers.page(parse(data, f"GET {path}"), f"GET {path}")

    # --- writes --------------------------------------------------------------------------------------

    def create(
        self,
        resource: Resource,
        body: Json,
        namespace: str | None = None,
        *,
        subresource: tuple[str, str] | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> Json:
        """Create an object; the namespace is the object's own where none is given.

        ``subresource=(name, sub)`` posts to a subresource of an existing object, e.g. ``("p", "binding")``.
        """
        where = namespace or (body.get("metadata") or {}).get("namespace")
        name, sub = subresource if subresource else (None, None)
        path = _path(resource, where if resource.namespaced else None, name, sub)
        answer = self.request("POST", path, body, query=_dry_run(dry_run), timeout_s=timeout_s)
        return answers.one(resource, answer, f"POST {path}", sub)

    def update(
        self,
        resource: Resource,
        body: Json,
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """Replace an object; with ``metadata.resourceVersion`` set, only if no other client wrote in
        between."""
        metadata = body["metadata"]
        path = _path_of(resource, metadata["name"], metadata.get("namespace"), subresource)
        answer = self.request("PUT", path, body, timeout_s=timeout_s)
        return answers.one(resource, answer, f"PUT {path}", subresource)

    def update_status(self, resource: Resource, body: Json, *, timeout_s: float | None = None) -> Json:
        """Replace the status subresource."""
        return self.update(resource, body, subresource="status", timeout_s=timeout_s)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Json | Sequence[Json],
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> Json:
        """Patch an object. ``kind`` is merge, json (a list of operations), strategic (built-in types only) or
        apply (server-side; ``field_manager`` needed). A ``metadata.resourceVersion`` or ``uid`` in the body
        makes it conditional."""
        if kind == "apply" and not field_manager:
            raise ValueError("server-side apply needs a field_manager")
        query: dict[str, str | int | bool | None] = {"fieldManager": field_manager}
        if force:
            query["force"] = True
        if dry_run:
            query["dryRun"] = "All"
        path, content_type = _path_of(resource, name, namespace, subresource), _PATCH_TYPES[kind]
        answer = self.request(
            "PATCH", path, body, content_type=content_type, query=query, timeout_s=timeout_s
        )
        return answers.one(resource, answer, f"PATCH {path}", subresource)

    def patch_status(
        self,
        resource: Resource,
        name: str,
        body: Json | Sequence[Json],
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        timeout_s: float | None = None,
    ) -> Json:
        """Patch the status subresource."""
        return self.patch(
            resource, name, body, namespace, kind=kind, subresource="status", timeout_s=timeout_s
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> Json:
        """Delete an object; with ``uid`` only that very one (:class:`Conflict` if it is another)."""
        body = _delete_options(uid, resource_version, grace_period_s, propagation)
        path, query = _path_of(resource, name, namespace), _dry_run(dry_run)
        return self.request("DELETE", path, body, query=query, timeout_s=timeout_s)

    def delete_collection(
        self,
        resource: Resource,
        namespace: str,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        grace_period_s: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete all objects of one namespace that the selectors choose."""
        self.request(
            "DELETE",
            _path(resource, namespace),
            _delete_options(None, None, grace_period_s, None),
            query={"labelSelector": label_selector, "fieldSelector": field_selector},
            timeout_s=timeout_s,
        )

    def bind(self, binding: Json, *, dry_run: bool = False, timeout_s: float | None = None) -> None:
        """Bind a pod to a node: ``binding`` is a Binding (v1), whose annotations go onto the pod as well.

        With ``metadata.uid`` and ``metadata.resourceVersion`` it holds for that very version only. Raises
        :class:`Conflict` where the pod is another one by now, is bound, is being deleted, or bears a gate.
        The answer does not show the pod.
        """
        metadata = binding["metadata"]
        path = PODS.path(metadata["namespace"], metadata["name"], "binding")
        answer = self.request("POST", path, binding, query=_dry_run(dry_run), timeout_s=timeout_s)
        if answer.get("kind") != "Status" or answer.get("status") != "Success":
            raise Unavailable(f"POST {path}: the answer does not say whether the pod is bound")

    def evict(
        self,
        name: str,
        namespace: str,
        *,
        uid: str | None = None,
        grace_period_s: int | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Evict a pod through the Eviction API, so that PodDisruptionBudgets are heard.

        Raises :class:`BudgetExhausted` when one forbids it now, :class:`Refused` when several guard the pod,
        :class:`Conflict` when ``uid`` is not it.
        """
        options = _delete_options(uid, None, grace_period_s, None)
        if dry_run:
            options["dryRun"] = ["All"]
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        answer = self.create(PODS, body, namespace, subresource=(name, "eviction"), timeout_s=timeout_s)
        if answer.get("status") == "Failure":
            # Two budgets guard the pod: the API server says so with the HTTP status of a success.
            raise Refused(f"EVICT {namespace}/{name}: {answer.get('message')}", status=500)

    def pod_log(
        self, name: str, namespace: str, *, container: str | None = None, tail_lines: int | None = None
    ) -> str:
        """The log of a container as far as it goes."""
        query: Query = {"container": container, "tailLines": tail_lines}
        return self.request_text(_path_of(PODS, name, namespace, "log"), query=query)


def _path(
    resource: Resource, namespace: str | None, name: str | None = None, subresource: str | None = None
) -> str:
    try:
        return resource.path(namespace, name, subresource)
    except PathNameError as error:
        raise ImpossibleName(str(error)) from None


def _path_of(
    resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
) -> str:
    try:
        return resource.path_of(name, namespace, subresource)
    except PathNameError as error:
        raise ImpossibleName(str(error)) from None


def _dry_run(wanted: bool) -> Query | None:  # noqa: FBT001 - passed on from a keyword
    return {"dryRun": "All"} if wanted else None


def _delete_options(
    uid: str | None, resource_version: str | None, grace_period_s: int | None, propagation: Propagation | None
) -> Json:
    body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {
        key: value
        for key, value in (("uid", uid), ("resourceVersion", resource_version))
        if value is not None
    }
    if preconditions:
        body["preconditions"] = preconditions
    if grace_period_s is not None:
        body["gracePeriodSeconds"] = grace_period_s
    if propagation is not None:
        body["propagationPolicy"] = propagation
    return body
