"""What rules between pods leave to the members of one shape, seated one after the other.

The rules are those of kube-scheduler: each member has to be let in by all that are there when it comes. Pods
that are to come count where they keep others out, and never where they would let others in.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from vc_egpu.core.books.capacity import Need, candidates, rooms
from vc_egpu.core.books.ledger import Flags, Ints, Ledger
from vc_egpu.core.model.neighbours import RuleKey, Spread, counted, label_of, to_come

_MOST_FIRSTS: Final = 64
"""Domains in which a gang is tried that wants to be near itself."""
_PREFERRED: Final = 100
"""What a rule that is only preferred weighs at most, as with kube-scheduler."""


class _Count:
    """The pods with one mark, by domain, as the rows that are looked at see them."""

    def __init__(self, ledger: Ledger, rule: RuleKey, mark: str, rows: Ints, *, grows: bool) -> None:
        label = label_of(rule)
        self.domain = ledger.domains.of(label)[rows]
        self.counts = np.append(ledger.marks.by_domain(mark, label), 0)
        """By domain; the last is for rows that have none."""
        self.grows = grows

    def here(self) -> Ints:
        """By row."""
        return self.counts[self.domain]

    def seat(self, position: int) -> None:
        if self.grows and self.domain[position] >= 0:
            self.counts[self.domain[position]] += 1


class _Even:
    """One spread over the domains of the nodes that count."""

    def __init__(self, ledger: Ledger, spread: Spread, rows: Ints, reach: Flags) -> None:
        label = label_of(spread.rule)
        everywhere = ledger.domains.of(label)
        self.spread = spread
        self.domain = everywhere[rows]
        self.there = _within(ledger, counted(spread.rule), label, reach)
        self.every = self.there + _within(ledger, to_come(spread.rule), label, reach)
        """Those that are to come as well."""
        self.domains = np.unique(everywhere[reach & (everywhere >= 0)])

    def open(self) -> Flags:
        """By row: whether one more pod may go there."""
        least = int(self.there[self.domains].min()) if len(self.domains) else 0
        if len(self.domains) < self.spread.min_domains:
            least = 0
        most = self.spread.max_skew + least - int(self.spread.itself)
        return (self.domain >= 0) & (self.here() <= most)

    def here(self) -> Ints:
        return self.every[self.domain]

    def seat(self, position: int) -> None:
        if self.spread.itself and self.domain[position] >= 0:
            self.there[self.domain[position]] += 1
            self.every[self.domain[position]] += 1


def _within(ledger: Ledger, mark: str, label: str, reach: Flags) -> Ints:
    """By domain, and once more for none: the pods with a mark on nodes that count."""
    domain = ledger.domains.of(label)
    counts = np.zeros(ledger.domains.count(label) + 1, np.int64)
    for row, count in ledger.marks.of(mark).items():
        if reach[row] and domain[row] >= 0:
            counts[domain[row]] += count
    return counts


class Rules:
    """The rules of one shape over some rows. Seating changes what they leave, and not the ledger."""

    def __init__(self, ledger: Ledger, need: Need, rows: Ints) -> None:
        rules = need.shape.neighbours
        self._size = len(rows)
        wide = [(mark, most) for mark, most in need.limits if label_of(mark)]
        self._limits = [
            (_Count(ledger, mark, mark, rows, grows=mark in need.marks), most) for mark, most in wide
        ]
        self._needs = [
            _Count(ledger, rule, counted(rule), rows, grows=rule in rules.selected_by) for rule in rules.needs
        ]
        self._needs_itself = rules.needs_itself
        self._evens = [
            _Even(ledger, spread, rows, reach)
            for spread, reach in zip(rules.spreads, need.reach, strict=True)
        ]
        self._evens.sort(key=lambda even: len(even.domains))
        self._caps = [
            (ledger.marks.on(counted(one.rule), rows), one.max_skew)
            for one in rules.spreads
            if one.capped and one.itself
        ]
        self._likes = [
            (_Count(ledger, rule, counted(rule), rows, grows=rule in rules.selected_by), weight)
            for rule, weight in rules.likes
        ]
        self._fewest = [
            _Count(ledger, rule, counted(rule), rows, grows=rule in rules.selected_by) for rule in rules.evens
        ]

    @property
    def starts(self) -> bool:
        """Whether the next member would be the first of those that it wants to be near."""
        return bool(self._needs) and self._needs_itself and not any(c.counts.any() for c in self._needs)

    def open(self) -> Flags:
        """By row: whether the rules let the next member in."""
        found = np.ones(self._size, np.bool_)
        for count, most in self._limits:
            found &= (count.domain < 0) | (count.here() < most)
        found &= self.near()
        for even in self._evens:
            found &= even.open()
        for on_node, most in self._caps:
            found &= on_node < most
        return found

    def near(self) -> Flags:
        """By row: whether the pods that the next member needs are there."""
        found, starts = np.ones(self._size, np.bool_), self.starts
        for count in self._needs:
            found &= (count.domain >= 0) & (starts | (count.here() > 0))
        return found

    def firsts(self) -> Ints:
        """By row, the domains that it would tie all members to: equal lines are equal domains."""
        return np.stack([count.domain for count in self._needs], axis=1)

    def seat(self, position: int) -> None:
        """A member goes to this row."""
        for count, _ in (*self._limits, *self._likes):
            count.seat(position)
        for count in (*self._needs, *self._fewest):
            count.seat(position)
        for even in self._evens:
            even.seat(position)
        for on_node, _ in self._caps:
            on_node[position] += 1

    def wishes(self) -> Ints:
        """By row: how little it is preferred, 0 for the best, as far as that depends on other pods."""
        total = np.zeros(self._size, np.int64)
        if self._likes:
            liked = sum((count.here() * weight for count, weight in self._likes), np.zeros_like(total))
            total += _scaled(-liked)
        for count in self._fewest:
            here = np.where(count.domain >= 0, count.here(), int(count.counts.max()) + 1)
            total += _scaled(here)
        return total

    def levels(self) -> list[Ints]:
        """By row, what should be the same everywhere: the fewest first, of the widest domains first."""
        return [even.here() for even in self._evens]


def _scaled(bad: Ints) -> Ints:
    low, high = (int(bad.min()), int(bad.max())) if len(bad) else (0, 0)
    return (bad - low) * _PREFERRED // (high - low) if high > low else np.zeros_like(bad)


class Choice(NamedTuple):
    """Rows for members to go to, and what tells them apart where no rule does."""

    rows: Ints
    room: Ints
    """How many members each takes, rules between nodes aside."""
    calm: Ints
    """How many of these disturb no other share."""
    rank: Ints
    """The policy's order."""
    taken: Ints | None = None
    """How many of the gang each has: the fewest first. None: the policy fills one row after the other."""


