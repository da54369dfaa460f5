"""One look at one Job: read, decide (:mod:`vc_egpu.jobs.rules.machine`), tell the API server."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from vc_egpu.jobs.objects import podgroups, pods
from vc_egpu.jobs.objects.services import InTheWay, ObjectKeeper
from vc_egpu.jobs.rules import defaults
from vc_egpu.jobs.rules.draft import FINISHED, Decision, Group, Kill
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.plugins import plugins_of
from vc_egpu.jobs.rules.views import Eviction, GroupView, Order, World
from vc_egpu.jobs.workers.cache import Latest
from vc_egpu.jobs.workers.metrics import Metrics
from vc_egpu.jobs.workers.orders import Target, first_of
from vc_egpu.jobs.workers.podcache import CachedPod, trim
from vc_egpu.kube import ApiConnection, EventRecorder, Json, Key
from vc_egpu.kube.resources import COMMANDS, POD_GROUPS, PODS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    Refused,
    Temporary,
    Unavailable,
)
from vc_egpu.volcano.api.command import Command
from vc_egpu.volcano.api.job import Job, JobAction, Task
from vc_egpu.volcano.api.meta import ModelError
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of

LONGEST_WAIT_S: Final = 3600.0
"""A user may write a time-out of centuries, and no lock waits so long: a look in between does nothing."""

logger = logging.getLogger(__name__)


class JobWorker:
    """Looks at Jobs; thread-safe for different Jobs."""

    def __init__(
        self,
        api: ApiConnection,
        *,
        jobs: Latest[Json],
        pod_cache: Latest[CachedPod],
        groups: Latest[Json],
        commands: Latest[Json],
        queue_known: Callable[[str], bool],
        class_values: Callable[[], dict[str, int]],
        executor: Executor,
        recorder: EventRecorder,
        metrics: Metrics,
        local_scheduler: str,
        got_on: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._jobs = jobs
        self._pods = pod_cache
        self._groups = groups
        self._commands = commands
        self._queue_known = queue_known
        self._class_values = class_values
        self._executor = executor
        self._recorder = recorder
        self._metrics = metrics
        self._local_scheduler = local_scheduler
        self._got_on = got_on
        """Told after each of many writes: a look may take long."""
        self._clock = clock
        self._objects = ObjectKeeper(api)
        self._lock = threading.Lock()
        self._evictions: dict[str, tuple[Eviction, ...]] = {}
        self._first_seen: dict[str, Mapping[str, float]] = {}
        self._killed: dict[str, str] = {}
        """UIDs of pods that we took down and whose end the watch has not told, each with its Job's UID."""
        self._group_specs: dict[str, tuple[int | None, Json]] = {}
        self._refused: set[str] = set()
        """UIDs of Jobs of which pods were refused at the last look."""

    # --- told by the watch ---------------------------------------------------------------------------

    def pod_gone(self, pod: CachedPod) -> None:
        """A pod of a Job was deleted: remember it as evicted unless we (or the lever) did it."""
        if pod.job is None or pod.view is None:
            return
        namespace, name, uid = pod.job
        with self._lock:
            job = self._jobs.get((namespace, name))
            ours = self._killed.pop(pod.uid, None) is not None
            if job is None or job["metadata"]["uid"] != uid:
                return  # it went before its pods: nobody will ask what became of them
            if not ours and not pod.view.out_of_sync:
                view = pod.view
                eviction = Eviction(view.name, view.uid, view.task, view.version, self._clock())
                self._evictions[uid] = (*self._evictions.get(uid, ()), eviction)

    def rest(self) -> None:
        """Another process leads: what was evicted is its business, and what it makes is not heard here."""
        with self._lock:
            self._evictions.clear()
            self._first_seen.clear()
        self._objects.forget_all()

    # --- one look ------------------------------------------------------------------------------------

    def look(self, key: Key) -> float | None:
        """Bring one Job forward; returns in how many seconds to look again, or None for "when it changes"."""
        raw = self._jobs.get(key)
        if raw is None:
            return None
        uid = raw["metadata"]["uid"]
        try:
            stored = Job.parse(raw)
        except ModelError as error:
            self._recorder.event(raw, "Warning", "Malformed", str(error))
            return None
        if stored.metadata.deletion_timestamp:
            self._forget(uid)
            return None
        whole = defaults.complete(stored)
        job = defaults.bounded(whole)
        command = self._command(job)
        refusals = defaults.refusals(whole)
        unreadable = defaults.unreadable(whole) if refusals else []
        world = self._world(job, command, readable=not unreadable)
        if world.pods:
            for text in self._ignored(whole, job, unreadable):
                self._recorder.event(raw, "Warning", "Ignored", text)
        decision = decide(world, refusals)
        self._execute(raw, job, world, decision, command)
        if decision.wake_at is not None:
            return min(max(0.01, decision.wake_at - self._clock()), LONGEST_WAIT_S)
        return None

    @staticmethod
    def _ignored(whole: Job, job: Job, unreadable: list[str]) -> Iterator[str]:
        """What a Job that has pods was edited into, and is not done."""
        if job is not whole:
            yield from defaults.beyond(whole)
        if unreadable:
            yield f"{'; '.join(unreadable)}: no pod is made until this is put right"

    def forget(self, uid: str) -> None:
        """The Job is gone."""
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._evictions.pop(uid, None)
            self._first_seen.pop(uid, None)
            self._group_specs.pop(uid, None)
            self._refused.discard(uid)
            for pod in [pod for pod, job in self._killed.items() if job == uid]:
                del self._killed[pod]
        self._objects.forget(uid)

    def _world(self, job: Job, command: Command | None, *, readable: bool) -> World:
        namespace, uid = job.metadata.namespace, job.metadata.uid
        group = self._groups.get((namespace, job.pod_group_name()))
        with self._lock:
            evictions, first_seen = self._evictions.get(uid, ()), self._first_seen.get(uid, {})
        order = None
        if command is not None and command.action in set(JobAction):
            order = Order(command.metadata.name, command.metadata.uid, JobAction(command.action))
        return World(
            job=job,
            pods=tuple(pod.view for pod in self._pods.by("job", (namespace, uid)) if pod.view is not None),
            group=GroupView.of(group) if group is not None else None,
            evictions=evictions,
            first_seen=first_seen,
            order=order,
            queue_known=self._queue_known(job.spec.queue),
            readable=readable,
            now=self._clock(),
        )

    def _command(self, job: Job) -> Command | None:
        """The first Command for this very Job."""
        target = Target("Job", job.metadata.namespace, job.metadata.name, job.metadata.uid)
        return first_of(self._commands.by("target", target))

    # --- telling the API server ----------------------------------------------------------------------

    def _execute(
        self, raw: Json, job: Job, world: World, decision: Decision, command: Command | None
    ) -> None:
        status = decision.status
        if decision.status_first and status is not None:
            raw = self._write_status(raw, status)
            status = None
        if command is not None:
            self._take_down(job, command, world.order)
        with self._lock:
            seen = {eviction.uid for eviction in world.evictions}
            newer = [e for e in self._evictions.pop(job.metadata.uid, ()) if e.uid not in seen]
            kept = (*decision.evictions, *newer)
            if kept:
                self._evictions[job.metadata.uid] = kept
            self._first_seen.pop(job.metadata.uid, None)
            if decision.first_seen:
                self._first_seen[job.metadata.uid] = decision.first_seen
        self._each(self._kill, decision.kills, job)
        refusal = self._make(job, world, decision)
        if refusal is not None:
            self._recorder.event(raw, "Warning", "FailedCreate", refusal.message)
        if status is not None:
            raw = self._write_status(raw, status)
        for note in decision.notes:
            self._recorder.event(raw, "Warning" if note.warning else "Normal", note.reason, note.text)
        if decision.delete_job:
            self._delete_job(raw["metadata"])
        if refusal is not None:
            raise refusal  # tried again after a while; what could be done, and said, stands

    def _write_status(self, raw: Json, status: Json) -> Json:
        answer = self._api.update_status(VOLCANO_JOBS, {**raw, "status": status})
        self._jobs.put(answer)
        return answer

    def _delete_job(self, metadata: Json) -> None:
        """By what it says now: raises :class:`Conflict` where its owner changed it, maybe to keep it."""
        with suppress(NotFound):
            self._api.delete(
                VOLCANO_JOBS,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                propagation="Foreground",
            )

    def _take_down(self, job: Job, command: Command, order: Order | None) -> None:
        if order is None:
            text = f"Command {command.metadata.name}: there is no action {command.action!r} for a Job"
            self._recorder.event(job.document(), "Warning", "UnknownAction", text)
        meta = command.metadata
        self._gone_is_fine(lambda: self._api.delete(COMMANDS, meta.name, meta.namespace, uid=meta.uid))
        # The Job moves on at once, and the watch may be slow: an order is obeyed once.
        self._commands.gone((meta.namespace, meta.name), meta.uid)

    def _kill(self, kill: Kill, job: Job) -> None:
        namespace, pod = job.metadata.namespace, kill.pod
        with self._lock:
            self._killed[pod.uid] = job.metadata.uid
        if kill.mark:
            mark = {"metadata": {"uid": pod.uid, "annotations": {names.OUT_OF_SYNC: "true"}}}
            self._gone_is_fine(lambda: self._keep(self._api.patch(PODS, pod.name, mark, namespace)))
        self._gone_is_fine(
            lambda: self._keep(self._api.delete(PODS, pod.name, namespace, uid=pod.uid), deleting=True)
        )
        self._metrics.pods_deleted.inc()

    def _keep(self, answer: Json, *, deleting: bool = False) -> None:
        """Remember a pod as the API server's answer has it."""
        if answer.get("kind") != "Pod":
            return
        if deleting:
            # A pod that no kubelet holds is gone at once and its answer bears no mark of it.
            answer["metadata"].setdefault("deletionTimestamp", answer["metadata"].get("creationTimestamp"))
        self._pods.put(trim(answer))

    def _tend_group(self, job: Job, world: World, decision: Decision) -> None:
        group = world.group
        namespace, name = job.metadata.namespace, job.pod_group_name()
        if decision.group is Group.DELETE and group is not None:
            self._gone_is_fine(lambda: self._api.delete(POD_GROUPS, name, namespace, uid=group.uid))
        elif not world.readable:
            return  # what the gang needs is not known
        elif decision.group is Group.MAKE and group is None:
            try:
                answer = self._api.create(POD_GROUPS, podgroups.job_group(job, self._class_values()))
            except AlreadyExists:
                answer = self._api.get(POD_GROUPS, name, namespace)
            self._groups.put(answer)
        elif decision.group is Group.LEAVE and group is not None and not group.terminating:
            present = self._groups.get((namespace, name)) or {}
            patch = podgroups.changes(self._group_spec(job), present.get("spec") or {})
            if patch:
                body = {"metadata": {"uid": group.uid}, "spec": patch}
                self._groups.put(self._api.patch(POD_GROUPS, name, body, namespace))

    def _group_spec(self, job: Job) -> Json:
        """What the PodGroup should say; worked out once per generation of the Job."""
        uid, generation = job.metadata.uid, job.metadata.generation
        with self._lock:
            known = self._group_specs.get(uid)
        if known is not None and known[0] == generation:
            return known[1]
        spec = podgroups.job_group_spec(job, self._class_values())
        with self._lock:
            self._group_specs[uid] = (generation, spec)
        return spec

    def _make(self, job: Job, world: World, decision: Decision) -> Refused | Unavailable | None:
        """Make what is missing; returns why not all of it could be."""
        try:
            self._tend_group(job, world, decision)
            if decision.create:
                self._create(job, decision.create)
            elif world.readable and world.group is not None and job.status.state.phase not in FINISHED:
                self._objects.ensure(job)
        except (Refused, InTheWay) as refusal:
            return refusal
        except Unavailable as error:
            if not error.status:
                raise  # nobody said anything
            return error  # somebody's webhook does not answer, for one
        return None

    def _create(self, job: Job, wanted: Iterable[tuple[Task, int]]) -> None:
        """Make the objects that pods need, then the pods, all at once.

        Where some could not be the last time the first one goes ahead: a Job whose quota is used up, or whose
        webhook does not answer, would try all of its pods in vain at every look.
        """
        uid = job.metadata.uid
        with self._lock:
            ahead = 1 if uid in self._refused else 0
        # Pods wait for a host list that was deleted as for a volume: for good.
        self._objects.ensure(job, anew=not ahead)
        plugins = plugins_of(job)
        documents = [
            pods.build_pod(job, task, index, plugins, self._local_scheduler) for task, index in wanted
        ]
        try:
            self._each(self._create_pod, documents[:ahead], job)
            self._each(self._create_pod, documents[ahead:], job, while_it_answers=True)
        except (Refused, Temporary):
            with self._lock:
                self._refused.add(uid)
            raise
        with self._lock:
            self._refused.discard(uid)

    def _create_pod(self, document: Json, job: Job) -> None:
        namespace, name = job.metadata.namespace, document["metadata"]["name"]
        try:
            answer = self._api.create(PODS, document)
        except AlreadyExists:
            answer = self._api.get(PODS, name, namespace)
            if controller_of(answer).get("uid") != job.metadata.uid:
                raise InTheWay(job, {**answer, "kind": "Pod"}) from None
        else:
            self._metrics.pods_created.inc()
        self._pods.put(trim(answer))

    def _each(
        self,
        work: Callable[[Any, Job], None],
        items: Iterable[Any],
        job: Job,
        *,
        while_it_answers: bool = False,
    ) -> None:
        """Do it for all, side by side; the first failure is raised once all have been tried.

        ``while_it_answers``: what had not begun when one was no use trying now is left. Each may take as long
        as a time-out, and other Jobs' writes stand in line behind all.
        """
        values = list(items)
        if len(values) == 1:
            work(values[0], job)
            return
        errors: list[KubeError] = []
        futures = [self._executor.submit(work, value, job) for value in values]
        for future in futures:
            if future.cancelled():
                continue
            try:
                future.result()
            except KubeError as error:
                errors.append(error)
                if while_it_answers and isinstance(error, Temporary) and not isinstance(error, InTheWay):
                    for later in futures:
                        later.cancel()
            self._got_on()
        if errors:
            raise next((error for error in errors if isinstance(error, (Refused, InTheWay))), errors[0])

    @staticmethod
    def _gone_is_fine(call: Callable[[], Any]) -> None:
        """What is to go may be gone already, or be another object by now (its UID differs)."""
        try:
            call()
        except (NotFound, Conflict):
            return
