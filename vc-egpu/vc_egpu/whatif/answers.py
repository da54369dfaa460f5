"""Would this gang start, where, at what cost, when, and how often? Asked of the live decision."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

from vc_egpu.core.model.cluster import Gang, Instant, Pod, PodPhase, PodUid, Snapshot
from vc_egpu.core.model.gangs import HOLDING, option_of
from vc_egpu.core.model.plan import Admission, Eviction, Plan, Suspension
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.whatif.changes import Change, apply
from vc_egpu.whatif.hypothesis import Hypothesis, OutOfTimeError, Step, Tasks, at_once

MOST_COPIES: Final = 100
"""More of the same gang are not counted."""
MOST_ENDS: Final = 200
"""Later ends of running work are not looked at."""

Outcome = Literal["starts", "makes room", "waits"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The gang that is asked about, which is not there."""

    gang: Gang
    tasks: Tasks


@dataclass(frozen=True, slots=True)
class Place:
    """Members on one node."""

    node: str
    members: int
    cards: tuple[str, ...]
    """UUIDs, sorted; several members may share one."""


@dataclass(frozen=True, slots=True)
class Going:
    """Work that has to go for it."""

    gang: str
    pods: int
    how: Literal["evicted", "suspended"]
    whole: bool
    cause: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """When it could start if nothing else changes: at the earliest, since others may come."""

    at: Instant
    """Seconds since 1970."""
    ends: tuple[str, ...]
    """The gangs that end until then, by what they or their deadlines say."""
    waiting_before: int
    """Gangs that wait now, and may be first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What would happen to one gang."""

    gang: str
    outcome: Outcome
    reason: str
    message: str
    places: tuple[Place, ...] = ()
    going: tuple[Going, ...] = ()
    more: int = 0
    """So many more of the same would start, too, at once and for nobody's loss."""
    more_is_bounded: bool = False
    """True: at least so many."""
    forecast: Forecast | None = None
    """None: it starts now, or no end that is known helps it."""
    unknown_ends: int = 0
    """Running gangs of which nobody knows when they end."""
    is_cut_short: bool = False
    """The time was over before all known ends were looked at."""
    rule: str = ""
    """The rule of placement that has a say in its places; empty: none."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What changes do to the gangs that are there already."""

    starts: tuple[str, ...]
    """Waiting gangs that would start, and did not without the changes."""
    moved: tuple[str, ...]
    """Gangs that lose places and find new ones."""
    stranded: tuple[str, ...]
    """Gangs that lose places and would have to wait."""
    ended: tuple[str, ...] = ()


def would_start(
    snapshot: Snapshot,
    policy: Policy,
    now: Instant,
    asked: Asked,
    changes: Sequence[Change] = (),
    *,
    step: Step = at_once,
) -> Answer:
    """What would happen to this gang if it were submitted now, after these changes.

    Other gangs that wait are taken as they are: they were tried already, and this one changes nothing for
    them. ``step``: see :class:`.hypothesis.Hypothesis`. Where it ends the time after the first decision, the
    answer has what is known by then. Raises :class:`~.hypothesis.UnknownThingError` and, before that
    decision, :class:`~.hypothesis.OutOfTimeError`.
    """
    cluster = Hypothesis(snapshot, policy, now, step)
    for change in changes:
        step()
        apply(change, cluster)
    gang = asked.gang
    cluster.submit(gang, asked.tasks)
    plan = cluster.decide({gang.key})
    admission = next((one for one in plan.admissions if one.gang == gang.key), None)
    choice = plan.choices.get(gang.key, "")
    if admission is None and choice and any(shape.is_open for _, _, shape in asked.tasks):
        made = Asked(gang, _made_with(choice, asked.tasks))
        with suppress(OutOfTimeError):
            answer = would_start(snapshot, policy, now, made, changes, step=step)
            return replace(answer, message=f"takes {choice}; {answer.message}")
    verdict = plan.verdicts.get(gang.key)
    reason = verdict.reason.value if verdict is not None else Reason.WAITING_FOR_MEMBERS.value
    message = verdict.message if verdict is not None else ""
    if admission is None:
        unknown, forecast, cut = len(_endless(cluster.snapshot(), gang.key, now)), None, False
        try:
            forecast = _forecast(cluster, gang.key)
        except OutOfTimeError:
            cut = True
        return Answer(
            gang.key,
            "waits",
            reason,
            message,
            forecast=forecast,
            unknown_ends=unknown,
            is_cut_short=cut,
        )
    places, going = _places(admission), _going(admission)
    if going:
        return Answer(gang.key, "makes room", reason, message, places, going, rule=admission.rule)
    cluster.start(admission)
    more, bounded = _more(cluster, asked)
    return Answer(
        gang.key,
        "starts",
        reason,
        message,
        places,
        more=more,
        more_is_bounded=bounded,
        rule=admission.rule,
    )


