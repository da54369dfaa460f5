"""Which nodes are near each other on the network: domains (a rack, a block, a zone) by levels.

Each node tells its domains (:attr:`.cluster.Node.network`). Tiers are numbers that grow with the distance.
They need not follow each other: the levels of a cluster are the tiers that some node tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes that are near each other."""

    tier: int
    name: str
    """Equal for all nodes in it, and for no others."""
    level: str = ""
    """What the cluster calls domains of this tier; empty: the tier has a number alone."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Members have to be in one domain of this tier, or of a lower one."""

    tier: int | None = None
    level: str = ""
    """The tier by its name, where it has no number here."""

    @property
    def text(self) -> str:
        """The tier in words: ``tier 2``."""
        return f"tier {self.tier}" if self.tier is not None else f"tier {self.level!r}"


@dataclass(frozen=True, slots=True)
class Level:
    """One tier of the cluster. A node without a domain of this tier counts in its next lower one."""

    tier: int
    called: frozenset[str]
    """The names that nodes give to the tier."""
    names: tuple[str, ...]
    """The domains, in the order of their first nodes' names: what they are called makes no difference."""
    numbers: Ints
    """By row: which of them; -1: none."""

    def mask(self, number: int) -> Flags:
        """By row: whether it is in this domain."""
        return np.asarray(self.numbers == number, np.bool_)

    def holding(self, rows: Sequence[int]) -> int | None:
        """The domain that all of these rows, which are some, are in; None: there is none."""
        found = {int(self.numbers[row]) for row in rows}
        return found.pop() if len(found) == 1 and -1 not in found else None

    def sums(self, amounts: Ints) -> Ints:
        """By domain: the sum of what its rows have."""
        inside = self.numbers >= 0
        sums = np.bincount(self.numbers[inside], weights=amounts[inside], minlength=len(self.names))
        return sums.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Levels:
    """All levels, the nearest first. A *height* counts them: 0 is one node, 1 the nearest level ..."""

    listed: tuple[Level, ...] = ()

    @property
    def highest(self) -> int:
        """The height of the widest level; 0 where there is none."""
        return len(self.listed)

    def at(self, height: int) -> Level:
        """The level of this height, from 1 on."""
        return self.listed[height - 1]

    def height(self, bound: Bound) -> int | None:
        """How high a bound allows; None: no level is called so. No number goes beyond the widest level."""
        tier = bound.tier
        if tier is None:
            called = [level.tier for level in self.listed if bound.level in level.called]
            if not called:
                return None
            tier = min(called)
        return sum(level.tier <= tier for level in self.listed)


@dataclass(slots=True)
class Network:
    """The domains of all nodes by row. One for a ledger and all its copies."""

    _told: dict[int, tuple[str, tuple[Domain, ...]]] = field(default_factory=dict)
    """Rows whose nodes tell any: the node's name, and its domains."""
    _rows: int = 0
    _levels: Levels | None = None

    def put(self, row: int, name: str, domains: tuple[Domain, ...], rows: int) -> None:
        """A node has the row and tells these, or no node has it any more. ``rows``: how many there are."""
        before = self._told.get(row)
        now = (name, tuple(sorted(domains, key=lambda domain: domain.tier))) if domains else None
        if before == now and rows == self._rows:
            return
        self._rows, self._levels = rows, None
        if now is not None:
            self._told[row] = now
        else:
            self._told.pop(row, None)

    @property
    def is_told(self) -> bool:
        """Whether any node tells a domain."""
        return bool(self._told)

    def levels(self) -> Levels:
        """The levels of the cluster now."""
        if self._levels is None:
            tiers = sorted({domain.tier for _, domains in self._told.values() for domain in domains})
            self._levels = Levels(tuple(self._level(tier) for tier in tiers))
        return self._levels

    def _level(self, tier: int) -> Level:
        numbers = np.full(self._rows, -1, np.int64)
        names: dict[tuple[int, str], int] = {}
        called: set[str] = set()
        for row, (_, domains) in sorted(self._told.items(), key=lambda entry: entry[1][0]):
            below = [domain for domain in domains if domain.tier <= tier]
            if below:
                numbers[row] = names.setdefault((below[-1].tier, below[-1].name), len(names))
                called |= {below[-1].level} if below[-1].tier == tier and below[-1].level else set()
        return Level(tier, frozenset(called), tuple(name for _, name in names), numbers)
