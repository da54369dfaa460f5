"""What queues use: own sums, and sums over everything below each queue."""

from collections.abc import Iterable, Iterator, Mapping

from vc_egpu.core.model.cluster import QueueName
from vc_egpu.core.model.resources import add_to


class Holders:
    """Which gangs have pods on nodes, by the queue that these count in."""

    def __init__(self) -> None:
        self._pods: dict[QueueName, dict[str, int]] = {}

    def add(self, queue: QueueName, gang: str | None, pods: int = 1) -> None:
        """So many more pods of the gang count there, or with a negative number fewer."""
        if gang is None:
            return
        counts = self._pods.setdefault(queue, {})
        add_to(counts, gang, pods)
        if not counts:
            del self._pods[queue]

    def queues(self) -> Iterable[QueueName]:
        """The queues that have any."""
        return self._pods.keys()

    def gangs(self, queue: QueueName) -> Iterable[str]:
        """The keys of this queue's."""
        return self._pods.get(queue, {}).keys()


class QueueUse:
    """Charges by queue, added up along the parents."""

    def __init__(self) -> None:
        self.total: dict[QueueName, dict[str, int]] = {}
        """By queue, what it and all queues below it use."""
        self._own: dict[QueueName, dict[str, int]] = {}
        self._parents: dict[QueueName, QueueName] = {}

    def chain(self, queue: QueueName) -> Iterator[QueueName]:
        """The queue and its ancestors, nearest first; a loop of parents ends where it closes."""
        seen: set[QueueName] = set()
        current: QueueName | None = queue
        while current is not None and current not in seen:
            seen.add(current)
            yield current
            current = self._parents.get(current)

    def set_parent(self, queue: QueueName, parent: QueueName | None) -> None:
        """Hang the queue below another; what it uses moves with it."""
        if self._parents.get(queue) == parent:
            return
        if parent is None:
            del self._parents[queue]
        else:
            self._parents[queue] = parent
        self.total = {}
        for name, own in self._own.items():
            self._add_to_totals(name, own, 1)

    def add(self, queue: QueueName, charge: Mapping[str, int], sign: int = 1) -> None:
        """Count a charge, or with ``sign`` -1 take it back."""
        own = self._own.setdefault(queue, {})
        for resource, amount in charge.items():
            add_to(own, resource, sign * amount)
        self._add_to_totals(queue, charge, sign)

    def _add_to_totals(self, queue: QueueName, charge: Mapping[str, int], sign: int) -> None:
        for name in self.chain(queue):
            total = self.total.setdefault(name, {})
            for resource, amount in charge.items():
                add_to(total, resource, sign * amount)
