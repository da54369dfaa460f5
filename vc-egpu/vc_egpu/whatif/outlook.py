"""The answer: the copy of the cluster goes on, from one known end to the next, as the live decision has it.

Nothing else changes meanwhile: no other work comes, and nothing of unknown length ends. Decisions are made at
once when something ends, and what has to leave leaves at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from vc_egpu.core.model.cluster import (
    Gang,
    Instant,
    MemberPlacement,
    Pod,
    PodPhase,
    PodUid,
    Snapshot,
    plan_key,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.sim.world import World
from vc_egpu.whatif import changes
from vc_egpu.whatif.question import Question, QuestionError

MOST_ENDS: Final = 128
"""Moments that are looked at. A gang that finds no place until then gets no time."""
MOST_MORE: Final = 100
"""Further gangs of the kind that are tried."""
_ROUNDS: Final = 10


class Fit(StrEnum):
    """Whether and when the gang gets its places."""

    NOW = "now"
    """Now, and nothing has to go for it."""
    ROOM = "after-others-leave"
    """Now, and some pods are evicted or suspended for it."""
    LATER = "later"
    """When work has ended whose length is known."""
    NEVER = "not"
    """Not even on the empty cluster, as it is supposed to be."""
    UNKNOWN = "cannot-tell"
    """It would fit once others have ended, and how long these run is not known."""


@dataclass(frozen=True, slots=True)
class Going:
    """Pods of one gang that would have to go."""

    gang: str
    pods: tuple[Pod, ...]
    suspended: bool
    """They are suspended and come back; False: evicted, and queued again."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would happen to the gang."""

    fit: Fit
    at: Instant | None
    """When; None: never, or that is not known."""
    verdict: Verdict | None
    """What the first decision says of it; None where it runs already."""
    places: Mapping[str, MemberPlacement]
    """By plan key; of members that get their places then."""
    going: tuple[Going, ...]
    more: int
    """So many more of it would fit at that moment, with nothing going for them."""
    more_is_bound: bool
    """No further ones were tried."""


