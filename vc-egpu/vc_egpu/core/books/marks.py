"""How many pods with a mark each node has: rules between pods count by it (:mod:`.model.neighbours`).

Rules speak of domains: nodes that have the same value of a label.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from vc_egpu.core.model.neighbours import Mark, label_of

Ints = npt.NDArray[np.int64]
Limits = Sequence[tuple[Mark, int]]
_NOWHERE: Final[Mapping[int, int]] = {}
_MOST_KEPT: Final = 64
"""Labels for which the domains of all nodes are kept. Makers of pods may name any number of them."""
_NO_BOUND: Final = 1 << 40
"""A node without the label is in no domain: no rule keeps a pod from it."""


class Domains:
    """The labels of nodes by row, and numbers for their values. One for a ledger and all its copies."""

    def __init__(self, rows: int = 0) -> None:
        self._labels: list[Mapping[str, str] | None] = [None] * rows
        """None: no node has this row."""
        self._known: dict[str, tuple[Ints, int]] = {}

    def put(self, row: int, labels: Mapping[str, str] | None, rows: int) -> None:
        """A node with these labels has the row, or none any more. ``rows``: how many the ledger has."""
        if len(self._labels) < rows:
            self._labels += [None] * (rows - len(self._labels))
            self._known.clear()
        if self._labels[row] != labels:
            self._labels[row] = labels
            self._known.clear()

    def of(self, label: str) -> Ints:
        """By row: the number of its domain, -1 where the node has no such label, or the row no node.

        An empty label makes each row a domain. Not to be written to.
        """
        return self._entry(label)[0]

    def count(self, label: str) -> int:
        """How many numbers there are."""
        return self._entry(label)[1]

    def _entry(self, label: str) -> tuple[Ints, int]:
        known = self._known.get(label)
        if known is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            known = self._known[label] = self._numbered(label)
        return known

    def _numbered(self, label: str) -> tuple[Ints, int]:
        if not label:
            there = [labels is not None for labels in self._labels]
            return np.where(there, np.arange(len(there)), -1).astype(np.int64), len(there)
        numbers: dict[str, int] = {}
        found = np.full(len(self._labels), -1, np.int64)
        for row, labels in enumerate(self._labels):
            value = labels.get(label) if labels is not None else None
            if value is not None:
                found[row] = numbers.setdefault(value, len(numbers))
        return found, len(numbers)


class Marks:
    """Counts by mark and row. Copies share what neither side has changed since.

    ``domains``: of the same ledger. All copies of the ledger share them.
    """

    def __init__(self, domains: Domains | None = None) -> None:
        self.domains = domains or Domains()
        self._rows: dict[Mark, dict[int, int]] = {}
        self._own: set[Mark] = set()
        """Marks whose counts no copy shares."""

    def copy(self) -> "Marks":
        """The same counts, to be changed apart from these."""
        other = Marks(self.domains)
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
        """Whether a row's domain counts as many of some mark as one more pod may find there."""
        return any(self._there(mark, row) >= most for mark, most in limits)

    def _there(self, mark: Mark, row: int) -> int:
        label = label_of(mark)
        if not label:
            return self.of(mark).get(row, 0)
        domain = self.domains.of(label)
        return sum(count for other, count in self.of(mark).items() if domain[other] == domain[row] >= 0)

    def on(self, mark: Mark, rows: Ints) -> Ints:
        """For each of ``rows``: how many pods with the mark are on that node itself."""
        counts = np.zeros(len(rows), np.int64)
        known = self.of(mark)
        if known:
            for position, row in enumerate(rows.tolist()):
                counts[position] = known.get(row, 0)
        return counts

    def by_domain(self, mark: Mark, label: str) -> Ints:
        """By number of domain of a label: how many pods with the mark are there."""
        domain, counts = self.domains.of(label), np.zeros(self.domains.count(label), np.int64)
        for row, count in self.of(mark).items():
            if domain[row] >= 0:
                counts[domain[row]] += count
        return counts

    def bound(self, pods: Ints, own: Sequence[Mark], limits: Limits, rows: Ints) -> None:
        """For each of ``rows``: no more ``pods`` than the limits leave. ``own``: the marks of such a pod.

        Rows of one domain share what it leaves: each of them has the bound of all.
        """
        for mark, most in limits:
            label = label_of(mark)
            if not label:
                left = np.maximum(most - self.on(mark, rows), 0)
            elif self.of(mark) or mark in own:
                domain, counts = self.domains.of(label)[rows], self.by_domain(mark, label)
                free = np.maximum(most - counts, 0)
                left = np.where(domain >= 0, free[domain] if len(free) else most, _NO_BOUND)
            else:
                continue
            # A pod that does not count itself finds nothing else there than the pod before it.
            np.minimum(pods, left if mark in own else np.where(left > 0, pods, 0), out=pods)
