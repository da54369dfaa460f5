"""The checks that a new Job has to pass, and an edited one for what changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from vc_egpu.volcano import room
from vc_egpu.volcano.codec.request import PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import slips
from vc_egpu.volcano.words.priority import ClassName, PriorityError, class_of, objections_to_low, resolve
from vc_egpu.webhook.protocol.context import (
    DEFAULT_QUEUE,
    Context,
    Review,
    items,
    labels_of,
    spec_of,
)
from vc_egpu.webhook.protocol.decision import MAX_WARNINGS, Refusal
from vc_egpu.webhook.protocol.questions import Subject, any_allowed, together
from vc_egpu.webhook.reviews import access, needs, size_limits, specs, without_effect
from vc_egpu.webhook.reviews.gangs import Members
from vc_egpu.webhook.reviews.jobs.tasks import Task, TaskedJob

ANNOTATIONS: Final = "metadata.annotations"
_MAX_ACCOUNTS: Final = 32
"""Each may cost the API server some questions, and the Job's author waits for all of them."""
_TEMPLATE_ONLY = (
    names.CORE_POLICY,
    names.OVERSUBSCRIBE,
    names.CARD_POLICY,
    names.NODE_POLICY,
    names.USE_MODELS,
    names.MIX_MODELS,
    names.EXPECTED_RUNTIME,
    names.SLICE,
    names.ISOLATION,
    names.SUSPEND_SIGNAL,
)


@dataclass(frozen=True, slots=True)
class Checked:
    """A task with its ask."""

    task: Task
    ask: PodAsk
    is_new: bool
    """Whether it has to pass every check, not only those of what changed."""
    old: Task | None = None
    """The stored task of the same name."""
    is_readable: bool = True


def is_managed(checked: Sequence[Checked]) -> bool:
    """Whether a task asks for cards or carries the managed label; refuses a new label of any other value."""
    for item in checked:
        labels = labels_of(item.task.template)
        before = labels_of(item.old.template) if item.old is not None else {}
        if labels.get(names.MANAGED_LABEL) != before.get(names.MANAGED_LABEL):
            specs.check_label(labels, f"{item.task.path}.metadata.labels")
    return any(item.ask.is_managed or item.task.is_labelled for item in checked)


def mixes(checked: Sequence[Checked]) -> bool:
    """Whether the tasks that may take several models may take different ones."""
    having = [item.task.annotations for item in checked if item.ask.options]
    return all(annotations.get(names.MIX_MODELS) == "true" for annotations in having)


def check_annotations(job: TaskedJob, before: TaskedJob | None = None) -> None:
    """Refuse annotations of the Job and of its templates that are too long in all; see :mod:`.size_limits`.

    ``before``: the Job as it is stored, which passes unless it grows.
    """
    known = {task.name: task.annotations for task in before.tasks} if before is not None else {}
    stored = before.annotations if before is not None else {}
    size_limits.check_annotations(job.annotations, stored, ANNOTATIONS)
    for task in job.tasks:
        old = known.get(task.name, {})
        size_limits.check_annotations(task.annotations, old, f"{task.path}.{ANNOTATIONS}")


def check_room(job: TaskedJob, members: Sequence[Members], before: TaskedJob | None = None) -> None:
    """Refuse annotations next to which the gang's plan does not fit: controllers copy them onto its PodGroup.

    ``before``: the Job as it is stored, where the gang does not grow.
    """
    pods = sum(item.replicas for item in members)
    need = room.plan_size(pods, sum(item.replicas * item.cards for item in members))
    stored = before.annotations if before is not None else {}
    what = f"the plan of {pods} pods, on the PodGroup that gets a copy of them,"
    size_limits.check_room(job.annotations, stored, need, what, ANNOTATIONS)


