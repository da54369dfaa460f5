"""Pods whose gate has fallen, until they run: gangs that do not arrive are queued again (:mod:`.rollback`),
pods that came past us are removed (:mod:`.orphans`)."""

from collections.abc import Mapping

from vc_egpu.admission.carry_out import Conductor
from vc_egpu.admission.execution.executor import Done, Executor
from vc_egpu.admission.recovery import rollback
from vc_egpu.admission.recovery.orphans import Orphans
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import pod_reference
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.core.room.causes import RULES
from vc_egpu.kube.events import EventRecorder


class Aftercare:
    """Sees every change of pods and gangs; acts when some time has passed. The loop's thread calls it."""

    def __init__(
        self, mirror: Mirror, conductor: Conductor, executor: Executor, events: EventRecorder
    ) -> None:
        self._mirror = mirror
        self._conductor = conductor
        self._executor = executor
        self._events = events
        self._watchlist = rollback.Watchlist()
        self._orphans = Orphans()

    def __bool__(self) -> bool:
        """Whether time counts for anybody."""
        return bool(self._watchlist or self._orphans)

    def look_at_pod(self, uid: PodUid) -> None:
        """It changed, or is gone."""
        pod, clock = self._mirror.pods.get(uid), self._conductor.clock
        if pod is None:
            self._watchlist.forget(uid)
            self._orphans.forget(uid)
        elif pod.managed:
            self._watchlist.note(pod, clock)
            self._orphans.note(pod, clock)

    def look_at_gang(self, key: str) -> None:
        """It or one of its members changed."""
        group = self._mirror.groups.get(key)
        if group is not None:
            members = self._mirror.members.get(key, {})
            self._watchlist.note_gang(group.decoded.gang, members, self._conductor.clock)

    def done(self, done: Done) -> None:
        """The outcome of an operation: an orphan that could not be removed is tried again."""
        if done.kind == "orphan" and done.uid is not None and done.error is not None and not done.gone:
            self._orphans.failed(done.uid, self._conductor.clock)

    def tick(self, verdicts: Mapping[str, Verdict], now: float, *, admitting: bool) -> None:
        """Remove and roll back who has been waited for long enough."""
        for uid in self._orphans.due(self._conductor.clock):
            pod = self._mirror.pods.get(uid)
            if pod is not None:
                rule = RULES[Cause.BYPASS]
                self._events.event(pod_reference(pod), "Warning", rule.event, rule.said())
                self._executor.delete_orphan(pod.pod.gang or "", pod)
        if self._watchlist:
            self._watchlist.wait_for_room(verdicts, self._conductor.clock, admitting=admitting)
            self._roll_back(now)

    def _roll_back(self, now: float) -> None:
        gangs = {
            pod.pod.gang
            for uid in self._watchlist.uids()
            if (pod := self._mirror.pods.get(uid)) is not None and pod.pod.gang is not None
        }
        for key in gangs | set(self._watchlist.starved):
            group = self._mirror.groups.get(key)
            if group is None:
                self._watchlist.starved.pop(key, None)
            if group is None or self._conductor.is_busy(key):
                continue
            members = self._mirror.members.get(key, {})
            back = rollback.judge(group.decoded.gang, members, self._watchlist, self._conductor.clock)
            if back is not None:
                self._conductor.roll_back(key, group, back, now)
                self._watchlist.starved.pop(key, None)
                self._watchlist.handled(pod.pod.uid for pod in (*back.pods, *back.left_alone))
