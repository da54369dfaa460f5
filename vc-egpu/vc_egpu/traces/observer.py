"""Watches Jobs, PodGroups and their pods, and hands on each start that is over."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from vc_egpu.core.model.cluster import Instant
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import POD_GROUPS, PODS, VOLCANO_JOBS, Resource
from vc_egpu.kube.watch import Change, ChangeKind, Reflector
from vc_egpu.traces.facts import group_facts, pod_facts
from vc_egpu.traces.starts import Start, Starts
from vc_egpu.volcano.codec.cluster_codec import instant
from vc_egpu.volcano.words import names

SILENCE_S: Final = 300.0
"""Without any answer of the API server for so long we are not ready."""
Json = dict[str, Any]
Handler = Callable[[Change], Start | None]


def _identity(document: Json) -> Json:
    """What is kept of a Job: when it was made, and its name."""
    meta = document["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp", "resourceVersion")}
    return {"metadata": kept}


class Observer:
    """Reads only. ``tell`` is called on the watches' threads, one call at a time.

    Gangs that ran before the first lists were read have no start that is told.
    """

    def __init__(self, api: ApiConnection, tell: Callable[[Start], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._jobs: dict[str, Instant] = {}
        self._starts = Starts(self._jobs)
        self._handlers: Mapping[Resource, Handler] = {
            VOLCANO_JOBS: self._job,
            POD_GROUPS: self._group,
            PODS: self._pod,
        }
        managed = f"{names.MANAGED_LABEL}=true"
        self._watches = [
            Reflector(api, VOLCANO_JOBS, self._watched(VOLCANO_JOBS), transform=_identity, optional=True),
            Reflector(api, POD_GROUPS, self._watched(POD_GROUPS)),
            Reflector(api, PODS, self._watched(PODS), label_selector=managed),
        ]

    def start(self) -> None:
        """Begin to watch; Jobs first, since a start begins with its Job."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """End the watches."""
        for watch in self._watches:
            watch.stop()

    def gangs(self) -> int:
        """How many are known."""
        with self._lock:
            return len(self._starts)

    def trouble(self) -> str:
        """Empty: the API server is heard. Else what is not."""
        for watch in self._watches:
            if not watch.synced.is_set():
                return f"{watch.resource.plural} are not read yet: {watch.failure() or 'no answer so far'}"
            if watch.unanswered_s() > SILENCE_S:
                return f"{watch.resource.plural}: no answer for {watch.unanswered_s():.0f} s"
        return ""

    def _watched(self, resource: Resource) -> Callable[[Change], None]:
        def changed(change: Change) -> None:
            with self._lock:
                start = self._handlers[resource](change)
                if start is not None and all(watch.synced.is_set() for watch in self._watches):
                    self._tell(start)

        return changed

    def _job(self, change: Change) -> None:
        meta = change.object["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if change.kind is ChangeKind.DELETED:
            self._jobs.pop(key, None)
        else:
            self._jobs[key] = instant(meta["creationTimestamp"])

    def _group(self, change: Change) -> Start | None:
        told = time.time()
        facts = group_facts(change.object, told)
        gone = change.kind is ChangeKind.DELETED
        return self._starts.group_gone(facts, told) if gone else self._starts.group(facts, told)

    def _pod(self, change: Change) -> Start | None:
        told = time.time()
        facts = pod_facts(change.object, told)
        if change.kind is not ChangeKind.DELETED:
            return self._starts.pod(facts, told)
        self._starts.pod_gone(facts, told)
        return None
