"""What one process remembers of Jobs from one look to the next; the API server does not hold it."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.known.pods import CachedPod
from vc_egpu.jobs.rules.draft import Decision
from vc_egpu.jobs.rules.views import Eviction
from vc_egpu.kube import Json


class Memory:
    """By the UID of the Job. Thread-safe."""

    def __init__(self, known: Known, clock: Callable[[], float] = time.time) -> None:
        self._known = known
        self._clock = clock
        self._lock = threading.Lock()
        self._evictions: dict[str, tuple[Eviction, ...]] = {}
        self._first_seen: dict[str, Mapping[str, float]] = {}
        self._killed: dict[str, str] = {}
        """UIDs of pods that we deleted and whose end no watch has reported, each with its Job's UID."""
        self._group_specs: dict[str, tuple[int | None, Json]] = {}
        self._refused: set[str] = set()
        self._unfinished: set[str] = set()

    def pod_gone(self, pod: CachedPod) -> None:
        """A pod of a Job was deleted: it counts as evicted unless we, or the admission layer, deleted it."""
        if pod.job is None or pod.view is None:
            return
        namespace, name, uid = pod.job
        with self._lock:
            known = self._known.jobs.uid((namespace, name))
            ours = self._killed.pop(pod.uid, None) is not None
            if known != uid:
                return  # the Job went before its pods: no look will ask about them
            if not ours and not pod.view.out_of_sync:
                view = pod.view
                eviction = Eviction(view.name, view.uid, view.task, view.version, self._clock())
                self._evictions[uid] = (*self._evictions.get(uid, ()), eviction)

    def rest(self) -> None:
        """Another process leads: it deals with these evictions now."""
        with self._lock:
            self._evictions.clear()
            self._first_seen.clear()

    def forget(self, uid: str) -> None:
        """The Job is gone."""
        with self._lock:
            self._evictions.pop(uid, None)
            self._first_seen.pop(uid, None)
            self._group_specs.pop(uid, None)
            self._refused.discard(uid)
            self._unfinished.discard(uid)
            for pod in [pod for pod, job in self._killed.items() if job == uid]:
                del self._killed[pod]

    def happenings(self, uid: str) -> tuple[tuple[Eviction, ...], Mapping[str, float]]:
        """Evictions that no look has dealt with, and since when each delayed action has been waiting."""
        with self._lock:
            return self._evictions.get(uid, ()), self._first_seen.get(uid, {})

    def settle(self, uid: str, seen: Iterable[Eviction], decision: Decision) -> None:
        """A look decided on the evictions in ``seen``: keep what it wants kept and what came meanwhile."""
        with self._lock:
            old = {eviction.uid for eviction in seen}
            newer = [eviction for eviction in self._evictions.pop(uid, ()) if eviction.uid not in old]
            kept = (*decision.evictions, *newer)
            if kept:
                self._evictions[uid] = kept
            self._first_seen.pop(uid, None)
            if decision.first_seen:
                self._first_seen[uid] = decision.first_seen

    def kills(self, pod_uid: str, uid: str) -> None:
        """We are about to delete this pod of the Job."""
        with self._lock:
            self._killed[pod_uid] = uid

    def group_spec(self, uid: str, generation: int | None, work_out: Callable[[], Json]) -> Json:
        """What the Job's PodGroup should say; worked out once for each generation of the Job."""
        with self._lock:
            known = self._group_specs.get(uid)
        if known is not None and known[0] == generation:
            return known[1]
        spec = work_out()
        with self._lock:
            self._group_specs[uid] = (generation, spec)
        return spec

    def was_refused(self, uid: str) -> bool:
        """Whether the API server refused pods of the Job at the last look."""
        with self._lock:
            return uid in self._refused

    def note_refusal(self, uid: str, *, refused: bool) -> None:
        """The API server refused pods of the Job at this look, or took them all."""
        with self._lock:
            if refused:
                self._refused.add(uid)
            else:
                self._refused.discard(uid)

    def goes_on(self, uid: str) -> bool:
        """Whether the last look at the Job ended because its time was up."""
        with self._lock:
            return uid in self._unfinished

    def note_end(self, uid: str, *, finished: bool) -> None:
        """A look at the Job did all that it decided, or its time was up before."""
        with self._lock:
            if finished:
                self._unfinished.discard(uid)
            else:
                self._unfinished.add(uid)
