"""Volcano Jobs: checked and completed when they come in, completed again when they are applied again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from vc_egpu.volcano.codec.request import AskError, PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import knobs_in, slips
from vc_egpu.volcano.words.priority import ClassName, PriorityError, class_of, resolve
from vc_egpu.webhook.protocol.context import (
    DEFAULT_QUEUE,
    Context,
    Review,
    annotations_of,
    items,
    labels_of,
    mapping,
    spec_of,
)
from vc_egpu.webhook.protocol.decision import MAX_WARNINGS, Decision, Json, Refusal, allow, refuse
from vc_egpu.webhook.protocol.questions import Subject, any_allowed, together
from vc_egpu.webhook.reviews import access, gangs, size_limits, specs
from vc_egpu.webhook.reviews.tasks import Task, copied_back, min_available_of, tasks_of

_ANNOTATIONS = "metadata.annotations"
_MAX_ACCOUNTS: Final = 32
"""Each may cost the API server some questions, and the Job's author waits for all of them."""
_RECORDS: Final = "managedFields"
"""In an object's metadata: who wrote which field."""
_TEMPLATE_ONLY = (names.CORE_POLICY, names.OVERSUBSCRIBE, names.CARD_POLICY, names.NODE_POLICY)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A task with its ask; ``is_new`` if it has to pass every check, not only those of what changed."""

    task: Task
    ask: PodAsk
    is_new: bool
    readable: bool = True


def review_job(review: Review, context: Context) -> Decision:
    """Complete a Job with managed tasks; one without is left alone.

    Raises :class:`~vc_egpu.webhook.protocol.questions.Unanswered` when it needs to know more.
    """
    try:
        if review.old_object is None or review.operation == "CREATE":
            return _created(review, context)
        return _updated(review, review.old_object, context)
    except (Refusal, AskError, PriorityError) as refusal:
        return refuse(str(refusal))


def review_final_job(review: Review, context: Context) -> Decision:
    """The same checks on what is going to be stored, after everybody else's changes."""
    decision = review_job(review, context)
    # A replica of an earlier version left the records; that nobody needs them is no reason to refuse.
    missing = [operation for operation in decision.patch if operation["path"] != f"/metadata/{_RECORDS}"]
    if missing:
        where = str(missing[0]["path"]).replace("~1", "/")
        return refuse(f"{where}: was taken out by another webhook after the totals had been written")
    return decision


# --- a new Job --------------------------------------------------------------------------------------


def _created(review: Review, context: Context) -> Decision:
    job = review.object
    size_limits.check_job(job, context.settings.max_gang_members)
    checked = [_Checked(task, task.ask(context.table), is_new=True) for task in tasks_of(job)]
    if not _is_managed(checked):
        return allow()
    specs.refuse_forged(annotations_of(job), _ANNOTATIONS, request_too=True)
    warnings = _check_templates(checked, job, context)
    subjects = _subjects(review, checked)
    queue = _check_queue(review, subjects, context)
    _check_named_queues([item.task for item in checked], queue)
    _check_classes(review, checked, subjects, context)
    members = [item.task.members(item.ask) for item in checked]
    minimum = min_available_of(job)
    gangs.check_size(members, context.settings, "spec.tasks")
    gangs.check_minimums(members, minimum)
    what = f"the gang (minAvailable {gangs.gang_size(members, minimum)})"
    gangs.check_caps(gangs.least_need(members, minimum), queue, context, "spec.queue", what)
    tasks = [item.task.completed(item.ask) for item in checked]
    metadata = mapping(job.get("metadata"))
    if not (context.settings.keep_managed_fields or _is_applied(metadata)):
        # As with pods that a controller makes: a controller writes the status many times.
        metadata = {key: value for key, value in metadata.items() if key != _RECORDS}
    completed = {**job, "metadata": metadata, "spec": {**spec_of(job), "tasks": tasks}}
    return allow(job, completed, warnings)


