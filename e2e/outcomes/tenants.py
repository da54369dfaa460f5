"""Tenants as an operator makes them, each of one document, and what their people may do."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from stack.install import Stack
from stack.kit import Json, Kit, StoryError
from vc_egpu.kube.resources import POD_GROUPS, PODS, QUEUES, RESOURCE_QUOTAS, VOLCANO_JOBS
from vc_egpu.tenants import document, live, render, writing
from vc_egpu.volcano.words.model_table import ModelTable

ROLES: Final = Path(__file__).resolve().parents[2] / "queues" / "base" / "roles.yaml"
SMALL: Final = {"cpu": {"request": "1m"}, "memory": {"request": "1Mi"}}
"""What a container gets that names nothing: the machine is small."""
COUNTED_AGAIN: Final = 18
"""Times, of 10 s each: a new cluster's quota controller learns of our kinds every 30 s."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of a tenant."""

    stack: Stack
    namespace: str
    name: str
    group: str

    def kubectl(self, *arguments: str, text_in: str | None = None) -> Any:
        """kubectl as this person; the completed process."""
        who = ("--as", self.name, "--as-group", self.group, "--as-group", "system:authenticated")
        return self.stack.kit.kubectl(*who, *arguments, "-n", self.namespace, text_in=text_in, check=False)

    def create(self, document: Json) -> None:
        """``kubectl create``; raises :class:`StoryError` with what was said against it."""
        done = self.kubectl("create", "-f", "-", text_in=yaml.safe_dump(document))
        if done.returncode != 0:
            raise StoryError(done.stderr.strip())

    def tries(self, document: Json) -> bool:
        """Whether it could be created now; nothing is."""
        command = ("create", "--dry-run=server", "-f", "-")
        return bool(self.kubectl(*command, text_in=yaml.safe_dump(document)).returncode == 0)

    def refused(self, *arguments: str, text_in: str | None = None) -> str:
        """The refusal of what this person tries; raises :class:`StoryError` if it was let through."""
        done = self.kubectl(*arguments, text_in=text_in)
        if done.returncode == 0:
            raise StoryError(f"{self.name}: kubectl {' '.join(arguments)} was let through: {done.stdout}")
        return str(done.stderr)

    def may(self, verb: str, resource: str) -> bool:
        """``kubectl auth can-i``."""
        return bool(self.kubectl("auth", "can-i", verb, resource).returncode == 0)


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant: namespace and queue of the same name."""

    stack: Stack
    name: str

    @property
    def member(self) -> Person:
        """Of the ML team, and allowed to edit the namespace's own objects, pods included."""
        return Person(self.stack, self.name, f"{self.name}-alice", f"{self.name}:ml-team")

    @property
    def admin(self) -> Person:
        """Edits the queue."""
        return Person(self.stack, self.name, f"{self.name}-bob", f"{self.name}:admin")

    def command(self, action: str, queue: str = "") -> Json:
        """A Command on a queue (the tenant's own where none is named)."""
        found = self.stack.kit.api.get(QUEUES, queue or self.name)
        metadata = found["metadata"]
        target = {"apiVersion": QUEUES.api_version, "kind": "Queue"}
        target |= {"name": metadata["name"], "uid": metadata["uid"]}
        return {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"generateName": "queue-"},
            "action": action,
            "target": target,
        }

    def wait_state(self, state: str) -> None:
        """Until the tenant's queue says so."""

        def says(queues: dict[str, Json]) -> bool:
            return bool((queues[self.name].get("status") or {}).get("state") == state)

        self.stack.kit.until(f"queue {self.name} is {state}", QUEUES, says)

    def fingerprint(self) -> Json:
        """Everything of the tenant that a refused write could have touched; PodGroups and Queues without
        their status, which controllers count in."""
        api = self.stack.kit.api
        objects: Json = {
            f"{resource.plural}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for resource in (VOLCANO_JOBS, PODS)
            for item in api.list(resource, self.name).items
        }
        for item in (*api.list(POD_GROUPS, self.name).items, api.get(QUEUES, self.name)):
            objects[f"{item['kind']}/{item['metadata']['name']}"] = item["spec"]
        return objects


@contextmanager
def tenant(stack: Stack, slug: str, capability: Json) -> Iterator[Tenant]:
    """A tenant with these caps; gone at the end."""
    name = f"{slug}-{uuid.uuid4().hex[:4]}"
    made = document_of(name)
    documents = render.objects(made, None)
    for one in documents:
        if one["kind"] == "Queue":
            one["spec"]["capability"] = capability
    documents.append(_edits(name))
    stack.kit.apply(*yaml.safe_load_all(ROLES.read_text()), *documents)
    try:
        wait_until_counted(stack.kit, made)
        yield Tenant(stack, name)
    finally:
        text = yaml.safe_dump_all(documents)
        stack.kit.kubectl(
            "delete", "-f", "-", "--ignore-not-found", "--wait=false", text_in=text, check=False
        )


def wait_until_counted(kit: Kit, tenant: document.Tenant, table: ModelTable | None = None) -> None:
    """As ``kubectl egpu tenant apply`` waits for it: until then Kubernetes refuses the tenant's Jobs."""

    def counted(_quotas: dict[str, Json]) -> bool:
        return live.is_counted(kit.api, tenant)

    for _ in range(COUNTED_AGAIN):
        try:
            kit.until("they are counted", RESOURCE_QUOTAS, counted, namespace=tenant.namespace, timeout_s=10)
        except StoryError:
            writing.count_again(kit.api, tenant, table)
        else:
            return
    raise StoryError(f"the quotas of {tenant.name} are not counted")


def document_of(name: str, **spec: Any) -> document.Tenant:
    """A tenant's document with the least that its containers get."""
    metadata = {"name": name}
    raw = {"apiVersion": document.API_VERSION, "kind": document.KIND, "metadata": metadata}
    return document.parse_document({**raw, "spec": {"containers": SMALL, **spec}})


def _edits(name: str) -> Json:
    """Many clusters give teams Kubernetes' own role "edit" as well: it must not open a way past us."""
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"{name}:ml-team"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [group],
    }
