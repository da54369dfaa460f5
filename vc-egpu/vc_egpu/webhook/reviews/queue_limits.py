"""The limits of one ask, which an operator sets on a Queue: checked for pods, Jobs and edits of the Queue."""

from collections.abc import Iterator, Sequence
from typing import Final

from vc_egpu.volcano.codec.queue_limits import QueueLimits, QueueLimitsError
from vc_egpu.volcano.codec.request import PodAsk
from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import Context, Review, annotations_of, mapping
from vc_egpu.webhook.protocol.decision import Json, Refusal
from vc_egpu.webhook.protocol.questions import any_allowed
from vc_egpu.webhook.reviews.access import QUEUE_GROUP, queue_access

_PATH: Final = f'metadata.annotations["{names.QUEUE_LIMITS}"]'


def check_ask(ask: PodAsk, queue: str, context: Context, path: str, what: str = "the pod") -> None:
    """Refuse a pod that asks for more than its queue, or a queue above, lets one pod have."""
    memory_mib = max((container.memory_mib for container in ask.ways[0].containers.values()), default=0)
    for name, limits in _limits(queue, context, path):
        for asked, limit, unit in (
            (ask.cards, limits.max_cards_per_pod, "cards"),
            (memory_mib, limits.max_memory_mib_per_card, "MiB on a card"),
        ):
            if limit is not None and asked > limit:
                raise Refusal(
                    f"{path}: {what} asks for {asked} {unit}, queue {name!r} lets one pod have {limit} "
                    f"(its annotation {names.QUEUE_LIMITS})"
                )


def check_members(members: int, queue: str, context: Context, path: str) -> None:
    """Refuse a gang of more members than its queue, or a queue above, lets one gang have."""
    for name, limits in _limits(queue, context, path):
        most = limits.max_members_per_gang
        if most is not None and members > most:
            raise Refusal(
                f"{path}: {members} members in all, queue {name!r} lets one gang have {most} "
                f"(its annotation {names.QUEUE_LIMITS}); split the Job"
            )


def check_job(asks: Sequence[tuple[str, PodAsk]], members: int | None, queue: str, context: Context) -> None:
    """The same for a Job: ``asks`` are of its tasks, by path; ``members`` is None where they do not grow."""
    for path, ask in asks:
        check_ask(ask, queue, context, path, "each of its pods")
    if members is not None:
        check_members(members, queue, context, "spec.tasks")


def _limits(queue: str, context: Context, path: str) -> Iterator[tuple[str, QueueLimits]]:
    """Those of the queue and of all above it, with the name of each."""
    for name, obj in context.queues.lineage(queue):
        text = annotations_of(obj).get(names.QUEUE_LIMITS)
        if text is None:
            continue
        try:
            yield name, QueueLimits.decode(text)
        except QueueLimitsError as error:
            raise Refusal(
                f"{path}: queue {name!r}: its annotation {names.QUEUE_LIMITS} cannot be read, "
                f"so nothing is let in: {error}"
            ) from error


def is_edited(queue: Json, stored: Json | None) -> bool:
    """Whether this edit of a Queue changes its limits."""
    before = annotations_of(stored or {}).get(names.QUEUE_LIMITS)
    return bool(annotations_of(queue).get(names.QUEUE_LIMITS) != before)


def check_edit(review: Review, context: Context) -> None:
    """Refuse limits that cannot be read. To raise or remove one needs ``set-cap`` on the Queue.

    Raises :class:`~vc_egpu.webhook.protocol.questions.Unanswered` when it needs to know more.
    """
    after = _decoded(review.object)
    if review.old_object is None:
        return
    try:
        before = _decoded(review.old_object)
        raised = next(_raised(before, after), "")
    except Refusal:
        raised = "what was there cannot be read"
    name = str(mapping(review.object.get("metadata")).get("name") or "")
    setting = queue_access(review.subject, names.VERB_SET_CAP, name)
    if raised and not any_allowed(context.answers, [setting]):
        raise Refusal(
            f"{_PATH}: {raised}: {review.subject} may not raise queue {name!r} "
            f'(RBAC verb "{names.VERB_SET_CAP}" on queues.{QUEUE_GROUP})'
        )


def _decoded(queue: Json) -> QueueLimits:
    text = annotations_of(queue).get(names.QUEUE_LIMITS)
    if text is None:
        return QueueLimits()
    try:
        return QueueLimits.decode(text)
    except QueueLimitsError as error:
        raise Refusal(f"{_PATH}: {error}") from error


def _raised(before: QueueLimits, after: QueueLimits) -> Iterator[str]:
    for key, field in QueueLimits.model_fields.items():
        old, new = getattr(before, key), getattr(after, key)
        if old is not None and (new is None or new > old):
            yield f"{field.alias}: {old} to {'no limit' if new is None else new}"
