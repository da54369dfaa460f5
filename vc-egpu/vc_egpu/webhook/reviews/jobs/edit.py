"""An update of a Job. What stays as it was is not judged again; what changes has to pass every check."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.volcano.codec import options
from vc_egpu.volcano.codec.request import AskError, PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import knobs_in
from vc_egpu.webhook.protocol.context import Context, Review, annotations_of, spec_of
from vc_egpu.webhook.protocol.decision import Decision, Json, allow
from vc_egpu.webhook.reviews import gangs, needs, queue_limits, several, size_limits, specs
from vc_egpu.webhook.reviews.jobs import checks
from vc_egpu.webhook.reviews.jobs.checks import ANNOTATIONS, Checked
from vc_egpu.webhook.reviews.jobs.tasks import Task, TaskedJob, copied_back

_READ: Final = (f"{names.DOMAIN}/", names.PREEMPTABLE)
"""How the annotations of a Job begin that a review reads."""
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Edit:
    """The Job as it is stored and as it would be stored, with each task next to its stored self."""

    before: TaskedJob
    after: TaskedJob
    """What an earlier review wrote into the stored tasks is copied back into these."""
    checked: tuple[Checked, ...]
    """The tasks of ``after``."""

    @classmethod
    def read(cls, job: Json, stored: Json, context: Context) -> "Edit":
        """Pair the tasks by name. The ask of a task that changed, or is new, is read again."""
        before, after = TaskedJob.read(stored), TaskedJob.read(job)
        known = {task.name: task for task in before.tasks}
        checked = tuple(_paired(task, known.get(task.name), context) for task in after.tasks)
        return cls(before, TaskedJob(job, tuple(item.task for item in checked)), checked)

    @property
    def is_new(self) -> bool:
        """Whether a task is new, or its ask is.

        Then the whole Job is checked: while a Job asks for no cards, its class and its size are not.
        """
        return any(item.is_new for item in self.checked)

    @property
    def is_readable(self) -> bool:
        """Whether every task's ask can be read."""
        return all(item.is_readable for item in self.checked)

    @property
    def is_moved(self) -> bool:
        """Whether the Job names another queue."""
        return self.changes(lambda job: job.spec.get("queue"))

    def changes(self, aspect: Callable[[TaskedJob], object]) -> bool:
        """Whether this aspect of the Job differs."""
        return aspect(self.before) != aspect(self.after)


def _paired(task: Task, old: Task | None, context: Context) -> Checked:
    restored, unchanged = (task, False) if old is None else copied_back(task, old)
    if old is not None and unchanged and not _takes_others(task, old):
        return _read_stored(restored, old, context)
    ask = restored.ask(context.table)
    # A task that never asked for cards, in a Job older than the webhook, gets no label now.
    is_new = ask.is_managed or old is None or old.is_labelled
    return Checked(restored, ask, is_new, old)


def _takes_others(task: Task, old: Task) -> bool:
    """Whether the list changed of which its pods take one, or the size of their slices."""
    if any(
        task.annotations.get(name) != old.annotations.get(name) for name in (names.SLICE, names.ISOLATION)
    ):
        return True
    lists = (names.USE_MODELS, names.AVOID_MODELS, names.ALTERNATIVES)
    return options.is_open(task.pod_spec) and any(
        task.annotations.get(name) != old.annotations.get(name) for name in lists
    )


def _read_stored(task: Task, old: Task, context: Context) -> Checked:
    """A task with the ask that it always had. It is not refused now, even if a new one would be."""
    try:
        ask = task.ask(context.table)
    except AskError:
        return Checked(task, PodAsk(), is_new=False, old=old, is_readable=False)
    if task.annotations != old.annotations:
        changed, path = _changed(task.annotations, old.annotations), f"{task.path}.{ANNOTATIONS}"
        specs.refuse_forged(changed, path, request_too=True)
        specs.check_knobs(changed, path, ask, context.table)
        needs.of_template(changed, {}, path, context, PodAsk())
    return Checked(task, ask, is_new=False, old=old)


def review_edit(review: Review, stored: Json, context: Context) -> Decision:
    """Review an update; raises Refusal, AskError and PriorityError."""
    job = review.object
    if _touches_nothing_of_ours(job, stored):
        return allow()
    for each in (job, stored):  # the stored one was not checked while it asked for no cards
        size_limits.check_job(each, context.settings.max_gang_members)
    edit = Edit.read(job, stored, context)
    if not checks.is_managed(edit.checked) and edit.is_readable:
        return allow()
    _refuse_newly_forged(edit)
    checks.check_annotations(edit.after, edit.before)
    readable = [item for item in edit.checked if item.is_readable]
    warnings = checks.check_templates(readable, edit.after, context)
    warnings += _check_changes(review, edit, context)
    warnings += [*_moved(edit), *_kept_by_those_there(edit)]
    completed = [item.task.completed(item.ask) if item.is_new else item.task.raw for item in edit.checked]
    return allow(job, {**job, "spec": {**spec_of(job), "tasks": completed}}, warnings)


def _touches_nothing_of_ours(job: Json, stored: Json) -> bool:
    """Whether only labels, finalizers, owners and annotations of others change.

    A Job must be able to go, whatever it holds. While a finalizer keeps it, its queue and its class count.
    """
    if spec_of(job) != spec_of(stored):
        return False
    one, other = annotations_of(job), annotations_of(stored)
    if size_limits.grows_too_long(one, other):
        return False
    return not any(name.startswith(_READ) for name in {**_changed(one, other), **_changed(other, one)})


