"""Many writes side by side, with a fair turn for each of the looks that ask for them at the same time.

The writers take one item of each look in turn. So the first write of a small Job never waits behind the ten
thousand of a large one. The thread that asks writes as well. So it gets on even if all writers wait for slow
answers to other looks. If the API server is full, fewer of the writers write.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vc_egpu.kube.pace import Pace
from vc_egpu.kube.wire.errors import KubeError

FEWEST_WRITERS: Final = 4
"""So many write however full the API server is."""
LOOK_S: Final = 1.0
"""After this long a look begins no further write. It comes again once others had their look."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the items of one call."""

    all_begun: bool
    """False: time was up, or a failure ended it."""
    errors: tuple[KubeError, ...] = ()


@dataclass(slots=True, eq=False)
class _Lane:
    """The items of one call."""

    work: Callable[[Any], None]
    items: Sequence[Any]
    until: float
    is_over: Callable[[KubeError], bool]
    begun: int = 0
    busy: int = 0
    ended: bool = False
    """No further item is begun."""
    errors: list[KubeError] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)


class Turns:
    """So many writers, shared by all looks. Thread-safe."""

    def __init__(
        self, writers: int, *, look_s: float = LOOK_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._writers = writers
        self._pace = Pace(min(FEWEST_WRITERS, writers or 1), max(1, writers), monotonic)
        self._look_s = look_s
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._lanes: deque[_Lane] = deque()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def end_of_look(self) -> float:
        """Until when a look that begins now may begin writes, on the clock of :meth:`each`."""
        return self._monotonic() + self._look_s

    def each(
        self,
        work: Callable[[Any], None],
        items: Sequence[Any],
        *,
        until: float,
        is_over: Callable[[KubeError], bool],
        got_on: Callable[[], None],
    ) -> Outcome:
        """Do ``work`` for the items in their order, side by side; waits for all that were begun.

        However late it is, at least one is begun. After a failure for which ``is_over`` says so, none is.
        ``got_on`` is told after each write of the calling thread. Raises what ``work`` raises, if that is no
        :class:`KubeError`.
        """
        lane = _Lane(work, items, until, is_over)
        with self._changed:
            if len(items) > 1 and not self._closed:
                self._lanes.append(lane)
                self._start_writers()
                self._changed.notify_all()
        while self._step(lane):
            got_on()
        with self._changed:
            while lane.busy:
                self._changed.wait()
        got_on()
        if lane.faults:
            raise lane.faults[0]
        return Outcome(lane.begun == len(items), tuple(lane.errors))

    def close(self) -> None:
        """Begin nothing more. Writers end after the write that they are in."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start_writers(self) -> None:
        # With the first work: a process that stands by has none.
        while len(self._threads) < self._writers:
            name = f"write-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._write, name=name, daemon=True))
            self._threads[-1].start()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._lanes and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
            with self._pace.turn() as turn:
                lane = self._next()
                turn.is_sent = lane is not None and self._step(lane)

    def _next(self) -> _Lane | None:
        """The look whose turn it is."""
        with self._changed:
            if not self._lanes:
                return None
            lane = self._lanes[0]
            self._lanes.rotate(-1)
            return lane

    def _step(self, lane: _Lane) -> bool:
        """Write one item of the lane; False if none may be begun."""
        with self._changed:
            if lane.begun == len(lane.items) or self._is_time_up(lane):
                self._end(lane)
            if lane.ended:
                return False
            item = lane.items[lane.begun]
            lane.begun += 1
            lane.busy += 1
        error: Exception | None = None
        try:
            lane.work(item)
        except Exception as failure:  # noqa: BLE001 - each() raises it on the thread that asked
            error = failure
        with self._changed:
            if isinstance(error, KubeError):
                lane.errors.append(error)
            elif error is not None:
                lane.faults.append(error)
            if lane.faults or (isinstance(error, KubeError) and lane.is_over(error)):
                self._end(lane)
            lane.busy -= 1
            if not lane.busy:
                self._changed.notify_all()
        return True

    def _is_time_up(self, lane: _Lane) -> bool:
        return self._closed or (lane.begun > 0 and self._monotonic() >= lane.until)

    def _end(self, lane: _Lane) -> None:
        lane.ended = True
        if lane in self._lanes:
            self._lanes.remove(lane)
