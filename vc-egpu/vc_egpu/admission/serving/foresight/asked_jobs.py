"""A Job that was not submitted: the gang that it would be, and its pods."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vc_egpu.admission.inqueue.enqueue import template
from vc_egpu.admission.serving.foresight.questions import QuestionError
from vc_egpu.core.model.cluster import Gang, Instant, QueueName, ShareClass
from vc_egpu.core.model.gangs import task_counts
from vc_egpu.core.profiles.table import WANTS_NOTHING, Wants
from vc_egpu.volcano.api.paths import problem_of
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.network.bounds import bound_of, partitions_of, policies_of_tasks
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.whatif.answers import Asked

Json = Mapping[str, Any]
MOST_MEMBERS: Final = 1024
"""A larger gang takes too long next to the decisions."""


def asked(
    job: Json,
    namespace: str,
    table: ModelTable,
    now: Instant,
    environments: EnvironmentTable | None = None,
    *,
    wants: Wants = WANTS_NOTHING,
) -> Asked:
    """The gang and its members. Raises :class:`QuestionError` for what is no Job with cards.

    ``namespace`` is that of a Job that names none. ``environments``: see :func:`.enqueue.template`.
    ``wants``: what rules of placement ask of gangs.
    """
    try:
        found = gang_of(_completed(job, namespace), table, now, environments, wants=wants)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, QuestionError):
            raise
        raise QuestionError("job: this is no Volcano Job") from None
    if sum(count for _, count, _ in found.tasks) > MOST_MEMBERS:
        raise QuestionError(f"job: it has more than {MOST_MEMBERS} members")
    counts = task_counts(task for task, count, _ in found.tasks for _ in range(count))
    if not counts:
        raise QuestionError("job: no pod of it can be read that asks for cards of a known model")
    least = {task: count for task, count in found.gang.min_task_member.items() if task in counts}
    members = min(found.gang.min_member, sum(counts.values()))
    return Asked(replace(found.gang, min_member=members, min_task_member=least), found.tasks)


def gang_of(
    job: Json,
    table: ModelTable,
    now: Instant,
    environments: EnvironmentTable | None = None,
    *,
    wants: Wants = WANTS_NOTHING,
    kind: str = "VolcanoJob",
) -> Asked:
    """The gang of a Job whose pods are marked as ours; without members where its pods cannot be read.

    ``kind``: of what makes its pods, as rules of placement name it.

    Raises ``AttributeError``, ``KeyError``, ``TypeError`` or ``ValueError`` for what is no Job.
    """
    found = template(job, table, environments=environments)
    metadata, spec = job["metadata"], job["spec"]
    least = int(spec.get("minAvailable") or 0) or sum(count for _, count, _ in found.rows)
    key = f"{metadata['namespace']}/{metadata['name']}"
    policies = policies_of_tasks(spec["tasks"])
    gang = Gang(
        key=key,
        uid=f"what-if {key}",
        queue=QueueName(found.queue or "default"),
        share_class=found.share_class if found.share_class is not None else ShareClass.UNSET,
        priority_value=0,
        min_member=max(1, least),
        created=now,
        min_task_member={
            str(task["name"]): int(task["minAvailable"]) for task in spec["tasks"] if task.get("minAvailable")
        },
        bound=bound_of(spec.get("networkTopology")),
        subgroups={policy.name: policy.bound for policy in policies},
        partitions=partitions_of(policies, [task for task, _, _ in found.rows]),
        traits=wants.traits(kind, _labels(job)),
    )
    return Asked(gang, found.rows)


def _labels(job: Json) -> list[tuple[str, str]]:
    """Those of the Job and of its pods."""
    metadata = [job["metadata"], *(task["template"].get("metadata") or {} for task in job["spec"]["tasks"])]
    return [(key, str(value)) for one in metadata for key, value in (one.get("labels") or {}).items()]


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