def check_templates(checked: Sequence[Checked], job: TaskedJob, context: Context) -> list[str]:
    """Check every template that is new or changed; returns warnings."""
    warnings = [
        f"{name} on the Job has no effect, it belongs on the pod template"
        for name in _TEMPLATE_ONLY
        if name in job.annotations
    ]
    warnings += _objections(job)
    warnings += slips(job.annotations, labels_of(job.raw), "metadata")
    spec, new = job.spec, [item for item in checked if item.is_new]
    if new:
        warnings += without_effect.of_job(spec, context.settings)
    if any(not each.native for item in new for each in item.ask.ways[0].containers.values()):
        specs.check_mounts(items(spec.get("volumes")), "spec.volumes")
    for item in new:
        task, path = item.task, item.task.path
        specs.refuse_forged(task.annotations, f"{path}.{ANNOTATIONS}", request_too=True)
        specs.check_placement(task.pod_spec, f"{path}.spec")
        specs.check_isolation(task.pod_spec, f"{path}.spec", item.ask)
        knobs = specs.check_knobs(task.annotations, f"{path}.{ANNOTATIONS}", item.ask, context.table)
        if names.ISOLATION in task.annotations:
            (cls,) = classes_of(job, [task])
            specs.check_mps(task.annotations, f"{path}.{ANNOTATIONS}", item.ask, cls)
        named = task.pod_spec.get("schedulerName") or spec.get("schedulerName") or ""
        where = f"{path}.spec.schedulerName" if task.pod_spec.get("schedulerName") else "spec.schedulerName"
        _, warning = specs.scheduler_for(named, where, context.settings.scheduler_of(grouped=False))
        warnings += [*item.ask.warnings, *knobs.warnings, *([warning] if warning else [])]
        if item.ask.is_managed:
            where = f"{path}.{ANNOTATIONS}"
            warnings += needs.of_template(task.annotations, task.pod_spec, where, context, item.ask)
        warnings += without_effect.of_pod(task.pod_spec, task.annotations, path)
        warnings += without_effect.of_limits(item.ask, task.annotations, context.offers, path)
        if len(warnings) < MAX_WARNINGS:  # no more are sent, and what is near takes time to find
            warnings += slips(task.annotations, labels_of(task.template), f"{path}.metadata")
    return warnings


def _objections(job: TaskedJob) -> list[str]:
    """Warnings that Volcano's word against preemption does not protect a task of class ``low``.

    Controllers copy the Job's word onto its pods, over that of the template.
    """
    low = [task for task, cls in zip(job.tasks, _classes_that_are(job), strict=False) if cls == "low"]
    warnings = objections_to_low(job.annotations, labels_of(job.raw), "metadata") if low else []
    for task in low[:MAX_WARNINGS]:
        warnings += objections_to_low(task.annotations, labels_of(task.template), f"{task.path}.metadata")
    return warnings


def subjects_of(review: Review, checked: Sequence[Checked]) -> list[list[Subject]]:
    """For each service account of the templates: the requester and that account; one of the two must do."""
    accounts = sorted({specs.service_account_of(item.task.pod_spec) for item in checked})
    return [
        [review.subject, Subject.of_service_account(review.namespace, account)] for account in accounts
    ] or [[review.subject]]


def check_queue(review: Review, subjects: Sequence[Sequence[Subject]], context: Context) -> str:
    """Refuse a queue that the subjects may not use; returns the queue's name."""
    if len(subjects) > _MAX_ACCOUNTS:
        raise Refusal(
            f"spec.tasks: {len(subjects)} service accounts, the limit is {_MAX_ACCOUNTS} in one Job"
        )
    named = str(spec_of(review.object).get("queue") or "")
    queue = named or _default_queue(review, subjects, context)
    together(
        partial(access.check_queue, queue, pair, review.namespace, context, "spec.queue") for pair in subjects
    )
    return queue


def check_named_queues(job: TaskedJob, queue: str, before: TaskedJob | None = None) -> None:
    """Refuse templates that name another queue than the Job: none of their pods would be let in.

    ``before``: the Job as it is stored, which may hold such a template already.
    """
    known = frozenset(_named_elsewhere(before, before.queue)) if before is not None else frozenset()
    for problem in _named_elsewhere(job, queue):
        if problem not in known:
            raise Refusal(problem)


