"""What a watch reports: it goes into :class:`Known`, and the looks that it calls for are asked for."""

from collections.abc import Callable
from typing import Final

from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.known.pods import CachedPod
from vc_egpu.jobs.objects.podgroups import queue_of
from vc_egpu.jobs.work import Look, Work
from vc_egpu.kube import Change, ChangeKind, Resource, key_of
from vc_egpu.kube.resources import (
    COMMANDS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    VOLCANO_JOBS,
)
from vc_egpu.volcano.words.makers import controller_of

SETTLE_S: Final = 0.05
"""Pods of a gang change together: one look at the Job covers many of them."""


class Changes:
    """Hears changes of all kinds. Each kind comes on the thread of its own watch."""

    def __init__(
        self,
        known: Known,
        work: Work,
        *,
        job_gone: Callable[[str], None],
        pod_gone: Callable[[CachedPod], None],
    ) -> None:
        """``job_gone`` gets the UID of a deleted Job, ``pod_gone`` a pod that was deleted while we lead."""
        self._known = known
        self._work = work
        self._job_gone = job_gone
        self._pod_gone = pod_gone
        self._hear: dict[Resource, Callable[[Change], object]] = {
            NAMESPACES: known.namespaces.watch,
            PRIORITY_CLASSES: known.classes.watch,
            QUEUES: self._queue,
            POD_GROUPS: self._group,
            PODS: self._pod,
            COMMANDS: self._command,
            VOLCANO_JOBS: self._job,
        }

    def hear(self, resource: Resource, change: Change) -> None:
        """Take one change of an object of this kind."""
        self._hear[resource](change)

    def ask_for_all(self) -> None:
        """Ask for a look at everything that is known."""
        known, work = self._known, self._work
        for key in known.jobs.all_keys():
            work.ask(Look.JOB, key)
        for group in known.groups.all():
            work.ask(Look.GROUP, key_of(group))
        for pod in known.pods.all():
            if pod.group_key is not None:
                work.ask(Look.GROUP, pod.group_key)
            elif pod.managed and pod.job is None:
                work.ask(Look.POD, pod.key)
        for queue in known.queues.all():
            work.ask(Look.QUEUE, key_of(queue))

    def _job(self, change: Change) -> None:
        self._known.jobs.watch(change)
        if change.kind is ChangeKind.DELETED:
            self._job_gone(change.object["metadata"]["uid"])
        self._work.ask(Look.JOB, key_of(change.object))

    def _pod(self, change: Change) -> None:
        work, latest = self._work, self._known.pods.get(key_of(change.object))
        old, pod = self._known.pods.watch(change)
        gone = change.kind is ChangeKind.DELETED
        if gone and work.leading:
            # Our own mark on it may be newer than the last state that the watch reported.
            self._pod_gone(latest if latest is not None and latest.uid == pod.uid else pod)
        if pod.job is not None:
            key = (pod.job[0], pod.job[1])
            if gone:
                work.ask(Look.JOB, key)
            elif old is None or old.view != pod.view or old.uid != pod.uid:
                work.ask(Look.JOB, key, SETTLE_S)
        elif pod.managed and pod.group is None and not gone:
            work.ask(Look.POD, pod.key)
        if pod.group_key is not None and (old is None or gone or old.member != pod.member or not old.group):
            work.ask(Look.GROUP, pod.group_key, SETTLE_S)
        if old is None or gone or (old.occupies, old.checked) != (pod.occupies, pod.checked):
            group = self._known.groups.get(pod.group_key) if pod.group_key is not None else None
            named = queue_of(group) if group is not None else ""
            work.ask_for_queues({named, pod.checked, old.checked if old is not None else ""})

    def _group(self, change: Change) -> None:
        old, group = self._known.groups.watch(change)
        key, owner = key_of(group), controller_of(group)
        self._work.ask(Look.GROUP, key)
        if owner.get("kind") == "Job":
            self._work.ask(Look.JOB, (key[0], owner["name"]))
        checked = {pod.checked for pod in self._known.pods.by("group", key)}
        self._work.ask_for_queues({*checked, queue_of(group), queue_of(old) if old is not None else ""})

    def _queue(self, change: Change) -> None:
        old, queue = self._known.queues.watch(change)
        self._work.ask(Look.QUEUE, key_of(queue))
        if old is None:
            # Some Jobs may have waited for this queue to exist.
            for key in self._known.jobs.of_queue(queue["metadata"]["name"]):
                self._work.ask(Look.JOB, key)

    def _command(self, change: Change) -> None:
        self._known.commands.watch(change)
        target = change.object.get("target") or {}
        if change.kind is ChangeKind.DELETED:
            return
        if target.get("kind") == "Job":
            self._work.ask(Look.JOB, (key_of(change.object)[0], str(target.get("name"))))
        elif target.get("kind") == "Queue":
            self._work.ask(Look.QUEUE, ("", str(target.get("name"))))
