"""The phase machine of a Job: pure. ``decide(world)`` says what the API server should be told now.

The phases and their transitions are Volcano's. Three things differ, so that a controller may die between any
two writes:

- the status that records a restart (phase, retryCount, version) is written *before* pods are deleted. What
  has to be deleted follows from that status at every later look.
- ``status.state.reason`` names the action that led to the present phase. A restart reads from it, and from
  the message next to it, which pods it may keep.
- a PodGroup carries the version of the Job that it was made for: an older one is replaced.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from vc_egpu.jobs.rules.draft import FINISHED, Decision, Draft, Group, Note
from vc_egpu.jobs.rules.plugins import pod_name
from vc_egpu.jobs.rules.policies import TARGETED, Answer, judge
from vc_egpu.jobs.rules.times import seconds, timestamp
from vc_egpu.jobs.rules.views import FINISHED_PODS, Order, PodPhase, PodView, World
from vc_egpu.volcano.api.job import JobAction, JobPhase, Task
from vc_egpu.volcano.api.podgroup import PodGroupPhase

P: Final = JobPhase
STOPPING: Final[Mapping[JobPhase, JobPhase]] = {
    P.ABORTING: P.ABORTED,
    P.COMPLETING: P.COMPLETED,
    P.TERMINATING: P.TERMINATED,
}
"""Phases that wait until nothing is alive any more, and what comes then."""
STOP_BY: Final[Mapping[JobAction, JobPhase]] = {
    JobAction.ABORT_JOB: P.ABORTING,
    JobAction.COMPLETE_JOB: P.COMPLETING,
    JobAction.TERMINATE_JOB: P.TERMINATING,
}
_BY_COMMAND: Final = "Command "
"""Followed by the Command's UID: how ``status.state.message`` tells that it was obeyed."""
_ALL_OF: Final = "; restarts all of "
"""Followed by tasks: how it tells of a restart of parts whom that does away with. A pod that failed shows it,
one that was evicted does not."""


def decide(world: World, refusals: Iterable[str] = ()) -> Decision:
    """One look at a Job. Deterministic; ``refusals`` are the reasons why we do not run it at all."""
    job = world.job
    if job.metadata.deletion_timestamp:
        return Decision()
    draft = Draft(world, job.status.model_copy())
    not_run = _not_run(draft, list(refusals))
    if not_run is not None:
        obeyed = world.order is not None and _obey_command(draft, world.order)
        return draft.finish() if obeyed else _refuse(draft, *not_run)
    if draft.status.state.reason in {"Refused", "QueueNotFound"}:
        draft.enter(draft.phase, "Accepted", "what was missing is there now")
    obeyed = world.order is not None and _obey_command(draft, world.order)
    if not obeyed and not _obey_policies(draft):
        _PHASES[draft.phase](draft)
    _sweep_group(draft)
    return draft.finish()


def _not_run(draft: Draft, refusals: Sequence[str]) -> tuple[str, str] | None:
    """Why a Job that has not begun is not begun, in a word and in a sentence; None if it is."""
    world = draft.world
    if draft.phase is not P.PENDING:
        return None
    if refusals and not world.pods:
        return "Refused", "; ".join(refusals)
    if not world.queue_known and world.group is None:
        return "QueueNotFound", f"there is no queue {world.job.spec.queue!r}"
    return None


def _refuse(draft: Draft, reason: str, message: str) -> Decision:
    """Not run, but not failed either: a later controller, or a queue that comes, may change it."""
    if draft.status.state.message != message:
        said = list(draft.notes)
        draft.enter(P.PENDING, reason, message)
        draft.notes = [*said, Note(warning=True, reason=reason, text=message)]
    return draft.finish()


# --- orders and policies ------------------------------------------------------------------------------


def _obey_command(draft: Draft, order: Order) -> bool:
    """Do what the Command says; True if that was all for this look."""
    draft.order_done = True
    # A Command that was obeyed before it could be deleted must not be obeyed twice.
    if draft.status.state.message == _BY_COMMAND + order.uid:
        return False
    targets = frozenset(pod.uid for pod in draft.world.pods if order.action in TARGETED)
    return _apply(draft, Answer(order.action, _BY_COMMAND + order.uid, targets))


