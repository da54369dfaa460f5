"""Why a gang waits, told on its PodGroup and its gated pods: only when it changed, and never in the way.

A gang that is admitted at once never gets a waiting condition: a first one is written a moment after the
verdict. A new reason is written soon, new numbers under the same reason only now and then.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.state.gangs import Group
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import Instant, PodPhase
from vc_egpu.core.model.reasons import SURPLUS_NUMBER, Reason, Verdict
from vc_egpu.kube.events import EventRecorder
from vc_egpu.kube.resources import POD_GROUPS
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.words import names

SETTLE_S: Final = 0.5
"""A verdict that lasts this long is worth a write."""
MEMBERS_SETTLE_S: Final = 10.0
"""Members that are being made: their controller may be busy with others before them."""
IN_LINE_S: Final = 30.0
"""So long nothing is said of a gang whose pods are not made yet: in a storm of Jobs it stands in line."""
NUMBERS_EVERY_S: Final = 30.0
"""Numbers behind a reason change with every pod that comes or goes: so often they are worth a write."""
QPS: Final = 100.0
BURST: Final = 200
"""Writes a second, and at once. A few large gangs are told in a moment. Thousands that wait take their time:
the writes that gates wait for go first."""
REFILL_S: Final = 0.2
"""Where the rate is used up it is tried again then, for some twenty writes in one go."""
HAS_ITS_PLACE: Final = "has its place"
"""Said of a member whose gang's verdict is about others, which wait."""


@dataclass(slots=True)
class _Told:
    """What was last said about a gang."""

    verdict: Verdict | None = None
    at: float = float("-inf")

    @property
    def reason(self) -> Reason | None:
        """None: nothing yet."""
        return None if self.verdict is None else self.verdict.reason


@dataclass(slots=True)
class Reports:
    """Which gangs have something to be told; one thread owns it. Times are monotonic."""

    executor: Executor
    events: EventRecorder
    limit: TokenBucket = field(default_factory=lambda: TokenBucket(QPS, BURST))
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _told: dict[str, _Told] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)
    _queued: dict[str, float] = field(default_factory=dict)

    def note(self, verdicts: Mapping[str, Verdict], clock: float) -> None:
        """New verdicts; those that say what was said already cost nothing."""
        for key, verdict in verdicts.items():
            if self._verdicts.get(key) == verdict:
                continue
            self._verdicts[key] = verdict
            told = self._told.get(key)
            same = told is not None and _only_numbers(told.verdict, verdict)
            settle_s = MEMBERS_SETTLE_S if verdict.reason is Reason.WAITING_FOR_MEMBERS else SETTLE_S
            self._plan(key, max(clock + settle_s, told.at + NUMBERS_EVERY_S if told and same else 0.0))

    def look_again(self, keys: Iterable[str], clock: float) -> None:
        """The PodGroup or members came, or a write failed: see whether all carry what was said.

        What is not yet said is said in its own time.
        """
        for key in keys:
            verdict, told = self._verdicts.get(key), self._told.get(key)
            if verdict is not None and told is not None and told.reason is verdict.reason:
                self._plan(key, clock + SETTLE_S)

    def verdict(self, key: str) -> Verdict | None:
        """The last verdict on the gang, told already or not."""
        return self._verdicts.get(key)

    def __bool__(self) -> bool:
        """Whether something is still to be told."""
        return bool(self._queued)

    def says_it_waits(self, key: str) -> bool:
        """Whether the last verdict on the gang, told already or not, is that it waits."""
        verdict = self._verdicts.get(key)
        return verdict is not None and verdict.reason is not Reason.ADMITTED

    def forget(self, key: str) -> None:
        """The gang is gone."""
        self._verdicts.pop(key, None)
        self._told.pop(key, None)
        self._queued.pop(key, None)

    def next_at(self) -> float | None:
        """When there is something to do; None: nothing."""
        return self._due[0][0] if self._due else None

    def work(self, mirror: Mirror, clock: float, now: Instant) -> None:
        """Write what is due, as far as the rate allows."""
        while self._due and self._due[0][0] <= clock:
            at, key = heapq.heappop(self._due)
            if self._queued.get(key) != at:
                continue
            del self._queued[key]
            if not self._tell(mirror, key, clock, now):
                self._plan(key, clock + REFILL_S)
                return

    def _plan(self, key: str, at: float) -> None:
        if self._queued.get(key, float("inf")) > at:
            self._queued[key] = at
            heapq.heappush(self._due, (at, key))

    def _tell(self, mirror: Mirror, key: str, clock: float, now: Instant) -> bool:
        """Write one gang's conditions; False when the rate is used up."""
        verdict, group = self._verdicts.get(key), mirror.groups.get(key)
        if verdict is None:
            return True
        if key not in self._told and _stands_in_line(verdict, group, mirror):
            self._told[key] = _Told()
            self._plan(key, clock + IN_LINE_S - MEMBERS_SETTLE_S)
            return True
        told = self._told.setdefault(key, _Told())
        if told.verdict is not None and told.verdict != verdict and _only_numbers(told.verdict, verdict):
            numbers_at = told.at + NUMBERS_EVERY_S
            if clock < numbers_at:
                self._plan(key, numbers_at)
                verdict = told.verdict
        admitted = verdict.reason is Reason.ADMITTED
        value = writes.condition(
            admitted=admitted, reason=verdict.reason.value, message=verdict.message, now=now
        )
        if group is not None and not _says(condition_of(group.decoded), value):
            if not self.limit.try_take():
                return False
            self.executor.group_condition(key, group.decoded, value)
        if group is not None and told.reason is not verdict.reason:
            self._event(key, group.decoded, verdict)
        if told.verdict != verdict:
            told.verdict, told.at = verdict, clock
        for pod in list(mirror.members.get(key, {}).values()):
            if not _wants(pod, value, admitted=admitted):
                continue
            if not self.limit.try_take():
                return False
            self.executor.pod_condition(key, pod, _for_pod(pod, value, now))
        return True

    def flag_ill_cards(self, mirror: Mirror) -> None:
        """Nothing new goes on a card that fell ill; the pods on it are told, and stay."""
        ill, mirror.inventory.ill = mirror.inventory.ill, set()
        for pod in list(mirror.pods.values()) if ill else ():
            sick = [share.card for _, share in pod.pod.shares if share.card in ill]
            if sick and pod.pod.phase is PodPhase.PLACED:
                note = f"card {sick[0]} of node {pod.pod.node} takes nothing new: it is ill, cordoned or gone"
                self.events.event(pod_reference(pod), "Warning", "CardIll", note)
                group = mirror.groups.get(pod.pod.gang or "")
                if group is not None:
                    about = group_reference(group.decoded.gang.key, group.decoded)
                    self.events.event(about, "Warning", "CardIll", f"pod {pod.pod.name}: {note}")

    def _event(self, key: str, group: DecodedGroup, verdict: Verdict) -> None:
        self.events.event(group_reference(key, group), "Normal", verdict.reason.value, verdict.message)


