"""Whether those who work get on: what only a new start of the process mends."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

STUCK_S: Final = 300.0
"""Nothing that is done in one step takes so long: requests and watches have time-outs far below."""


class Pulse:
    """When each busy thread last got on. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._busy: dict[int, tuple[str, float]] = {}

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """This thread does ``what`` meanwhile."""
        me = threading.get_ident()
        with self._lock:
            self._busy[me] = (what, self._clock())
        try:
            yield
        finally:
            with self._lock:
                self._busy.pop(me, None)

    def got_on(self) -> None:
        """This thread has done a step of what it does."""
        me = threading.get_ident()
        with self._lock:
            if me in self._busy:
                self._busy[me] = (self._busy[me][0], self._clock())

    def others_busy(self) -> bool:
        """Whether a thread other than this one is in the middle of something."""
        me = threading.get_ident()
        with self._lock:
            return any(thread != me for thread in self._busy)

    def trouble(self) -> str:
        """Who does not get on; empty: all do."""
        with self._lock:
            what, since = min(self._busy.values(), key=lambda entry: entry[1], default=("", self._clock()))
            stuck_s = self._clock() - since
        return f"{what}: no step in {stuck_s:.0f} s" if stuck_s > STUCK_S else ""
