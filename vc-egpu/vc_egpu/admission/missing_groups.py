"""Gangs that have pods and no PodGroup, as far as we were told.

Its controller makes the PodGroup before the pods. Should a watch have missed it or stand still, they would
wait for a PodGroup that is there: after a while it is asked for by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

ASK_AFTER_S: Final = 10.0
AGAIN_AFTER_S: Final = 60.0
MOST_AT_ONCE: Final = 20
"""Where no controller makes PodGroups there may be thousands of such gangs."""


@dataclass(slots=True)
class Missing:
    """When each of them is asked for next, on the caller's clock."""

    _next: dict[str, float] = field(default_factory=dict)

    def due(self, keys: Iterable[str], clock: float) -> list[str]:
        """Of the gangs that have none now, those to ask for."""
        self._next = {key: self._next.get(key, clock + ASK_AFTER_S) for key in keys}
        found = sorted((at, key) for key, at in self._next.items() if at <= clock)[:MOST_AT_ONCE]
        for _, key in found:
            self._next[key] = clock + AGAIN_AFTER_S
        return [key for _, key in found]
