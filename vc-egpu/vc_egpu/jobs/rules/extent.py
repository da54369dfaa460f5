"""How large a Job may be: the most tasks, policies, arguments, names and bytes that we run.

The API server takes Jobs of a megabyte from every user who may make one, with as many parts as fit into it.
Each look at a Job costs time by the number of its parts, often times the number of its pods. The bounds are
far above what people write; docs/jobs.md has them as a table.
"""

from collections.abc import Iterator, Sized
from typing import Any, Final

import orjson

from vc_egpu.jobs.rules.flags import short
from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.api.job import Job, LifecyclePolicy, Task

MOST_PODS: Final = 10_000
"""The most pods of one Job. Each look names all of them, and no gang limit holds for a Job without cards."""
MOST_TASKS: Final = 256
MOST_POLICIES: Final = 64
"""In the list of the Job, and in that of each task."""
MOST_EVENTS: Final = 16
"""In one policy; Volcano has ten kinds."""
MOST_DEPENDENCIES: Final = 64
"""Names in the dependsOn of one task."""
MOST_VOLUMES: Final = 64
MOST_CONTAINERS: Final = 64
"""In one pod, init containers among them."""
MOST_PLUGINS: Final = 16
MOST_ARGUMENTS: Final = 64
"""For one plugin."""
LONGEST_ARGUMENT: Final = 4096
MOST_TEMPLATE_BYTES: Final = 256 * 1024
"""For one task, as JSON."""
_MOST_SENTENCES: Final = 8
_LONGEST_SENTENCE: Final = 300


def of_pods(job: Job) -> Iterator[str]:
    """What of the Job is too large to make a pod of it, one sentence each."""
    spec = job.spec
    yield from _too_many("spec.tasks", spec.tasks, MOST_TASKS)
    yield from _too_many("spec.volumes", spec.volumes, MOST_VOLUMES)
    yield from _too_many("spec.plugins", spec.plugins, MOST_PLUGINS)
    for name, arguments in spec.plugins.items():
        where = f"spec.plugins[{short(name)}]"
        yield from _too_many(where, arguments, MOST_ARGUMENTS)
        longest = max(map(len, arguments), default=0)
        if longest > LONGEST_ARGUMENT:
            yield f"{where}: an argument of {longest} characters, at most {LONGEST_ARGUMENT}"
    for index, task in enumerate(spec.tasks):
        yield from _template(task, f"spec.tasks[{index}].template")


def of_rules(job: Job) -> Iterator[str]:
    """Which policies and dependencies are too many, one sentence each; :func:`trimmed` leaves them out."""
    yield from _policies(job.spec.policies, "spec.policies")
    for index, task in enumerate(job.spec.tasks):
        where = f"spec.tasks[{index}]"
        yield from _policies(task.policies, f"{where}.policies")
        if task.depends_on is not None:
            yield from _too_many(f"{where}.dependsOn", task.depends_on.name, MOST_DEPENDENCIES)


def trimmed(job: Job) -> Job:
    """The Job itself, or a copy without the policies and dependencies that are too many."""
    if not any(of_rules(job)):
        return job
    tasks = []
    for task in job.spec.tasks:
        update: dict[str, Any] = {"policies": _first_policies(task.policies)}
        if task.depends_on is not None:
            names = task.depends_on.name[:MOST_DEPENDENCIES]
            update["depends_on"] = task.depends_on.model_copy(update={"name": names})
        tasks.append(task.model_copy(update=update))
    policies = _first_policies(job.spec.policies)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": tasks, "policies": policies})})


def told(sentences: list[str]) -> str:
    """Several sentences as one message for a status, in which few are told in full."""
    first = [
        text if len(text) <= _LONGEST_SENTENCE else f"{text[: _LONGEST_SENTENCE - 3]}..."
        for text in sentences[:_MOST_SENTENCES]
    ]
    more = len(sentences) - len(first)
    return "; ".join([*first, *([f"and {more} more"] if more else [])])


def _template(task: Task, where: str) -> Iterator[str]:
    template = task.template
    containers = len(containers_of(template.spec))
    if containers > MOST_CONTAINERS:
        yield f"{where}.spec: {containers} containers, at most {MOST_CONTAINERS}"
    metadata = template.metadata
    size = len(orjson.dumps([template.spec, metadata.labels, metadata.annotations, metadata.finalizers]))
    if size > MOST_TEMPLATE_BYTES:
        yield f"{where}: {size} bytes, at most {MOST_TEMPLATE_BYTES}"


def _policies(policies: list[LifecyclePolicy], where: str) -> Iterator[str]:
    yield from _too_many(where, policies, MOST_POLICIES)
    for index, policy in enumerate(policies[:MOST_POLICIES]):
        yield from _too_many(f"{where}[{index}].events", policy.events, MOST_EVENTS)


def _first_policies(policies: list[LifecyclePolicy]) -> list[LifecyclePolicy]:
    return [
        policy
        if len(policy.events) <= MOST_EVENTS
        else policy.model_copy(update={"events": policy.events[:MOST_EVENTS]})
        for policy in policies[:MOST_POLICIES]
    ]


def _too_many(where: str, parts: Sized, most: int) -> Iterator[str]:
    if len(parts) > most:
        yield f"{where}: {len(parts)} entries, at most {most}"
