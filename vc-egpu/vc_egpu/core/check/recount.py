"""What queues use, counted from the values alone: by the invariants, and for metrics."""

from typing import Final

from vc_egpu.core.model.cluster import PodPhase, QueueName, Snapshot, plan_key
from vc_egpu.core.model.resources import add_to, amounts

HOLDING: Final = frozenset({PodPhase.PLACED, PodPhase.TERMINATING})
"""Phases of pods that have their cards."""


def use_by_queue(snapshot: Snapshot) -> dict[QueueName, dict[str, int]]:
    """What each queue and all below it use: admitted pods until they are gone, and plans in force."""
    use: dict[QueueName, dict[str, int]] = {}
    for pod in snapshot.pods.values():
        gang = snapshot.gangs.get(pod.gang) if pod.gang is not None else None
        queue = gang.queue if gang is not None else pod.queue
        if queue is None:
            continue
        plan = gang.plan if gang is not None else None
        in_plan = plan is not None and plan_key(pod) in plan.members and pod.phase is PodPhase.GATED
        if pod.phase in HOLDING or in_plan:
            for name in _chain(snapshot, queue):
                total = use.setdefault(name, {})
                for resource, amount in amounts(pod.shape).items():
                    add_to(total, resource, amount)
    return use


def _chain(snapshot: Snapshot, queue: QueueName) -> list[QueueName]:
    names: list[QueueName] = []
    current: QueueName | None = queue
    while current is not None and current not in names:
        names.append(current)
        entry = snapshot.queues.get(current)
        current = entry.parent if entry is not None else None
    return names
