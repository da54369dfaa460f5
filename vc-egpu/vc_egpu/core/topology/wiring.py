"""The pairs of cards of one node: how good a set of cards is, and which set is the best one.

A set is as good as its worst pair, since every step of a training waits for the slowest. Between equal sets
the better ring decides: the ring through all cards whose slowest pair is the fastest. Then that set is taken
which leaves the best pairs and fours to others.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple, TypeVar

Matrix = tuple[tuple[int, ...], ...]
"""MB/s each way, by two columns; the diagonal is not looked at."""

EXACT_UP_TO: Final = 10
"""With more open cards not every set is looked at: sets grow from each card by its best neighbours."""
_SIZES_LEFT: Final = (2, 4, 8)
_MOST_KEPT: Final = 1 << 14
_NO_PAIR: Final = 1 << 60
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Score(NamedTuple):
    """How good a set is, in MB/s each way; the greater, the better."""

    worst_mb_s: int
    """What its worst pair carries."""
    ring_mb_s: int
    """What the slowest pair on its best ring carries."""


class Wiring:
    """All pairs of one node, by column. Equal wirings are one object, see :func:`wiring`."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        pairs = {row[col] for at, row in enumerate(matrix) for col in range(at)}
        self.uniform = len(pairs) <= 1
        """Every set of so many cards is as good as any other."""
        self._worst: dict[int, int] = {}
        self._rings: dict[int, int] = {}
        self._left: dict[int, tuple[int, ...]] = {}
        self._chosen: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}

    def pair(self, one: int, other: int) -> int:
        """What these two carry each way, in MB/s."""
        return self._matrix[one][other]

    def score(self, cards: Iterable[int]) -> Score | None:
        """How good this set is; None for a single card."""
        mask = _mask(cards)
        if mask.bit_count() < 2:
            return None
        return Score(self._worst_of(mask), self._ring_of(mask))

    def best(self, cards: Sequence[int], count: int) -> tuple[int, ...]:
        """The best set of ``count`` of these cards; fewer where there are no more.

        Among sets that are equal in everything, the one whose cards come first is taken.
        """
        if len(cards) <= count or count < 1:
            return tuple(cards)
        if self.uniform:
            return tuple(cards[:count])
        key = (tuple(cards), count)
        found = self._chosen.get(key)
        if found is None:
            found = _keep(self._chosen, key, self._find(cards, count))
        return found

    def attainable(self, cards: Sequence[int], count: int) -> int:
        """The worst pair of the best set of ``count``, in MB/s; 0 for one card, or too few."""
        if len(cards) < count or count < 2:
            return 0
        return self._worst_of(_mask(self.best(cards, count)))

    def _find(self, cards: Sequence[int], count: int) -> tuple[int, ...]:
        whole = _mask(cards)
        if count == 1:
            return (max(cards, key=lambda card: self.left(whole & ~(1 << card))),)
        sets = list(combinations(cards, count) if len(cards) <= EXACT_UP_TO else self._grown(cards, count))
        top = max(self._worst_of(_mask(each)) for each in sets)
        sets = [each for each in sets if self._worst_of(_mask(each)) == top]
        ring = max(self._ring_of(_mask(each)) for each in sets)
        sets = [each for each in sets if self._ring_of(_mask(each)) == ring]
        return max(sets, key=lambda each: self.left(whole & ~_mask(each)))

    def left(self, mask: int) -> tuple[int, ...]:
        """What a set of cards is worth to asks to come: the worst pair of its best 8, 4 and 2, then all.

        The sizes are counted together, so that no size goes before another.
        """
        found = self._left.get(mask)
        if found is None:
            cards = _columns(mask)
            pairs = sum(self._matrix[one][other] for one, other in combinations(cards, 2))
            best = 0
            if len(cards) <= EXACT_UP_TO:
                best = sum(self._top(cards, size) for size in _SIZES_LEFT)
            found = _keep(self._left, mask, (best, pairs))
        return found

    def _top(self, cards: Sequence[int], count: int) -> int:
        if len(cards) < count:
            return 0
        return max(self._worst_of(_mask(each)) for each in combinations(cards, count))

    def _grown(self, cards: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
        """Sets that grow from each card, each time by the card that has the best worst pair to the set."""
        for first in cards:
            chosen = [first]
            rest = [card for card in cards if card != first]
            while len(chosen) < count:
                ways = {card: sorted(self._matrix[card][other] for other in chosen) for card in rest}
                nearest = max(rest, key=lambda card: (ways[card][0], sum(ways[card])))
                chosen.append(nearest)
                rest.remove(nearest)
            yield tuple(chosen)

    def _worst_of(self, mask: int) -> int:
        found = self._worst.get(mask)
        if found is None:
            first, *rest = _columns(mask)
            to_first = min((self._matrix[first][other] for other in rest), default=_NO_PAIR)
            further = self._worst_of(mask & ~(1 << first)) if len(rest) > 1 else _NO_PAIR
            found = _keep(self._worst, mask, min(to_first, further))
        return found

    def _ring_of(self, mask: int) -> int:
        found = self._rings.get(mask)
        if found is None:
            cards = _columns(mask)
            whole = len(cards) <= EXACT_UP_TO and not self.uniform
            found = _keep(self._rings, mask, self._best_ring(cards) if whole else self._grown_ring(cards))
        return found

    def _best_ring(self, cards: Sequence[int]) -> int:
        """Every ring there is: over the sets of cards that a way from the first has been to, and its end."""
        first, *rest = cards
        ways = {(1 << card, card): self._matrix[first][card] for card in rest}
        for _ in range(len(rest) - 1):
            longer: dict[tuple[int, int], int] = {}
            for (been, end), slowest in ways.items():
                for card in rest:
                    if been & 1 << card:
                        continue
                    at = (been | 1 << card, card)
                    longer[at] = max(longer.get(at, 0), min(slowest, self._matrix[end][card]))
            ways = longer
        return max(min(slowest, self._matrix[end][first]) for (_, end), slowest in ways.items())

    def _grown_ring(self, cards: Sequence[int]) -> int:
        """A good ring: always on to the nearest card that it has not been to."""
        first, *rest = cards
        at, slowest = first, _NO_PAIR
        while rest:
            ways = self._matrix[at]
            nearest = max(rest, key=ways.__getitem__)
            slowest = min(slowest, self._matrix[at][nearest])
            rest.remove(nearest)
            at = nearest
        return min(slowest, self._matrix[at][first])


@lru_cache(maxsize=256)
def wiring(matrix: Matrix) -> Wiring:
    """The wiring of this matrix; nodes of equal wiring share what was found out about it."""
    return Wiring(matrix)


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value) -> _Value:
    if len(kept) >= _MOST_KEPT:
        kept.clear()
    kept[key] = value
    return value


def _mask(cards: Iterable[int]) -> int:
    mask = 0
    for card in cards:
        mask |= 1 << card
    return mask


def _columns(mask: int) -> list[int]:
    return [col for col in range(mask.bit_length()) if mask >> col & 1]
