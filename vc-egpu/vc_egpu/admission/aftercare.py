"""Pods whose gate has fallen, until they run.

Gangs that do not arrive are queued again (:mod:`.recovery.rollback`). Pods that came past us are removed
(:mod:`.recovery.orphans`).
"""

from collections.abc import Mapping
from typing import Final, assert_never

from vc_egpu.admission.carry_out.conductor import Conductor
from vc_egpu.admission.execution.outcomes import OrphanRemoval
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.recovery import rollback
from vc_egpu.admission.recovery.orphans import Orphans
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.core.room.causes import RULES

REFUSED_AGAIN_S: Final = 60.0
"""An orphan that a policy guards is tried again after this long."""


class Aftercare:
    """Sees every change of pods and gangs; acts when some time has passed. The loop's thread calls it."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._work = conductor.work
        self._mirror = conductor.work.mirror
        self._watchlist = rollback.Watchlist()
        self._orphans = Orphans()

    def __bool__(self) -> bool:
        """Whether time counts for any pod or gang."""
        return bool(self._watchlist or self._orphans)

    def look_at_pod(self, uid: PodUid) -> None:
        """It changed, or is gone."""
        pod, clock = self._mirror.pods.get(uid), self._work.clock
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
            self._watchlist.note_gang(group.decoded.gang, members, self._work.clock)

    def done(self, done: OrphanRemoval) -> None:
        """An orphan that could not be removed is tried again."""
        if done.gone:
            return
        result = done.result
        match result:
            case Written():
                pass
            case Overtaken() | Later() | Unknown():
                self._orphans.failed(done.uid, self._work.clock)
            case Denied():
                self._work.is_refused(done, result)
                self._orphans.failed(done.uid, self._work.clock + REFUSED_AGAIN_S)
            case _:
                assert_never(result)

    def tick(self, verdicts: Mapping[str, Verdict], now: float, *, admitting: bool) -> None:
        """Remove and roll back what has been waited for long enough."""
        for uid in self._orphans.due(self._work.clock):
            pod = self._mirror.pods.get(uid)
            if pod is not None:
                rule = RULES[Cause.BYPASS]
                self._work.event(pod, rule.event, rule.said())
                self._work.executor.delete_orphan(pod.pod.gang or "", pod)
        if self._watchlist:
            self._watchlist.wait_for_room(verdicts, self._work.clock, admitting=admitting)
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
            if group is None or self._work.is_busy(key):
                continue
            members = self._mirror.members.get(key, {})
            back = rollback.judge(group.decoded.gang, members, self._watchlist, self._work.clock)
            if back is not None:
                self._conductor.roll_back(key, group, back, now)
                self._watchlist.starved.pop(key, None)
                self._watchlist.handled(pod.pod.uid for pod in (*back.pods, *back.left_alone))