def _obey_policies(draft: Draft) -> bool:
    """Do what the policies answer, if they do; True if that was all for this look. Without this, evictions
    and timers are forgotten: so is what happened before a Command that stops pods."""
    if draft.phase not in {P.PENDING, P.RUNNING, P.RESTARTING}:
        return False
    verdict = judge(draft.world)
    draft.wake_at, draft.evictions = verdict.wake_at, verdict.evictions
    draft.first_seen = verdict.first_seen
    return verdict.answer is not None and _apply(draft, verdict.answer)


def _apply(draft: Draft, answer: Answer) -> bool:
    action, phase = answer.action, draft.phase
    live = phase in {P.PENDING, P.RUNNING, P.RESTARTING}
    if action in STOP_BY and live:
        draft.enter(STOP_BY[action], action.value, answer.because)
        _new_version(draft)
        _stop(draft)
    elif action is JobAction.RESUME_JOB and phase in {P.ABORTING, P.ABORTED}:
        draft.status.retry_count += 1
        draft.enter(P.RESTARTING, action.value, answer.because)
        _new_version(draft)
        _clear_out(draft)
    elif action is JobAction.RESTART_JOB and live:
        # While it restarts anyway a further reason costs no further try.
        draft.status.retry_count += phase is not P.RESTARTING
        draft.enter(P.RESTARTING, action.value, answer.because)
        _new_version(draft)
        _clear_out(draft)
    elif action in TARGETED and phase in {P.PENDING, P.RUNNING}:
        draft.status.retry_count += 1
        draft.enter(P.RESTARTING, action.value, _with_tasks(answer.because, answer.tasks))
        draft.kill((pod for pod in draft.world.pods if pod.uid in answer.targets), mark=True)
    elif action in TARGETED and phase is P.RESTARTING:
        before = len(draft.killed)
        draft.kill((pod for pod in draft.world.pods if pod.uid in answer.targets), mark=True)
        if len(draft.killed) == before:
            return False
        _restart_also(draft, answer.tasks)
    else:
        draft.notes.append(
            Note(warning=True, reason="Ignored", text=f"{action.value} means nothing in {phase.value}")
        )
        return False
    draft.status_first = True
    return True


def _new_version(draft: Draft) -> None:
    """A whole Job is stopped: what its present pods still do or suffer counts no more."""
    draft.status.version += 1


# --- phases -------------------------------------------------------------------------------------------


def _pending(draft: Draft) -> None:
    _sync(draft)
    counts = draft.counts()
    if draft.world.job.spec.min_available <= counts["running"] + counts["succeeded"] + counts["failed"]:
        draft.enter(P.RUNNING, "EnoughPods", f"{counts['running']} pods run")


def _running(draft: Draft) -> None:
    _sync(draft)
    job, counts = draft.world.job, draft.counts()
    replicas = job.total_replicas()
    if replicas == 0:
        return  # scaled to nothing: the phase stays
    succeeded, failed = counts["succeeded"], counts["failed"]
    least = job.spec.min_success
    if least is not None and succeeded >= least:
        draft.enter(P.COMPLETED, "MinSuccess", f"{succeeded} pods succeeded, minSuccess is {least}")
    elif succeeded + failed == replicas:
        why_failed = _why_failed(draft, succeeded)
        if why_failed:
            draft.enter(P.FAILED, "PodsFailed", why_failed)
        else:
            draft.enter(P.COMPLETED, "PodsSucceeded", f"{succeeded} of {replicas} pods succeeded")
    elif counts["pending"] > replicas - job.spec.min_available:
        draft.enter(P.PENDING, "PodsPending", f"{counts['pending']} pods wait, the gang is not complete")


