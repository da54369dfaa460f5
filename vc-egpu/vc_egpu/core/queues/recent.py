"""What queues had lately, for the order among them.

Without it only what queues have now counts. One that was idle for a day is then the same as one that had all
cards until now. A half-life of some hours gives the first one a start.
"""

from collections.abc import Mapping

from vc_egpu.core.model.cluster import Instant, QueueName
from vc_egpu.core.model.policy import RecentUse
from vc_egpu.core.queues.deserved import parts_by_kind


def averaged(recent: RecentUse, use: Mapping[QueueName, Mapping[str, int]], now: Instant) -> RecentUse:
    """The average up to now, and what queues use from now on (``use``: by queue and resource)."""
    if recent.half_life_s <= 0:
        return recent
    since = {name: has for name, amounts in use.items() if (has := parts_by_kind(amounts))}
    old = 0.5 ** (max(0.0, now - recent.at) / recent.half_life_s)
    parts: dict[QueueName, dict[str, float]] = {}
    for weight, known in ((old, recent.parts), (1 - old, recent.since)):
        for name, amounts in known.items():
            own = parts.setdefault(name, {})
            for kind, amount in amounts.items():
                own[kind] = own.get(kind, 0.0) + weight * amount
    # Less than a millionth of a card is nothing: queues that were removed do not stay here.
    some = {name: {kind: part for kind, part in own.items() if part >= 1} for name, own in parts.items()}
    return RecentUse(recent.half_life_s, now, {name: own for name, own in some.items() if own}, since)
