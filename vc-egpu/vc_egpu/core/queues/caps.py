"""Caps: what a queue and its ancestors allow, per resource. A tree of plain sums.

A queue may use up to its ``capability``, borrowing included, never above. What counts is what admitted
members ask for, from the write of their plan until their pods are gone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from vc_egpu.core.model.cluster import Queue, QueueName
from vc_egpu.core.model.findings import Limit
from vc_egpu.core.model.resources import counted, is_model_key

Use = Mapping[str, int]


class QueueTree(Protocol):
    """What caps need to know of the queues; :class:`.index.Index` and a trial are such."""

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """All queues by name."""
        ...

    def chain(self, queue: QueueName) -> Iterable[QueueName]:
        """The queue and its ancestors."""
        ...

    def use_of(self, queue: QueueName) -> Use:
        """What the queue and all queues below it use now."""
        ...


def check(tree: QueueTree, queue: QueueName, ask: Use, *, unnamed_unlimited: bool) -> Limit | None:
    """The first cap that forbids ``ask`` in ``queue``; None where all allow it.

    A cap that even an empty queue would break is reported before one that only the present use breaks.
    """
    first: Limit | None = None
    for limit in limits(tree, queue, ask, unnamed_unlimited=unnamed_unlimited):
        if limit.never:
            return limit
        first = first or limit
    return first


def limits(tree: QueueTree, queue: QueueName, ask: Use, *, unnamed_unlimited: bool) -> Iterator[Limit]:
    """Every cap that forbids ``ask`` in ``queue``, that of the nearest queue first."""
    for name in tree.chain(queue):
        entry = tree.queues.get(name)
        if entry is None:
            continue
        use = tree.use_of(name)
        for resource in sorted(ask):
            asked = counted(resource, ask, entry.capability)
            limit = _limit(entry, resource, asked, use, leaf=name == queue, unlimited=unnamed_unlimited)
            if limit is not None:
                yield limit


def _limit(entry: Queue, resource: str, asked: int, use: Use, *, leaf: bool, unlimited: bool) -> Limit | None:
    if asked <= 0:
        return None
    cap = entry.capability.get(resource)
    used = counted(resource, use, entry.capability)
    if cap is None:
        if unlimited or not is_model_key(resource) or not _names_models(entry, leaf=leaf):
            return None
        return Limit(entry.name, resource, asked, used, 0, named=False)
    return Limit(entry.name, resource, asked, used, cap) if used + asked > cap else None


def _names_models(entry: Queue, *, leaf: bool) -> bool:
    # A leaf that names no model allows none. A parent that names none has no say in models at all:
    # Volcano's own root queue is such a one.
    return leaf or any(is_model_key(resource) for resource in entry.capability)


def share(entry: Queue | None, use: Use) -> float:
    """How much of what it deserves it has: the largest ratio over resources; 1 where it deserves none."""
    if entry is None or not entry.deserved:
        return 1.0
    ratios = []
    for resource, deserved in entry.deserved.items():
        used = use.get(resource, 0)
        ratios.append(used / deserved if deserved > 0 else float(used > 0))
    return max(ratios)
