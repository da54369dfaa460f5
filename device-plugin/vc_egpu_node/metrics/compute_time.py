"""Card time of containers, added up from what the driver tells of their processes.

The driver says which part of the last moments each process used. A counter of seconds loses nothing between
two scrapes. Its rate is never above 1 for a card: parts that add up to more are scaled down.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from vc_egpu_node.containers.processes import Use

ShareKey = tuple[str, str, str, str]
"""(namespace, pod, container, UUID of the card)."""

MOST_GAP_S: Final = 30.0
"""After a longer pause it is not known what was used meanwhile: it counts for so long at most."""


class ComputeTime:
    """Called after each look at the processes; any thread may read it."""

    def __init__(
        self,
        uses: Callable[[], Iterable[Use]],
        kept: Callable[[], Iterable[ShareKey]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``uses``: as of the last look. ``kept``: the containers that are there; others are forgotten."""
        self._uses = uses
        self._kept = kept
        self._clock = clock
        self._looked_s: float | None = None
        self._lock = threading.Lock()
        self._seconds: dict[ShareKey, float] = {}
        self.seen_any = False
        """Whether the driver ever told of a process of a container."""

    def look(self) -> None:
        """Processes were read."""
        now_s = self._clock()
        gap_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, MOST_GAP_S)
        self._looked_s = now_s
        uses = list(self._uses())
        self.seen_any = self.seen_any or bool(uses)
        on_card: dict[str, int] = {}
        for use in uses:
            on_card[use.uuid] = on_card.get(use.uuid, 0) + use.sm_percent
        kept = set(self._kept())
        with self._lock:
            self._seconds = {key: seconds for key, seconds in self._seconds.items() if key in kept}
            for use in uses:
                key = (use.namespace, use.pod, use.container, use.uuid)
                if key in kept:
                    part = use.sm_percent / max(100, on_card[use.uuid])
                    self._seconds[key] = self._seconds.get(key, 0.0) + part * gap_s

    def seconds(self) -> dict[ShareKey, float]:
        """By container and card; those that used nothing are left out."""
        with self._lock:
            return dict(self._seconds)
