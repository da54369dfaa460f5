"""Permission to use a queue and the class ``high``: the questions, and refusals that name a way out."""

import difflib
from collections.abc import Sequence
from typing import Final

from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import ROOT_QUEUE, Context, state_of
from vc_egpu.webhook.protocol.decision import Refusal
from vc_egpu.webhook.protocol.questions import (
    Access,
    QueueLookup,
    Subject,
    Unanswered,
    allowed_of,
    any_allowed,
)
from vc_egpu.webhook.reviews.gangs import check_leaf, check_open

QUEUE_GROUP = "scheduling.volcano.sh"
PRIORITY_CLASS_GROUP = "scheduling.k8s.io"
_CLOSE_ENOUGH: Final = 0.75
_MAX_COMPARED: Final = 1000
"""Queues; to compare them takes some 5 ms."""


def queue_access(subject: Subject, verb: str, queue: str, namespace: str = "") -> Access:
    """May this subject do ``verb`` with this queue?"""
    return Access(subject, verb, QUEUE_GROUP, "queues", queue, namespace)


def check_queue(
    queue: str,
    subjects: Sequence[Subject],
    namespace: str,
    context: Context,
    path: str,
    *,
    from_controller: bool = False,
) -> None:
    """Refuse a queue that does not exist, takes nothing, or that none of these may use.

    One that is closed, or has queues under it, takes what is ``from_controller``: that waits until it opens,
    or counts in the parent.
    """
    if not queue:
        raise Refusal(f"{path}: no queue is named{_usable(subjects, namespace, context)}")
    obj = context.queues.get(queue)
    lookup = QueueLookup(queue)
    if obj is None and _may_be(queue) and not context.answers.looked_up(lookup):
        raise Unanswered([lookup])
    if obj is None or queue == ROOT_QUEUE:
        problem = "takes no work itself" if queue == ROOT_QUEUE else "does not exist"
        usable = _usable(subjects, namespace, context, meant=queue)
        raise Refusal(f"{path}: queue {queue[:63]!r} {problem}{usable}")
    questions = [queue_access(subject, names.VERB_USE, queue, namespace) for subject in subjects]
    if not any_allowed(context.answers, questions):
        who = " and ".join(str(subject) for subject in subjects)
        raise Refusal(
            f'{path}: {who} may not use queue {queue!r} (RBAC verb "{names.VERB_USE}" on '
            f"queues.{QUEUE_GROUP}){_usable(subjects, namespace, context)}"
        )
    if not from_controller:
        check_open(queue, context.queues, path)
        check_leaf(queue, context.queues, path)


def _may_be(queue: str) -> bool:
    """Whether there can be such a queue to put work in. The API server is not asked about other names: it
    takes no address of a megabyte, and a slash would address another object."""
    return queue != ROOT_QUEUE and len(queue) <= names.LONGEST_OBJECT_NAME and "/" not in queue


def check_high(subjects: Sequence[Subject], namespace: str, context: Context, path: str) -> None:
    """Refuse the class ``high`` to those who have no leave to use it."""
    questions = [
        Access(
            subject,
            names.VERB_USE,
            PRIORITY_CLASS_GROUP,
            "priorityclasses",
            names.PRIORITY_CLASS_HIGH,
            namespace,
        )
        for subject in subjects
    ]
    if not any_allowed(context.answers, questions):
        who = " and ".join(str(subject) for subject in subjects)
        raise Refusal(
            f'{path}: {who} may not use priority "high" (RBAC verb "{names.VERB_USE}" on '
            f"priorityclasses.{PRIORITY_CLASS_GROUP} {names.PRIORITY_CLASS_HIGH!r})"
        )


def _usable(subjects: Sequence[Subject], namespace: str, context: Context, meant: str = "") -> str:
    """The end of a refusal: which queues would do, and which of these may have been ``meant``.

    Other queues are not suggested, because the review would refuse them as well.
    """
    candidates = [
        name
        for name in context.queues.names
        if name != ROOT_QUEUE
        and not context.queues.children(name)
        and all(state_of(found) == "Open" for _, found in context.queues.lineage(name))
    ]
    near = _near(meant, candidates)
    tried = [*near, *(name for name in candidates if name not in near)][: context.settings.max_listed_queues]
    questions = [
        queue_access(subject, names.VERB_USE, queue, namespace) for queue in tried for subject in subjects
    ]
    try:
        usable = {access.name for access in allowed_of(context.answers, questions)}
    except Unanswered as missing:
        raise Unanswered(missing.questions, refused=True) from None
    if usable:
        guess = next((f", did you mean {name!r}? " for name in near if name in usable), "; ")
        return f"{guess}you may use: {', '.join(sorted(usable))}"
    more = "" if len(tried) == len(candidates) else f" of the first {len(tried)}"
    return f"; there is no queue{more} that you may use"


def _near(meant: str, candidates: Sequence[str]) -> list[str]:
    """Those that are spelt much the same. Bounded: all reviews wait for this one."""
    if not meant:
        return []
    return difflib.get_close_matches(
        meant[: names.LONGEST_OBJECT_NAME], candidates[:_MAX_COMPARED], cutoff=_CLOSE_ENOUGH
    )
