"""Bus Commands: who may command a Queue or Job is who may update it."""

from typing import Final

from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import Context, Review, mapping
from vc_egpu.webhook.protocol.decision import Decision, Refusal, allow, refuse
from vc_egpu.webhook.protocol.questions import Access, any_allowed
from vc_egpu.webhook.reviews.access import QUEUE_GROUP

_TARGETS: Final = {
    "Queue": (QUEUE_GROUP, "queues", False),
    "Job": ("batch.volcano.sh", "jobs", True),
}
"""Kind to (API group, plural, whether it lives in the Command's namespace)."""


def review_command(review: Review, context: Context) -> Decision:
    """Ask for ``update`` on the target: a Command does what its author could not do otherwise.

    Raises :class:`~vc_egpu.webhook.protocol.questions.Unanswered` when it needs to know more.
    """
    try:
        if not _commands_the_same(review):
            _check(review, context)
    except Refusal as refusal:
        return refuse(str(refusal))
    return allow()


def _commands_the_same(review: Review) -> bool:
    """Whether an edit touches only labels, finalizers and the like."""
    stored = review.old_object
    return stored is not None and all(
        stored.get(key) == review.object.get(key) for key in ("target", "action")
    )


def _check(review: Review, context: Context) -> None:
    target = mapping(review.object.get("target"))
    kind, name = str(target.get("kind") or ""), str(target.get("name") or "")
    known = _TARGETS.get(kind)
    if known is None:
        raise Refusal(f"target.kind: {kind[:63]!r}, a Command is for a Queue or a Job")
    group, resource, namespaced = known
    version = str(target.get("apiVersion") or "")
    if not version.startswith(f"{group}/"):
        raise Refusal(f"target.apiVersion: {version[:63]!r} has no kind {kind}, it must be one of {group}")
    if not name:
        raise Refusal("target.name: no name is given")
    if len(name) > names.LONGEST_OBJECT_NAME:
        raise Refusal(f"target.name: {len(name)} characters, the limit is {names.LONGEST_OBJECT_NAME}")
    question = Access(review.subject, "update", group, resource, name, review.namespace if namespaced else "")
    if not any_allowed(context.answers, [question]):
        action = str(review.object.get("action") or "")[:63]
        raise Refusal(
            f"target: {review.subject} may not {action or 'command'} {kind} {name[:253]!r} "
            f'(RBAC verb "update" on {resource}.{group})'
        )
