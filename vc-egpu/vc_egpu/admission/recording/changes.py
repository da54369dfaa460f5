"""What came and what ended between two moments, as rows without names."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from vc_egpu.core.books.cow import Frozen
from vc_egpu.core.model.cluster import Instant, Pod, PodPhase, PodUid, Snapshot
from vc_egpu.core.model.gangs import HOLDING, OVER, Intern
from vc_egpu.report.recorded import nameless
from vc_egpu.report.recorded.rows import VERSION, Begun, GangSeen, PodCame, PodOver, PodRuns, Row, ShapeSeen


@dataclass(slots=True)
class Changes:
    """What one file has told so far."""

    _shapes: Intern = field(default_factory=Intern)
    _gangs: set[str] = field(default_factory=set)
    _told: set[PodUid] = field(default_factory=set)
    _early: dict[PodUid, None] = field(default_factory=dict)
    """Pods that came before their PodGroup."""

    def begin(self, now: Snapshot, at: Instant) -> Iterator[Row]:
        """The first row of a file."""
        self._shapes = Intern()
        self._early = {uid: None for uid, pod in now.pods.items() if self._is_early(pod, now)}
        self._told = {uid for uid, pod in now.pods.items() if pod.gang is not None and pod.gang in now.gangs}
        self._gangs = {nameless.gang_key(gang) for gang in now.gangs.values()}
        yield Begun(VERSION, at, nameless.snapshot_of(now))

    def between(self, before: Snapshot, now: Snapshot, at: Instant) -> Iterator[Row]:
        """What happened. ``at``: now."""
        for uid in [
            uid for uid in self._early if uid not in now.pods or not self._is_early(now.pods[uid], now)
        ]:
            del self._early[uid]
            if uid in now.pods:
                yield from self._change(None, now.pods[uid], now, at)
        pods, earlier = now.pods, before.pods
        if not isinstance(pods, Frozen) or not isinstance(earlier, Frozen):
            raise TypeError("snapshots of one state are compared")
        for uid, old, new in pods.changes(earlier):
            if new is not None and self._is_early(new, now):
                self._early[uid] = None
            elif uid in self._told or new is not None:
                yield from self._change(old if uid in self._told else None, new, now, at)

    @staticmethod
    def _is_early(pod: Pod, now: Snapshot) -> bool:
        return pod.gang is not None and pod.gang not in now.gangs

    def _change(self, old: Pod | None, new: Pod | None, now: Snapshot, at: Instant) -> Iterator[Row]:
        if new is None:
            if old is not None:
                self._told.discard(old.uid)
                if old.phase not in OVER:
                    yield PodOver(at, nameless.digest(old.uid), succeeded=False)
            return
        if new.gang is None:
            return
        name = nameless.digest(new.uid)
        if old is None:
            if new.phase in OVER:
                return
            yield from self._came(new, name, now, at)
        if new.phase in HOLDING and (old is None or old.phase is PodPhase.GATED):
            yield PodRuns(at, name)
        if new.phase in OVER and (old is None or old.phase not in OVER):
            over = new.finished if new.finished is not None else at
            yield PodOver(min(over, at), name, succeeded=new.phase is PodPhase.SUCCEEDED)

    def _came(self, pod: Pod, name: str, now: Snapshot, at: Instant) -> Iterator[Row]:
        gang = now.gangs[str(pod.gang)]
        key = nameless.gang_key(gang)
        self._told.add(pod.uid)
        if key not in self._gangs:
            self._gangs.add(key)
            owner = gang.traits.owner
            yield GangSeen(key, gang.queue, gang.share_class, gang.min_member, gang.single, owner)
        shape = nameless.shape_of(pod.shape)
        known, number = len(self._shapes), self._shapes(shape)
        if number == known:
            yield ShapeSeen(number, shape)
        came = min(pod.created, at) if pod.created > 0 else at
        yield PodCame(came, name, key, nameless.task_of(gang, pod.task), pod.index, number)
