"""``kubectl egpu queues``: caps, what is used, who waits and why."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.cli import partial_snapshot, world
from vc_egpu.core.check import recount
from vc_egpu.core.model.cluster import Pod, Queue, QueueName, Snapshot
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import POD_GROUPS, QUEUES
from vc_egpu.report import queues as queue_rows
from vc_egpu.report.gangs import GangRow, gangs
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words.names import (
    ROOT_QUEUE,
    cores_total_resource,
    low_cores_resource,
    low_resource,
    memory_total_resource,
    native_resource,
    shared_resource,
)
from vc_egpu.volcano.words.resource_names import classify

_SPELLINGS: Final = (
    shared_resource,
    memory_total_resource,
    cores_total_resource,
    low_resource,
    low_cores_resource,
    native_resource,
)


@dataclass(frozen=True, slots=True)
class Amount:
    """One counted resource in one queue; ``cap`` None is unlimited."""

    resource: str
    used: int
    cap: int | None
    deserved: int | None
    guarantee: int | None = None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue."""

    name: str
    parent: str
    state: str
    amounts: tuple[Amount, ...]
    admitted: int
    """Gangs of which members hold cards or are admitted."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Gangs that wait, by reason."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class QueuesReport:
    """All queues, and what else is to be said."""

    queues: tuple[QueueRow, ...]
    notes: tuple[str, ...]


def read(api: ApiConnection, namespace: str) -> QueuesReport:
    """The report of the cluster, as far as the user may see it."""
    groups, pods = world.list_all(api, POD_GROUPS, namespace), world.managed_pods(api, namespace)
    partial = groups.missing or pods.missing
    if partial:
        partial += ": for others the queue's own count is shown, a moment late, and not which gangs wait"
    return report(api.list(QUEUES).items, groups.items, pods.items, partial=partial)


def report(
    queues: Iterable[Json], groups: Iterable[Json], pods: Iterable[Json], *, partial: str = ""
) -> QueuesReport:
    """The rows of these queues, and what the pods of each hold, children's use within their parents'.

    ``partial`` says in words that not all could be read: then a queue holds at least what its status says.
    """
    groups, pods = list(groups), list(pods)
    seen = partial_snapshot.snapshot(
        pods=partial_snapshot.pods_of(pods).pods,
        gangs=partial_snapshot.gangs_of(groups, world.members_of(pods)),
    )
    over = {world.key(group) for group in groups if partial_snapshot.is_completed(group)}
    gang_rows = [row for row in gangs(seen, partial_snapshot.conditions(groups)) if row.key not in over]
    return of_gangs(queues, own_use(seen), gang_rows, partial=partial)


def own_use(seen: Snapshot) -> recount.Use:
    """What the pods of a snapshot hold, by the queue that they count to."""
    return recount.own_use(seen, _holds_cards)


def of_gangs(
    queues: Iterable[Json], own: recount.Use, gang_rows: Sequence[GangRow], *, partial: str = ""
) -> QueuesReport:
    """The same from what each queue uses by itself and from the rows of all gangs that are not over."""
    documents = {world.name(document): document for document in queues}
    decoded = {name: _decoded(documents[name]) for name in sorted(documents)}
    seen = partial_snapshot.snapshot(queues={queue.name: queue for queue, _ in decoded.values()})
    counted = _counted(documents) if partial else {}
    used = _used(seen.queues, own, counted)
    rows = [
        _row(
            row,
            documents[row.name],
            decoded[row.name][1],
            admitted=max(row.admitted, _running(documents[row.name]) if partial else 0),
        )
        for row in queue_rows.queues(seen, used, gang_rows)
    ]
    notes = [partial] if partial else []
    for name, counts in sorted(queue_rows.waiting(gang_rows).items()):
        if name not in documents:
            notes.append(f"{sum(counts.values())} gangs name queue {name}, which does not exist")
    return QueuesReport(tuple(rows), tuple(notes))


def _holds_cards(pod: Pod) -> bool:
    """A pod that was bound past us has none."""
    return pod.phase in recount.HOLDING and bool(pod.shares)


def _decoded(document: Json) -> tuple[Queue, str]:
    """A queue, and why it cannot be read: then it has its name and its parent."""
    try:
        return cluster_codec.queue(document), ""
    except (ValueError, TypeError, KeyError) as error:
        parent = (document.get("spec") or {}).get("parent")
        bare = Queue(QueueName(world.name(document)), parent=QueueName(parent) if parent else None)
        return bare, f"cannot be read: {error}"


def _allocated(queue: Json) -> dict[str, int]:
    """What the queue's controller counts for it, some moments behind; nothing where that cannot be read."""
    try:
        counted = cluster_codec.amounts((queue.get("status") or {}).get("allocated"))
    except (ValueError, TypeError, AttributeError):
        return {}
    return {name: amount for name, amount in counted.items() if classify(name).is_managed}


def _running(queue: Json) -> int:
    count = (queue.get("status") or {}).get("running")
    return count if isinstance(count, int) else 0


def _counted(documents: Mapping[str, Json]) -> dict[str, dict[str, int]]:
    counted = {name: _allocated(document) for name, document in documents.items()}
    return {name: amounts for name, amounts in counted.items() if amounts}


def _used(
    queues: Mapping[QueueName, Queue], own: recount.Use, counted: Mapping[str, Mapping[str, int]]
) -> recount.Use:
    """What each queue and those below it use, and at least what is ``counted`` for them."""
    # Volcano's scheduler counts what a queue holds to all above it, too, up to the root; ours does not.
    if ROOT_QUEUE not in counted:
        return recount.with_parents(queues, _at_least(own, counted))
    return _at_least(recount.with_parents(queues, own), counted)


def _at_least(use: recount.Use, counted: Mapping[str, Mapping[str, int]]) -> recount.Use:
    names = {*use, *map(QueueName, counted)}
    return {name: dict(Counter(use.get(name, {})) | Counter(counted.get(name, {}))) for name in names}


def _row(row: queue_rows.QueueRow, document: Json, problem: str, *, admitted: int) -> QueueRow:
    models = {
        model
        for amounts in (row.capability, row.deserved, row.guarantee, row.used)
        for model in world.models_in(amounts)
    }
    candidates = [spelling(model) for model in sorted(models) for spelling in _SPELLINGS]
    return QueueRow(
        name=row.name,
        parent=row.parent or "",
        state=str((document.get("status") or {}).get("state") or "Open"),
        amounts=tuple(
            Amount(
                name,
                row.used.get(name, 0),
                row.capability.get(name),
                row.deserved.get(name),
                row.guarantee.get(name),
            )
            for name in candidates
            if any(name in amounts for amounts in (row.capability, row.deserved, row.guarantee))
            or row.used.get(name)
        ),
        admitted=admitted,
        waiting=queue_rows.by_reason(row.waiting),
        problem=problem,
    )
