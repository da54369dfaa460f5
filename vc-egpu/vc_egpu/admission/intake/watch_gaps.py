"""What watches fail to tell, though they report no error.

A watch can stand still: the API server's own watch of that kind starves, or a connection is dead one way.
But this process writes to pods and PodGroups all day. Each answer names a version that the watch of its kind
has to come to. A watch that has not moved for a while, and is not there yet, is behind; one that moves is
only slow.

A PodGroup can be missing: its pods are here, and no watch told of it. Its controller makes it before the
pods. After a while this process asks for it by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

STILL_S: Final = 30.0
MOST_S: Final = 600.0
"""Where listing again does not help it is done ever more seldom: a list of a large cluster is dear."""
ASK_AFTER_S: Final = 10.0
AGAIN_AFTER_S: Final = 60.0
MOST_AT_ONCE: Final = 20
"""Where no controller makes PodGroups there may be thousands of such gangs."""


class _Still(NamedTuple):
    at: int
    since: float
    patience_s: float


@dataclass(slots=True)
class StalledWatches:
    """Versions are of one API server, and grow; where its history is set back (restored from a backup), what
    was answered before is forgotten. Times are of the caller's clock."""

    _newest: dict[str, int] = field(default_factory=dict)
    _reached: dict[str, int] = field(default_factory=dict)
    _still: dict[str, _Still] = field(default_factory=dict)

    def answered(self, kind: str, version: str) -> None:
        """An object of this kind has this version."""
        if version.isdecimal():
            self._newest[kind] = max(self._newest.get(kind, 0), int(version))

    def standing(self, reached: Mapping[str, str], clock: float) -> list[str]:
        """Kinds whose watch is behind; ``reached`` is what each watch has come to. Ask every few seconds."""
        found = []
        for kind in self._newest:
            if not reached[kind].isdecimal():
                self._still.pop(kind, None)
                continue
            at = int(reached[kind])
            if at < self._reached.get(kind, 0):
                self._newest[kind] = at
            self._reached[kind] = at
            known = self._still.get(kind)
            if at >= self._newest[kind]:
                self._still.pop(kind, None)
            elif known is None or known.at != at:
                self._still[kind] = _Still(at, clock, STILL_S)
            elif clock - known.since >= known.patience_s:
                self._still[kind] = _Still(at, clock, min(2 * known.patience_s, MOST_S))
                found.append(kind)
        return found


@dataclass(slots=True)
class MissingGroups:
    """Gangs that have pods and no PodGroup: when each is asked for next, on the caller's clock."""

    _next: dict[str, float] = field(default_factory=dict)

    def due(self, keys: Iterable[str], clock: float) -> list[str]:
        """Those to ask for now, of all gangs that have none."""
        self._next = {key: self._next.get(key, clock + ASK_AFTER_S) for key in keys}
        found = sorted((at, key) for key, at in self._next.items() if at <= clock)[:MOST_AT_ONCE]
        for _, key in found:
            self._next[key] = clock + AGAIN_AFTER_S
        return [key for _, key in found]
