"""What queues deserve of each kind of card, in millionths of a card.

A queue that names memory or cores of a model deserves the larger part of cards that these are. A queue that
names only the count deserves so many cards. A queue that names nothing of a model deserves what the queues
below it do together. Where none of them names any, there is no line.
"""

from collections.abc import Mapping

from vc_egpu.core.model.cluster import Queue, QueueName
from vc_egpu.core.model.resources import (
    CORES_TOTAL_SUFFIX,
    MEMORY_TOTAL_SUFFIX,
    MICROCARDS,
    NATIVE_PREFIX,
    PARTS_PREFIX,
    microcards,
    model_of,
    native_resource,
    shared_resource,
)
from vc_egpu.core.queues.caps import QueueTree, Use

Lines = Mapping[QueueName, Mapping[str, int]]
"""By queue and kind of card (the resource that counts it), what the queue deserves."""


def lines(tree: QueueTree, card_mib: Mapping[str, int]) -> Lines:
    """The lines of all queues that have one. ``card_mib``: memory of one card by model."""
    named = {name: own(queue, card_mib) for name, queue in tree.queues.items() if queue.deserved}
    found: dict[QueueName, dict[str, int]] = {}
    for name, amounts in named.items():
        for kind, amount in amounts.items():
            own_line, *above = tree.chain(name)
            found.setdefault(own_line, {})[kind] = amount
            for parent in above:
                if kind in named.get(parent, {}):
                    break
                sums = found.setdefault(parent, {})
                sums[kind] = sums.get(kind, 0) + amount
    return found


def own(queue: Queue, card_mib: Mapping[str, int]) -> dict[str, int]:
    """What the queue itself names, by kind of card."""
    kinds = dict.fromkeys(_kind_of(resource) for resource in queue.deserved)
    found: dict[str, int] = {}
    for kind in kinds:
        if kind is None:
            continue
        amount = _line(queue.deserved, kind, card_mib)
        if amount is not None:
            found[kind] = amount
    return found


def _kind_of(resource: str) -> str | None:
    model = model_of(resource)
    if model is None:
        return None
    return native_resource(model) if resource.startswith(NATIVE_PREFIX) else shared_resource(model)


def _line(deserved: Use, kind: str, card_mib: Mapping[str, int]) -> int | None:
    """None where nothing of it can be judged: memory of cards whose size no table has."""
    memory_mib, cores = deserved.get(kind + MEMORY_TOTAL_SUFFIX), deserved.get(kind + CORES_TOTAL_SUFFIX)
    size_mib = card_mib.get(model_of(kind) or "", 0)
    if cores is not None or (memory_mib is not None and size_mib):
        return microcards(memory_mib or 0, cores or 0, size_mib)
    count = deserved.get(kind)
    return None if count is None else count * MICROCARDS


def parts_by_kind(amounts: Use) -> dict[str, int]:
    """The parts of cards among these amounts, by kind of card."""
    return {
        resource.removeprefix(PARTS_PREFIX): amount
        for resource, amount in amounts.items()
        if resource.startswith(PARTS_PREFIX)
    }
