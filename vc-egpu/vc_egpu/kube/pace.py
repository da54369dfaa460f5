"""How many requests a process has under way at the same time, by how long their answers take.

An API server that is full answers no faster if it has more to do at once. Then requests only wait in it, and
so do those of users. So a process takes less of it as long as answers take longer than they do when nothing
waits, and more again afterwards. This is how TCP Vegas finds its window.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

FEW_WAIT: Final = 3.0
"""With fewer of our requests waiting in the server, one more may be under way."""
MANY_WAIT: Final = 6.0
"""With more of them waiting, one less."""
WINDOW_S: Final = 60.0
"""The shortest answer of this time is one for which nothing waited, unless the server was full all along."""
FORGETS: Final = 1.2
"""So much longer than in the window before may the shortest answer be at most."""


@dataclass(slots=True)
class Turn:
    """One request. Its holder says so where it sends none: an answer that came from nowhere tells nothing."""

    is_sent: bool = True


class Pace:
    """A bound between ``least`` and ``most``. Thread-safe."""

    def __init__(self, least: int, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        if not 1 <= least <= most:
            raise ValueError(f"pace: at least {least}, at most {most}: it must be 1 <= least <= most")
        self._least, self._most, self._monotonic = float(least), float(most), monotonic
        self._bound = self._most
        self._under_way = 0
        self._changed = threading.Condition()
        self._shortest_s = float("inf")
        self._before_s = float("inf")
        """In this window, and what counted in the one before."""
        self._window_ends = monotonic() + WINDOW_S

    @property
    def bound(self) -> int:
        """How many may be under way now."""
        return int(self._bound)

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait until one more may be under way; the block is that request. One that fails tells nothing."""
        with self._changed:
            while self._under_way >= int(self._bound):
                self._changed.wait()
            self._under_way += 1
            used = self._under_way
        began, took_s, turn = self._monotonic(), None, Turn()
        try:
            yield turn
            took_s = self._monotonic() - began if turn.is_sent else None
        finally:
            with self._changed:
                self._under_way -= 1
                if took_s is not None:
                    self._learn(took_s, used)
                # As many as may go on now: to wake all that wait each time would cost more than the requests.
                self._changed.notify(max(0, int(self._bound) - self._under_way))

    def _learn(self, took_s: float, used: int) -> None:
        now = self._monotonic()
        if now >= self._window_ends:
            self._before_s = min(self._shortest_s, self._before_s * FORGETS)
            self._shortest_s = float("inf")
            self._window_ends = now + WINDOW_S
        self._shortest_s = min(self._shortest_s, took_s)
        alone_s = min(self._shortest_s, self._before_s)
        waiting = used * (1.0 - alone_s / took_s) if took_s > 0 else 0.0
        step = 1.0 / self._bound
        if waiting > MANY_WAIT:
            self._bound = max(self._least, self._bound - step)
        elif waiting < FEW_WAIT and used >= int(self._bound) - 1:
            self._bound = min(self._most, self._bound + step)