def _named_elsewhere(job: TaskedJob, queue: str) -> Iterator[str]:
    for task in job.tasks:
        named = task.annotations.get(names.QUEUE_NAME)
        if named and named != queue:
            yield (
                f'{task.path}.{ANNOTATIONS}["{names.QUEUE_NAME}"]: {str(named)[:63]!r}, but the Job is in '
                f"queue {queue[:63]!r} (spec.queue); leave the annotation out"
            )


def _default_queue(review: Review, subjects: Sequence[Sequence[Subject]], context: Context) -> str:
    """Volcano puts Jobs without a queue into ``default``: so do we for those who may use it."""
    if DEFAULT_QUEUE not in context.queues:
        return ""
    questions = [
        [access.queue_access(subject, names.VERB_USE, DEFAULT_QUEUE, review.namespace) for subject in pair]
        for pair in subjects
    ]
    together(partial(any_allowed, context.answers, pair) for pair in questions)
    return DEFAULT_QUEUE if all(any_allowed(context.answers, pair) for pair in questions) else ""


def classes_of(job: TaskedJob, tasks: Iterable[Task]) -> list[ClassName]:
    """The class of each of these tasks of the Job; raises PriorityError."""
    of_job = class_of(job.annotations, ANNOTATIONS)
    return [resolve(class_of(task.annotations, f"{task.path}.{ANNOTATIONS}"), of_job) for task in tasks]


def is_low(job: TaskedJob, tasks: Iterable[Task]) -> bool:
    """Whether its gang is of low priority. A stored Job may name a class that is none."""
    try:
        return set(classes_of(job, tasks)) == {"low"}
    except PriorityError:
        return False


def check_classes(
    review: Review,
    job: TaskedJob,
    subjects: Sequence[Sequence[Subject]],
    context: Context,
    before: TaskedJob | None = None,
) -> None:
    """One gang has one class; ``high`` needs leave, ``low`` goes soon; a named class must not preempt.

    ``before``: the Job as it is stored. What is wrong with it already, and a ``high`` that it has, is let be.
    """
    known, had = (frozenset[str](), False) if before is None else _stored_classes(before, context)
    for problem in _wrong_classes(job, context):
        if problem not in known:
            raise Refusal(problem)
    if not had and "high" in _classes_that_are(job):
        where = next((task.path for task in job.tasks if names.PRIORITY in task.annotations), "")
        path = f'{where + "." if where else ""}{ANNOTATIONS}["{names.PRIORITY}"]'
        together(partial(access.check_high, pair, review.namespace, context, path) for pair in subjects)


def _stored_classes(job: TaskedJob, context: Context) -> tuple[frozenset[str], bool]:
    """(what is wrong with its classes, whether all its tasks have class ``high``)."""
    return frozenset(_wrong_classes(job, context)), set(_classes_that_are(job)) == {"high"}


def _classes_that_are(job: TaskedJob) -> list[ClassName]:
    """The classes of its tasks; none if a word stands there that is no class."""
    try:
        return classes_of(job, job.tasks)
    except PriorityError:
        return []


def _wrong_classes(job: TaskedJob, context: Context) -> Iterator[str]:
    """What is wrong with the classes of a Job's tasks, one sentence each."""
    tasks = job.tasks
    try:
        classes = classes_of(job, tasks)
    except PriorityError as error:
        yield str(error)
        return
    for task, cls in zip(tasks, classes, strict=True):
        if cls != classes[0]:
            yield (
                f'spec.tasks: one gang with two priorities: task "{tasks[0].name[:63]}" is {classes[0]}, '
                f'task "{task.name[:63]}" is {cls}; set {names.PRIORITY} on the Job instead'
            )
        own = task.pod_spec.get("priorityClassName")
        named = str(own or job.spec.get("priorityClassName") or "")
        where = f"{task.path}.spec.priorityClassName" if own else "spec.priorityClassName"
        for check in (
            partial(specs.check_grace, task.pod_spec, cls, context, f"{task.path}.spec"),
            partial(specs.priority_class_for, named, cls, context, where),
        ):
            try:
                check()
            except Refusal as refusal:
                yield str(refusal)
