"""How much of what is free on a node is of no use to usual work: equal nodes are worked out once.

The fragment of a node for a class of pods is what that class cannot use there (FGD, ATC'23). Where such a pod
does not fit, that is all that is free. Otherwise it is the cards that are too full for one of its shares.
``look_ahead`` is a second term: cards that would fit, on a node whose cores do not last for so many pods.

All amounts are whole thousandths of a card, so that sums do not depend on their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.placing.measure import CARD_MILLI

Keys = npt.NDArray[np.uint64]
_Whole = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float64]
_MOST_AMOUNTS: Final = 6_000_000
"""So many amounts are kept, 4 bytes each, twice with the look at cores. Beyond them the table starts over."""
_PIECE: Final = 512
_AT_ONCE: Final = 20_000
"""So many amounts are gathered in one step. More of them go column by column, which takes less memory."""
_WEIGHT_UNITS: Final = float(1 << 28)
"""Weights are whole multiples of one such part of 1: sums of products are exact in floating point."""

_WRAP: Final = (1 << 64) - 1


def _scattered(first: int, count: int) -> list[int]:
    """So many numbers of 64 bits, each far from all others: the mixing of splitmix64."""
    found = []
    for number in range(first, first + count):
        mixed = (number * 0x9E3779B97F4A7C15) & _WRAP
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WRAP
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WRAP
        found.append(mixed ^ (mixed >> 31))
    return found


_CARD_KEYS: Final[Keys] = np.array([0, *_scattered(1, CARD_MILLI)], np.uint64)
"""By free part. A full card is as good as none."""
_CPU_KEY: Final = _scattered(CARD_MILLI + 1, 1)[0] | 1
_FIRST_POOL: Final = CARD_MILLI + 2


def card_key(milli: int) -> int:
    """What a card with this free part adds to the key of its node."""
    return int(_CARD_KEYS[milli])


def moved(key: int, before: int, after: int) -> int:
    """The key of the node once a card's free part has changed."""
    return (key - int(_CARD_KEYS[before]) + int(_CARD_KEYS[after])) & _WRAP


def with_cpu(key: int, more: int) -> int:
    """The key of the node once so much more cpu is free, in milli-CPU; negative: less."""
    return (key + _CPU_KEY * more) & _WRAP


def keys_of(free: Ints, cpu: Ints, kinds: Keys) -> Keys:
    """By row: equal for nodes of one kind with equal cpu and, in whatever order, equal cards."""
    return np.asarray(
        _CARD_KEYS[free].sum(axis=1, dtype=np.uint64) + cpu.astype(np.uint64) * np.uint64(_CPU_KEY) + kinds,
        np.uint64,
    )


