"""Lifecycle policies: from what the pods show to the action that the Job's author asked for.

Happenings are read from the present state where it shows them: a failed pod stays failed until it is
replaced. So a controller that was away misses none. The caller remembers evictions, because a deleted pod
shows nothing. It also remembers since when a delayed action waits, if the state does not say it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.jobs.rules.times import duration_s
from vc_egpu.jobs.rules.views import Eviction, Happening, PodPhase, PodView, World
from vc_egpu.volcano.api.job import Job, JobAction, JobEvent, LifecyclePolicy
from vc_egpu.volcano.api.podgroup import PodGroupPhase

TARGETED: Final = frozenset({JobAction.RESTART_TASK, JobAction.RESTART_POD})
"""Actions on some pods of the Job; all others are on the whole Job."""
_RANK: Final = {JobEvent.TASK_COMPLETED: 0, JobEvent.POD_FAILED: 1, JobEvent.POD_EVICTED: 2}

_MOST_CODES: Final = 5
"""A pod may have hundreds of containers; a sentence names the first few of their codes."""

_RAN: Final = frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class Answer:
    """An action that is due, and why."""

    action: JobAction
    because: str
    targets: frozenset[str] = frozenset()
    """UIDs of the pods to restart, for targeted actions."""
    tasks: frozenset[str] = frozenset()
    """All pods of these tasks are among them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policies say now."""

    answer: Answer | None = None
    wake_at: float | None = None
    """When a delayed action falls due (seconds since the epoch)."""
    evictions: tuple[Eviction, ...] = ()
    """Those that still wait for a delayed action; the others are dealt with."""
    first_seen: Mapping[str, float] = field(default_factory=dict)
    """By mark, other happenings that do, and do not say since when they are."""


def judge(world: World) -> Verdict:
    """Match happenings with policies. An action on the whole Job goes before those on parts of it."""
    due: list[tuple[JobAction, Happening]] = []
    wake_at: float | None = None
    waiting: list[Eviction] = []
    first_seen: dict[str, float] = {}
    known: dict[Happening, tuple[JobAction, float] | None] = {}
    for happening in sorted(_happenings(world), key=lambda h: (h.at, _RANK.get(h.event, 3), h.pod)):
        # Most pods of a large Job are alike: the policies are gone through once for each kind.
        kind = replace(happening, at=0.0, pod="", eviction=None, mark="")
        if kind not in known:
            known[kind] = _match(world.job, happening)
        matched = known[kind]
        if matched is None:
            continue
        action, delay_s = matched
        if happening.at + delay_s <= world.now:
            due.append((action, happening))
        else:
            at = happening.at + delay_s
            wake_at = at if wake_at is None else min(wake_at, at)
            if happening.eviction is not None:
                waiting.append(happening.eviction)
            if happening.mark:
                first_seen[happening.mark] = happening.at
    whole = next(((action, h) for action, h in due if action not in TARGETED), None)
    if whole is not None:
        action, happening = whole
        return Verdict(Answer(action, _because(happening)))
    if due:
        return Verdict(_targeted(world, due), wake_at, tuple(waiting), first_seen)
    return Verdict(None, wake_at, tuple(waiting), first_seen)


def _targeted(world: World, due: list[tuple[JobAction, Happening]]) -> Answer:
    # RestartPod for something that is no single pod's doing means its task.
    tasks = {h.task for action, h in due if action is JobAction.RESTART_TASK or not h.pod}
    # An evicted pod is gone already; the one that has its name by now is its replacement.
    pods = {h.pod for action, h in due if action is JobAction.RESTART_POD and h.eviction is None}
    targets = frozenset(pod.uid for pod in world.pods if pod.task in tasks or pod.name in pods)
    action = JobAction.RESTART_TASK if tasks else JobAction.RESTART_POD
    return Answer(action, _because(due[0][1]), targets, frozenset(tasks))


def _happenings(world: World) -> Iterator[Happening]:
    version = world.job.status.version
    present = {pod.name: pod for pod in world.pods}
    for pod in world.pods:
        if pod.version < version or pod.out_of_sync or pod.terminating:
            continue
        if pod.phase is PodPhase.FAILED:
            at, mark = _since(world, pod.ended_at, JobEvent.POD_FAILED, pod.uid)
            yield Happening(JobEvent.POD_FAILED, at, pod.task, pod.name, pod.exit_codes, mark=mark)
        elif pod.phase is PodPhase.PENDING:
            at, mark = _since(world, pod.created_at, JobEvent.POD_PENDING, pod.uid)
            yield Happening(JobEvent.POD_PENDING, at, pod.task, pod.name, mark=mark)
    for eviction in world.evictions:
        if eviction.version < version:
            continue
        successor = present.get(eviction.pod)
        if successor is not None and successor.uid != eviction.uid and successor.phase in _RAN:
            continue  # it recovered: a delayed action is dropped
        yield Happening(JobEvent.POD_EVICTED, eviction.at, eviction.task, eviction.pod, eviction=eviction)
    yield from _of_tasks(world)
    group = world.group
    if group is not None and group.phase is PodGroupPhase.UNKNOWN and group.version >= version:
        at, mark = _first_seen(world, JobEvent.UNKNOWN, group.uid)
        yield Happening(JobEvent.UNKNOWN, at, mark=mark)


def _first_seen(world: World, event: JobEvent, who: str) -> tuple[float, str]:
    """When such a happening was seen first, now if not before, and the mark under which to remember it."""
    mark = f"{event.value} of {who}"
    return world.first_seen.get(mark, world.now), mark


def _since(world: World, told: float, event: JobEvent, who: str) -> tuple[float, str]:
    """Since when it is so. If an object says it, there is no mark. If no object does, or its clock is ahead
    of ours, the time of the first sight counts."""
    return (told, "") if 0 < told <= world.now else _first_seen(world, event, who)


def _of_tasks(world: World) -> Iterator[Happening]:
    version = world.job.status.version
    by_task: dict[str, list[PodView]] = {}
    for pod in world.pods:
        if not pod.out_of_sync and (pod.version >= version or _is_kept(pod)):
            by_task.setdefault(pod.task, []).append(pod)
    for task in world.job.spec.tasks:
        pods = by_task.get(task.name, [])
        succeeded = [pod for pod in pods if pod.phase is PodPhase.SUCCEEDED]
        is_new = any(pod.version >= version for pod in succeeded)
        if task.replicas and len(succeeded) >= task.replicas and is_new:
            ended_at = max(pod.ended_at for pod in succeeded)
            at, mark = _since(world, ended_at, JobEvent.TASK_COMPLETED, task.name)
            yield Happening(JobEvent.TASK_COMPLETED, at, task.name, mark=mark)
        restarts = sum(pod.restarts for pod in pods if pod.alive)
        if task.replicas and restarts >= task.max_retry:
            at, mark = _first_seen(world, JobEvent.TASK_FAILED, task.name)
            yield Happening(JobEvent.TASK_FAILED, at, task.name, mark=mark)


def _is_kept(pod: PodView) -> bool:
    """Whether a pod of an earlier version is one that a resumed Job keeps."""
    return pod.phase is PodPhase.SUCCEEDED and not pod.terminating


def _match(job: Job, happening: Happening) -> tuple[JobAction, float] | None:
    """The first policy that answers, the task's before the Job's: its action and delay in seconds."""
    own = next((task.policies for task in job.spec.tasks if task.name == happening.task), [])
    for policy in [*own, *job.spec.policies]:
        if policy.action is not None and _answers(policy, happening):
            if policy.action is JobAction.RESUME_JOB:
                return None  # only a stopped Job can be resumed, and such a Job has no happenings
            return policy.action, duration_s(policy.timeout) if policy.timeout else 0.0
    return None


def _answers(policy: LifecyclePolicy, happening: Happening) -> bool:
    events = {*policy.events, *([policy.event] if policy.event is not None else [])}
    if happening.event in events or JobEvent.ANY in events:
        # Every pod is pending for a while: only a pod that stays so is worth an action.
        return happening.event is not JobEvent.POD_PENDING or policy.timeout is not None
    return policy.exit_code in happening.exit_codes


def _because(happening: Happening) -> str:
    about = (
        f"pod {happening.pod}" if happening.pod else f"task {happening.task}" if happening.task else "gang"
    )
    return f"{happening.event.value} of {about}{_with_codes(sorted(happening.exit_codes))}"


def _with_codes(codes: list[int]) -> str:
    if not codes:
        return ""
    some = ", ".join(map(str, codes[:_MOST_CODES])) + (", ..." if len(codes) > _MOST_CODES else "")
    return f" with exit code{'s' if codes[1:] else ''} {some}"