def _why_failed(draft: Draft, succeeded: int) -> str:
    """All pods have ended: what it lacked to be completed; empty if nothing."""
    job = draft.world.job
    if job.spec.min_available >= job.total_min_available():
        by_task = Counter(pod.task for pod in draft.world.pods if pod.phase is PodPhase.SUCCEEDED)
        for task in job.spec.tasks:
            needed = task.min_available or 0
            # A task without any pod is not judged, as in Volcano.
            if any(pod.task == task.name for pod in draft.world.pods) and by_task[task.name] < needed:
                return f"{by_task[task.name]} pods of task {task.name} succeeded, {needed} had to"
    needed = job.spec.min_available if job.spec.min_success is None else job.spec.min_success
    return f"{succeeded} pods succeeded, {needed} had to" if succeeded < needed else ""


def _restarting(draft: Draft) -> None:
    """Clear out what the restart deletes; then fail if the tries are used up, or begin again."""
    job = draft.world.job
    if _is_of_parts(draft):
        draft.kill(_still_there(draft), mark=True)
    else:
        _clear_out(draft)
    if draft.status.retry_count >= job.spec.max_retry:
        text = f"restarted {draft.status.retry_count} times, maxRetry is {job.spec.max_retry}"
        draft.enter(P.FAILED, "MaxRetryReached", text)
        draft.status_first = True
    elif job.total_replicas() - draft.terminating() >= job.spec.min_available:
        text = f"try {draft.status.retry_count} of {job.spec.max_retry}"
        draft.enter(P.PENDING, "Restarted", text)
        draft.needs_kills = True


def _is_of_parts(draft: Draft) -> bool:
    return draft.status.state.reason in {action.value for action in TARGETED}


def _still_there(draft: Draft) -> Iterable[PodView]:
    """Whom a restart of parts should have done away with as it began. No pod is made before that is done."""
    message = draft.status.state.message
    if message.startswith(_BY_COMMAND):
        return draft.world.pods
    tasks = _tasks_in(message)
    return [pod for pod in draft.world.pods if pod.task in tasks]


def _restart_also(draft: Draft, tasks: frozenset[str]) -> None:
    """More tasks came while it restarts."""
    state = draft.status.state
    if _is_of_parts(draft) and not state.message.startswith(_BY_COMMAND):
        message = _with_tasks(state.message.partition(_ALL_OF)[0], _tasks_in(state.message) | tasks)
        draft.status.state = state.model_copy(update={"message": message})


def _with_tasks(because: str, tasks: frozenset[str]) -> str:
    said = because.startswith(_BY_COMMAND) or not tasks
    return because if said else f"{because}{_ALL_OF}{', '.join(sorted(tasks))}"


def _tasks_in(message: str) -> frozenset[str]:
    _, told, tasks = message.partition(_ALL_OF)
    return frozenset(tasks.split(", ")) if told else frozenset()


def _clear_out(draft: Draft) -> None:
    """Kill what is older than the present version, all but what is kept."""
    version = draft.status.version
    old = (pod for pod in draft.world.pods if pod.version < version)
    draft.kill((pod for pod in old if pod.phase not in _kept(draft)), mark=False)


def _kept(draft: Draft) -> frozenset[PodPhase]:
    """Which pods of earlier versions stay. A Job on its last try ends now, and its pods stay for their logs.
    A resumed Job does not repeat what succeeded. Any other starts from nothing."""
    if draft.status.retry_count >= draft.world.job.spec.max_retry:
        return FINISHED_PODS
    is_resumed = draft.status.state.reason == JobAction.RESUME_JOB.value
    return frozenset({PodPhase.SUCCEEDED}) if is_resumed else frozenset()


def _stopping(draft: Draft) -> None:
    _stop(draft)
    if not any(pod.alive or (pod.terminating and not pod.finished) for pod in draft.world.pods):
        after = STOPPING[draft.phase]
        draft.enter(after, draft.status.state.reason, draft.status.state.message)


def _stop(draft: Draft) -> None:
    """Kill all that is alive; finished pods stay, for their logs."""
    draft.kill((pod for pod in draft.world.pods if pod.alive), mark=False)


