"""A Volcano Job: completed when it is created, completed again when it is applied again."""

from collections.abc import Sequence
from typing import Final

from vc_egpu.volcano.codec.request import AskError, PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.priority import PriorityError
from vc_egpu.webhook.protocol.context import Context, Review, annotations_of, items, mapping
from vc_egpu.webhook.protocol.decision import Decision, Json, Refusal, allow, refuse
from vc_egpu.webhook.reviews import gangs, queue_limits, several, size_limits, specs
from vc_egpu.webhook.reviews.jobs import checks
from vc_egpu.webhook.reviews.jobs.checks import ANNOTATIONS, Checked
from vc_egpu.webhook.reviews.jobs.edit import review_edit
from vc_egpu.webhook.reviews.jobs.tasks import TaskedJob

_RECORDS: Final = "managedFields"
"""In an object's metadata: the record of who wrote which field."""


def review_job(review: Review, context: Context) -> Decision:
    """Complete a Job with managed tasks; leave one without them alone.

    Raises :class:`~vc_egpu.webhook.protocol.questions.Unanswered` when it needs to know more.
    """
    try:
        if review.old_object is None or review.operation == "CREATE":
            return _created(review, context)
        return review_edit(review, review.old_object, context)
    except (Refusal, AskError, PriorityError) as refusal:
        return refuse(str(refusal))


def review_final_job(review: Review, context: Context) -> Decision:
    """The same checks on what is going to be stored, after the changes of all other webhooks."""
    decision = review_job(review, context)
    # A replica of an earlier version left the records in, which is no reason to refuse.
    missing = [operation for operation in decision.patch if operation["path"] != f"/metadata/{_RECORDS}"]
    if missing:
        where = str(missing[0]["path"]).replace("~1", "/")
        return refuse(f"{where}: was taken out by another webhook after the totals had been written")
    return decision


def _created(review: Review, context: Context) -> Decision:
    size_limits.check_job(review.object, context.settings.max_gang_members)
    job = TaskedJob.read(review.object)
    checked = [Checked(task, task.ask(context.table), is_new=True) for task in job.tasks]
    if not checks.is_managed(checked):
        return allow(warnings=[warning for item in checked for warning in item.ask.warnings])
    specs.refuse_forged(job.annotations, ANNOTATIONS, request_too=True)
    checks.check_annotations(job)
    warnings = checks.check_templates(checked, job, context)
    subjects = checks.subjects_of(review, checked)
    queue = checks.check_queue(review, subjects, context)
    checks.check_named_queues(job, queue)
    checks.check_classes(review, job, subjects, context)
    members = [item.task.members(item.ask) for item in checked]
    minimum = job.min_available
    gangs.check_size(members, context.settings, "spec.tasks")
    checks.check_room(job, members)
    gangs.check_minimums(members, minimum)
    what = f"the gang (minAvailable {gangs.gang_size(members, minimum)})"
    low = checks.is_low(job, [item.task for item in checked])

    def holds(asks: Sequence[PodAsk]) -> None:
        those = [item.task.members(ask) for item, ask in zip(checked, asks, strict=True)]
        gangs.check_caps(gangs.least_need(those, minimum), queue, context, "spec.queue", what, low=low)
        by_path = [(item.task.path, ask) for item, ask in zip(checked, asks, strict=True)]
        queue_limits.check_job(by_path, sum(item.replicas for item in those), queue, context)

    warnings += several.check([item.ask for item in checked], holds, mixes=checks.mixes(checked))
    tasks = [item.task.completed(item.ask) for item in checked]
    metadata = mapping(job.raw.get("metadata"))
    if not (context.settings.keep_managed_fields or _is_applied(metadata)):
        # A controller writes the status many times, and each write would grow the records, as with its pods.
        metadata = {key: value for key, value in metadata.items() if key != _RECORDS}
    completed = {**job.raw, "metadata": metadata, "spec": {**job.spec, "tasks": tasks}}
    return allow(job.raw, completed, warnings)


def _is_applied(metadata: Json) -> bool:
    """Whether a user applies this object, so that the record of who wrote which field is of use."""
    return names.LAST_APPLIED in annotations_of({"metadata": metadata}) or any(
        mapping(entry).get("operation") == "Apply" for entry in items(metadata.get(_RECORDS))
    )
