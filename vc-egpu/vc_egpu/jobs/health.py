"""What the controller says about itself: its metrics, and whether each thread makes progress."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry

from vc_egpu import __version__
from vc_egpu.metrics.vocabulary import jobs as vocabulary
from vc_egpu.metrics.vocabulary.build import tell_build

STUCK_S: Final = 300.0
"""No single step takes this long: requests and watches have far shorter time-outs."""


class Metrics:
    """Counters of one process, on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        tell_build(self.registry, "jobs", __version__)
        self.reconciles = vocabulary.RECONCILES.counter(self.registry)
        self.seconds = vocabulary.RECONCILE_SECONDS.histogram(self.registry)
        self.pods_created = vocabulary.PODS_CREATED.counter(self.registry)
        self.pods_deleted = vocabulary.PODS_DELETED.counter(self.registry)
        self.leading = vocabulary.LEADER.gauge(self.registry)
        self.waiting = vocabulary.QUEUE_LENGTH.gauge(self.registry)


class Pulse:
    """When each busy thread last made a step. Only a restart of the process helps a thread that is stuck.

    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, stuck_s: float = STUCK_S) -> None:
        self._clock = clock
        self._stuck_s = stuck_s
        self._lock = threading.Lock()
        self._busy: dict[int, tuple[str, float]] = {}

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """This thread does ``what`` until the block ends."""
        me = threading.get_ident()
        with self._lock:
            self._busy[me] = (what, self._clock())
        try:
            yield
        finally:
            with self._lock:
                self._busy.pop(me, None)

    def got_on(self) -> None:
        """This thread made a step."""
        me = threading.get_ident()
        with self._lock:
            if me in self._busy:
                self._busy[me] = (self._busy[me][0], self._clock())

    def others_busy(self) -> bool:
        """Whether a thread other than this one is busy."""
        me = threading.get_ident()
        with self._lock:
            return any(thread != me for thread in self._busy)

    def trouble(self) -> str:
        """What the thread is at that has been stuck longest; empty when all make progress."""
        with self._lock:
            what, since = min(self._busy.values(), key=lambda entry: entry[1], default=("", self._clock()))
            stuck_s = self._clock() - since
        return f"{what}: no step in {stuck_s:.0f} s" if stuck_s > self._stuck_s else ""