def kind_keys(pools: Flags) -> Keys:
    """By row of nodes: equal for those that are in the same pools. ``pools`` is by (pool, row)."""
    numbers = np.array(_scattered(_FIRST_POOL, len(pools)), np.uint64)
    return np.asarray((pools * numbers[:, None]).sum(axis=0, dtype=np.uint64), np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Classes of pods as columns; a class without cards has ``cards`` 0."""

    cpu: Ints
    milli: Ints
    cards: Ints


def _sums(by_level: _Whole, free: Ints) -> _Whole:
    """By (node, column): the sum over the node's cards of what stands for their free part."""
    if free.size * by_level.shape[1] <= _AT_ONCE:
        return np.asarray(by_level.take(free, 0).sum(axis=1, dtype=np.int32), np.int32)
    found = by_level.take(free[:, 0], 0)
    for col in range(1, free.shape[1]):
        found += by_level.take(free[:, col], 0)
    return found


def distinct(ids: Ints) -> Ints:
    """Each number once, the smallest first."""
    ranked = np.sort(ids)
    is_new = np.ones(len(ranked), np.bool_)
    is_new[1:] = ranked[1:] != ranked[:-1]
    return ranked[is_new]


class Fragments:
    """The fragments of all nodes seen, for a fixed list of classes. Never needed for a right answer."""

    def __init__(self, sizes: Sizes, *, look_ahead: bool) -> None:
        self.sizes = sizes
        self._look_ahead = look_ahead
        levels = np.arange(CARD_MILLI + 1)[:, None]
        takes = (levels >= sizes.milli) & (sizes.cards > 0)
        tables = [np.where(takes, levels, 0), takes]
        if look_ahead:
            tables.append(np.where(takes, levels // np.maximum(sizes.milli, 1), 0))
        self._by_level: _Whole = np.concatenate(tables, axis=1, dtype=np.int32)
        """What a card of a free part has for each class: what can be used, whether it fits, and how often."""
        self._most = max(1024, _MOST_AMOUNTS // max(1, len(sizes.cpu)))
        self.ids: dict[int, int] = {}
        """By key of the node."""
        self._rows = 0
        self._plain: _Whole = np.zeros((256, len(sizes.cpu)), np.int32)
        self._ahead: _Whole = np.zeros((256 if look_ahead else 0, len(sizes.cpu)), np.int32)
        self._values: _Floats = np.zeros(256)
        self._weighed = np.zeros(256, np.int64)
        self._version = 0
        self._weights: _Floats = np.zeros(len(sizes.cpu))
        self._beta = 0.0

    @property
    def full(self) -> bool:
        """Whether it is time to start over."""
        return self._rows > self._most

    @property
    def version(self) -> int:
        """Changes with the weights."""
        return self._version

    def weigh(self, weights: _Floats, beta: float) -> None:
        """Weights of the classes, their sum 1, and of the look at cores."""
        whole = np.rint(weights * _WEIGHT_UNITS)
        if beta != self._beta or not np.array_equal(whole, self._weights):
            self._weights, self._beta = whole, beta
            self._version += 1

    def enter(self, keys: Sequence[int], free: Ints, cpu: Ints, takes: Flags) -> list[int]:
        """The numbers of these nodes; ``takes`` is by (node, class): whether it is for the class at all."""
        ids = self.ids
        fresh: dict[int, int] = {}
        for position, key in enumerate(keys):
            if key not in ids:
                ids[key] = self._rows + len(fresh)
                fresh[key] = position
        if fresh:
            rows = np.fromiter(fresh.values(), np.int64, len(fresh))
            for at in range(0, len(rows), _PIECE):
                piece = rows[at : at + _PIECE]
                self._work_out(free[piece], cpu[piece], takes[piece])
        return [ids[key] for key in keys]

    def _work_out(self, free: Ints, cpu: Ints, takes: Flags) -> None:
        start, count = self._rows, len(free)
        while start + count > len(self._plain):
            self._grow()
        total = free.sum(axis=1)
        sums, sizes, classes = _sums(self._by_level, free), self.sizes, len(self.sizes.cpu)
        use, seats = sums[:, :classes], sums[:, classes : 2 * classes]
        fits = takes & (cpu[:, None] >= sizes.cpu) & (seats >= np.maximum(sizes.cards, 1))
        use *= fits
        self._plain[start : start + count] = total[:, None] - use
        if self._look_ahead:
            copies = sums[:, 2 * classes :] // np.maximum(sizes.cards, 1)
            pods = np.maximum(cpu, 0)[:, None] / np.maximum(sizes.cpu, 1)
            lack = np.clip(1 - pods / np.maximum(copies, 1), 0, 1) * (sizes.cpu > 0)
            self._ahead[start : start + count] = np.rint(use * lack)
        self._rows = start + count

    def _grow(self) -> None:
        for name in ("_plain", "_ahead", "_values", "_weighed"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))

    def values(self, ids: Ints) -> _Floats:
        """The weighed fragments of these nodes, in thousandths of a card."""
        old = ids[self._weighed[ids] != self._version] if self._version else ids[:0]
        if len(old):
            old = distinct(old)
            for at in range(0, len(old), _PIECE):
                piece = old[at : at + _PIECE]
                found = self._plain[piece].astype(np.float64) @ self._weights
                if self._beta:
                    found += self._beta * (self._ahead[piece].astype(np.float64) @ self._weights)
                self._values[piece] = found / _WEIGHT_UNITS
            self._weighed[old] = self._version
        return np.asarray(self._values[ids])