def _is_applied(metadata: Json) -> bool:
    """Whether somebody applies this object, so that the record of who wrote which field is of use."""
    return names.LAST_APPLIED in mapping(metadata.get("annotations")) or any(
        mapping(entry).get("operation") == "Apply" for entry in items(metadata.get(_RECORDS))
    )


def _is_managed(checked: Sequence[_Checked]) -> bool:
    for item in checked:
        specs.check_label(labels_of(item.task.template), f"{item.task.path}.metadata.labels")
    return any(item.ask.is_managed or item.task.is_labelled for item in checked)


def _check_templates(checked: Sequence[_Checked], job: Json, context: Context) -> list[str]:
    """Check every template that is new or changed; returns warnings."""
    warnings = [
        f"{name} on the Job has no effect, it belongs on the pod template"
        for name in _TEMPLATE_ONLY
        if name in annotations_of(job)
    ]
    warnings += slips(annotations_of(job), labels_of(job), "metadata")
    spec, new = spec_of(job), [item for item in checked if item.is_new]
    if any(not each.native for item in new for each in item.ask.containers.values()):
        specs.check_mounts(items(spec.get("volumes")), "spec.volumes")
    for item in new:
        task, path = item.task, item.task.path
        specs.refuse_forged(task.annotations, f"{path}.{_ANNOTATIONS}", request_too=True)
        specs.check_placement(task.pod_spec, f"{path}.spec")
        specs.check_isolation(task.pod_spec, f"{path}.spec", item.ask)
        knobs = specs.check_knobs(task.annotations, f"{path}.{_ANNOTATIONS}", item.ask, context.table)
        named = task.pod_spec.get("schedulerName") or spec.get("schedulerName") or ""
        where = f"{path}.spec.schedulerName" if task.pod_spec.get("schedulerName") else "spec.schedulerName"
        _, warning = specs.scheduler_for(named, where, context.settings.binder(grouped=False))
        warnings += [*knobs.warnings, *([warning] if warning else [])]
        if len(warnings) < MAX_WARNINGS:  # no more are sent, and what is near takes time to find
            warnings += slips(task.annotations, labels_of(task.template), f"{path}.metadata")
    return warnings


def _subjects(review: Review, checked: Sequence[_Checked]) -> list[list[Subject]]:
    """For each service account of the templates: the requester and that account; one of the two must do."""
    accounts = sorted({specs.service_account_of(item.task.pod_spec) for item in checked})
    return [
        [review.subject, Subject.of_service_account(review.namespace, account)] for account in accounts
    ] or [[review.subject]]


def _check_queue(review: Review, subjects: Sequence[Sequence[Subject]], context: Context) -> str:
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


