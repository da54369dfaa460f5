"""The Job controller: watches fill what is known and ask for work, worker threads do it while we lead."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from vc_egpu.jobs.changes import Changes
from vc_egpu.jobs.health import STUCK_S, Metrics, Pulse
from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.known.jobs import pack
from vc_egpu.jobs.known.pods import trim
from vc_egpu.jobs.pool import WorkerPool
from vc_egpu.jobs.work import Look, Work
from vc_egpu.jobs.workers.groupworker import GroupWorker
from vc_egpu.jobs.workers.jobworker import JobWorker
from vc_egpu.jobs.workers.queueworker import QueueWorker
from vc_egpu.jobs.workers.turns import LOOK_S, Turns
from vc_egpu.kube import (
    ApiConnection,
    Change,
    EventRecorder,
    Json,
    Key,
    Reflector,
    Resource,
    drop_managed_fields,
)
from vc_egpu.kube.resources import (
    COMMANDS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    VOLCANO_JOBS,
)

_FOR_GROUPS: Final = frozenset({Look.GROUP, Look.POD})
STOP_S: Final = 3.0
"""For all threads together. One that hangs in a request is left behind: the lease has to go back in time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process is started with."""

    local_scheduler: str = "default-scheduler"
    """Takes the place of ``volcano`` in pods; empty: pods keep the name."""
    job_workers: int = 8
    group_workers: int = 4
    queue_workers: int = 1
    writers: int = 16
    """Pods written at the same time."""
    groups_only: bool = False
    """Volcano's controllers run. We only make PodGroups, for pods that we bind and that have none."""
    counts: bool = True
    """The status of PodGroups, and what queues use, is ours. False next to vc-scheduler (``groups_only``)."""
    look_s: float = LOOK_S
    """After this long a look at a Job begins no further write; it goes on at the next."""
    stuck_s: float = STUCK_S
    """A thread that makes no step for this long is reported as trouble."""


def _served(settings: Settings) -> frozenset[Look]:
    if not settings.groups_only:
        return frozenset(Look)
    return _FOR_GROUPS | {Look.QUEUE} if settings.counts else _FOR_GROUPS


def most_of_a_namespace(workers: int) -> int:
    """How many workers may look at objects of one namespace at the same time: a quarter stays for others."""
    return max(1, workers - max(1, workers // 4))


class Controller:
    """Watches from :meth:`start` to :meth:`stop`; writes between :meth:`lead` and :meth:`rest`."""

    def __init__(
        self,
        api: ApiConnection,
        writer: ApiConnection,
        recorder: EventRecorder,
        settings: Settings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``api`` reads; ``writer`` is the same connection behind the leader's fence."""
        self.metrics = Metrics()
        self.pulse = Pulse(stuck_s=settings.stuck_s)
        self.known = Known()
        self.work = Work(
            monotonic,
            most_of_a_namespace={
                Look.JOB: most_of_a_namespace(settings.job_workers),
                Look.GROUP: most_of_a_namespace(settings.group_workers),
                Look.POD: most_of_a_namespace(settings.group_workers),
            },
            served=_served(settings),
        )
        self._settings = settings
        self._turns = Turns(settings.writers, look_s=settings.look_s)
        self._jobs = JobWorker(
            writer,
            self.known,
            turns=self._turns,
            recorder=recorder,
            metrics=self.metrics,
            local_scheduler=settings.local_scheduler,
            got_on=self.pulse.got_on,
        )
        self._groups = GroupWorker(
            writer,
            self.known,
            ask_for_queues=self.work.ask_for_queues,
            clock=monotonic,
            groups_only=settings.groups_only,
            counts=settings.counts,
        )
        queues = QueueWorker(writer, self.known, recorder, use_only=settings.groups_only, monotonic=monotonic)
        self._looks: dict[Look, Callable[[Key], float | None]] = {
            Look.JOB: self._jobs.look,
            Look.GROUP: self._groups.look,
            Look.POD: self._groups.adopt,
            Look.QUEUE: queues.look,
        }
        self._changes = Changes(
            self.known, self.work, job_gone=self._jobs.forget, pod_gone=self._jobs.pod_gone
        )
        self._pool = WorkerPool(self.work, self.look, self.pulse, self.metrics)
        self._reflectors = [
            self._reflect(api, NAMESPACES),
            self._reflect(api, POD_GROUPS),
            self._reflect(api, PODS, trim),
        ]
        if settings.counts:
            self._reflectors.append(self._reflect(api, QUEUES))
        if not settings.groups_only:
            self._reflectors += [
                self._reflect(api, PRIORITY_CLASSES),
                self._reflect(api, COMMANDS),
                self._reflect(api, VOLCANO_JOBS, pack),
            ]

    def _reflect(
        self,
        api: ApiConnection,
        resource: Resource,
        transform: Callable[[Json], Json] = drop_managed_fields,
    ) -> Reflector:
        return Reflector(api, resource, partial(self.hear, resource), transform=transform)

    def hear(self, resource: Resource, change: Change) -> None:
        """Take one change that a watch reports."""
        self._changes.hear(resource, change)

    def look(self, kind: Look, key: Key) -> float | None:
        """Bring one object forward; returns in how many seconds to look again, or None. Raises KubeError."""
        return self._looks[kind](key)

    # --- life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch."""
        for reflector in self._reflectors:
            reflector.start()

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait until everything was listed once."""
        end = time.monotonic() + timeout_s
        return all(reflector.wait_synced(max(0.0, end - time.monotonic())) for reflector in self._reflectors)

    def unsynced(self) -> str | None:
        """What has not been listed yet, or None."""
        missing = [r.resource.plural for r in self._reflectors if not r.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    def trouble(self) -> str:
        """Why another process should lead: a thread is stuck or ended, or a watch has no answer. Empty: none.

        A refusal is an answer. A restart would not change it, and would stop the work that goes well.
        """
        deaf = [r.resource.plural for r in self._reflectors if r.unanswered_s() > STUCK_S]
        if deaf:
            return f"watches: no answer in {STUCK_S:.0f} s: {', '.join(deaf)}"
        ended = self._pool.ended()
        return f"threads that ended: {', '.join(ended)}" if ended else self.pulse.trouble()

    def lead(self) -> None:
        """Begin to write: look once at everything that is there, then at each change."""
        self.work.begin()
        self._changes.ask_for_all()
        self.metrics.leading.set(1)
        logger.info("leading")
        if self._pool.started:
            return
        settings = self._settings
        self._pool.start(Look.GROUP, settings.group_workers)
        self._pool.start(Look.POD, settings.group_workers)
        if settings.counts:
            self._pool.start(Look.QUEUE, settings.queue_workers)
        if not settings.groups_only:
            self._pool.start(Look.JOB, settings.job_workers)

    def rest(self) -> None:
        """Write nothing until :meth:`lead`. The fence stops writes that are under way."""
        self.work.pause()
        self.metrics.leading.set(0)
        # Another process deals with these now: if they were kept, they would count a second time later.
        self._jobs.rest()
        self._groups.rest()
        logger.warning("not leading any more")

    @property
    def leading(self) -> bool:
        """Whether it may write."""
        return self.work.leading

    def stop(self) -> None:
        """End all threads; the next leader finishes what is half done."""
        self._pool.close()
        self._turns.close()
        self.work.close()
        self.metrics.leading.set(0)
        end = time.monotonic() + STOP_S
        for reflector in self._reflectors:
            reflector.stop(timeout_s=max(0.0, end - time.monotonic()))
        self._pool.join(end)
