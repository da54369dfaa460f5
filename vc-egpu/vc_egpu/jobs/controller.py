"""The Job controller's shell: watches in, keys of work out, workers on threads of their own."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from vc_egpu.jobs.liveness import STUCK_S, Pulse
from vc_egpu.jobs.objects import podgroups
from vc_egpu.jobs.workers.cache import Latest
from vc_egpu.jobs.workers.groupworker import GroupWorker
from vc_egpu.jobs.workers.jobworker import JobWorker
from vc_egpu.jobs.workers.metrics import Metrics
from vc_egpu.jobs.workers.orders import Target
from vc_egpu.jobs.workers.podcache import CachedPod, trim
from vc_egpu.jobs.workers.queueworker import QueueWorker
from vc_egpu.kube import (
    ApiConnection,
    Change,
    ChangeKind,
    EventRecorder,
    Json,
    Key,
    Reflector,
    Resource,
    WorkQueue,
    drop_managed_fields,
    key_of,
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
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, Stale
from vc_egpu.volcano.words.makers import controller_of

K = TypeVar("K", bound=Hashable)
SETTLE_S: Final = 0.05
"""Pods of a gang change together: one look at the Job for many of them."""
FENCED_S: Final = 0.2
STOP_S: Final = 3.0
"""For all that run, together: whoever hangs in a request is left, the lease is to be given back in time."""
QUEUE_SETTLE_S: Final = 0.5
"""A queue's sums are for people and schedulers with a period of a second."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process is started with."""

    local_scheduler: str = "default-scheduler"
    """Takes the place of ``volcano`` in pods; empty: pods keep the name."""
    job_workers: int = 8
    group_workers: int = 4
    writers: int = 16
    """Pods written at the same time."""