def _check_named_queues(tasks: Sequence[Task], queue: str) -> None:
    """Refuse templates that name another queue than the Job: none of their pods would be let in."""
    for task in tasks:
        named = task.annotations.get(names.QUEUE_NAME)
        if named and named != queue:
            raise Refusal(
                f'{task.path}.{_ANNOTATIONS}["{names.QUEUE_NAME}"]: {str(named)[:63]!r}, but the Job is in '
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


def _classes(tasks: Sequence[Task], job: Json) -> list[ClassName]:
    of_job = class_of(annotations_of(job), _ANNOTATIONS)
    return [resolve(class_of(task.annotations, f"{task.path}.{_ANNOTATIONS}"), of_job) for task in tasks]


def _check_classes(
    review: Review, checked: Sequence[_Checked], subjects: Sequence[Sequence[Subject]], context: Context
) -> None:
    """One gang has one class; ``high`` needs leave, ``low`` goes soon; a named class must not preempt."""
    tasks = [item.task for item in checked]
    classes = _classes(tasks, review.object)
    for task, cls in zip(tasks, classes, strict=True):
        if cls != classes[0]:
            raise Refusal(
                f'spec.tasks: one gang with two priorities: task "{tasks[0].name[:63]}" is {classes[0]}, '
                f'task "{task.name[:63]}" is {cls}; set {names.PRIORITY} on the Job instead'
            )
        specs.check_grace(task.pod_spec, cls, context, f"{task.path}.spec")
        own = task.pod_spec.get("priorityClassName")
        named = str(own or spec_of(review.object).get("priorityClassName") or "")
        where = f"{task.path}.spec.priorityClassName" if own else "spec.priorityClassName"
        specs.priority_class_for(named, cls, context, where)
    if "high" in classes:
        where = next((task.path for task in tasks if names.PRIORITY in task.annotations), "")
        path = f'{where + "." if where else ""}{_ANNOTATIONS}["{names.PRIORITY}"]'
        together(partial(access.check_high, pair, review.namespace, context, path) for pair in subjects)


# --- a Job that is applied again --------------------------------------------------------------------


def _updated(review: Review, stored: Json, context: Context) -> Decision:
    job = review.object
    if mapping(job.get("metadata")).get("deletionTimestamp") and _only_lets_go(job, stored):
        return allow()
    for each in (job, stored):  # nobody looked at the stored one while it asked for no cards
        size_limits.check_job(each, context.settings.max_gang_members)
    checked = _settle(job, stored, context)
    if not _is_managed(checked) and not any(not item.readable for item in checked):
        return allow()
    _refuse_newly_forged(job, stored)
    warnings = _check_templates([item for item in checked if item.readable], job, context)
    _check_changes(review, stored, checked, context)
    warnings += [*_moved(job, stored), *_kept_by_those_there(checked, stored)]
    completed = [item.task.completed(item.ask) if item.is_new else item.task.raw for item in checked]
    return allow(job, {**job, "spec": {**spec_of(job), "tasks": completed}}, warnings)


def _only_lets_go(job: Json, stored: Json) -> bool:
    """What is going away must be able to go.

    A finalizer keeps it for as long as whoever writes it likes, and its queue and its class count until then.
    """
    return spec_of(job) == spec_of(stored) and annotations_of(job) == annotations_of(stored)


def _moved(job: Json, stored: Json) -> list[str]:
    """A warning that pods which were checked for a queue stay in it, those that wait as well."""
    now, before = (str(spec_of(one).get("queue") or DEFAULT_QUEUE) for one in (job, stored))
    if now == before or not any(task.is_labelled for task in tasks_of(stored)):
        return []
    return [
        f"spec.queue: pods that are there stay in queue {before[:63]!r}, also those that wait; delete and "
        f"apply the Job to have them in {now[:63]!r}"
    ]


def _kept_by_those_there(checked: Sequence[_Checked], stored: Json) -> list[str]:
    """Warnings that a changed ask or annotation is for pods to come."""
    before = {task.name: task for task in tasks_of(stored) if task.is_labelled}
    return [
        f"{item.task.path}: pods that are there keep what they were made with, those made later get this"
        for item in checked
        if item.task.name in before
        and (item.is_new or knobs_in(item.task.annotations) != knobs_in(before[item.task.name].annotations))
    ]


def _settle(job: Json, stored: Json, context: Context) -> list[_Checked]:
    """Each task with what is copied back; those whose ask changed, and new ones, are read afresh."""
    before = {task.name: task for task in tasks_of(stored)}
    settled: list[_Checked] = []
    for task in tasks_of(job):
        old = before.get(task.name)
        restored, unchanged = (task, False) if old is None else copied_back(task, old)
        if old is not None and unchanged:
            settled.append(_read_stored(restored, old, context))
        else:
            ask = restored.ask(context.table)
            # A task that never asked for cards, in a Job older than the webhook, gets no label now.
            is_new = ask.is_managed or old is None or old.is_labelled
            settled.append(_Checked(restored, ask, is_new))
    return settled


def _read_stored(task: Task, old: Task, context: Context) -> _Checked:
    """A task with the ask it always had: it is not refused now, not even where it would be as a new one."""
    try:
        ask = task.ask(context.table)
    except AskError:
        return _Checked(task, PodAsk(), is_new=False, readable=False)
    if task.template != old.template:
        specs.refuse_forged(
            {k: v for k, v in task.annotations.items() if old.annotations.get(k) != v},
            f"{task.path}.{_ANNOTATIONS}",
            request_too=True,
        )
        specs.check_knobs(task.annotations, f"{task.path}.{_ANNOTATIONS}", ask, context.table)
    return _Checked(task, ask, is_new=False)


def _refuse_newly_forged(job: Json, stored: Json) -> None:
    before = annotations_of(stored)
    changed = {name: value for name, value in annotations_of(job).items() if before.get(name) != value}
    specs.refuse_forged(changed, _ANNOTATIONS, request_too=True)


def _check_changes(review: Review, stored: Json, checked: Sequence[_Checked], context: Context) -> None:
    """Check what this update changes: queue, class, size. What stays as it was is not judged again.

    With an ask that is new all of it is: while a Job asks for no cards nobody looks at its class or its size.
    """
    job, subjects = review.object, _subjects(review, checked)
    is_new = any(item.is_new for item in checked)
    moved = spec_of(job).get("queue") != spec_of(stored).get("queue")
    if is_new or moved:
        _check_queue(review, subjects, context)
    tasks = [item.task for item in checked]
    if is_new or _queues(job, tasks) != _queues(stored, tasks_of(stored)):
        _check_named_queues(tasks, str(spec_of(job).get("queue") or DEFAULT_QUEUE))
    if is_new or _class_inputs(job, tasks) != _class_inputs(stored, tasks_of(stored)):
        _check_classes(review, checked, subjects, context)
    _check_changed_grace(job, stored, tasks, context)
    if not all(item.readable for item in checked):
        return
    members = [item.task.members(item.ask) for item in checked]
    minimum = min_available_of(job)
    need, before = gangs.least_need(members, minimum), {} if moved else _need_of(stored, context)
    grown = {resource: amount for resource, amount in need.items() if amount > before.get(resource, 0)}
    if grown:
        queue = str(spec_of(job).get("queue") or DEFAULT_QUEUE)
        what = f"the gang (minAvailable {gangs.gang_size(members, minimum)})"
        gangs.check_caps(grown, queue, context, "spec.queue", what)
    if is_new or sum(item.replicas for item in members) > _replicas(stored):
        gangs.check_size(members, context.settings, "spec.tasks")
    if is_new or _sizes(job, tasks) != _sizes(stored, tasks_of(stored)):
        gangs.check_minimums(members, minimum)


def _check_changed_grace(job: Json, stored: Json, tasks: Sequence[Task], context: Context) -> None:
    """Nobody looks at it when a pod is made of the Job: its Job was looked at."""
    before = {task.name: task.pod_spec.get("terminationGracePeriodSeconds") for task in tasks_of(stored)}
    for task in tasks:
        if task.pod_spec.get("terminationGracePeriodSeconds") != before.get(task.name):
            (cls,) = _classes([task], job)
            specs.check_grace(task.pod_spec, cls, context, f"{task.path}.spec")


def _sizes(job: Json, tasks: Sequence[Task]) -> object:
    return (
        spec_of(job).get("minAvailable"),
        [(task.name, task.raw.get("replicas"), task.raw.get("minAvailable")) for task in tasks],
    )


def _queues(job: Json, tasks: Sequence[Task]) -> object:
    return spec_of(job).get("queue"), [(task.name, task.annotations.get(names.QUEUE_NAME)) for task in tasks]


def _class_inputs(job: Json, tasks: Sequence[Task]) -> object:
    return (
        annotations_of(job).get(names.PRIORITY),
        spec_of(job).get("priorityClassName"),
        [
            (task.name, task.annotations.get(names.PRIORITY), task.pod_spec.get("priorityClassName"))
            for task in tasks
        ],
    )


def _need_of(job: Json, context: Context) -> dict[str, int]:
    try:
        members = [task.members(task.ask(context.table)) for task in tasks_of(job)]
        return gangs.least_need(members, min_available_of(job))
    except AskError:
        return {}


def _replicas(job: Json) -> int:
    try:
        return sum(task.members(PodAsk()).replicas for task in tasks_of(job))
    except AskError:
        return 0
