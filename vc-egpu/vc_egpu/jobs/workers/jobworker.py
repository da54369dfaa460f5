"""One look at one Job: read, decide (:mod:`vc_egpu.jobs.rules.machine`), write to the API server."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from vc_egpu.jobs.health import Metrics
from vc_egpu.jobs.known.cluster import Known, Target
from vc_egpu.jobs.known.pods import CachedPod
from vc_egpu.jobs.objects import podgroups, pods
from vc_egpu.jobs.objects.services import ObjectKeeper
from vc_egpu.jobs.rules import defaults, extent
from vc_egpu.jobs.rules.draft import FINISHED, Decision, Group
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.plugins import Plugin, plugins_of
from vc_egpu.jobs.rules.views import GroupView, Order, World
from vc_egpu.jobs.workers.memory import Memory
from vc_egpu.jobs.workers.orders import Orders
from vc_egpu.jobs.workers.podwriter import PodWriter
from vc_egpu.jobs.workers.refusals import FAILED_CREATE, Refusals
from vc_egpu.jobs.workers.turns import Turns
from vc_egpu.kube import ApiConnection, EventRecorder, Json, Key
from vc_egpu.kube.resources import POD_GROUPS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import AlreadyExists, NotFound, Refused
from vc_egpu.volcano.api.command import Command
from vc_egpu.volcano.api.job import Job, JobAction, JobPhase, Task
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
        turns: Turns,
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
        self._turns = turns
        self._pods = PodWriter(api, known.pods, self._memory, turns=turns, metrics=metrics, got_on=got_on)
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
            self._say_malformed(raw, str(error))
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
        decision = decide(world, [extent.told(refusals)] if refusals else [])
        finished = self._execute(raw, job, world, decision, command)
        self._memory.note_end(uid, finished=finished)
        if not finished or command is not None:
            return 0.0  # another Command may stand behind it, and no watch asks for that look
        if decision.wake_at is not None:
            return min(max(0.01, decision.wake_at - self._clock()), LONGEST_WAIT_S)
        return None

    def _say_malformed(self, raw: Json, text: str) -> None:
        """In the status, too, if the Job has not begun: events pass. The Job may be older than a bound."""
        status = raw.get("status") or {}
        state = status.get("state") or {}
        said = {"phase": JobPhase.PENDING.value, "reason": "Refused", "message": extent.told([text])}
        if state.get("phase") in {None, "", JobPhase.PENDING.value} and {**state, **said} != state:
            with suppress(Refused):  # a bound of the CRD may hold for the whole object
                self._write_status(raw, {**status, "state": {**state, **said}})

    @staticmethod
    def _ignored(whole: Job, job: Job, unreadable: list[str]) -> Iterator[str]:
        """The edits of a Job with pods that are not carried out."""
        if job is not whole:
            yield from defaults.beyond(whole)
        if unreadable:
            yield f"{extent.told(unreadable)}: no pod is made until this is put right"

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
    ) -> bool:
        """Carry the decision out; False if the look's time was up before all of it was done.

        Then the rest follows from what was done, as it does after a crash: the next look decides on it.
        """
        until = self._turns.end_of_look()
        status, refusals = decision.status, Refusals(self._recorder, raw)
        if decision.status_first and status is not None:
            with refusals.told():
                raw = self._write_status(raw, status)
            status = None
        if command is not None:
            if world.order is None:
                text = f"Command {command.metadata.name}: there is no action {command.action!r} for a Job"
                self._recorder.event(raw, "Warning", "UnknownAction", text)
            with refusals.kept():
                self._orders.take_down(command)
        self._memory.settle(job.metadata.uid, world.evictions, decision)
        all_begun = True
        with refusals.told() if decision.needs_kills else refusals.kept():
            all_begun = self._pods.delete(job, decision.kills, until)
        if not all_begun:
            if decision.status_first:
                self._say(raw, decision)  # the next look finds the status as it is, and says nothing of it
            refusals.raise_first()
            return False
        with refusals.kept():
            if decision.group is Group.DELETE and world.group is not None:
                self._delete_group((job.metadata.namespace, job.pod_group_name()), world.group.uid)
        with refusals.kept(FAILED_CREATE):
            all_begun = self._make(raw, job, world, decision, until)
        if status is not None:
            with refusals.told():
                raw = self._write_status(raw, status)
        self._say(raw, decision)
        if decision.delete_job:
            with refusals.told():
                self._delete_job(raw["metadata"])
        refusals.raise_first()  # tried again after a while; what could be done, and said, stands
        return all_begun

    def _say(self, raw: Json, decision: Decision) -> None:
        for note in decision.notes:
            self._recorder.event(raw, "Warning" if note.warning else "Normal", note.reason, note.text)

    def _write_status(self, raw: Json, status: Json) -> Json:
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

    def _make(self, raw: Json, job: Job, world: World, decision: Decision, until: float) -> bool:
        """Make what is missing; False if time was up before all was begun. Raises KubeError."""
        self._tend_group(job, world, decision)
        if decision.create:
            return self._create(raw, job, decision.create, until)
        if world.readable and world.group is not None and job.status.state.phase not in FINISHED:
            self._ensure_objects(raw, job, plugins_of(job))
        return True

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

    def _ensure_objects(
        self, raw: Json, job: Job, plugins: Sequence[Plugin], *, look_again: bool = False
    ) -> None:
        if self._objects.ensure(job, plugins, look_again=look_again):
            for text in filter(None, (plugin.warning() for plugin in plugins)):
                self._recorder.event(raw, "Warning", "HostsLeftOut", text)

    def _create(self, raw: Json, job: Job, wanted: Sequence[tuple[Task, int]], until: float) -> bool:
        """Make the objects that pods need, then the pods; False if time was up before all were begun."""
        # A pod whose host list was deleted waits for it without end, as for a volume: so look at all of them.
        uid, plugins = job.metadata.uid, plugins_of(job)
        look_again = not self._memory.was_refused(uid) and not self._memory.goes_on(uid)
        self._ensure_objects(raw, job, plugins, look_again=look_again)

        def build(one: tuple[Task, int]) -> Json:
            return pods.build_pod(job, *one, plugins, self._local_scheduler)

        return self._pods.make(job, wanted, build, until)