def _aborted(draft: Draft) -> None:
    _stop(draft)


def _finished(draft: Draft) -> None:
    _stop(draft)
    ttl_s = draft.world.job.spec.ttl_seconds_after_finished
    if ttl_s is None or draft.phase not in FINISHED:
        return
    ended_at = seconds(draft.status.state.last_transition_time)
    if not ended_at:
        ended_at, state = draft.world.now, draft.status.state
        draft.status.state = state.model_copy(update={"last_transition_time": timestamp(ended_at)})
    if draft.world.now >= ended_at + ttl_s:
        draft.delete_job = True
    else:
        draft.wake_at = ended_at + ttl_s


_PHASES: Final[Mapping[JobPhase, Callable[[Draft], None]]] = {
    P.PENDING: _pending,
    P.RUNNING: _running,
    P.RESTARTING: _restarting,
    P.ABORTING: _stopping,
    P.COMPLETING: _stopping,
    P.TERMINATING: _stopping,
    P.ABORTED: _aborted,
    P.COMPLETED: _finished,
    P.FAILED: _finished,
    P.TERMINATED: _finished,
}


# --- pods and PodGroup --------------------------------------------------------------------------------


def _sync(draft: Draft) -> None:
    """Pods as the spec wants them: make what is missing, delete surplus and what is marked out of sync."""
    world = draft.world
    job, group = world.job, world.group
    if group is None or (group.version < draft.status.version and not group.terminating):
        draft.group = Group.MAKE
    if group is not None:
        is_old = group.terminating or group.version < draft.status.version
        if is_old or group.phase in {None, PodGroupPhase.PENDING}:
            return
    earlier = [pod for pod in world.pods if pod.version < draft.status.version]
    # The deletion of these was asked for, and did not happen; or an older controller left failed ones behind.
    draft.kill((pod for pod in earlier if pod.phase is not PodPhase.SUCCEEDED), mark=False)
    if any(pod.alive for pod in earlier):
        return  # no pod of this try runs next to one of them
    # Without a PodGroup we make it, in phase Inqueue, and the pods right after it.
    present = {pod.name: pod for pod in world.pods}
    wanted: set[str] = set()
    awaited = _not_there(world)
    for task in job.spec.tasks:
        may_start = _dependencies_met(task, awaited)
        for index in range(task.replicas):
            name = pod_name(job.metadata.name, task.name, index)
            wanted.add(name)
            if name not in present and may_start and world.readable:
                draft.create.append((task, index))
    draft.kill((pod for pod in world.pods if pod.out_of_sync), mark=False)
    draft.kill((pod for pod in world.pods if pod.name not in wanted), mark=True)


def _dependencies_met(task: Task, awaited: frozenset[str]) -> bool:
    """Whether the tasks that this one waits for are there; ``awaited`` names all that are not."""
    depends_on = task.depends_on
    if depends_on is None or not depends_on.name:
        return True
    met = [name not in awaited for name in depends_on.name]
    return any(met) if depends_on.iteration == "any" else all(met)


def _not_there(world: World) -> frozenset[str]:
    """The tasks of which too few pods have succeeded, or run with all containers ready."""
    there = Counter(
        pod.task
        for pod in world.pods
        if not pod.terminating
        and (pod.phase is PodPhase.SUCCEEDED or (pod.phase is PodPhase.RUNNING and pod.ready))
    )
    tasks = world.job.spec.tasks
    return frozenset(task.name for task in tasks if there[task.name] < (task.min_available or 0))


def _sweep_group(draft: Draft) -> None:
    """The PodGroup goes when the gang does: it is one gang's life, and plans are bound to it."""
    group = draft.world.group
    if group is None or group.terminating:
        return
    whole_restart = draft.phase is P.RESTARTING and group.version < draft.status.version
    old = draft.group is Group.MAKE and group.version < draft.status.version
    if whole_restart or old or draft.phase in {*STOPPING, P.ABORTED, *FINISHED}:
        draft.group = Group.DELETE
