"""Which cards of a node one container may get together: groups that are joined more closely, whole modules.

A rule comes with the card's model, as data. It is about asks for several cards, and knows no vendor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Cols = tuple[int, ...]
NO_GROUP: Final = -1


@dataclass(frozen=True, slots=True)
class GroupRule:
    """What holds for the cards of one model."""

    within: int = 0
    """Asks for at most so many cards lie in one group."""
    even: bool = False
    """Larger asks take as many cards of each group."""
    unit: int = 1
    """Asks for a multiple of this take whole modules."""


class Grouped(Protocol):
    """A card as far as it matters here."""

    @property
    def group(self) -> int:
        """:data:`NO_GROUP`: it has none."""

    @property
    def module(self) -> int:
        """:data:`NO_GROUP`: it has none."""

    @property
    def rule(self) -> GroupRule | None:
        """None: any cards may go together."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """The cards of one node, by column."""

    rule: GroupRule
    groups: tuple[Cols, ...]
    modules: tuple[Cols, ...]

    def pods(self, count: Ints, cards: int) -> Ints:
        """By row: how many pods that take ``cards`` different cards each, given the copies per card. The
        rows are all nodes with this grouping."""
        if cards <= self.rule.within and self.groups:
            parts = [pods_by_cards(count[:, list(group)], cards) for group in self.groups]
            return np.asarray(np.sum(parts, axis=0), np.int64)
        if self.rule.even and len(self.groups) > 1:
            each, rest = divmod(cards, len(self.groups))
            if rest:
                return np.zeros(len(count), np.int64)
            parts = [pods_by_cards(count[:, list(group)], each) for group in self.groups]
            return np.asarray(np.min(parts, axis=0), np.int64)
        if self._by_module(cards):
            whole = np.stack([count[:, list(module)].min(axis=1) for module in self.modules], axis=1)
            return pods_by_cards(whole, cards // self.rule.unit)
        return pods_by_cards(count, cards)

    def pools(self, free: Sequence[int], cards: int) -> list[Cols]:
        """Sets of free columns, the best first: each has a set of ``cards`` that may go together, and all of
        its sets of ``cards`` may. Groups that are left with an even number of cards, and few, come first."""
        return sorted(self._pools(free, cards), key=lambda pool: _rest(len(pool) - cards))

    def _pools(self, free: Sequence[int], cards: int) -> Iterator[Cols]:
        if cards <= self.rule.within and self.groups:
            within = (tuple(col for col in free if col in group) for group in self.groups)
            yield from (pool for pool in within if len(pool) >= cards)
        elif self.rule.even and len(self.groups) > 1:
            each, rest = divmod(cards, len(self.groups))
            parts = [[col for col in group if col in free][:each] for group in self.groups]
            if not rest and all(len(part) == each for part in parts):
                yield tuple(sorted(col for part in parts for col in part))
        elif self._by_module(cards):
            whole = [module for module in self.modules if all(col in free for col in module)]
            taken = whole[: cards // self.rule.unit]
            if len(taken) * self.rule.unit == cards:
                yield tuple(sorted(col for module in taken for col in module))
        else:
            yield tuple(free)

    def _by_module(self, cards: int) -> bool:
        return self.rule.unit > 1 and cards % self.rule.unit == 0 and bool(self.modules)


def _rest(cards: int) -> tuple[int, int]:
    """An even rest still takes asks for two."""
    return cards % 2, cards


def grouping_of(cards: Sequence[Grouped]) -> Grouping | None:
    """The cards of a node, in the order of their columns; None: no rule holds for them."""
    rule = next((card.rule for card in cards if card.rule is not None), None)
    if rule is None:
        return None
    mine = [(col, card) for col, card in enumerate(cards) if card.rule == rule]
    columns = [col for col, _ in mine]
    groups = _parts(columns, [card.group for _, card in mine])
    whole = [part for part in _parts(columns, [card.module for _, card in mine]) if len(part) == rule.unit]
    return Grouping(rule, tuple(groups), tuple(whole)) if groups or whole else None


def _parts(columns: Sequence[int], numbers: Sequence[int]) -> list[Cols]:
    parts: dict[int, list[int]] = {}
    for col, number in zip(columns, numbers, strict=True):
        if number != NO_GROUP:
            parts.setdefault(number, []).append(col)
    return [tuple(part) for _, part in sorted(parts.items())]


def pods_by_cards(count: Ints, cards: int) -> Ints:
    """By row: how many pods that take ``cards`` different cards each, given the copies per card.

    t pods fit exactly if the copies, each counted t at most, sum up to t times the cards. The largest such
    t is the least, over s, of (copies without the s best cards) // (cards - s).
    """
    if cards == 1:
        return np.asarray(count.sum(axis=1), np.int64)
    if cards > count.shape[1]:
        return np.zeros(count.shape[0], np.int64)
    rest = count.sum(axis=1)
    best = np.sort(count, axis=1)[:, ::-1]
    pods = rest // cards
    for skipped in range(1, cards):
        rest = rest - best[:, skipped - 1]
        pods = np.minimum(pods, rest // (cards - skipped))
    return np.asarray(pods, np.int64)
