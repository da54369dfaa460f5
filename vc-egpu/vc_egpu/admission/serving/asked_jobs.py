"""A Job that nobody has submitted: the gang that it would be, and its pods."""

import copy
from collections.abc import Mapping
from typing import Any

from vc_egpu.admission.inqueue.enqueue import template
from vc_egpu.core.model.cluster import Gang, Instant, QueueName, ShareClass
from vc_egpu.core.model.gangs import task_counts
from vc_egpu.volcano.api.paths import problem_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.whatif.question import QuestionError, Tasks

Json = Mapping[str, Any]


def asked(job: Json, namespace: str, table: ModelTable, now: Instant) -> tuple[Gang, Tasks]:
    """The gang and its members. Raises :class:`QuestionError` for what is no Job with cards.

    ``namespace`` is that of a Job that names none.
    """
    try:
        read = _completed(job, namespace)
        found = template(read, table)
        if not any(members for _, members, _ in found.rows):
            raise QuestionError("job: no pod of it can be read that asks for cards of a known model")
        metadata, spec = read["metadata"], read["spec"]
        members = sum(count for _, count, _ in found.rows)
        least = int(spec.get("minAvailable") or members)
        minimums = {
            str(task["name"]): int(task["minAvailable"]) for task in spec["tasks"] if task.get("minAvailable")
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, QuestionError):
            raise
        raise QuestionError("job: this is no Volcano Job") from None
    key = f"{metadata['namespace']}/{metadata['name']}"
    share_class = found.share_class if found.share_class is not None else ShareClass.UNSET
    queue = QueueName(found.queue or "default")
    counts = task_counts(task for task, count, _ in found.rows for _ in range(count))
    gang = Gang(
        key, key, queue, share_class, 0, max(1, min(least, members)), now,
        min_task_member={task: count for task, count in minimums.items() if task in counts},
    )  # fmt: skip
    return gang, found.rows


def _completed(job: Json, namespace: str) -> dict[str, Any]:
    """With what the webhook adds: its pods are marked as ours."""
    found: dict[str, Any] = copy.deepcopy(dict(job))
    metadata = found.setdefault("metadata", {})
    metadata.setdefault("name", str(metadata.get("generateName") or "what-if").rstrip("-"))
    metadata.setdefault("namespace", namespace)
    for word in ("name", "namespace"):
        if problem := problem_of(str(metadata[word])):
            raise QuestionError(f"job.metadata.{word} {problem}")
    for task in found["spec"]["tasks"]:
        labels = task["template"].setdefault("metadata", {}).setdefault("labels", {})
        labels[names.MANAGED_LABEL] = "true"
    return found
