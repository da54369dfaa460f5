"""The score of a place for a pod: what the node, or one card of it, loses for usual work if the pod gets it.

:func:`outlook_of` gives the outlook of a trial. It remembers nodes and asks that it has worked out, for later
decisions too. What it answers depends on the trial alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from vc_egpu.core.books.capacity import AskNeed, Need
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.cluster import Mode
from vc_egpu.core.model.policy import Mix, PodClass
from vc_egpu.core.placing.fragments import (
    Fragments,
    Keys,
    Sizes,
    card_key,
    distinct,
    keys_of,
    kind_keys,
    moved,
    with_cpu,
)
from vc_egpu.core.placing.measure import CARD_MILLI, Free, part
from vc_egpu.core.placing.weights import Facts, Regrets, Weights, demands, frequencies, weigh
from vc_egpu.core.trial.trial import Trial

POINT: Final = 1000
"""One of a hundred points of a score."""
_STEEPNESS_MILLI: Final = 1000.0
_TYPICAL: Final = 0.95
_UNKNOWN: Final = -1
CardMib = Callable[[str, Mode], int]
"""Memory of a card by model and mode."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a fragment-aware policy looks at."""

    name: str
    typical_only: bool
    """Only the most frequent classes count, as many as make up 95 % of all pods."""
    learned_weights: bool
    """Weights by scarcity, the look at cores, and regret. Otherwise classes count by frequency alone."""


@dataclass(frozen=True, slots=True)
class PodSize:
    """What one pod takes of a node, for a score."""

    cpu: int
    milli: int
    cards: int
    whole: bool


