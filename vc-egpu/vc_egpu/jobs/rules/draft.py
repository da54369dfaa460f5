"""A decision on a Job in the making: what is to be done, and the status that goes with it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from vc_egpu.jobs.rules.times import duration, seconds, timestamp
from vc_egpu.jobs.rules.views import Eviction, PodPhase, PodView, World
from vc_egpu.volcano.api.job import JobPhase, JobStatus, Task
from vc_egpu.volcano.api.meta import Json

FINISHED: Final = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED})
"""Phases that a Job does not leave."""


class Group(Enum):
    """What becomes of the Job's PodGroup."""

    LEAVE = "leave"
    MAKE = "make"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Kill:
    """Delete a pod. ``mark``: write the out-of-sync mark first, so that it does not count as an eviction."""

    pod: PodView
    mark: bool


@dataclass(frozen=True, slots=True)
class Note:
    """An event for people."""

    warning: bool
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, in this order: status if ``status_first``, kills, PodGroup, creations, status."""

    status: Json | None = None
    """The whole new status; None if it is as it should be."""
    status_first: bool = False
    needs_kills: bool = False
    """The status may be written only once all kills were taken: it begins what their end makes room for."""
    kills: tuple[Kill, ...] = ()
    group: Group = Group.LEAVE
    create: tuple[tuple[Task, int], ...] = ()
    """Task and index of each pod to make."""
    evictions: tuple[Eviction, ...] = ()
    """Those to remember; all others are dealt with."""
    first_seen: Mapping[str, float] = field(default_factory=dict)
    """What to remember of happenings that wait for a delayed action, see :class:`.policies.Verdict`."""
    wake_at: float | None = None
    """Look again then, even if nothing changes (seconds since the epoch)."""
    delete_job: bool = False
    order_done: bool = False
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class Draft:
    """A decision in the making; :meth:`finish` makes it one."""

    world: World
    status: JobStatus
    killed: dict[str, Kill] = field(default_factory=dict)
    create: list[tuple[Task, int]] = field(default_factory=list)
    group: Group = Group.LEAVE
    evictions: tuple[Eviction, ...] = ()
    first_seen: Mapping[str, float] = field(default_factory=dict)
    wake_at: float | None = None
    notes: list[Note] = field(default_factory=list)
    status_first: bool = False
    needs_kills: bool = False
    delete_job: bool = False
    order_done: bool = False

    @property
    def phase(self) -> JobPhase:
        """The present phase; a new Job is Pending."""
        return self.status.state.phase or JobPhase.PENDING

    def kill(self, pods: Iterable[PodView], *, mark: bool) -> None:
        """Delete these pods, unless they are being deleted already."""
        for pod in pods:
            if not pod.terminating:
                self.killed[pod.uid] = Kill(pod, mark)

    def enter(self, phase: JobPhase, reason: str, message: str) -> None:
        """Change the phase. What has ended gets no more pods, also where one was missing until now, and no
        PodGroup. That it has ended is written first: while the status is refused, the PodGroup stays."""
        if phase in FINISHED:
            self.create.clear()
            self.group = Group.LEAVE
            self.status_first = True
        state = self.status.state
        self.notes.append(
            Note(phase is JobPhase.FAILED, reason, f"{state.phase or 'new'} -> {phase}: {message}")
        )
        self.status.state = state.model_copy(
            update={
                "phase": phase,
                "reason": reason,
                "message": message,
                "last_transition_time": timestamp(self.world.now),
            }
        )

    def terminating(self) -> int:
        """Pods that are being deleted, those of this decision included."""
        return sum(pod.terminating or pod.uid in self.killed for pod in self.world.pods)

    def counts(self) -> Counter[str]:
        """Pods by phase (lower case) once this is done; those being deleted count as terminating only."""
        counts: Counter[str] = Counter()
        for pod in self.world.pods:
            if pod.terminating or pod.uid in self.killed:
                counts["terminating"] += 1
            else:
                counts[pod.phase.value.lower()] += 1
        counts["pending"] += len(self.create)
        return counts

    def finish(self) -> Decision:
        """The decision."""
        world = self.world
        if self.status.state.phase is None:
            self.enter(JobPhase.PENDING, "Accepted", "the Job is new")
            self.notes.clear()
        before = world.job.status.document()
        self._count_into_status()
        status = self.status
        if status.state.phase != world.job.status.state.phase:
            phase, at = status.state.phase, status.state.last_transition_time
            kept = [c.document() for c in status.conditions if c.status is not phase]
            status = JobStatus.parse(
                {**status.document(), "conditions": [*kept, {"status": phase, "lastTransitionTime": at}]}
            )
            if phase in {*FINISHED, JobPhase.ABORTED}:
                ran_s = world.now - seconds(world.job.metadata.creation_timestamp)
                status.running_duration = duration(ran_s)
        after = _without_zeroes(status.document())
        return Decision(
            status=after if after != _without_zeroes(before) else None,
            status_first=self.status_first,
            needs_kills=self.needs_kills,
            kills=tuple(self.killed.values()),
            group=self.group,
            create=tuple(self.create),
            evictions=self.evictions,
            first_seen=self.first_seen,
            wake_at=self.wake_at,
            delete_job=self.delete_job,
            order_done=self.order_done,
            notes=tuple(self.notes),
        )

    def _count_into_status(self) -> None:
        status, counts = self.status, self.counts()
        for name in ("pending", "running", "succeeded", "failed", "terminating", "unknown"):
            setattr(status, name, counts[name])
        status.min_available = self.world.job.spec.min_available
        by_task: dict[str, Counter[str]] = {}
        for pod in self.world.pods:
            if not pod.terminating and pod.uid not in self.killed:
                by_task.setdefault(pod.task, Counter())[pod.phase.value] += 1
        for task, _ in self.create:
            by_task.setdefault(task.name, Counter())[PodPhase.PENDING.value] += 1
        self.status = JobStatus.parse(
            {
                **status.document(),
                "taskStatusCount": {
                    name: {"phase": dict(counts)} for name, counts in sorted(by_task.items())
                },
            }
        )


def _without_zeroes(document: Json) -> Json:
    """Absent and zero are the same, as in Go."""
    return {key: value for key, value in document.items() if value not in (0, "", {}, [])}
