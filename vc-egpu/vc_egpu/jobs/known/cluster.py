"""What the controller knows of the cluster: one live copy of each kind of object that it works with."""

from dataclasses import dataclass

from vc_egpu.jobs.known.jobs import Jobs
from vc_egpu.jobs.known.latest import Latest
from vc_egpu.jobs.known.pods import CachedPod
from vc_egpu.jobs.objects.podgroups import queue_of
from vc_egpu.kube import Json, key_of
from vc_egpu.volcano.api.command import Command


@dataclass(frozen=True, slots=True)
class Target:
    """The object that a Command is for.

    All four must match, not only the UID. The webhook checked whether the author may update the object of
    this name in the Command's own namespace.
    """

    kind: str
    namespace: str
    name: str
    uid: str


class Known:
    """The objects, by kind. Watches and the answers to our own writes fill it. Thread-safe."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.pods: Latest[CachedPod] = Latest(
            CachedPod.of,
            {"job": _job_of, "group": lambda pod: pod.group_key, "checked": lambda pod: pod.checked or None},
        )
        self.groups: Latest[Json] = Latest(_same, {"queue": queue_of})
        self.queues: Latest[Json] = Latest(_same)
        self.commands: Latest[Json] = Latest(_same, {"target": _target_of})
        self.namespaces: Latest[Json] = Latest(_same)
        self.classes: Latest[Json] = Latest(_same)

    def has_queue(self, name: str) -> bool:
        """Whether a queue of this name exists."""
        return self.queues.get(("", name)) is not None

    def first_command(self, target: Target) -> Command | None:
        """The oldest Command for this object.

        Times count whole seconds and names are random, so only the resource version tells the order.
        """
        commands = self.commands.by("target", target)
        oldest = min(commands, key=lambda raw: int(raw["metadata"].get("resourceVersion") or 0), default=None)
        return Command.parse(oldest) if oldest is not None else None

    def priorities(self) -> dict[str, int]:
        """The values of the priority classes, by name."""
        return {item["metadata"]["name"]: int(item.get("value") or 0) for item in self.classes.all()}

    def namespace_annotations(self, namespace: str) -> dict[str, str]:
        """The annotations of a namespace; empty when we do not know it."""
        document = self.namespaces.get(("", namespace)) or {}
        return dict((document.get("metadata") or {}).get("annotations") or {})


def _same(document: Json) -> Json:
    return document


def _job_of(pod: CachedPod) -> tuple[str, str] | None:
    """Namespace and UID: a user who may create pods elsewhere can write any UID into them."""
    return (pod.job[0], pod.job[2]) if pod.job is not None else None


def _target_of(command: Json) -> Target | None:
    target = command.get("target") or {}
    if not target.get("uid"):
        return None
    kind = str(target.get("kind"))
    namespace = key_of(command)[0] if kind == "Job" else ""
    return Target(kind, namespace, str(target.get("name")), str(target["uid"]))
