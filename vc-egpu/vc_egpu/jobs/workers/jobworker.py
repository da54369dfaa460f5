"""One look at one Job: read, decide (:mod:`vc_egpu.jobs.rules.machine`), write to the API server."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from vc_egpu.jobs.health import Metrics
from vc_egpu.jobs.known.cluster import Known, Target
from vc_egpu.jobs.known.pods import CachedPod
from vc_egpu.jobs.objects import podgroups, pods
from vc_egpu.jobs.objects.services import ObjectKeeper
from vc_egpu.jobs.rules import defaults
from vc_egpu.jobs.rules.draft import FINISHED, Decision, Group
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.plugins import plugins_of
from vc_egpu.jobs.rules.views import GroupView, Order, World
from vc_egpu.jobs.workers.memory import Memory
from vc_egpu.jobs.workers.orders import Orders
from vc_egpu.jobs.workers.podwriter import PodWriter
from vc_egpu.jobs.workers.refusals import FAILED_CREATE, Refusals
from vc_egpu.kube import ApiConnection, EventRecorder, Json, Key
from vc_egpu.kube.resources import POD_GROUPS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import AlreadyExists, NotFound
from vc_egpu.volcano.api.command import Command
from vc_egpu.volcano.api.job import Job, JobAction, Task
from vc_egpu.volcano.api.meta import ModelError

LONGEST_WAIT_S: Final = 3600.0
"""A user may write a time-out of centuries, but no lock waits so long. A look in between does nothing."""

logger = logging.getLogger(__name__)


class JobWorker:
    """Looks at Jobs; thread-safe for different Jobs."""

    def __init__(
        self,
        api: ApiConnection,
        known: Known,
        *,
        executor: Executor,
        recorder: EventRecorder,
        metrics: Metrics,
        local_scheduler: str,
        got_on: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``got_on`` is told after each of many writes, because a look may take long."""
        self._api = api
        self._known = known
        self._recorder = recorder
        self._local_scheduler = local_scheduler
        self._clock = clock
        self._memory = Memory(known, clock)
        self._pods = PodWriter(
            api, known.pods, self._memory, executor=executor, metrics=metrics, got_on=got_on
        )
        self._objects = ObjectKeeper(api)
        self._orders = Orders(api, known, recorder)

    # --- reported by the watches ---------------------------------------------------------------------

    def pod_gone(self, pod: CachedPod) -> None:
        """A pod of a Job was deleted."""
        self._memory.pod_gone(pod)

    def forget(self, uid: str) -> None:
        """The Job is gone."""
        self._memory.forget(uid)
        self._objects.forget(uid)

    def rest(self) -> None:
        """Another process leads: evictions are its business, and we do not hear what it makes."""
        self._memory.rest()
        self._objects.forget_all()

    # --- one look ------------------------------------------------------------------------------------

    def look(self, key: Key) -> float | None:
        """Bring one Job forward; returns in how many seconds to look again, or None for "when it changes"."""
        raw = self._known.jobs.get(key)
        if raw is None:
            return None
        uid = raw["metadata"]["uid"]
        try:
            stored = Job.parse(raw)
        except ModelError as error:
            self._recorder.event(raw, "Warning", "Malformed", str(error))
            return None
        if stored.metadata.deletion_timestamp:
            self.forget(uid)
            return None
        whole = defaults.complete(stored)
        job = defaults.bounded(whole)
        target = Target("Job", job.metadata.namespace, job.metadata.name, job.metadata.uid)
        command = self._orders.first(target, raw)
        refusals = defaults.refusals(whole)
        unreadable = defaults.unreadable(whole) if refusals else []
        world = self._world(job, command, readable=not unreadable)
        if world.pods:
            for text in self._ignored(whole, job, unreadable):
                self._recorder.event(raw, "Warning", "Ignored", text)
        decision = decide(world, refusals)
        self._execute(raw, job, world, decision, command)
        if command is not None:
            return 0.0  # another Command may stand behind it, and no watch asks for that look
        if decision.wake_at is not None:
            return min(max(0.01, decision.wake_at - self._clock()), LONGEST_WAIT_S)
        return None

    @staticmethod
    def _ignored(whole: Job, job: Job, unreadable: list[str]) -> Iterator[str]:
        """The edits of a Job with pods that are not carried out."""
        if job is not whole:
            yield from defaults.beyond(whole)
        if unreadable:
            yield f"{'; '.join(unreadable)}: no pod is made until this is put right"

    def _world(self, job: Job, command: Command | None, *, readable: bool) -> World:
        namespace, uid = job.metadata.namespace, job.metadata.uid
        group = self._known.groups.get((namespace, job.pod_group_name()))
        evictions, first_seen = self._memory.happenings(uid)
        order = None
        if command is not None and command.action in set(JobAction):
            order = Order(command.metadata.name, command.metadata.uid, JobAction(command.action))
        known_pods = self._known.pods.by("job", (namespace, uid))
        return World(
            job=job,
            pods=tuple(pod.view for pod in known_pods if pod.view is not None),
            group=GroupView.of(group) if group is not None else None,
            evictions=evictions,
            first_seen=first_seen,
            order=order,
            queue_known=self._known.has_queue(job.spec.queue),
            readable=readable,
            now=self._clock(),
        )

    # --- writes to the API server --------------------------------------------------------------------

    def _execute(
        self, raw: Json, job: Job, world: World, decision: Decision, command: Command | None
    ) -> None:
        status, refusals = decision.status, Refusals(self._recorder, raw)
        if decision.status_first and status is not None:
            raw = self._write_status(raw, status, refusals)
            status = None
        if command is not None:
            if world.order is None:
                text = f"Command {command.metadata.name}: there is no action {command.action!r} for a Job"
                self._recorder.event(raw, "Warning", "UnknownAction", text)
            with refusals.kept():
                self._orders.take_down(command)
        self._memory.settle(job.metadata.uid, world.evictions, decision)
        with refusals.told() if decision.needs_kills else refusals.kept():
            self._pods.delete(job, decision.kills)
        with refusals.kept():
            if decision.group is Group.DELETE and world.group is not None:
                self._delete_group((job.metadata.namespace, job.pod_group_name()), world.group.uid)
        with refusals.kept(FAILED_CREATE):
            self._make(job, world, decision)
        if status is not None:
            raw = self._write_status(raw, status, refusals)
        for note in decision.notes:
            self._recorder.event(raw, "Warning" if note.warning else "Normal", note.reason, note.text)
        if decision.delete_job:
            with refusals.told():
                self._delete_job(raw["metadata"])
        refusals.raise_first()

    def _write_status(self, raw: Json, status: Json, refusals: Refusals) -> Json:
        with refusals.told():
            answer = self._api.update_status(VOLCANO_JOBS, {**raw, "status": status})
        self._known.jobs.put(answer)
        return answer

    def _delete_job(self, metadata: Json) -> None:
        """Only as it stands now: raises :class:`Conflict` if its owner changed it, maybe to keep it."""
        with suppress(NotFound):
            self._api.delete(
                VOLCANO_JOBS,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                propagation="Foreground",
            )

    def _make(self, job: Job, world: World, decision: Decision) -> None:
        """Make what is missing; raises KubeError."""
        self._tend_group(job, world, decision)
        if decision.create:
            self._create(job, decision.create)
        elif world.readable and world.group is not None and job.status.state.phase not in FINISHED:
            self._objects.ensure(job)

    def _tend_group(self, job: Job, world: World, decision: Decision) -> None:
        group = world.group
        namespace, name = job.metadata.namespace, job.pod_group_name()
        if not world.readable:
            return  # what the gang needs is not known
        if decision.group is Group.MAKE and group is None:
            try:
                answer = self._api.create(POD_GROUPS, podgroups.job_group(job, self._known.priorities()))
            except AlreadyExists:
                answer = self._api.get(POD_GROUPS, name, namespace)
            self._known.groups.put(answer)
        elif decision.group is Group.LEAVE and group is not None and not group.terminating:
            wanted = self._memory.group_spec(
                job.metadata.uid,
                job.metadata.generation,
                lambda: podgroups.job_group_spec(job, self._known.priorities()),
            )
            present = self._known.groups.get((namespace, name)) or {}
            patch = podgroups.changes(wanted, present.get("spec") or {})
            if patch:
                body = {"metadata": {"uid": group.uid}, "spec": patch}
                self._known.groups.put(self._api.patch(POD_GROUPS, name, body, namespace))

    def _delete_group(self, key: Key, uid: str) -> None:
        """It is gone at once, also where the watch is late: no pod is made that would belong to it."""
        answer: Json = {}
        with suppress(NotFound):
            answer = self._api.delete(POD_GROUPS, key[1], key[0], uid=uid)
        if (answer.get("metadata") or {}).get("deletionTimestamp"):
            self._known.groups.put(answer)  # a finalizer holds it
        else:
            self._known.groups.gone(key, uid)

    def _create(self, job: Job, wanted: Iterable[tuple[Task, int]]) -> None:
        """Make the objects that pods need, then the pods."""
        # A pod whose host list was deleted waits for it without end, as for a volume: so look at all of them.
        self._objects.ensure(job, look_again=not self._memory.was_refused(job.metadata.uid))
        plugins = plugins_of(job)
        self._pods.make(
            job,
            [pods.build_pod(job, task, index, plugins, self._local_scheduler) for task, index in wanted],
        )