def look(
    snapshot: Snapshot,
    policy: Policy,
    now: Instant,
    question: Question,
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> Outlook:
    """What would happen. Raises :class:`QuestionError`. ``snapshot`` stays as it is.

    ``go_on`` is asked between two decisions. Once it says no, the answer is what is known by then.
    """
    world = World(policy, dict(snapshot.models))
    world.adopt(snapshot, now)
    if question.gang is None and question.key not in snapshot.gangs:
        raise QuestionError(f"there is no gang {question.key!r}")
    if question.gang is not None and question.key in snapshot.gangs:
        raise QuestionError(f"{question.key!r} is there already: ask about it by its name")
    changes.make(world, question.changes)
    if question.gang is not None:
        world.submit(question.gang, question.tasks)
    elif world.state.gang(question.key) is None:
        raise QuestionError(f"{question.key!r} cannot end and start")
    elif _is_whole(world, question.key):
        raise QuestionError(f"{question.key!r} has its places already")
    return _Foresight(world, question, go_on).outlook()


def _is_whole(world: World, key: str) -> bool:
    gang, pods = world.gang(key), world.pods_of(key)
    here = sum(pod.phase in {PodPhase.PLACED, PodPhase.SUCCEEDED} for pod in pods)
    return bool(pods) and here >= max(1, gang.min_member)


class _Foresight:
    """One question on one copy."""

    def __init__(self, world: World, question: Question, go_on: Callable[[], bool]) -> None:
        self._world, self._question, self._key = world, question, question.key
        self._go_on = go_on
        self._going: dict[tuple[str, bool], dict[PodUid, Pod]] = {}
        self._verdict: Verdict | None = None

    def outlook(self) -> Outlook:
        world, began = self._world, self._world.now
        self._note_plan()
        for _ in range(MOST_ENDS):
            self._settle()
            if _is_whole(world, self._key):
                fit = Fit.LATER if world.now > began else Fit.ROOM if self._going else Fit.NOW
                return self._found(fit)
            upcoming = next_moment(world)
            if upcoming is None or not self._go_on():
                break
            since = world.now
            world.tick(upcoming - since)
            end_what_is_over(world, since)
        fit = Fit.UNKNOWN if self._fits_alone() else Fit.NEVER
        return Outlook(fit, None, self._verdict, {}, (), 0, more_is_bound=False)

    def _found(self, fit: Fit) -> Outlook:
        at = self._world.now
        placed = [pod for pod in self._world.pods_of(self._key) if pod.phase is PodPhase.PLACED]
        places = {plan_key(pod): MemberPlacement(pod.node, pod.shares) for pod in placed}
        going = tuple(
            Going(gang, tuple(pods[uid] for uid in sorted(pods)), suspended)
            for (gang, suspended), pods in sorted(self._going.items())
        )
        more, is_bound = self._more()
        return Outlook(fit, at, self._verdict, places, going, more, is_bound)

    def _settle(self) -> None:
        """As the controller does until nothing is left to do; what goes for the gang is noted."""
        world = self._world
        for _ in range(_ROUNDS):
            plan = world.decide()
            if self._verdict is None:
                self._verdict = plan.verdicts.get(self._key)
            self._note(plan)
            standing = any(gang.plan is not None for gang in world.snapshot().gangs.values())
            if not (_does_something(plan) or standing):
                world.remember(plan)
                return
            world.apply(plan)
            world.leave()

    def _note(self, plan: Plan) -> None:
        pods = self._world.snapshot().pods
        for withdrawal in plan.withdrawals:
            if withdrawal.gang == self._key:
                self._going.clear()
        for admission in plan.admissions:
            if admission.gang != self._key:
                continue
            for eviction in admission.evictions:
                self._goes(eviction.gang, {uid: pods[uid] for uid in eviction.pods}, suspended=False)
            for pause in admission.suspensions:
                self._goes(pause.gang, {uid: pods[uid] for uid in pause.pods}, suspended=True)

    def _note_plan(self) -> None:
        """What goes already for a gang that waits."""
        gang, pods = self._world.gang(self._key), self._world.snapshot().pods
        for uid in sorted(gang.plan.victims if gang.plan is not None else ()):
            if uid in pods and gang.plan is not None:
                self._goes(str(pods[uid].gang), {uid: pods[uid]}, suspended=uid in gang.plan.suspends)

    def _goes(self, gang: str, pods: Mapping[PodUid, Pod], *, suspended: bool) -> None:
        self._going.setdefault((gang, suspended), {}).update(pods)

    def _fits_alone(self) -> bool:
        """Whether it would fit if all other gangs ended."""
        world = self._world
        for key in list(world.snapshot().gangs):
            if key != self._key:
                world.finish(key)
        self._settle()
        return _is_whole(world, self._key)

    def _more(self) -> tuple[int, bool]:
        gang = self._question.gang
        if gang is None:
            return 0, False
        world, policy = self._world, self._world.policy
        world.policy = replace(policy, preemption=False)
        for number in range(MOST_MORE):
            key = f"{self._key}+{number + 1}"
            world.submit(_another(gang, key, world.now), self._question.tasks)
            plan = world.decide([key])
            if not any(admission.gang == key for admission in plan.admissions):
                return number, False
            if not self._go_on():
                return number, True
            world.apply(replace(plan, withdrawals=(), ready=(), resumes=(), evictions=(), suspensions=()))
            if not _is_whole(world, key):
                return number, False
        return MOST_MORE, True


def _another(gang: Gang, key: str, now: Instant) -> Gang:
    return replace(gang, key=key, uid=key, created=now, plan=None, reservation=None)


def _does_something(plan: Plan) -> bool:
    done = (plan.admissions, plan.withdrawals, plan.ready, plan.choices, plan.suspensions, plan.resumes)
    return any(done) or bool(plan.evictions)


def end_of(pod: Pod) -> Instant | None:
    """When a pod that runs ends at the latest; None: that is not known."""
    runs = pod.phase is PodPhase.PLACED and not pod.suspend_ordered and pod.started is not None
    if not runs or pod.started is None or pod.shape.runtime_s is None:
        return None
    return pod.started + pod.shape.runtime_s


def next_moment(world: World) -> Instant | None:
    """When something ends, or a gang may be tried again that is not tried now; None: nothing is known to."""
    snapshot = world.snapshot()
    moments = [end_of(pod) for pod in snapshot.pods.values()]
    for gang in snapshot.gangs.values():
        moments.append(gang.not_before)
        if gang.reservation is not None and not gang.reservation.claimed:
            moments.append(gang.reservation.since + world.policy.reserve_after_s)
    known = [moment for moment in moments if moment is not None and world.now < moment < float("inf")]
    return min(known, default=None)


def end_what_is_over(world: World, since: Instant) -> None:
    """Pods whose end came after ``since`` succeed; the PodGroup of a gang without others goes.

    What should have ended before, and has not, may run for any time.
    """
    pods = world.snapshot().pods.values()
    over = [pod for pod in pods if (end := end_of(pod)) is not None and since < end <= world.now]
    for pod in over:
        world.put_pod(replace(pod, phase=PodPhase.SUCCEEDED, finished=world.now))
    for key in sorted({pod.gang for pod in over if pod.gang is not None}):
        if world.state.gang(key) is not None and all(
            pod.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED} for pod in world.pods_of(key)
        ):
            world.finish(key)