class Controller:
    """Watches from :meth:`start` to :meth:`stop`; writes between :meth:`lead` and :meth:`rest`."""

    def __init__(
        self, api: ApiConnection, writer: ApiConnection, recorder: EventRecorder, settings: Settings
    ) -> None:
        """``api`` reads; ``writer`` is the same connection behind the leader's fence."""
        self.metrics = Metrics()
        self.pulse = Pulse()
        self._settings = settings
        self._leading = threading.Event()
        self._stopping = False
        self._jobs: Latest[Json] = Latest(_same)
        self._pods: Latest[CachedPod] = Latest(
            CachedPod.of,
            {"job": _job_of, "group": lambda pod: pod.group_key, "checked": lambda pod: pod.checked or None},
        )
        self._groups: Latest[Json] = Latest(_same, {"queue": podgroups.queue_of})
        self._queues: Latest[Json] = Latest(_same)
        self._commands: Latest[Json] = Latest(_same, {"target": _target})
        self._namespaces: Latest[Json] = Latest(_same)
        self._classes: Latest[Json] = Latest(_same)
        self._executor = ThreadPoolExecutor(settings.writers, thread_name_prefix="write")
        self._job_queue: WorkQueue[Key] = WorkQueue()
        self._group_queue: WorkQueue[Key] = WorkQueue()
        self._adopt_queue: WorkQueue[Key] = WorkQueue()
        self._queue_queue: WorkQueue[str] = WorkQueue()
        self._job_worker = JobWorker(
            writer,
            jobs=self._jobs,
            pod_cache=self._pods,
            groups=self._groups,
            commands=self._commands,
            queue_known=lambda name: self._queues.get(("", name)) is not None,
            class_values=self._class_values,
            executor=self._executor,
            recorder=recorder,
            metrics=self.metrics,
            local_scheduler=settings.local_scheduler,
            got_on=self.pulse.got_on,
        )
        self._group_worker = GroupWorker(
            writer,
            groups=self._groups,
            pod_cache=self._pods,
            namespace_annotations=self._namespace_annotations,
            tell_queues=self._tell_queues,
        )
        self._queue_worker = QueueWorker(
            writer,
            queues=self._queues,
            groups=self._groups,
            pod_cache=self._pods,
            commands=self._commands,
            recorder=recorder,
        )
        self._reflectors = [
            _reflect(api, NAMESPACES, self._namespace_changed),
            _reflect(api, PRIORITY_CLASSES, self._class_changed),
            _reflect(api, QUEUES, self._queue_changed),
            _reflect(api, POD_GROUPS, self._group_changed),
            _reflect(api, PODS, self._pod_changed, trim),
            _reflect(api, COMMANDS, self._command_changed),
            _reflect(api, VOLCANO_JOBS, self._job_changed),
        ]
        self._threads: list[threading.Thread] = []

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
        """Why somebody else should lead: what does not get on here, or hears nothing; empty: nothing.

        A server that refuses is heard: a new start would change nothing, and end what goes well.
        """
        deaf = [r.resource.plural for r in self._reflectors if r.unanswered_s() > STUCK_S]
        if deaf:
            return f"watches: no answer in {STUCK_S:.0f} s: {', '.join(deaf)}"
        ended = [thread.name for thread in self._threads if not thread.is_alive() and not self._stopping]
        return f"threads that ended: {', '.join(ended)}" if ended else self.pulse.trouble()

    def lead(self) -> None:
        """Begin to write; all that is there is looked at once, what changes from now on again."""
        self._leading.set()
        self._ask_for_all()
        self.metrics.leading.set(1)
        logger.info("leading")
        if self._threads:
            return
        settings = self._settings
        self._work("job", self._job_queue, self._job_worker.look, settings.job_workers)
        self._work("podgroup", self._group_queue, self._group_worker.look, settings.group_workers)
        self._work("pod", self._adopt_queue, self._group_worker.adopt, settings.group_workers)
        self._work("queue", self._queue_queue, self._queue_worker.look, 1)

    def _ask_for_all(self) -> None:
        for job in self._jobs.all():
            self._job_queue.add(key_of(job))
        for group in self._groups.all():
            self._group_queue.add(key_of(group))
        for pod in self._pods.all():
            if pod.group_key is not None:
                self._group_queue.add(pod.group_key)
            elif pod.managed and pod.job is None:
                self._adopt_queue.add(pod.key)
        for queue in self._queues.all():
            self._queue_queue.add(queue["metadata"]["name"])

    def rest(self) -> None:
        """Write nothing until :meth:`lead`. What is under way meets the fence."""
        self._leading.clear()
        self.metrics.leading.set(0)
        # Somebody else deals with them now: kept, they would be counted a second time later.
        self._job_worker.rest()
        self._group_worker.rest()
        logger.warning("not leading any more")

    @property
    def leading(self) -> bool:
        """Whether it may write."""
        return self._leading.is_set()

    def stop(self) -> None:
        """End all threads; what is half done is finished by the next leader."""
        self._stopping = True
        self._leading.set()  # wakes workers that rest; their queues are closed
        self.metrics.leading.set(0)
        for queue in (self._job_queue, self._group_queue, self._adopt_queue, self._queue_queue):
            queue.close()
        end = time.monotonic() + STOP_S
        for reflector in self._reflectors:
            reflector.stop(timeout_s=max(0.0, end - time.monotonic()))
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _work(self, kind: str, queue: WorkQueue[K], look: Callable[[K], float | None], count: int) -> None:
        self.metrics.waiting.labels(kind).set_function(lambda: len(queue))
        for number in range(count):
            thread = threading.Thread(
                target=self._loop, args=(kind, queue, look), name=f"{kind}-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _loop(self, kind: str, queue: WorkQueue[Any], look: Callable[[Any], float | None]) -> None:
        while (key := queue.get()) is not None:
            self._leading.wait()
            if self._stopping:
                return
            try:
                with self.pulse.busy(f"{kind} {key}"), self.metrics.seconds.labels(kind).time():
                    again_s = look(key)
            except LeaseLost:
                # Nothing is wrong with the key: it is looked at as soon as this process leads again.
                self.metrics.reconciles.labels(kind, "fenced").inc()
                queue.add_after(key, FENCED_S)
            except KubeError as error:
                self.metrics.reconciles.labels(kind, type(error).__name__).inc()
                delay_s = queue.retry(key)
                level = logging.DEBUG if isinstance(error, Stale) else logging.WARNING
                logger.log(level, "%s %s: %s; again in %.2f s", kind, key, error, delay_s)
            except Exception:
                self.metrics.reconciles.labels(kind, "fault").inc()
                logger.exception("%s %s: a fault of ours", kind, key)
                queue.retry(key)
            else:
                self.metrics.reconciles.labels(kind, "ok").inc()
                queue.forget(key)
                if again_s is not None:
                    queue.add_after(key, again_s)
            finally:
                queue.done(key)

    # --- what the watches say ------------------------------------------------------------------------

    def _ask(self, queue: WorkQueue[K], key: K, delay_s: float = 0.0) -> None:
        # A standby has no workers: it would keep the names of all that came and went while it stood by.
        if self._leading.is_set():
            queue.add_after(key, delay_s)

    def _job_changed(self, change: Change) -> None:
        self._jobs.watch(change)
        if change.kind is ChangeKind.DELETED:
            self._job_worker.forget(change.object["metadata"]["uid"])
        self._ask(self._job_queue, key_of(change.object))

    def _pod_changed(self, change: Change) -> None:
        known = self._pods.get(key_of(change.object))
        old, pod = self._pods.watch(change)
        gone = change.kind is ChangeKind.DELETED
        if gone and self._leading.is_set():
            # Our own mark on it may be newer than the last state that the watch told.
            self._job_worker.pod_gone(known if known is not None and known.uid == pod.uid else pod)
        if pod.job is not None:
            key = (pod.job[0], pod.job[1])
            if gone:
                self._ask(self._job_queue, key)
            elif old is None or old.view != pod.view or old.uid != pod.uid:
                self._ask(self._job_queue, key, SETTLE_S)
        elif pod.managed and pod.group is None and not gone:
            self._ask(self._adopt_queue, pod.key)
        if pod.group_key is not None and (old is None or gone or old.member != pod.member or not old.group):
            self._ask(self._group_queue, pod.group_key, SETTLE_S)
        if old is None or gone or (old.occupies, old.checked) != (pod.occupies, pod.checked):
            group = self._groups.get(pod.group_key) if pod.group_key is not None else None
            named = podgroups.queue_of(group) if group is not None else ""
            self._tell_queues({named, pod.checked, old.checked if old is not None else ""})

    def _group_changed(self, change: Change) -> None:
        old, group = self._groups.watch(change)
        key = key_of(group)
        self._ask(self._group_queue, key)
        owner = controller_of(group)
        if owner.get("kind") == "Job":
            self._ask(self._job_queue, (key[0], owner["name"]))
        checked = {pod.checked for pod in self._pods.by("group", key)}
        self._tell_queues(
            {*checked, podgroups.queue_of(group), podgroups.queue_of(old) if old is not None else ""}
        )

    def _queue_changed(self, change: Change) -> None:
        old, queue = self._queues.watch(change)
        self._ask(self._queue_queue, queue["metadata"]["name"])
        if old is None:
            # Jobs that were waiting for it to exist.
            for job in self._jobs.all():
                if ((job.get("spec") or {}).get("queue") or "default") == queue["metadata"]["name"]:
                    self._ask(self._job_queue, key_of(job))

    def _command_changed(self, change: Change) -> None:
        self._commands.watch(change)
        target = change.object.get("target") or {}
        if change.kind is ChangeKind.DELETED:
            return
        if target.get("kind") == "Job":
            self._ask(self._job_queue, (key_of(change.object)[0], str(target.get("name"))))
        elif target.get("kind") == "Queue":
            self._ask(self._queue_queue, str(target.get("name")))

    def _namespace_changed(self, change: Change) -> None:
        self._namespaces.watch(change)

    def _class_changed(self, change: Change) -> None:
        self._classes.watch(change)

    def _tell_queues(self, names: Iterable[str]) -> None:
        for name in names:
            if name:
                self._ask(self._queue_queue, name, QUEUE_SETTLE_S)

    def _namespace_annotations(self, namespace: str) -> dict[str, str]:
        document = self._namespaces.get(("", namespace)) or {}
        return dict((document.get("metadata") or {}).get("annotations") or {})

    def _class_values(self) -> dict[str, int]:
        return {item["metadata"]["name"]: int(item.get("value") or 0) for item in self._classes.all()}


def _reflect(
    api: ApiConnection,
    resource: Resource,
    on_change: Callable[[Change], None],
    transform: Callable[[Json], Json] = drop_managed_fields,
) -> Reflector:
    return Reflector(api, resource, on_change, transform=transform)


def _same(document: Json) -> Json:
    return document


def _job_of(pod: CachedPod) -> tuple[str, str] | None:
    """Namespace and UID: whoever may make pods elsewhere may write any UID into them."""
    return (pod.job[0], pod.job[2]) if pod.job is not None else None


def _target(command: Json) -> Target | None:
    target = command.get("target") or {}
    if not target.get("uid"):
        return None
    kind = str(target.get("kind"))
    namespace = key_of(command)[0] if kind == "Job" else ""
    return Target(kind, namespace, str(target.get("name")), str(target["uid"]))
