"""What queues use, counted from the values alone: for the invariants, and for whoever shows it."""

from collections.abc import Callable, Mapping
from typing import Final

from vc_egpu.core.model.cluster import (
    Pod,
    PodPhase,
    Queue,
    QueueName,
    ShareClass,
    Snapshot,
    class_of,
    plan_key,
)
from vc_egpu.core.model.resources import add_to, amounts, low_parts

HOLDING: Final = frozenset({PodPhase.PLACED, PodPhase.TERMINATING})
"""Phases of pods that have their cards."""

Use = dict[QueueName, dict[str, int]]
"""Amounts by resource name, by queue."""


def use_by_queue(snapshot: Snapshot) -> Use:
    """What each queue and all below it use: admitted pods until they are gone, and plans in force."""
    return with_parents(snapshot.queues, own_use(snapshot))


def own_use(snapshot: Snapshot, counts: Callable[[Pod], bool] | None = None) -> Use:
    """What each queue uses by itself. ``counts`` says which pods count, where not the usual ones do."""
    use: Use = {}
    known: dict[int, dict[str, int]] = {}
    """Amounts by the shape itself: pods share theirs, and equal ones cost more to compare than to count."""
    for pod in snapshot.pods.values():
        gang = snapshot.gangs.get(pod.gang) if pod.gang is not None else None
        queue = gang.queue if gang is not None else pod.queue
        if queue is None:
            continue
        if counts is not None:
            counted = counts(pod)
        else:
            plan = gang.plan if gang is not None else None
            in_plan = plan is not None and plan_key(pod) in plan.members and pod.phase is PodPhase.GATED
            away = pod.suspend_ordered and pod.off_quota
            counted = (pod.phase in HOLDING and not away) or in_plan
        if counted:
            total = use.setdefault(queue, {})
            counted_amounts = known.get(id(pod.shape))
            if counted_amounts is None:
                counted_amounts = known[id(pod.shape)] = amounts(pod.shape)
            for resource, amount in counted_amounts.items():
                add_to(total, resource, amount)
            if class_of(pod, gang, None) is ShareClass.LOW:
                for resource, amount in low_parts(counted_amounts).items():
                    add_to(total, resource, amount)
    return use


def with_parents(queues: Mapping[QueueName, Queue], own: Use) -> Use:
    """What each queue and all below it use. A circle of parents ends where it closes."""
    use: Use = {}
    for queue, used in own.items():
        for name in _chain(queues, queue):
            total = use.setdefault(name, {})
            for resource, amount in used.items():
                add_to(total, resource, amount)
    return use


def _chain(queues: Mapping[QueueName, Queue], queue: QueueName) -> list[QueueName]:
    names: list[QueueName] = []
    current: QueueName | None = queue
    while current is not None and current not in names:
        names.append(current)
        entry = queues.get(current)
        current = entry.parent if entry is not None else None
    return names
