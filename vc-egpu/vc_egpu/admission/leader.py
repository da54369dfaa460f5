"""Leading: what a leadership is, and a clock that stands still while the API server is away."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Leadership(Protocol):
    """A lease, as far as the loop cares. It is a fence for writes, too."""

    @property
    def epoch(self) -> int:
        """Larger than that of every earlier leader."""
        ...

    def remaining_s(self) -> float:
        """Seconds for which writes are allowed."""
        ...


@dataclass(frozen=True, slots=True)
class SoleLeader:
    """Leading without an election: the caller sees to it that there is one process only.

    The epoch is the second of the start, so that it grows from one start to the next.
    """

    epoch: int = field(default_factory=lambda: int(time.time()))

    def remaining_s(self) -> float:
        """Always an hour."""
        return 3600.0


@dataclass(frozen=True, slots=True)
class UntilEnded:
    """A leadership that is given up before its time: from then on no write begins.

    An eviction of a large gang is a thousand of them. What it leaves the next leader goes on with.
    """

    leadership: Leadership
    ended: threading.Event = field(default_factory=threading.Event)

    def remaining_s(self) -> float:
        """Seconds for which writes are allowed."""
        return 0.0 if self.ended.is_set() else self.leadership.remaining_s()


@dataclass(slots=True)
class HealthyClock:
    """Monotonic seconds, counted only while the lease is being renewed: while the API server is away nothing
    gets late. ``fresh_s``: a lease with more than this left was renewed lately."""

    leadership: Leadership
    fresh_s: float
    monotonic: Callable[[], float] = time.monotonic
    _value: float = 0.0
    _at: float | None = None

    def now(self) -> float:
        """The time on this clock; asked at least every second it is exact to about one."""
        at = self.monotonic()
        if self._at is not None and self.leadership.remaining_s() > self.fresh_s:
            self._value += at - self._at
        self._at = at
        return self._value
