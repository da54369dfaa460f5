"""An API server that knows server-side apply: who owns which field, conflicts, and what is dropped.

Namespaces take all in them along when they are deleted. Lists are whole, as those of RBAC and policies are.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.resources import Resource
from vc_egpu.tenants.rights import SHARED_ROLES

Json = dict[str, Any]
Path_ = tuple[str, ...]
HAND = "kubectl-edit"
MODELS = """
models:
  - {name: h20, products: [NVIDIA H20], memoryMiB: 97871}
  - {name: t4, products: [Tesla T4], memoryMiB: 15360}
"""


class ApplyingApi:
    """The objects by path, and the owner of each of their fields."""

    def __init__(self, server: TinyApi) -> None:
        self.server = server
        self.objects: dict[str, Json] = {}
        self.owners: dict[str, dict[Path_, str]] = {}
        self.refuse: Callable[[str, str, Any], tuple[int, Json] | None] = lambda *_: None
        """Asked before each write: an answer instead of the usual one."""
        self.counts = True
        """Quotas are counted as soon as they are there."""
        self._version = 0
        server.refuses = self._answer

    def connect(self, folder: Path) -> ApiConnection:
        return ApiConnection.connect(self.server.kubeconfig(folder))

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Method and path of each write that was no trial."""
        asked = self.server.requests
        return [(method, path) for method, path, _ in asked if method != "GET" and "dryRun" not in path]

    def put(self, resource: Resource, document: Json) -> str:
        """Store an object, as somebody's hand does it."""
        metadata = document["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        self._store(path, document)
        self.owners[path] = dict.fromkeys(_leaves(document), HAND)
        return path

    def edit(self, path: str, change: Callable[[Json], None]) -> None:
        """Change an object by hand; the hand owns what it changed."""
        before = _leaves(self.objects[path])
        document = copy.deepcopy(self.objects[path])
        change(document)
        self._store(path, document)
        after = _leaves(document)
        changed = {leaf for leaf in after if before.get(leaf, ...) != after[leaf]}
        self.owners[path] = {leaf: who for leaf, who in self.owners[path].items() if leaf in after}
        self.owners[path] |= dict.fromkeys(changed, HAND)

    def _store(self, path: str, document: Json) -> Json:
        self._version += 1
        metadata = document.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata["resourceVersion"] = str(self._version)
        self.objects[path] = document
        return document

    def _answer(self, method: str, address: str, body: Any) -> tuple[int, Json]:
        parts = urlsplit(address)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path, present = parts.path, self.objects.get(parts.path)
        if method != "GET" and (refused := self.refuse(method, address, body)) is not None:
            return refused
        match method:
            case "GET" if present is not None:
                return 200, present
            case "GET":
                found = self._list(path, query)
                return (404, status(404, "NotFound", f"{path} not found")) if found is None else (200, found)
            case "PATCH":
                return self._apply(path, query, body)
            case "DELETE" if present is not None:
                return 200, self._delete(path)
            case _:
                return 404, status(404, "NotFound")

    def _list(self, path: str, query: Mapping[str, str]) -> Json | None:
        """Items of a collection, of one namespace or of all; None where the path is an object's."""
        known = {resource.path(): resource for resource in vars(resources).values() if _is(resource)}
        *before, plural = path.split("/")
        within = "/".join(before[:-2]) + f"/{plural}" if "namespaces" in before else path
        if within not in known:
            return None
        resource = known[within]
        key, _, value = query.get("labelSelector", "").partition("=")
        items = [
            document
            for where, document in self.objects.items()
            if _collection(where, all_of=path == within, resource=resource) == path
            and (not key or ((found := _labels(document).get(key)) is not None and value in {"", found}))
        ]
        return {"metadata": {"resourceVersion": str(self._version)}, "items": copy.deepcopy(items)}

    def _apply(self, path: str, query: Mapping[str, str], body: Json) -> tuple[int, Json]:
        manager, before = query["fieldManager"], self.objects.get(path)
        if before is None and "/namespaces/" in path and not path.startswith("/api/v1/namespaces/x"):
            namespace = path.split("/namespaces/")[1].split("/")
            if len(namespace) > 1 and f"/api/v1/namespaces/{namespace[0]}" not in self.objects:
                return 404, status(404, "NotFound", f'namespaces "{namespace[0]}" not found')
        owners, wanted = self.owners.get(path, {}), _leaves(body)
        old = _leaves(before or {})
        held = {leaf: who for leaf, who in owners.items() if who != manager and leaf in wanted}
        clash = sorted(".".join(leaf) for leaf in held if old[leaf] != wanted[leaf])
        if clash and query.get("force") != "true":
            said = f'Apply failed with {len(clash)} conflicts: conflict with "{HAND}": {", ".join(clash)}'
            return 409, status(409, "Conflict", said)
        dropped = {leaf for leaf, who in owners.items() if who == manager and leaf not in wanted}
        after = _built({**{leaf: value for leaf, value in old.items() if leaf not in dropped}, **wanted})
        if query.get("dryRun") == "All":
            return 200, after
        if "/resourcequotas/" in path and self.counts:
            after["status"] = {"used": dict.fromkeys(after["spec"]["hard"], "0")}
        if before is None or _leaves(after) != old:
            after["metadata"]["managedFields"] = [{"manager": manager}]
            after = self._store(path, after)
        self.owners[path] = {
            **{leaf: who for leaf, who in owners.items() if leaf not in dropped},
            **dict.fromkeys(wanted, manager),
        }
        return 200 if before is not None else 201, after if before is None else self.objects[path]

    def _delete(self, path: str) -> Json:
        gone = self.objects.pop(path)
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            inside = f"/namespaces/{gone['metadata']['name']}/"
            for other in [one for one in self.objects if inside in one]:
                self.objects.pop(other)
        return gone


def _is(value: object) -> bool:
    return isinstance(value, Resource)


def _collection(path: str, *, all_of: bool, resource: Resource) -> str:
    """The collection that an object is in; of all namespaces where ``all_of``."""
    folder = path.rsplit("/", 1)[0]
    if not all_of or not resource.namespaced:
        return folder
    head, _, tail = folder.partition("/namespaces/")
    return f"{head}/{tail.split('/', 1)[1]}" if "/" in tail else folder


def _labels(document: Json) -> Json:
    labels: Json = document["metadata"].get("labels") or {}
    return labels


def _leaves(value: Any, path: Path_ = ()) -> dict[Path_, Any]:
    """Values by path; lists and empty maps are whole. What the server writes is not there."""
    if isinstance(value, dict) and value:
        return {
            leaf: found
            for key, one in value.items()
            if (*path, key) not in {("metadata", "resourceVersion"), ("metadata", "managedFields")}
            for leaf, found in _leaves(one, (*path, str(key))).items()
        }
    return {path: value} if path else {}


def _built(leaves: Mapping[Path_, Any]) -> Json:
    document: Json = {}
    for path, value in leaves.items():
        place = document
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = copy.deepcopy(value)
    return document


@contextmanager
def applying_api() -> Iterator[ApplyingApi]:
    """One with the table of models and the roles of all tenants."""
    with tiny_api() as server:
        api = ApplyingApi(server)
        for name in SHARED_ROLES:
            api.put(resources.CLUSTER_ROLES, {"metadata": {"name": name}, "rules": []})
        metadata = {"name": "vc-egpu-models", "namespace": "vc-egpu-system"}
        api.put(resources.CONFIG_MAPS, {"metadata": metadata, "data": {"models.yaml": MODELS}})
        yield api
