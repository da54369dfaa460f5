"""What a review knows apart from the object: the model table, settings, and caches of the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from vc_egpu.volcano.needs.table import EnvironmentTable, shipped
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.webhook.protocol.decision import Json
from vc_egpu.webhook.protocol.offers import Offers
from vc_egpu.webhook.protocol.questions import Answers, KnownAnswers, Subject

ROOT_QUEUE: Final = names.ROOT_QUEUE
DEFAULT_QUEUE: Final = "default"
MAX_QUEUE_DEPTH: Final = 16
Operation = Literal["CREATE", "UPDATE", "DELETE"]
Binder = Literal["direct", "scheduler"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How this cluster is set up; the values come from :mod:`vc_egpu.webhook.serving.options`."""

    scheduler_name: str = names.SCHEDULER_DEFAULT
    """What binds all other managed pods: ``volcano`` or ``default-scheduler``."""
    binder: Binder = "direct"
    """What binds pods of which the decision sees all that a scheduler would: ``direct`` is we ourselves."""
    ungrouped_scheduler_name: str = ""
    """What binds pods that name no PodGroup when they are created (pods of Deployments, bare pods), if it
    differs. Volcano's controllers make PodGroups only for pods of Volcano's scheduler."""
    direct_without_group: bool = False
    """True: we bind these too where we see them whole. ``vc-egpu jobs --groups-only`` makes the groups."""
    unnamed_model_unlimited: bool = False
    """True: a queue that does not name a model does not cap it, as in Volcano."""
    job_controllers: frozenset[str] = frozenset(
        {
            "system:serviceaccount:volcano-system:volcano-controllers",
            f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:vc-egpu-jobs",
        }
    )
    """The accounts that make the pods of Volcano Jobs. Those pods were checked with their Job."""
    keep_managed_fields: bool = False
    """True: the API server goes on noting who wrote which field of managed pods that a controller makes."""
    max_gang_members: int = 2048
    max_gang_cards: int = 16384
    """2,048 members × 8 cards: what a plan annotation can hold."""
    max_low_grace_s: int = 3600
    """The longest that a pod of low priority may take to end: the gang that gets its cards waits for it."""
    max_listed_queues: int = 32
    """How many queues a refusal tries when it lists those that the user may use."""
    environments: EnvironmentTable = field(default_factory=shipped)
    """What software needs of nodes."""

    def __post_init__(self) -> None:
        for name in (self.scheduler_name, self.scheduler_of(grouped=False)):
            if name not in {names.SCHEDULER_VOLCANO, names.SCHEDULER_DEFAULT}:
                raise ValueError(
                    f"schedulerName {name!r}: it must be "
                    f"{names.SCHEDULER_VOLCANO!r} or {names.SCHEDULER_DEFAULT!r}"
                )
        for name in ("max_gang_members", "max_gang_cards", "max_low_grace_s", "max_listed_queues"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: it must be at least 1")

    def scheduler_of(self, *, grouped: bool) -> str:
        """The scheduler of a managed pod that names a PodGroup, or does not."""
        return self.scheduler_name if grouped else self.ungrouped_scheduler_name or self.scheduler_name


class QueueTree:
    """The queues by name, with their parents and children. Immutable: a change of a queue makes a new one."""

    def __init__(self, queues: Mapping[str, Json]) -> None:
        self._queues = queues

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def get(self, name: str) -> Json | None:
        """The Queue object."""
        return self._queues.get(name)

    def plus(self, found: Mapping[str, Json | None]) -> "QueueTree":
        """With what the API server said of some queues (None: there is none), later than the cache."""
        if all(queue is self._queues.get(name) for name, queue in found.items()):
            return self
        known = {**self._queues, **found}
        return QueueTree({name: queue for name, queue in known.items() if queue is not None})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names in order."""
        return tuple(sorted(self._queues))

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        children: dict[str, list[str]] = {}
        for name in self.names:
            if name != ROOT_QUEUE:
                children.setdefault(parent_of(self._queues[name]), []).append(name)
        return {parent: tuple(found) for parent, found in children.items()}

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the queues right under this one."""
        return self._children.get(name, ())

    def lineage(self, name: str) -> Iterator[tuple[str, Json]]:
        """The queue and its ancestors, ``root`` left out; ends at what does not exist and at cycles."""
        seen: set[str] = set()
        while name != ROOT_QUEUE and name not in seen and len(seen) < MAX_QUEUE_DEPTH:
            queue = self._queues.get(name)
            if queue is None:
                return
            seen.add(name)
            yield name, queue
            name = parent_of(queue)


def parent_of(queue: Json) -> str:
    """The parent that a Queue names; without one it hangs under ``root``."""
    return str(spec_of(queue).get("parent") or ROOT_QUEUE)


def state_of(queue: Json) -> str:
    """``Open``, ``Closed``, ``Closing`` or ``Unknown``; a queue without a state yet is open."""
    return str(mapping(queue.get("status")).get("state") or "Open")


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a review may look at. Maps are read only."""

    table: ModelTable
    settings: Settings = field(default_factory=Settings)
    queues: QueueTree = field(default_factory=lambda: QueueTree({}))
    namespaces: Mapping[str, Json] = field(default_factory=dict)
    pod_groups: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    """By (namespace, name)."""
    jobs: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    """Metadata and queue of Volcano Jobs by (namespace, name), and whether they ask for cards."""
    priority_classes: Mapping[str, Json] = field(default_factory=dict)
    offers: Offers = field(default_factory=Offers)
    answers: Answers = field(default_factory=KnownAnswers)


@dataclass(frozen=True, slots=True)
class Review:
    """The request of an AdmissionReview, as far as reviews read it."""

    operation: Operation
    namespace: str
    subject: Subject
    object: Json
    """For a deletion: the object that is deleted."""
    old_object: Json | None = None

    @classmethod
    def of_request(cls, request: Json) -> "Review":
        """From ``AdmissionReview.request``; raises ValueError for what is not one."""
        operation = request.get("operation")
        if operation not in {"CREATE", "UPDATE", "DELETE"}:
            raise ValueError(f"operation {operation!r} is not reviewed")
        obj, old = request.get("object"), request.get("oldObject")
        if operation == "DELETE":
            obj, old = old, None
        if not isinstance(obj, dict):
            raise ValueError("the review has no object")
        return cls(
            operation=operation,
            namespace=str(request.get("namespace") or ""),
            subject=Subject.of_user_info(mapping(request.get("userInfo"))),
            object=obj,
            old_object=old if isinstance(old, dict) and old else None,
        )


def mapping(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, otherwise an empty one: what strangers wrote may be anything."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def spec_of(obj: Json) -> dict[str, Any]:
    """The ``spec`` of an object."""
    return mapping(obj.get("spec"))


def annotations_of(obj: Json) -> dict[str, Any]:
    """The annotations of an object or template."""
    return mapping(mapping(obj.get("metadata")).get("annotations"))


def labels_of(obj: Json) -> dict[str, Any]:
    """The labels of an object or template."""
    return mapping(mapping(obj.get("metadata")).get("labels"))
