"""One attempt as data: requests, and the wall that each must meet with the webhook and without it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from vc_egpu.kube import resources
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.transport import JSON, MERGE_PATCH

Json = dict[str, Any]
MINE: Final = "mallory"
"""The attacker's tenant: its namespace and its queue."""
OTHERS: Final = "victim"
"""The tenant that is attacked."""
GATED: Final = "gated-0"
"""A pod of the attacker's that waits at our gate."""
DOMAIN: Final = "egpu.volcano.sh"
QUEUE: Final = "scheduling.volcano.sh/queue-name"
GROUP: Final = "scheduling.k8s.io/group-name"


@dataclass(frozen=True, slots=True)
class Try:
    """One request. Letters of walls: :data:`.walls.NAMES`."""

    method: Literal["POST", "PATCH", "PUT", "DELETE", "GET"]
    path: str
    wall: str
    """Any of these must refuse it; ``=`` where it is let in and changes nothing."""
    body: Json | None = None
    down: str = ""
    """The same while the webhook is away. Default: as with it, and ``F`` where the webhook was the wall."""
    says: str = ""
    """A part of the refusal, with the webhook."""

    @property
    def content_type(self) -> str:
        """How the body is to be understood."""
        return MERGE_PATCH if self.method == "PATCH" else JSON

    @property
    def wall_without_webhook(self) -> str:
        """The walls that hold then."""
        return self.down or self.wall.replace("W", "F").replace("=", "F")


State = Literal["tried", "elsewhere", "not tried", "not built"]


@dataclass(frozen=True, slots=True)
class Attack:
    """One row: what somebody tries, in one or several ways."""

    row: int
    attempt: str
    tries: tuple[Try, ...] = ()
    state: State = "tried"
    note: str = ""
    """Where it is tried, or why it is not."""
    walls: str = field(default="")
    """For rows that are not tried here: the letters of the walls that shall hold."""
    away: bool = False
    """For those: tried while the webhook is away as well."""

    @property
    def letters(self) -> str:
        """All walls of the row, each once, in order."""
        found = self.walls or "".join(one.wall for one in self.tries)
        return "".join(dict.fromkeys(found))

    @property
    def letters_without_webhook(self) -> str:
        """The same while the webhook is away."""
        found = self.walls or "".join(one.wall_without_webhook for one in self.tries)
        return "".join(dict.fromkeys(found))


# --- builders --------------------------------------------------------------------------------------


def create(
    resource: Resource, body: Json, wall: str, *, inside: str = MINE, down: str = "", says: str = ""
) -> Try:
    """POST an object."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    namespace = inside if resource.namespaced else None
    return Try("POST", resource.path(namespace), wall, whole, down, says)


def patch(
    resource: Resource, name: str, body: Json, wall: str, *, inside: str = MINE, sub: str = "", says: str = ""
) -> Try:
    """PATCH an object by merge."""
    namespace = inside if resource.namespaced else None
    return Try("PATCH", resource.path_of(name, namespace, sub or None), wall, body, says=says)


def delete(resource: Resource, name: str, wall: str, *, inside: str = MINE) -> Try:
    """DELETE an object."""
    namespace = inside if resource.namespaced else None
    return Try("DELETE", resource.path_of(name, namespace), wall)


def look(resource: Resource, wall: str, *, inside: str = OTHERS) -> Try:
    """GET a collection."""
    return Try("GET", resource.path(inside if resource.namespaced else None), wall)


def act(path: str, body: Json, wall: str) -> Try:
    """POST to any path, such as a subresource."""
    return Try("POST", path, wall, body)


def container(name: str = "main", limits: Mapping[str, Any] | None = None, **more: Any) -> Json:
    """A container; limits by their last part with ``_`` for ``-``, or whole names."""
    named = {
        key if "/" in key else f"volcano.sh/{key.replace('_', '-')}": v for key, v in (limits or {}).items()
    }
    return {"name": name, "image": "none.example/none:1", "resources": {"limits": named}, **more}


SHARE: Final = {"vgpu_h20": 1, "vgpu_memory": 1024}
"""What the attacker may ask for."""


def pod(
    *containers: Json,
    name: str = "attack",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod in the attacker's namespace and queue, with one share where no container is named."""
    metadata = {
        "name": name,
        "annotations": {QUEUE: MINE, **(annotations or {})},
        "labels": dict(labels or {}),
    }
    return {
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container(limits=SHARE)], **spec},
    }


def tries(bodies: list[Json], wall: str, *, says: str = "") -> tuple[Try, ...]:
    """Each of these pods, created."""
    return tuple(create(resources.PODS, body, wall, says=says) for body in bodies)


def job(name: str = "attack", queue: str = MINE, template: Json | None = None, **spec: Any) -> Json:
    """A Volcano Job of one task."""
    made = template or {"spec": {"containers": [container(limits=SHARE)], "restartPolicy": "Never"}}
    task = {"name": "w", "replicas": 1, "template": made}
    return {"metadata": {"name": name}, "spec": {"queue": queue, "minAvailable": 1, "tasks": [task], **spec}}
