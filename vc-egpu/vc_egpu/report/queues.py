"""What each queue may use, uses and keeps waiting: one row for each queue."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vc_egpu.core.model.cluster import Instant, Queue, QueueName, ShareClass, Snapshot
from vc_egpu.core.model.resources import add_to, counted, is_low_key
from vc_egpu.report.gangs import GangRow

Amounts = Mapping[str, int]
"""By resource name, in whole units."""
Waiting = Mapping[tuple[str, ShareClass], int]
"""Gangs that wait, by reason and class."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue."""

    name: QueueName
    parent: QueueName | None
    is_open: bool
    used: Amounts
    """By this queue and all below it."""
    capability: Amounts
    deserved: Amounts
    guarantee: Amounts
    admitted: int
    """Gangs of this very queue that are in, in whole or in part."""
    waiting: Waiting


def queues(
    snapshot: Snapshot, used: Mapping[QueueName, Amounts], rows: Iterable[GangRow]
) -> tuple[QueueRow, ...]:
    """All queues of the snapshot.

    ``used`` is what :func:`vc_egpu.core.check.recount.use_by_queue` counts, or what a reader with fewer
    rights knows of it. ``rows`` are those of :func:`vc_egpu.report.gangs.gangs`.
    """
    rows = tuple(rows)
    admitted, waits = Counter(row.queue for row in rows if row.is_in), waiting(rows)
    return tuple(
        QueueRow(
            name=queue.name,
            parent=queue.parent,
            is_open=queue.open,
            used=_counted(queue, used.get(queue.name, {})),
            capability=queue.capability,
            deserved=queue.deserved,
            guarantee=queue.guarantee,
            admitted=admitted[queue.name],
            waiting=waits.get(queue.name, {}),
        )
        for queue in snapshot.queues.values()
    )


def _counted(queue: Queue, used: Amounts) -> Amounts:
    """What counts in this queue: low shares under keys of their own only where it names these."""
    return {
        resource: amount
        for resource in used
        if (not is_low_key(resource) or resource in queue.capability)
        and (amount := counted(resource, used, queue.capability))
    }


def waiting(rows: Iterable[GangRow]) -> dict[QueueName, Waiting]:
    """The gangs that wait by queue, also in queues that do not exist."""
    found: dict[QueueName, Counter[tuple[str, ShareClass]]] = {}
    for row in rows:
        if row.waits and row.condition is not None:
            found.setdefault(row.queue, Counter())[row.condition.reason, row.share_class] += 1
    return dict(found)


def by_reason(counts: Waiting) -> dict[str, int]:
    """The same without the class; reasons in order."""
    found: Counter[str] = Counter()
    for (reason, _), count in counts.items():
        found[reason] += count
    return dict(sorted(found.items()))


def asked(rows: Iterable[GangRow]) -> dict[QueueName, dict[str, int]]:
    """What the gangs that wait ask for, by queue and resource name."""
    found: dict[QueueName, dict[str, int]] = {}
    for row in rows:
        if row.waits:
            total = found.setdefault(row.queue, {})
            for resource, amount in row.asks.items():
                add_to(total, resource, amount)
    return found


def oldest(rows: Iterable[GangRow]) -> dict[tuple[QueueName, str], Instant]:
    """Since when the oldest gang waits, by queue and reason."""
    found: dict[tuple[QueueName, str], Instant] = {}
    for row in rows:
        if row.waits and row.condition is not None:
            key = row.queue, row.condition.reason
            found[key] = min(row.asks_since, found.get(key, row.asks_since))
    return found
