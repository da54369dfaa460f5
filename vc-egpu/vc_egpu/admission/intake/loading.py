"""The first lists of a leadership: waited for as long as anything of them arrives.

Those of a large cluster take minutes, more where the API server is busy (which it is when leaders change). A
bound on the whole would let no leader ever take over there.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

SILENCE_S: Final = 120.0
"""After so long without a page of any list they are given up, and asked for again."""
_LOOK_S: Final = 0.05


class NotSyncedError(Exception):
    """The first lists did not arrive in time, or show plans of a later epoch (``newest``)."""

    def __init__(self, message: str, newest: int = -1) -> None:
        super().__init__(message)
        self.newest = newest


class Lists(Protocol):
    """What is waited for."""

    def missing(self) -> list[str]:
        """Kinds whose first list is not complete."""
        ...

    def silent_s(self) -> float:
        """Seconds since anything of those arrived; infinite before that."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait a while for one that is missing."""
        ...


def wait_for(
    lists: Lists,
    over: Callable[[], bool],
    heard: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Until all are complete or it is ``over``; ``heard`` gets the (monotonic) instants of what arrives.

    Raises :class:`NotSyncedError` after :data:`SILENCE_S` without anything.
    """
    last = clock()
    while (missing := lists.missing()) and not over():
        now = clock()
        last = max(last, now - lists.silent_s())
        heard(last)
        if now - last > SILENCE_S:
            raise NotSyncedError(f"nothing of the list of {', '.join(missing)} in {SILENCE_S:.0f} s")
        lists.wait(_LOOK_S)
