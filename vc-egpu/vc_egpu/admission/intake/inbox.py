"""What wakes the loop: changes from watches and outcomes of writes, in the order in which they came.

In a storm the loop waits a moment between two turns, so that each takes in more: a turn has its own price.
"""

import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

MOST_REST_S: Final = 0.02
"""In a storm turns are at most this far apart."""
MAX_BATCH: Final = 4000
"""A turn takes in this many at most. Then it looks at the lease and at the rules about time."""

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Any thread puts something in; the loop's thread takes it out."""

    def __init__(self, *, most_rest_s: float = MOST_REST_S, max_batch: int = MAX_BATCH) -> None:
        self._items: SimpleQueue[Item] = SimpleQueue()
        self._most_rest_s = most_rest_s
        self._max_batch = max_batch
        self._next_turn = 0.0

    def put(self, item: Item) -> None:
        """Add something."""
        self._items.put(item)

    def get(self, timeout_s: float | None = None) -> Item:
        """Wait for one thing and take it out. Raises :class:`queue.Empty`."""
        return self._items.get(timeout=timeout_s)

    def is_empty(self) -> bool:
        """Whether nothing is there now."""
        return self._items.empty()

    def turned(self, began: float, ended: float) -> None:
        """A turn took so long (monotonic instants): the next one begins at most twice as long after it."""
        self._next_turn = ended + min(2 * (ended - began), self._most_rest_s)

    def rest_s(self) -> float:
        """How long the next turn waits for more, once something has come."""
        return self._next_turn - time.monotonic()

    def take(self, timeout_s: float, rest: Callable[[float], object]) -> Iterator[Item]:
        """All that is there, as soon as something comes in time. ``rest`` waits for so many seconds."""
        try:
            first = self._items.get(timeout=timeout_s) if timeout_s > 0 else self._items.get_nowait()
        except Empty:
            return
        if (rest_s := self.rest_s()) > 0:
            rest(rest_s)
        yield first
        for _ in range(1, self._max_batch):
            try:
                yield self._items.get_nowait()
            except Empty:
                return
