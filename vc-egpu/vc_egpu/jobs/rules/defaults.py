"""What a Job means where it says nothing, and what we refuse to run, by name.

Volcano's webhook fills in defaults and refuses bad Jobs. A cluster without Volcano has no such webhook, so
the controller does both on its own copy of the Job. The stored object does not change.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final

from vc_egpu.jobs.rules import extent
from vc_egpu.jobs.rules.extent import MOST_PODS
from vc_egpu.jobs.rules.flags import PluginError
from vc_egpu.jobs.rules.plugins import PLUGINS
from vc_egpu.jobs.rules.templates import misshapen
from vc_egpu.volcano.api.job import (
    DEFAULT_MAX_RETRY,
    Job,
    JobAction,
    JobEvent,
    JobPhase,
    LifecyclePolicy,
    Task,
)

MAX_POD_NAME: Final = 63
"""A pod's name is its host name."""
_MAX_NAMED: Final = 8
_INTERNAL_EVENTS: Final = frozenset({JobEvent.OUT_OF_SYNC, JobEvent.COMMAND_ISSUED, JobEvent.POD_RUNNING})
_INTERNAL_ACTIONS: Final = frozenset({JobAction.SYNC_JOB, JobAction.ENQUEUE_JOB})


def complete(job: Job) -> Job:
    """A copy of the Job with Volcano's defaults filled in."""
    # Only what is changed is copied: templates are large, and this runs at every look.
    tasks = [task.model_copy() for task in job.spec.tasks]
    spec = job.spec.model_copy(update={"tasks": tasks})
    full = job.model_copy(update={"spec": spec})
    for index, task in enumerate(tasks):
        if not task.name:
            task.name = f"default{index}"
        if task.min_available is None:
            task.min_available = task.replicas
        task.max_retry = task.max_retry or DEFAULT_MAX_RETRY
    spec.max_retry = spec.max_retry or DEFAULT_MAX_RETRY
    if spec.min_available == 0:
        spec.min_available = full.total_min_available()
    if not spec.queue:
        spec.queue = "default"
    if "pytorch" in spec.plugins and "svc" not in spec.plugins:
        # The master's address is a name that the headless Service of svc gives.
        spec.plugins = {**spec.plugins, "svc": []}
    return full


def bounded(whole: Job) -> Job:
    """The Job itself, or a copy with fewer replicas if it was scaled beyond :data:`MOST_PODS`. The copy also
    has minimums that its replicas can reach, and no more policies and dependencies than :mod:`.extent` has.
    No webhook may have refused such a Job."""
    job = extent.trimmed(whole)
    total = job.total_replicas()
    if total <= MOST_PODS and not any(_minimums(job)):
        return job
    left, tasks = MOST_PODS, []
    for task in job.spec.tasks:
        replicas = min(task.replicas, left)
        least = replicas if task.min_available is None else min(task.min_available, replicas)
        tasks.append(task.model_copy(update={"replicas": replicas, "min_available": least}))
        left -= replicas
    # One that is scaled to nothing keeps its minimum for when it grows again.
    minimum = min(job.spec.min_available, total, MOST_PODS) or job.spec.min_available
    spec = job.spec.model_copy(update={"tasks": tasks, "min_available": minimum})
    return job.model_copy(update={"spec": spec})


def beyond(job: Job) -> Iterator[str]:
    """What :func:`bounded` changes in it, one sentence each."""
    total = job.total_replicas()
    if total > MOST_PODS:
        yield f"spec.tasks: {total} replicas: no more than {MOST_PODS} of a Job are made"
    if total:
        yield from _minimums(job)
    for text in extent.of_rules(job):
        yield f"{text}: those beyond are left out"


def refusals(whole: Job) -> list[str]:
    """Why the Job is not begun. A Job that has run goes on as :func:`bounded` makes it."""
    has_run = any(condition.status is JobPhase.RUNNING for condition in whole.status.conditions)
    return problems(bounded(whole) if has_run else whole)


def problems(job: Job) -> list[str]:
    """Why we do not run this (completed) Job: one sentence each, naming the field; empty if we do."""
    return [
        *extent.of_pods(job),
        *extent.of_rules(job),
        *_shape(job),
        *_minimums(job),
        *_tasks(job),
        *_policies(job),
        *_dependencies(job),
        *_templates(job),
        *_plugins(job),
    ]


def unreadable(job: Job) -> list[str]:
    """The problems that leave open what a pod of the Job should look like, so that none can be made."""
    return [*extent.of_pods(job), *_templates(job), *_plugins(job)]


