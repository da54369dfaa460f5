"""Python's garbage collector, kept off the path of decisions.

A full pass looks at everything that the mirror holds: a third of a second on a large cluster. Python begins
one whenever enough was allocated: in the middle of a storm. Nearly nothing here is cyclic, so reference
counts free it. What is left to find is found while nothing happens. Objects that survived are put out of the
collector's sight, and such a pass looks only at what came since.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

QUIET_S: Final = 0.5
"""After so long without an event no gang is in a hurry."""
TIDY_S: Final = 30.0
"""From one pass over what came lately to the next."""
FULL_S: Final = 3600.0
"""From one pass over everything to the next."""
THRESHOLDS: Final = (20_000, 10, 10_000)
"""Young objects are looked at in larger lots: with the maps that decisions copied since, a look takes 5 ms.
A full pass in a storm would take two billion of them."""


@dataclass(slots=True)
class Collector:
    """The collector belongs to the process: one leadership has it at a time. Times are of any clock."""

    _before: tuple[int, int, int] | None = None
    _tidied: float = 0.0
    _full: float = 0.0

    def begin(self) -> None:
        """A leadership begins: the first lists are not interrupted."""
        if self._before is None:
            self._before = gc.get_threshold()
            gc.set_threshold(*THRESHOLDS)

    def loaded(self, now: float) -> None:
        """The first lists are in."""
        gc.collect()
        gc.freeze()
        self._tidied = self._full = now

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """A decision is made here: not even young objects are looked at before it is over."""
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    def quiet(self, now: float) -> None:
        """Nothing happens at the moment: tidy up if it is time."""
        if now - self._tidied < TIDY_S:
            return
        if now - self._full >= FULL_S:
            gc.unfreeze()
            self._full = now
        gc.collect()
        gc.freeze()
        self._tidied = now

    def end(self) -> None:
        """The leadership is over, and its state is to be given up as a whole."""
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None