class Outlook:
    """One rule on one mix: fragments, regrets, and scores by (node, size of pod)."""

    def __init__(self, rule: Rule, mix: Mix, card_mib: CardMib, free: Free | None = None) -> None:
        self.of = mix.classes
        self.rule = rule
        self.classes = _typical(mix.classes) if rule.typical_only else mix.classes
        self.card_mib = {kind: card_mib(*kind) for kind in map(_kind, self.classes) if kind is not None}
        milli = np.array([self._milli_of(each) for each in self.classes], np.int64)
        self._pools = {key: number for number, key in enumerate(dict.fromkeys(map(_pool, self.classes)))}
        self._pool = np.array([self._pools[_pool(each)] for each in self.classes], np.int64)
        self._frequency = frequencies(self.classes)
        cpu = np.array([each.cpu_milli for each in self.classes], np.int64)
        cards = np.array([each.cards for each in self.classes], np.int64)
        self._sizes = Sizes(cpu, milli, cards)
        self._facts = Facts(cards, demands(self.classes, milli), self._pool, self._frequency)
        self._fragments = Fragments(self._sizes, look_ahead=rule.learned_weights)
        self._regrets = Regrets(self.classes, milli, self._frequency) if rule.learned_weights else None
        self._scores: dict[PodSize, _Scores] = {}
        self._used: Weights | None = None
        self._strictness = 0
        self._free = free or Free()
        self._keys: Keys = np.zeros(0, np.uint64)
        self._rows_of_pool: Flags = np.zeros((0, 0), np.bool_)
        self._kinds: Keys = np.zeros(0, np.uint64)

    def _milli_of(self, each: PodClass) -> int:
        kind = _kind(each)
        mib = self.card_mib[kind] if kind is not None else 1
        return part(each.memory_mib, mib, each.cores_percent, alone=each.whole or each.native)

    def serves(self, mix: Mix, card_mib: CardMib | None) -> bool:
        """Whether it is of this mix, and of cards with this memory where that is asked for."""
        if self.of is not mix.classes and self.of != mix.classes:
            return False
        return card_mib is None or all(card_mib(*kind) == mib for kind, mib in self.card_mib.items())

    def successor(self, mix: Mix, card_mib: CardMib) -> "Outlook":
        """The same rule on another mix. It takes over what is known of the nodes: end the use of this one."""
        return Outlook(self.rule, mix, card_mib, self._free)

    # --- a trial ---------------------------------------------------------------------------------

    def weights(self, trial: Trial) -> Weights:
        """How classes weigh in this trial."""
        if not self.rule.learned_weights:
            return Weights(self._frequency, 0.0, 0.0)
        self._look(trial)
        return weigh(self._facts, self._rows_of_pool, self._free, trial.policy.mix.churn)

    def use(self, weights: Weights) -> None:
        """Answer by these weights from now on."""
        if weights is not self._used:
            self._used, self._strictness = weights, round(weights.strictness * POINT)
            self._fragments.weigh(weights.classes, weights.beta)
        if self._fragments.full:
            self._fragments = Fragments(self._sizes, look_ahead=self.rule.learned_weights)
            self._fragments.weigh(weights.classes, weights.beta)
            self._scores.clear()

    def find_kinds(self, trial: Trial) -> None:
        """Which nodes are for which classes, as nodes are now."""
        ledger, rows = trial.ledger, []
        for each in self._firsts():
            mask = trial.index.mask(each.where)
            if each.cards:
                mask = mask & ledger.rows_with(ledger.kind_of(each.model, _mode(each)))
            rows.append(mask)
        found = np.stack(rows) if rows else np.zeros((0, len(ledger.names)), np.bool_)
        if not np.array_equal(found, self._rows_of_pool):
            self._rows_of_pool, self._kinds = found, kind_keys(found)
            self._keys = np.zeros(0, np.uint64)

    def _look(self, trial: Trial) -> Free:
        """What is free now, and the keys of nodes."""
        changed = self._free.look(trial.ledger)
        free = self._free
        if len(self._keys) != len(self._kinds):
            changed, self._keys = np.arange(len(self._kinds)), np.zeros(len(self._kinds), np.uint64)
        if len(changed):
            self._keys[changed] = keys_of(free.milli[changed], free.cpu[changed], self._kinds[changed])
        return free

    def _firsts(self) -> list[PodClass]:
        """One class of each pool, in the order of the pools."""
        return [self.classes[int(np.argmax(self._pool == number))] for number in range(len(self._pools))]

    # --- answers ---------------------------------------------------------------------------------

    def node_scores(self, trial: Trial, rows: Ints, size: PodSize) -> Ints:
        """By row: the score of the best place there, the more the better; whether it fits is no matter."""
        free = self._look(trial)
        now = _Now(free.milli, free.cpu, self._keys)
        known, width = self._scores.get(size), free.milli.shape[1]
        if known is None or len(known.keys) != len(now.keys) or known.after.shape[1] != width:
            known = self._scores[size] = _Scores(len(now.keys), width)
        stale = rows[known.keys[rows] != now.keys[rows]]
        if len(stale):
            self._find(known, size, stale, now)
        slots = known.slots[rows]
        self._refresh(known, slots)
        return np.asarray(known.score[slots])

    def _find(self, known: "_Scores", size: PodSize, rows: Ints, now: "_Now") -> None:
        keys = now.keys
        names = keys[rows].tolist()
        fresh = {key: row for key, row in zip(names, rows.tolist(), strict=True) if key not in known.slot_of}
        if fresh:
            self._work_out(known, size, fresh, now)
        known.slots[rows] = [known.slot_of[key] for key in names]
        known.keys[rows] = keys[rows]

    def _work_out(self, known: "_Scores", size: PodSize, fresh: Mapping[int, int], now: "_Now") -> None:
        keys, rows = list(fresh), np.fromiter(fresh.values(), np.int64, len(fresh))
        free, cpu = now.free, now.cpu
        takes = self._rows_of_pool[:, rows][self._pool].T
        cards = np.sort(free[rows], axis=1)
        before = self._fragments.enter(keys, cards, cpu[rows], takes)
        node, col = _places(cards, size)
        after = cards[node]
        regret = np.zeros(len(node), np.int64)
        for step in range(size.cards):
            at = (np.arange(len(node)), col + step)
            if self._regrets is not None and not size.whole:
                regret += self._regrets.of(size.milli)[after[at]]
            after[at] -= size.milli
        left = cpu[rows][node] - size.cpu
        named = keys_of(after, left, self._kinds[rows][node])
        numbers = self._fragments.enter(named.tolist(), after, left, takes[node])
        known.add(keys, before, node, np.array(numbers, np.int64), regret)

    def _refresh(self, known: "_Scores", slots: Ints) -> None:
        version = (self._fragments.version, self._strictness)
        if known.version != version:
            known.version = version
            known.stamp += 1
        old = slots[known.stamps[slots] != known.stamp]
        if not len(old):
            return
        old = distinct(old)
        after = known.after[old]
        before = self._fragments.values(known.before[old])[:, None]
        there = self._fragments.values(np.maximum(after, 0).ravel()).reshape(after.shape)
        found = self._points(before - there, known.regret[old])
        known.score[old] = np.where(after >= 0, found, _no_place()).max(axis=1)
        known.stamps[old] = known.stamp

    def _points(self, less: np.ndarray[tuple[int, ...], np.dtype[np.float64]], regret: Ints) -> Ints:
        points = np.floor(100 / (1 + np.exp(-less / _STEEPNESS_MILLI))).astype(np.int64)
        return np.asarray(points * POINT - self._strictness * regret, np.int64)

    def fullest_with_room(self, trial: Trial, rows: Ints, size: PodSize, most: int) -> Ints:
        """Positions among ``rows``: so many of the fullest nodes, of those that seem to have room."""
        free = self._look(trial)
        cards = (free.milli[rows] >= size.milli).sum(axis=1)
        found = np.flatnonzero((cards >= size.cards) & (free.cpu[rows] >= size.cpu))
        if len(found) <= most:
            return found
        return np.asarray(found[np.argpartition(free.total[rows[found]], most)[:most]], np.int64)

    def card_scores(self, row: int, free: Sequence[int], cpu: int, size: PodSize) -> dict[int, int]:
        """By free part of a card of this node: the score of one share there. ``cpu`` is free before it."""
        key = with_cpu(int(self._kinds[row]), cpu)
        for milli in free:
            key = (key + card_key(milli)) & ((1 << 64) - 1)
        levels = sorted({milli for milli in free if milli})
        states = [list(free)]
        keys, regret = [key], []
        for level in levels:
            left = max(0, level - size.milli)
            keys.append(with_cpu(moved(key, level, left), -size.cpu))
            state = list(free)
            state[state.index(level)] = left
            states.append(state)
            regret.append(int(self._regrets.of(size.milli)[level]) if self._regrets is not None else 0)
        cpus = np.array([cpu] + [cpu - size.cpu] * len(levels), np.int64)
        takes = np.repeat(self._rows_of_pool[self._pool, row][None, :], len(keys), axis=0)
        numbers = self._fragments.enter(keys, np.array(states, np.int64), cpus, takes)
        values = self._fragments.values(np.array(numbers, np.int64))
        found = self._points(values[0] - values[1:], np.array(regret, np.int64))
        return dict(zip(levels, found.tolist(), strict=True))

    def fragments(self, trial: Trial) -> Ints:
        """By row: the node's fragment, weighed as the rule says, in thousandths of a card."""
        self.find_kinds(trial)
        free = self._look(trial)
        takes = self._rows_of_pool[self._pool].T
        numbers = self._fragments.enter(self._keys.tolist(), free.milli, free.cpu, takes)
        return np.rint(self._fragments.values(np.array(numbers, np.int64))).astype(np.int64)