def _made_with(choice: str, tasks: Tasks) -> Tasks:
    """The pods as they are made once this option is chosen."""
    made = ((task, count, shape, shape.as_option(option_of(choice, task))) for task, count, shape in tasks)
    return tuple((task, count, other if other is not None else shape) for task, count, shape, other in made)


def effect(snapshot: Snapshot, policy: Policy, now: Instant, changes: Sequence[Change]) -> Effect:
    """What these changes do to the gangs that are there. Raises :class:`~.hypothesis.UnknownThingError`."""
    cluster = Hypothesis(snapshot, policy, now)
    before = _starting(cluster.decide())
    losing = {gang for change in changes for gang in apply(change, cluster)}
    after = cluster.decide()
    starting = _starting(after)
    gone = set(snapshot.gangs) - set(cluster.snapshot().gangs)
    return Effect(
        starts=tuple(sorted(starting - before - losing)),
        moved=tuple(sorted(losing & starting)),
        stranded=tuple(sorted(losing - starting)),
        ended=tuple(sorted(gone)),
    )


def _starting(plan: Plan) -> set[str]:
    return {one.gang for one in plan.admissions} | {one.gang for one in plan.resumes}


def _places(admission: Admission) -> tuple[Place, ...]:
    cards: dict[str, set[str]] = defaultdict(set)
    members: Counter[str] = Counter()
    for place in admission.members.values():
        node = str(place.node or "")
        members[node] += 1
        cards[node] |= {str(share.card) for _, share in place.shares}
    return tuple(Place(node, members[node], tuple(sorted(cards[node]))) for node in sorted(members))


def _going(admission: Admission) -> tuple[Going, ...]:
    leaving: tuple[Eviction | Suspension, ...] = (*admission.evictions, *admission.suspensions)
    return tuple(
        Going(
            gang=one.gang,
            pods=len(one.pods),
            how="evicted" if isinstance(one, Eviction) else "suspended",
            whole=not isinstance(one, Eviction) or one.whole,
            cause=one.cause.value,
        )
        for one in leaving
    )


def _more(cluster: Hypothesis, asked: Asked) -> tuple[int, bool]:
    """How many copies start one after the other, and whether there may be more. The first one that would not
    start is the end."""
    gang = asked.gang
    for number in range(MOST_COPIES):
        key = f"{gang.key} copy {number}"
        cluster.submit(replace(gang, key=key, uid=f"{gang.uid} {number}"), asked.tasks)
        try:
            plan = cluster.decide({key})
        except OutOfTimeError:
            return number, True
        admission = next((one for one in plan.admissions if one.gang == key), None)
        if admission is None or _going(admission):
            return number, False
        cluster.start(admission)
    return MOST_COPIES, True


def _end_of(pod: Pod, now: Instant) -> Instant:
    """When it ends by what it says; infinite where that is not known, or should be past."""
    if pod.phase is PodPhase.TERMINATING:
        return now if pod.gone_by is None else max(now, pod.gone_by)
    if pod.shape.runtime_s is None:
        return math.inf
    end = (pod.started if pod.started is not None else now) + pod.shape.runtime_s
    return end if end >= now else math.inf


def _running(snapshot: Snapshot, asking: str) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods.values():
        if pod.shares and pod.phase in HOLDING and pod.gang != asking:
            found[pod.gang or f"{pod.namespace}/{pod.name}"].append(pod)
    return found


def _endless(snapshot: Snapshot, asking: str, now: Instant) -> list[str]:
    running = _running(snapshot, asking)
    return [key for key, pods in running.items() if any(_end_of(pod, now) == math.inf for pod in pods)]


def _forecast(cluster: Hypothesis, key: str) -> Forecast | None:
    """The first known end after which it would start for nobody's loss."""
    snapshot, began = cluster.snapshot(), cluster.now
    ends: dict[Instant, list[PodUid]] = defaultdict(list)
    gang_at: dict[Instant, set[str]] = defaultdict(set)
    for gang, pods in _running(snapshot, key).items():
        for pod in pods:
            at = _end_of(pod, began)
            if at < math.inf:
                ends[at].append(pod.uid)
                gang_at[at].add(gang)
    passed: set[str] = set()
    try:
        for at in sorted(ends)[:MOST_ENDS]:
            cluster.now = at
            cluster.end_pods(ends[at])
            passed |= gang_at[at]
            found = cluster.decide({key}).admissions
            if any(one.gang == key and not _going(one) for one in found):
                return Forecast(at, tuple(sorted(passed)), _waiting_before(snapshot, key))
    finally:
        cluster.now = began
    return None


def _waiting_before(snapshot: Snapshot, key: str) -> int:
    """Gangs with pods that wait for their first place."""
    waiting = {pod.gang for pod in snapshot.pods.values() if pod.phase is PodPhase.GATED}
    placed = {pod.gang for pod in snapshot.pods.values() if pod.phase is PodPhase.PLACED}
    return len(waiting - placed - {key, None})
