"""A queue of keys for level-driven workers: no key twice at once, failures come back later.

A key that is added while a worker has it is given out again afterwards, so no change is lost. A key that is
added many times before a worker takes it is given out once.

Keys may belong to lanes, such as the namespaces of their objects. Lanes have their turns one after the other,
so the key of a lane with little work does not wait behind all keys of another.
"""

import heapq
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from vc_egpu.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)
_NO_LANE: Final = object()


class WorkQueue(Generic[K]):
    """Thread-safe. ``get`` ... ``done`` brackets the work on a key."""

    def __init__(
        self,
        *,
        first_s: float = 0.05,
        most_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        lane: Callable[[K], Hashable] = lambda key: None,  # noqa: ARG005 - all keys have one lane
        most_of_a_lane: int | None = None,
    ) -> None:
        """``most_of_a_lane``: how many keys of one lane workers have at the same time; None: all of them."""
        self._condition = threading.Condition()
        self._clock = clock
        self._first_s = first_s
        self._most_s = most_s
        self._lane = lane
        self._most_of_a_lane = most_of_a_lane
        self._ready: OrderedDict[Hashable, deque[K]] = OrderedDict()
        """By lane, the lane whose turn is next first; no lane is empty."""
        self._busy: Counter[Hashable] = Counter()
        """By lane, the keys that workers have."""
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._sequence = 0
        self._backoffs: dict[K, Backoff] = {}
        self._closed = False

    def add(self, key: K) -> None:
        """Ask for work on ``key``, now."""
        with self._condition:
            self._add(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Ask for work on ``key`` in ``delay_s`` seconds; an earlier wish for the same key wins."""
        if delay_s <= 0:
            self.add(key)
            return
        with self._condition:
            at = self._clock() + delay_s
            if self._due.get(key, float("inf")) <= at:
                return
            self._due[key] = at
            self._sequence += 1
            heapq.heappush(self._later, (at, self._sequence, key))
            self._condition.notify()

    def retry(self, key: K) -> float:
        """Work on ``key`` failed: again after a growing delay, which is returned (seconds)."""
        with self._condition:
            backoff = self._backoffs.setdefault(key, Backoff(self._first_s, self._most_s))
            delay_s = backoff.next_s()
        self.add_after(key, delay_s)
        return delay_s

    def failures(self, key: K) -> int:
        """How often ``key`` failed since it last succeeded."""
        with self._condition:
            backoff = self._backoffs.get(key)
            return backoff.failures if backoff is not None else 0

    def forget(self, key: K) -> None:
        """Work on ``key`` succeeded: the next failure waits the shortest delay again."""
        with self._condition:
            self._backoffs.pop(key, None)

    def get(self, timeout_s: float | None = None) -> K | None:
        """The next key, or None when closed or nothing came in time. Call :meth:`done` with it afterwards."""
        with self._condition:
            end = None if timeout_s is None else self._clock() + timeout_s
            while True:
                wait_s = self._promote()
                key = self._take()
                if key is not None:
                    return key
                if self._closed:
                    return None
                if end is not None:
                    left_s = end - self._clock()
                    if left_s <= 0:
                        return None
                    wait_s = left_s if wait_s is None else min(wait_s, left_s)
                # A key may be due next year, and a thread that waits longer than its limit raises an error.
                self._condition.wait(None if wait_s is None else min(wait_s, threading.TIMEOUT_MAX))

    def done(self, key: K) -> None:
        """The worker that got ``key`` is finished with it."""
        with self._condition:
            if key in self._working:
                self._working.discard(key)
                lane = self._lane(key)
                self._busy[lane] -= 1
                if not self._busy[lane]:
                    del self._busy[lane]
            if key in self._dirty:
                self._append(key)
            if self._ready:
                self._condition.notify()  # its lane may go on

    def close(self) -> None:
        """Wake all workers; :meth:`get` returns None once the queue is empty."""
        with self._condition:
            self._closed = True
            self._ready.clear()
            self._later.clear()
            self._due.clear()
            self._condition.notify_all()

    def __len__(self) -> int:
        """Keys ready to be worked on."""
        with self._condition:
            return sum(len(keys) for keys in self._ready.values())

    def _add(self, key: K) -> None:
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._append(key)
            self._condition.notify()

    def _append(self, key: K) -> None:
        self._ready.setdefault(self._lane(key), deque()).append(key)

    def _take(self) -> K | None:
        """The first key of the lane whose turn is next; that lane goes to the end of the row."""
        most = self._most_of_a_lane
        lane = next((one for one in self._ready if most is None or self._busy[one] < most), _NO_LANE)
        if lane is _NO_LANE:
            return None
        keys = self._ready[lane]
        key = keys.popleft()
        if keys:
            self._ready.move_to_end(lane)
        else:
            del self._ready[lane]
        self._dirty.discard(key)
        self._working.add(key)
        self._busy[lane] += 1
        return key

    def _promote(self) -> float | None:
        """Move what is due to the ready ones; seconds until the next one is, or None."""
        now = self._clock()
        while self._later:
            at, _, key = self._later[0]
            if at > now:
                return at - now
            heapq.heappop(self._later)
            if self._due.get(key) == at:
                del self._due[key]
                self._add(key)
        return None