def _shape(job: Job) -> Iterator[str]:
    spec = job.spec
    if not spec.tasks:
        yield "spec.tasks: a Job needs at least one task"
    total = job.total_replicas()
    if total > MOST_PODS:
        yield f"spec.tasks: {total} replicas of all tasks, the largest Job has {MOST_PODS}; split it"
    if spec.min_success is not None and spec.min_success > total:
        yield f"spec.minSuccess: {spec.min_success} is more than the {total} replicas of all tasks"
    for index, volume in enumerate(spec.volumes):
        if not volume.volume_claim_name and volume.volume_claim is None:
            yield f"spec.volumes[{index}]: neither volumeClaimName nor volumeClaim is named"
        if volume.volume_claim_name and volume.volume_claim is not None:
            yield f"spec.volumes[{index}]: volumeClaimName and volumeClaim exclude each other"
    for path, count in Counter(volume.mount_path for volume in spec.volumes).items():
        if count > 1:
            yield f"spec.volumes: mountPath {path!r} is named {count} times"


def _minimums(job: Job) -> Iterator[str]:
    """Those that cannot be reached."""
    total = job.total_replicas()
    if job.spec.min_available > total:
        yield f"spec.minAvailable: {job.spec.min_available} is more than the {total} replicas of all tasks"
    for index, task in enumerate(job.spec.tasks):
        if task.min_available is not None and task.min_available > task.replicas:
            where = f"spec.tasks[{index}].minAvailable"
            yield f"{where}: {task.min_available} is more than its {task.replicas} replicas"


def _tasks(job: Job) -> Iterator[str]:
    for name, count in Counter(task.name for task in job.spec.tasks).items():
        if count > 1:
            yield f"spec.tasks: the name {name!r} is used {count} times"
    for index, task in enumerate(job.spec.tasks):
        where = f"spec.tasks[{index}]"
        if task.partition_policy is not None:
            yield f"{where}.partitionPolicy: partitions need Volcano's own controllers"
        if not task.template.spec.get("containers"):
            yield f"{where}.template.spec.containers: a pod needs at least one container"
        name = f"{job.metadata.name}-{task.name}-{max(0, task.replicas - 1)}"
        if len(name) > MAX_POD_NAME:
            yield f"{where}.name: pod {name!r} has {len(name)} characters in its name, at most {MAX_POD_NAME}"


def _templates(job: Job) -> Iterator[str]:
    for index, task in enumerate(job.spec.tasks):
        yield from misshapen(task.template.spec, f"spec.tasks[{index}].template.spec")


def _policies(job: Job) -> Iterator[str]:
    yield from _policy_list("spec.policies", job.spec.policies)
    for index, task in enumerate(job.spec.tasks):
        yield from _policy_list(f"spec.tasks[{index}].policies", task.policies)


def _policy_list(where: str, policies: list[LifecyclePolicy]) -> Iterator[str]:
    events: list[JobEvent] = []
    codes: list[int] = []
    for index, policy in enumerate(policies):
        path = f"{where}[{index}]"
        named = [*policy.events, *([policy.event] if policy.event is not None else [])]
        if bool(named) == (policy.exit_code is not None):
            yield f"{path}: exactly one of event(s) and exitCode has to be named"
        if policy.exit_code == 0:
            yield f"{path}.exitCode: 0 is no error"
        if policy.action is None or policy.action in _INTERNAL_ACTIONS:
            yield f"{path}.action: {policy.action or 'no action'} cannot be asked for"
        if policy.action is JobAction.RESTART_PARTITION:
            yield f"{path}.action: RestartPartition needs Volcano's own controllers"
        for event in named:
            if event in _INTERNAL_EVENTS:
                yield f"{path}.event: {event} is internal"
            if event is JobEvent.POD_PENDING and policy.timeout is None:
                yield f"{path}.timeout: PodPending needs one"
        events += named
        codes += [policy.exit_code] if policy.exit_code is not None else []
    for value, count in Counter([*events, *codes]).items():
        if count > 1:
            yield f"{where}: {value} is answered {count} times"
    if JobEvent.ANY in events and len(events) > 1:
        yield f"{where}: '*' answers every event, no other may stand next to it"


def _dependencies(job: Job) -> Iterator[str]:
    by_name = {task.name: task for task in job.spec.tasks}
    for index, task in enumerate(job.spec.tasks):
        for name in task.depends_on.name if task.depends_on is not None else ():
            if name not in by_name:
                yield f"spec.tasks[{index}].dependsOn: there is no task {name!r}"
    cycle = _cycle(by_name)
    if cycle:
        more = " -> ..." if len(cycle) > _MAX_NAMED else ""
        yield f"spec.tasks: dependsOn goes in a circle: {' -> '.join(cycle[:_MAX_NAMED])}{more}"


def _cycle(tasks: Mapping[str, Task]) -> list[str]:
    """Tasks of which each waits for the next, the first of them again at the end; empty if there is none."""
    waits_for = {
        name: [other for other in task.depends_on.name if other in tasks]
        for name, task in tasks.items()
        if task.depends_on is not None
    }
    try:
        TopologicalSorter(waits_for).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _plugins(job: Job) -> Iterator[str]:
    for name, arguments in job.spec.plugins.items():
        plugin = PLUGINS.get(name)
        if plugin is None:
            yield f"spec.plugins: {name!r} needs Volcano's controllers; here there are {', '.join(PLUGINS)}"
            continue
        try:
            plugin(arguments, job)
        except PluginError as error:
            yield f"spec.plugins[{name}]: {error}"
