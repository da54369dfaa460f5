"""What the usual work weighs, given what is idle now: the weights of classes in :mod:`.fragments`.

A class that may go to some nodes only weighs more where these are scarce and much work for them is to come.
Sets of cards that are all idle count like such nodes for pods of several cards.

While the cluster only fills up, a look ahead at cores pays. So does a strict eye on what a share leaves on
its card. Under churn both would keep large pods waiting. So the share of churn sets them.

The formulas and their constants are the outcome of trials on the openb traces: see ``docs/placement.md``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.policy import PodClass
from vc_egpu.core.placing.measure import CARD_MILLI, Free

Floats = npt.NDArray[np.float64]

_LOOK_AHEAD: Final = 0.15
_MOST_PRESSURE: Final = 2.0
_MOST_SCARCITY: Final = 50.0
_MOST_STRICTNESS: Final = 1000.0
_COMMON: Final = 0.03
"""A size of share counts as usual from this part of all shares on."""
_STEP: Final = 0.02
"""Idle amounts are rounded to such relative steps. Within one of them all weights stay as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """How the classes count now."""

    classes: Floats
    """By class; their sum is 1, or 0 without classes."""
    beta: float
    """Weight of the look ahead at cores."""
    strictness: float
    """Points of the score that a hundredth of a card costs, where a share spoils so much of its card."""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is known of the classes, one value for each."""

    cards: Ints
    """Those of one pod."""
    demand: Floats
    """Its part of all demand for cards."""
    pool: Ints
    """The number of the pool of nodes that take it."""
    frequency: Floats


def frequencies(classes: Sequence[PodClass]) -> Floats:
    """By class, as parts of 1."""
    found = np.array([each.frequency for each in classes], np.float64)
    total = found.sum()
    return np.asarray(found / total) if total else found


def weigh(facts: "Facts", pools: Flags, free: Free, churn: float) -> Weights:
    """The weights of this moment. ``pools`` is by (pool, row)."""
    pool, demand = facts.pool, facts.demand
    by_row = free.total
    idle = _rounded(float(by_row.sum()))
    weights = facts.frequency.copy()
    if idle:
        # Whole amounts, far below 2^53: the product is exact.
        of_pool = [_rounded(of) for of in (pools.astype(np.float64) @ by_row.astype(np.float64)).tolist()]
        asked = np.bincount(pool, demand, len(pools))
        # A pool that is full cannot be chosen: nothing is to be kept there.
        factors = np.array(
            [_factor(share, idle, of, idle) if of else 1.0 for share, of in zip(asked, of_pool, strict=True)]
        )
        weights *= np.where(demand > 0, factors[pool], 1.0)
        weights = _as_parts(weights)
        weights = _as_parts(weights * _set_factors(facts.cards, demand, free.intact, idle))
    churn = min(1.0, max(0.0, churn))
    strictness = min(_MOST_STRICTNESS, 1 / churn) if churn else _MOST_STRICTNESS
    return Weights(weights, _LOOK_AHEAD * (1 - churn), strictness)


def _set_factors(cards: Ints, demand: Floats, intact: Ints, idle: float) -> Floats:
    """By class: how much more a pod of several cards counts, by the sets of idle cards that are left."""
    factors = np.ones(len(cards))
    if not (cards > 1).any():
        return factors
    of = {count: _set_size(count) for count in {*cards.tolist()}}
    sizes = np.array([of[count] for count in cards.tolist()], np.int64)
    for size in sorted({*of.values()} - {0}):
        left = _rounded(float(CARD_MILLI * size * int((intact // size).sum())))
        asked = float(demand[sizes == size].sum())
        factors[sizes == size] = _factor(asked, idle, left, _MOST_SCARCITY)
    return factors


def demands(classes: Sequence[PodClass], milli: Ints) -> Floats:
    """By class: its part of the time on cards that all pods ask for."""
    asked = [each.frequency * each.cards * each.hold_s for each in classes]
    return _as_parts(np.array(asked, np.float64) * milli)


def _factor(share: float, idle: float, of: float, most: float) -> float:
    """Weight of a class that a part of the idle cards serves: ``share`` of all demand goes there."""
    if not share:
        return 1.0
    scarcity = min(idle / of, most) if of else most
    # The bound is for the factor alone: rare work is under pressure, too, where next to nothing is left.
    pressure = min(share * idle / of, _MOST_PRESSURE) if of else _MOST_PRESSURE
    return 1 + pressure * (max(scarcity, 1.0) - 1)


def _set_size(cards: int) -> int:
    """The smallest set, of 2, 4, 8 and so on, that has so many cards; 0 for pods of one card or none."""
    return 1 << (cards - 1).bit_length() if cards > 1 else 0


def _as_parts(weights: Floats) -> Floats:
    total = weights.sum()
    return np.asarray(weights / total) if total else weights


def _rounded(amount: float) -> float:
    return math.exp(round(math.log(amount) / _STEP) * _STEP) if amount > 0 else 0.0


class Regrets:
    """What a share spoils of its card, by their sizes.

    In hundredths of a card, and 0 for the best card that there could be. A card is worth the fullest that
    usual sizes of shares could make it.
    """

    def __init__(self, classes: Sequence[PodClass], milli: Ints, frequency: Floats) -> None:
        sums = 1  # bit n: shares of usual sizes can make n thousandths
        for size in _usual_sizes(classes, milli, frequency):
            times = size
            while times <= CARD_MILLI:
                sums |= sums << times
                times *= 2
        made = [room if sums >> room & 1 else 0 for room in range(CARD_MILLI + 1)]
        self._worth = np.maximum.accumulate(np.array(made, np.int64))
        self._of: dict[int, Ints] = {}

    def of(self, size: int) -> Ints:
        """By free part of the card, in thousandths like the size. Not to be written to."""
        known = self._of.get(size)
        if known is None:
            known = self._of[size] = np.zeros(CARD_MILLI + 1, np.int64)
            if 0 < size < CARD_MILLI:
                loss = self._worth[size:] - self._worth[: CARD_MILLI + 1 - size]
                known[size:] = np.rint((loss - loss.min()) * 100 / CARD_MILLI)
        return known


def _usual_sizes(classes: Sequence[PodClass], milli: Ints, frequency: Floats) -> list[int]:
    by_size: dict[int, float] = {}
    for each, size, part in zip(classes, milli.tolist(), frequency.tolist(), strict=True):
        if each.cards and size < CARD_MILLI:
            by_size[size] = by_size.get(size, 0.0) + part
    total = sum(by_size.values())
    return [size for size, part in sorted(by_size.items()) if part >= _COMMON * total]
