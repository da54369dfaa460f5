"""What the decisions on a Job see: values that were read from API objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from vc_egpu.jobs.rules.times import seconds
from vc_egpu.volcano.api.job import Job, JobAction, JobEvent
from vc_egpu.volcano.api.podgroup import PodGroupPhase
from vc_egpu.volcano.words import names

Document = Mapping[str, Any]


class PodPhase(StrEnum):
    """Kubernetes' phases of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


FINISHED_PODS = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a Job."""

    name: str
    uid: str
    task: str
    version: int
    """The Job's version when the pod was made. Events of pods of an older version do not count."""
    phase: PodPhase
    terminating: bool = False
    out_of_sync: bool = False
    """Marked to be deleted and made again without a policy or a retry, as Volcano's controllers do it."""
    ready: bool = False
    restarts: int = 0
    """The restarts of all its containers together."""
    exit_codes: frozenset[int] = frozenset()
    """The codes other than 0 with which its containers ended, those of init containers included."""
    created_at: float = 0.0
    ended_at: float = 0.0
    """When its last container ended (seconds since the epoch); 0 while none has ended, or none ever began."""

    @property
    def finished(self) -> bool:
        """Succeeded or failed: it holds nothing any more."""
        return self.phase in FINISHED_PODS

    @property
    def alive(self) -> bool:
        """Neither finished nor being deleted."""
        return not self.finished and not self.terminating

    @classmethod
    def of(cls, document: Document) -> "PodView | None":
        """Read a pod that a Job controller made; None if the annotations do not say what it is."""
        metadata = document.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        version = annotations.get(names.JOB_VERSION)
        task = annotations.get(names.TASK_SPEC)
        if not isinstance(version, str) or not version.isdecimal() or not task:
            return None
        status = document.get("status") or {}
        containers = status.get("containerStatuses") or []
        every = [*containers, *(status.get("initContainerStatuses") or [])]
        ends = [(container.get("state") or {}).get("terminated") or {} for container in every]
        codes = frozenset(int(end.get("exitCode") or 0) for end in ends)
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            task=task,
            version=int(version[:9]),
            phase=_pod_phase(status.get("phase")),
            terminating=bool(metadata.get("deletionTimestamp")),
            out_of_sync=annotations.get(names.OUT_OF_SYNC) == "true",
            ready=bool(containers) and all(c.get("ready") for c in every),
            restarts=sum(int(container.get("restartCount") or 0) for container in every),
            exit_codes=codes - {0},
            created_at=seconds(metadata.get("creationTimestamp")),
            ended_at=max((seconds(end.get("finishedAt")) for end in ends), default=0.0),
        )


@dataclass(frozen=True, slots=True)
class GroupView:
    """A Job's PodGroup."""

    name: str
    uid: str
    phase: PodGroupPhase | None
    version: int = 0
    """The Job's version when it was made: a restarted Job gets a new PodGroup."""
    terminating: bool = False

    @classmethod
    def of(cls, document: Document) -> "GroupView":
        """Read a PodGroup."""
        metadata = document.get("metadata") or {}
        phase = (document.get("status") or {}).get("phase")
        version = str((metadata.get("annotations") or {}).get(names.JOB_VERSION) or "0")
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            phase=PodGroupPhase(phase) if phase in set(PodGroupPhase) else None,
            version=int(version[:9]) if version.isdecimal() else 0,
            terminating=bool(metadata.get("deletionTimestamp")),
        )


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that another client deleted, not this controller."""

    pod: str
    uid: str
    task: str
    version: int
    at: float


@dataclass(frozen=True, slots=True)
class Order:
    """A Command for the Job."""

    name: str
    uid: str
    action: JobAction


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that lifecycle policies may answer."""

    event: JobEvent
    at: float
    task: str = ""
    pod: str = ""
    exit_codes: frozenset[int] = frozenset()
    """All codes other than 0 of the pod that failed."""
    eviction: Eviction | None = None
    mark: str = ""
    """Set where no object says since when: then ``at`` is when it was seen first, under this mark."""


@dataclass(frozen=True, slots=True)
class World:
    """All that a decision on one Job depends on."""

    job: Job
    """With defaults filled in."""
    pods: tuple[PodView, ...] = ()
    group: GroupView | None = None
    evictions: tuple[Eviction, ...] = ()
    first_seen: Mapping[str, float] = field(default_factory=dict)
    """When happenings that last and do not say since when were seen first, by their marks."""
    order: Order | None = None
    queue_known: bool = True
    readable: bool = True
    """False: it was edited into something of which no pod, and no PodGroup, can be made."""
    now: float = 0.0
    """Seconds since the epoch."""


def _pod_phase(text: Any) -> PodPhase:
    try:
        return PodPhase(text)
    except ValueError:
        return PodPhase.PENDING if not text else PodPhase.UNKNOWN