def _changed(annotations: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are new or have another value."""
    return {name: value for name, value in annotations.items() if before.get(name, _ABSENT) != value}


def _refuse_newly_forged(edit: Edit) -> None:
    changed = _changed(edit.after.annotations, edit.before.annotations)
    specs.refuse_forged(changed, ANNOTATIONS, request_too=True)


def _moved(edit: Edit) -> list[str]:
    """A warning that pods which were checked for a queue stay in it, even if they still wait."""
    before, now = edit.before.queue, edit.after.queue
    if now == before or not any(task.is_labelled for task in edit.before.tasks):
        return []
    return [
        f"spec.queue: pods that are there stay in queue {before[:63]!r}, also those that wait; delete and "
        f"apply the Job to have them in {now[:63]!r}"
    ]


def _kept_by_those_there(edit: Edit) -> list[str]:
    """Warnings that a changed ask or annotation is for pods that are made later."""
    return [
        f"{item.task.path}: pods that are there keep what they were made with, those made later get this"
        for item in edit.checked
        if item.old is not None
        and item.old.is_labelled
        and (item.is_new or knobs_in(item.task.annotations) != knobs_in(item.old.annotations))
    ]


def _check_changes(review: Review, edit: Edit, context: Context) -> list[str]:
    """Check what this update changes: queue, class, size. Returns warnings."""
    after, subjects = edit.after, checks.subjects_of(review, edit.checked)
    if edit.is_new or edit.is_moved:
        checks.check_queue(review, subjects, context)
    before = None if edit.is_new else edit.before
    if edit.is_new or edit.changes(TaskedJob.queues):
        checks.check_named_queues(after, after.queue, before)
    if edit.is_new or edit.changes(TaskedJob.classes):
        checks.check_classes(review, after, subjects, context, before)
    _check_changed_grace(edit, context)
    return _check_growth(edit, context) if edit.is_readable else []


def _check_changed_grace(edit: Edit, context: Context) -> None:
    """It is checked here, because a pod that a Job makes is not checked for it again."""
    for item in edit.checked:
        before = item.old.grace_s if item.old is not None else None
        if item.task.grace_s != before:
            (cls,) = checks.classes_of(edit.after, [item.task])
            specs.check_grace(item.task.pod_spec, cls, context, f"{item.task.path}.spec")


def _check_grown(edit: Edit, asks: Sequence[PodAsk], before: Mapping[str, int], context: Context) -> None:
    """Check that the queue takes what a gang with these asks needs more than ``before``."""
    members = [item.task.members(ask) for item, ask in zip(edit.checked, asks, strict=True)]
    minimum = edit.after.min_available
    need = gangs.least_need(members, minimum)
    grown = {resource: amount for resource, amount in need.items() if amount > before.get(resource, 0)}
    if grown:
        what = f"the gang (minAvailable {gangs.gang_size(members, minimum)})"
        low = checks.is_low(edit.after, [item.task for item in edit.checked])
        gangs.check_caps(grown, edit.after.queue, context, "spec.queue", what, low=low)


def _check_growth(edit: Edit, context: Context) -> list[str]:
    """Check that a larger gang can come together, in its queue and at all. Returns warnings."""
    members = [item.task.members(item.ask) for item in edit.checked]
    minimum = edit.after.min_available
    before = {} if edit.is_moved else _stored_need(edit.before, context)
    warnings = []
    others = any(item.is_new and item.ask.options for item in edit.checked)
    if others or not before or gangs.least_need(members, minimum) != before:
        warnings = several.check(
            [item.ask for item in edit.checked],
            lambda asks: _check_grown(edit, asks, before, context),
            mixes=checks.mixes(edit.checked),
        )
    grows = edit.is_new or sum(item.replicas for item in members) > _stored_replicas(edit.before)
    if grows:
        gangs.check_size(members, context.settings, "spec.tasks")
    moved = edit.is_new or edit.is_moved
    asks = [(item.task.path, item.ask) for item in edit.checked if moved or item.is_new]
    total = sum(item.replicas for item in members) if grows or moved else None
    queue_limits.check_job(asks, total, edit.after.queue, context)
    checks.check_room(edit.after, members, None if grows else edit.before)
    if edit.is_new or edit.changes(TaskedJob.sizes):
        stored = None if edit.is_new else _stored_minimums(edit.before)
        gangs.check_minimums(members, minimum, stored)
    return warnings


def _stored_need(job: TaskedJob, context: Context) -> dict[str, int]:
    try:
        members = [task.members(task.ask(context.table)) for task in job.tasks]
        return gangs.least_need(members, job.min_available)
    except AskError:
        return {}


def _stored_replicas(job: TaskedJob) -> int:
    stored = _stored_minimums(job)
    return sum(item.replicas for item in stored[0]) if stored is not None else 0


def _stored_minimums(job: TaskedJob) -> tuple[list[gangs.Members], int | None] | None:
    """Its tasks and its minimum; None where these are no numbers."""
    try:
        return [task.members(PodAsk()) for task in job.tasks], job.min_available
    except AskError:
        return None
