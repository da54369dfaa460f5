"""The time that one question may take next to the decisions.

One interpreter runs one thread at a time. So a question is answered in short steps, and each step begins only
while the loop rests. A decision waits for the rest of one step at most, never for an answer.
"""

import time
from collections.abc import Callable
from typing import Final

from vc_egpu.whatif.hypothesis import OutOfTimeError

LIMIT_S: Final = 5.0
"""For one question, with all the time that it stood still for the loop."""

Rests = Callable[[float], bool]
"""Waits so many seconds until the loop rests; whether it does."""


class Budget:
    """Begins with the question. :meth:`step` is a :data:`vc_egpu.whatif.hypothesis.Step`."""

    def __init__(
        self, rests: Rests, limit_s: float = LIMIT_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._rests, self._monotonic = rests, monotonic
        self._ends_at = monotonic() + limit_s

    def step(self) -> None:
        """Wait until the loop rests. Raises :class:`OutOfTimeError`."""
        left_s = self._ends_at - self._monotonic()
        if left_s <= 0 or not self._rests(left_s):
            raise OutOfTimeError