def deal(ledger: Ledger, need: Need, choice: Choice, wanted: int) -> list[int]:
    """Positions in ``choice.rows`` for up to ``wanted`` members, in the order in which they are let in."""
    best: list[int] = []
    for within in _firsts(ledger, need, choice, wanted):
        found = _deal(Rules(ledger, need, choice.rows), choice, within, wanted)
        if len(found) >= wanted:
            return found
        best = max(best, found, key=len)
    return best


def _firsts(ledger: Ledger, need: Need, choice: Choice, wanted: int) -> Iterator[Flags]:
    """Which rows to keep to. Members that want to be near each other all go where the first one goes."""
    rules = Rules(ledger, need, choice.rows)
    if not rules.starts:
        yield np.ones(len(choice.rows), np.bool_)
        return
    open_rows = np.flatnonzero(rules.open() & (choice.room > 0))
    if not len(open_rows):
        return
    _, number = np.unique(rules.firsts()[open_rows], axis=0, return_inverse=True)
    number = number.reshape(-1)
    room = np.bincount(number, weights=choice.room[open_rows]).astype(np.int64)
    first = np.full(len(room), len(choice.rows), np.int64)
    np.minimum.at(first, number, choice.rank[open_rows])
    # Enough room first, and little of it. Where none is enough, the most.
    order = np.lexsort((first, np.where(room >= wanted, room, -room), room < wanted))
    for domain in order[:_MOST_FIRSTS].tolist():
        within = np.zeros(len(choice.rows), np.bool_)
        within[open_rows[number == domain]] = True
        yield within


def _deal(rules: Rules, choice: Choice, within: Flags, wanted: int) -> list[int]:
    found: list[int] = []
    dealt = np.zeros(len(choice.rows), np.int64)
    while len(found) < wanted:
        left = np.flatnonzero(rules.open() & within & (dealt < choice.room))
        if not len(left):
            break
        position = int(left[_first_of(rules, choice, dealt, left)])
        rules.seat(position)
        dealt[position] += 1
        found.append(position)
    return found


def _first_of(rules: Rules, choice: Choice, dealt: Ints, left: Ints) -> int:
    """Which of the positions ``left`` gets the next member; the answer is an index into them."""
    keys: list[Ints] = [level[left] for level in rules.levels()]
    keys.append(rules.wishes()[left])
    keys.append(np.asarray(dealt[left] >= choice.calm[left], np.int64))
    if choice.taken is not None:
        keys.append((choice.taken + dealt)[left])
    keys.append(choice.rank[left])
    at = np.arange(len(left))
    for key in keys:
        some = key[at]
        at = at[some == some.min()]
    return int(at[0])


def in_order(rules: Rules, choice: Choice) -> list[int]:
    """All positions with room that the rules leave to the next member, the best first."""
    left = np.flatnonzero(rules.open() & (choice.room > 0))
    keys = [choice.rank[left], rules.wishes()[left], *(level[left] for level in reversed(rules.levels()))]
    return [int(position) for position in left[np.lexsort(keys)]]


def places_for(ledger: Ledger, need: Need, mask: Flags, wanted: int) -> int:
    """How many of ``wanted`` pods of this shape fit in all, by all rules between pods."""
    rows = candidates(ledger, need, mask)
    room, calm = rooms(ledger, need, rows)
    if not need.is_wide:
        return int(room.sum())
    return len(deal(ledger, need, Choice(rows, room, calm, np.arange(len(rows))), wanted))
