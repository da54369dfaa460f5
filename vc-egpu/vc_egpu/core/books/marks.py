"""How many pods with a mark each node has: rules between pods count by it (:mod:`.model.neighbours`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from vc_egpu.core.model.neighbours import Mark

Ints = npt.NDArray[np.int64]
Limits = Sequence[tuple[Mark, int]]
_NOWHERE: Final[Mapping[int, int]] = {}


class Marks:
    """Counts by mark and row. Copies share what neither side has changed since."""

    def __init__(self) -> None:
        self._rows: dict[Mark, dict[int, int]] = {}
        self._own: set[Mark] = set()
        """Marks whose counts no copy shares."""

    def copy(self) -> "Marks":
        """The same counts, to be changed apart from these."""
        other = Marks()
        other._rows = dict(self._rows)
        self._own = set()
        return other

    def add(self, row: int, marks: Iterable[Mark], sign: int) -> None:
        """Count one pod with these marks on a row, or one less."""
        for mark in marks:
            rows = self._rows.get(mark, {})
            if mark not in self._own:
                rows = self._rows[mark] = dict(rows)
                self._own.add(mark)
            count = rows.get(row, 0) + sign
            if count:
                rows[row] = count
            else:
                rows.pop(row, None)
            if not rows:
                del self._rows[mark]
                self._own.discard(mark)

    def of(self, mark: Mark) -> Mapping[int, int]:
        """By row, how many pods with the mark are there. Not to be written to."""
        return self._rows.get(mark, _NOWHERE)

    def reach(self, row: int, limits: Limits) -> bool:
        """Whether a row counts as many of some mark as one more pod may find there."""
        return any(self.of(mark).get(row, 0) >= most for mark, most in limits)

    def on(self, mark: Mark, rows: Ints) -> Ints:
        """For each of ``rows``: how many pods with the mark are there."""
        counts = np.zeros(len(rows), np.int64)
        known = self.of(mark)
        if known:
            for position, row in enumerate(rows.tolist()):
                counts[position] = known.get(row, 0)
        return counts

    def bound(self, pods: Ints, own: Sequence[Mark], limits: Limits, rows: Ints) -> None:
        """For each of ``rows``: no more ``pods`` than the limits leave. ``own``: the marks of such a pod."""
        for mark, most in limits:
            left = np.maximum(most - self.on(mark, rows), 0)
            # A pod that does not count itself finds nothing else there than the pod before it.
            np.minimum(pods, left if mark in own else np.where(left > 0, pods, 0), out=pods)
