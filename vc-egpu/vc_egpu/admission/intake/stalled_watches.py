"""Which watch stands still, though there is news: seen from the answers to own writes.

Whatever keeps one watch of several from being told (an API server whose own watch of that kind starves, a
connection that is dead one way) makes no error. But this process writes to pods and PodGroups all day, and
each answer names a version that the watch of its kind has to come to. One that has not moved for a while, and
is not there yet, is behind; one that moves is only slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

STILL_S: Final = 30.0
MOST_S: Final = 600.0
"""Where listing again does not help it is done ever more seldom: a list of a large cluster is dear."""


class _Still(NamedTuple):
    at: int
    since: float
    patience_s: float


@dataclass(slots=True)
class Behind:
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
