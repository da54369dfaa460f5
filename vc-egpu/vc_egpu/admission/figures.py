"""What one leadership has done, counted and timed for the metrics. Any thread may read it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Gang, Move, PodUid, QueueName, ShareClass, class_of
from vc_egpu.metrics.vocabulary import admission as vocabulary
from vc_egpu.report.shares import CLASS_WORDS
from vc_egpu.volcano.codec.pod_codec import DecodedPod

Outcome = Literal["suspended", "resumed", "failed", "broken"]


@dataclass(slots=True)
class _Going:
    """A gang whose last gate fell."""

    since: float
    unbound: set[PodUid]


class Figures:
    """Made for each leadership: Prometheus sees that totals begin again."""

    def __init__(self, gang_of: Callable[[str], Gang | None] = lambda _: None) -> None:
        """``gang_of``: the gang of that key, as it stands."""
        self._gang_of = gang_of
        self.registry = CollectorRegistry()
        self._decisions = vocabulary.DECISION_SECONDS.histogram(self.registry)
        self._reactions = vocabulary.REACTION_SECONDS.histogram(self.registry)
        self._admitted = vocabulary.GANGS_ADMITTED.counter(self.registry)
        self._waits = vocabulary.GANG_WAIT_SECONDS.histogram(self.registry)
        self._binds = vocabulary.GANG_BIND_SECONDS.histogram(self.registry)
        self._evicted = vocabulary.PODS_EVICTED.counter(self.registry)
        self._moved = vocabulary.GANGS_MOVED.counter(self.registry)
        self._emptied = vocabulary.NODES_EMPTIED.counter(self.registry)
        self._suspended = vocabulary.PODS_SUSPENDED.counter(self.registry)
        self._outcomes = vocabulary.SUSPENSIONS.counter(self.registry)
        self._needed = vocabulary.NODES_NEEDED.gauge(self.registry)
        self._requested = vocabulary.NODES_REQUESTED.gauge(self.registry)
        self._ruled = vocabulary.GANGS_PLACED.counter(self.registry)
        self._needs_broken = vocabulary.ENVIRONMENTS_BROKEN.gauge(self.registry)
        self._placement_broken = vocabulary.PLACEMENT_BROKEN.gauge(self.registry)
        self._going: dict[str, _Going] = {}
        """By gang; the loop's thread alone uses it."""

    def decided(self, seconds: float) -> None:
        """A decision took so long."""
        self._decisions.observe(seconds)

    def reacted(self, seconds: float) -> None:
        """So long after the event that asked for it a plan stands."""
        self._reactions.observe(seconds)

    def admitted(self, queue: QueueName, share_class: ShareClass, waited_s: float) -> None:
        """A gang has its plan."""
        labels = (queue, CLASS_WORDS[share_class])
        self._admitted.labels(*labels).inc()
        self._waits.labels(*labels).observe(max(0.0, waited_s))

    def placed(self, rule: str) -> None:
        """A gang has its place by this rule of placement."""
        self._ruled.labels(rule).inc()

    def tables(self, *, needs_broken: bool, placement_broken: bool) -> None:
        """Whether the operator's tables, as they stand in their files, can be used."""
        self._needs_broken.set(needs_broken)
        self._placement_broken.set(placement_broken)

    def moved(self, queue: QueueName, move: Move) -> None:
        """A gang has claimed other cards, has come to them, or stays where it is."""
        step = "given up" if move.stays else "claimed" if move.places else "arrived"
        self._moved.labels(queue, step).inc()

    def emptied(self, *, opened: bool) -> None:
        """A node got our taint, or lost it."""
        self._emptied.labels("opened" if opened else "tainted").inc()

    def evicted(self, pods: Iterable[DecodedPod], cause: Cause) -> None:
        """These pods were asked to go."""
        for pod in pods:
            self._evicted.labels(*self._payer(pod), cause.value).inc()

    def suspended(self, pod: DecodedPod, cause: Cause) -> None:
        """The order to leave its cards stands on a pod."""
        self._suspended.labels(*self._payer(pod), cause.value).inc()

    def came_of(self, pod: DecodedPod, outcome: Outcome) -> None:
        """What became of a pod's suspension."""
        self._outcomes.labels(self._payer(pod)[0], outcome).inc()

    def asked_for(self, model: str, needed: int, requested: int) -> None:
        """So many more nodes would serve the gangs that wait, and so many are asked for."""
        self._needed.labels(model).set(needed)
        self._requested.labels(model).set(requested)

    # --- from the last gate to the last node -----------------------------------------------------

    def let_go(self, key: str, members: Iterable[DecodedPod], clock: float) -> None:
        """The last gate of a gang fell; ``clock``: monotonic seconds."""
        unbound = {one.pod.uid for one in members if one.pod.shares and not one.bound}
        self._going[key] = _Going(clock, unbound)
        self._settle(key, clock)

    def bound(self, key: str, uid: PodUid, clock: float) -> None:
        """A member has its node."""
        if key in self._going:
            self._going[key].unbound.discard(uid)
            self._settle(key, clock)

    def gone(self, uid: PodUid) -> None:
        """A pod is gone: its gang is not timed any more."""
        for key in [key for key, going in self._going.items() if uid in going.unbound]:
            del self._going[key]

    def _settle(self, key: str, clock: float) -> None:
        if not self._going[key].unbound:
            self._binds.observe(max(0.0, clock - self._going.pop(key).since))

    def _payer(self, pod: DecodedPod) -> tuple[str, str]:
        """Queue and class of a pod, as labels."""
        gang = self._gang_of(pod.pod.gang or "")
        queue = gang.queue if gang is not None else pod.pod.queue
        return queue or "", CLASS_WORDS[class_of(pod.pod, gang, pod.share_class)]
