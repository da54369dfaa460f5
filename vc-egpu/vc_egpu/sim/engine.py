"""Virtual time: a clock that only events move, and the events that are to come.

The engine knows nothing of clusters. A stage of stories moves its clock by hand (:meth:`Engine.advance`).
A replay of a trace puts arrivals and ends on it and lets it run (:meth:`Engine.run`).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from vc_egpu.core.model.cluster import Instant

Action = Callable[[], None]


@dataclass(order=True, slots=True)
class Event:
    """Something that happens at a moment. Two at one moment happen in the order in which they were made."""

    at: Instant
    number: int
    action: Action = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """It is not to happen any more."""
        self.cancelled = True


class Engine:
    """A clock and a heap of events. Equal events in equal order give equal runs."""

    def __init__(self, now: Instant = 0.0) -> None:
        self.now: Instant = now
        self._events: list[Event] = []
        self._numbers = count()

    def at(self, moment: Instant, action: Action) -> Event:
        """Have ``action`` happen at ``moment``. Raises ``ValueError`` for a moment that has passed."""
        if moment < self.now:
            raise ValueError(f"{moment} s has passed: it is {self.now} s")
        event = Event(moment, next(self._numbers), action)
        heapq.heappush(self._events, event)
        return event

    def after(self, seconds: float, action: Action) -> Event:
        """Have ``action`` happen ``seconds`` from now. Raises ``ValueError`` for a negative number."""
        return self.at(self.now + seconds, action)

    def step(self) -> bool:
        """Go to the next event and have it happen; False where none is left."""
        while self._events:
            event = heapq.heappop(self._events)
            if not event.cancelled:
                self.now = event.at
                event.action()
                return True
        return False

    def advance(self, seconds: float) -> None:
        """Let time pass, with all events of that time. Raises ``ValueError`` for a negative number."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s")
        self.run(self.now + seconds)

    def run(self, until: Instant | None = None) -> None:
        """Have events happen until none is left, or until and at ``until``, where the clock then stands."""
        while (upcoming := self.next_at) is not None and (until is None or upcoming <= until):
            self.step()
        if until is not None:
            self.now = max(self.now, until)

    @property
    def next_at(self) -> Instant | None:
        """When the next event happens; None where none is left."""
        while self._events and self._events[0].cancelled:
            heapq.heappop(self._events)
        return self._events[0].at if self._events else None