class _Now(NamedTuple):
    """What is free on all nodes, by row."""

    free: Ints
    cpu: Ints
    keys: Keys


class _Scores:
    """Scores of one size of pod: by row its slot, by slot the places of such a node."""

    def __init__(self, rows: int, width: int) -> None:
        self.keys: Keys = np.zeros(rows, np.uint64)
        self.slots: Ints = np.zeros(rows, np.int64)
        self.slot_of: dict[int, int] = {}
        self.before: Ints = np.zeros(64, np.int64)
        self.after: Ints = np.full((64, width), _UNKNOWN, np.int64)
        self.regret: Ints = np.zeros((64, width), np.int64)
        self.score: Ints = np.zeros(64, np.int64)
        self.stamps: Ints = np.zeros(64, np.int64)
        self.stamp = 1
        self.version: tuple[int, int] = (-1, -1)

    def add(self, keys: Sequence[int], before: Sequence[int], node: Ints, after: Ints, regret: Ints) -> None:
        """Nodes of these keys; ``node`` says which of them each place is on."""
        start = len(self.slot_of)
        while start + len(keys) > len(self.before):
            self._grow()
        self.slot_of.update((key, start + i) for i, key in enumerate(keys))
        self.before[start : start + len(keys)] = before
        counts = np.bincount(node, minlength=len(keys))
        nth = np.arange(len(node)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.after[start + node, nth] = after
        self.regret[start + node, nth] = regret

    def _grow(self) -> None:
        for name in ("before", "after", "regret", "score", "stamps"):
            array = getattr(self, name)
            fill = _UNKNOWN if name == "after" else 0
            setattr(self, name, np.concatenate([array, np.full_like(array, fill)]))


def _places(cards: Ints, size: PodSize) -> tuple[Ints, Ints]:
    """The places for such a pod on nodes whose cards are sorted, the fullest first: node and first column.

    One place for each different card for a single share. Several cards, and whole ones: the fullest that fit.
    """
    if not size.cards:
        return np.arange(len(cards)), np.zeros(len(cards), np.int64)
    first = (cards < size.milli).sum(axis=1)
    if size.cards == 1 and not size.whole:
        other = np.ones(cards.shape, np.bool_)
        other[:, 1:] = cards[:, 1:] != cards[:, :-1]
        node, col = np.nonzero((cards >= size.milli) & other)
        return node, col
    node = np.flatnonzero(first + size.cards <= cards.shape[1])
    return node, first[node]


def _no_place() -> int:
    return -(1 << 40)


def _typical(classes: Sequence[PodClass]) -> tuple[PodClass, ...]:
    total = sum(each.frequency for each in classes)
    found: list[PodClass] = []
    seen = 0.0
    for each in sorted(classes, key=lambda each: -each.frequency):
        if seen >= _TYPICAL * total:
            break
        found.append(each)
        seen += each.frequency
    return tuple(found)


def _mode(each: PodClass) -> Mode:
    return Mode.NATIVE if each.native else Mode.SHARED


def _kind(each: PodClass) -> tuple[str, Mode] | None:
    """The kind of its cards; None: it takes none."""
    return (each.model, _mode(each)) if each.cards else None


def _pool(each: PodClass) -> tuple[object, ...]:
    return (
        each.model,
        each.native,
        each.where.node_selector,
        each.where.affinity_terms,
        each.where.tolerations,
    )


def size_of(need: Need, ask_part: Callable[[AskNeed], int]) -> PodSize:
    """A pod as a score sees it. One with several asks counts as if all its cards were as the largest."""
    if not need.asks:
        return PodSize(need.requests[0], 0, 0, whole=False)
    whole = any(ask.alone for ask in need.asks)
    milli = CARD_MILLI if whole else max(ask_part(ask) for ask in need.asks)
    return PodSize(need.requests[0], milli, sum(ask.cards for ask in need.asks), whole)


def outlook_of(trial: Trial, rule: Rule) -> Outlook:
    """The outlook of this rule on the trial as it is now."""
    mix, ledger, known = trial.policy.mix, trial.ledger, trial.index.remembered

    def mib(model: str, mode: Mode) -> int:
        return ledger.memory_of(ledger.kind_of(model, mode))

    weights = trial.scratch.get(rule.name)
    outlook = known.get(rule.name)
    if not isinstance(outlook, Outlook):
        outlook, weights = Outlook(rule, mix, mib), None
    elif not outlook.serves(mix, None if weights else mib):
        outlook, weights = outlook.successor(mix, mib), None
    known[rule.name] = outlook
    if not isinstance(weights, Weights):
        outlook.find_kinds(trial)
        weights = trial.scratch[rule.name] = outlook.weights(trial)
    outlook.use(weights)
    return outlook