def group_reference(key: str, group: DecodedGroup) -> writes.Json:
    """A PodGroup as events name it."""
    namespace, name = key.split("/", 1)
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"namespace": namespace, "name": name, "uid": group.gang.uid},
    }


def pod_reference(pod: DecodedPod) -> writes.Json:
    """A pod as events name it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.pod.namespace, "name": pod.pod.name, "uid": pod.pod.uid},
    }


def condition_of(group: DecodedGroup) -> tuple[str, str, str] | None:
    """(status, reason, message) of what stands on the PodGroup; None if nothing does."""
    for condition in group.conditions:
        if condition.get("type") == names.CONDITION_ADMITTED:
            return (
                str(condition.get("status")),
                str(condition.get("reason")),
                str(condition.get("message")),
            )
    return None


def _only_numbers(told: Verdict | None, verdict: Verdict) -> bool:
    """Whether the same is to be said with other numbers. It is another thing to say that no member above
    those with a place waits any more."""
    if told is None or told.reason is not verdict.reason:
        return False
    return not told.numbers.get(SURPLUS_NUMBER) or bool(verdict.numbers.get(SURPLUS_NUMBER))


def _stands_in_line(verdict: Verdict, group: Group | None, mirror: Mirror) -> bool:
    """Whether a gang waits for pods that its controller was not told to make."""
    return (
        verdict.reason is Reason.WAITING_FOR_MEMBERS
        and group is not None
        and group.decoded.phase in {"", "Pending"}
        and group.decoded.gang.key not in mirror.members
    )


def _says(present: tuple[str, str, str] | None, value: writes.Json) -> bool:
    return present == (value["status"], value["reason"], value["message"])


def _wants(pod: DecodedPod, value: writes.Json, *, admitted: bool) -> bool:
    """Gated pods say why they wait; a pod that said so once also says when it is over."""
    if pod.problem and pod.pod.phase is PodPhase.GATED:
        return pod.admitted is None or pod.admitted[2] != pod.problem[:1024]
    if pod.pod.phase is PodPhase.GATED:
        return not admitted and not _says(pod.admitted, value)
    return says_it_waits(pod)


def says_it_waits(pod: DecodedPod) -> bool:
    """Whether it has its place, and the last word on it is that it waits."""
    return pod.pod.phase is PodPhase.PLACED and pod.admitted is not None and pod.admitted[0] != "True"


def _for_pod(pod: DecodedPod, value: writes.Json, now: Instant) -> writes.Json:
    if pod.problem and pod.pod.phase is PodPhase.GATED:
        reason = Reason.WAITING_FOR_MEMBERS.value
        return writes.condition(admitted=False, reason=reason, message=pod.problem, now=now)
    if pod.pod.phase is PodPhase.PLACED and value["status"] != "True":
        # Others of its gang wait, maybe without end (scaled beyond the cap).
        reason = Reason.ADMITTED.value
        return writes.condition(admitted=True, reason=reason, message=HAS_ITS_PLACE, now=now)
    return value
