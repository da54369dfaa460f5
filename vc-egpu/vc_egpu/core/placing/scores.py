"""Scores of nodes and cards: what :mod:`.policies` puts into its table. The higher, the better.

``best_fit`` and ``packing`` are rules under which the openb trace was published ("Beware of Fragmentation",
ATC'23). So a simulation can be held against known figures. ``by_chance`` is their baseline.
"""

from collections.abc import Callable, Mapping
from typing import Final
from zlib import crc32

import numpy as np

from vc_egpu.core.books.capacity import AskNeed
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model import policy
from vc_egpu.core.placing.measure import CARD_MILLI, free_cpu, free_milli, free_of, part_of
from vc_egpu.core.placing.nodes import Nodes
from vc_egpu.core.placing.outlook import PodSize, Rule, outlook_of, size_of
from vc_egpu.core.placing.slot import Scene

FGD_RULE: Final = Rule(policy.FGD, typical_only=True, learned_weights=False)
OURS_RULE: Final = Rule(policy.OURS, typical_only=False, learned_weights=True)
_ALL_UP_TO: Final = 1500
"""Nodes: where more may take a pod, not all of them are scored."""
_LOOKED_AT: Final = 400
"""Then so many of the fullest are, of those that may have room. A first look at all would take too long."""
_LAST: Final = -(1 << 41)
_MIX_UP: Final = 0x9E3779B1
_BITS_32: Final = (1 << 32) - 1
_FULL_POINTS: Final = 100


def _size(nodes: Nodes) -> PodSize:
    return size_of(nodes.need, lambda ask: part_of(nodes.trial.ledger, ask))


def by_chance(nodes: Nodes) -> Ints:
    """Nodes in an order of the gang's own. Equal gangs on equal clusters have equal orders."""
    seed = crc32(nodes.view.gang.key.encode())
    mixed = ((nodes.ranks() + 1) * _MIX_UP ^ seed) & _BITS_32
    mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6D & _BITS_32
    return np.asarray((mixed ^ (mixed >> 12)) >> 8, np.int64)


def card_by_chance(scene: Scene, ask: AskNeed) -> Mapping[int, tuple[int, ...]]:
    """Cards of a node in an order that depends on what is on it."""
    del ask
    seed = sum(slot.sharers + slot.memory_mib for slot in scene.slots)
    return {slot.col: ((slot.col + 1) * _MIX_UP * (seed + 1) >> 7 & 0xFFFF,) for slot in scene.slots}


def best_fit(nodes: Nodes) -> Ints:
    """Nodes with the least cpu and the fewest cards left once the pod is there: half a point each way."""
    ledger, size = nodes.trial.ledger, _size(nodes)
    most_cpu = max(1, int(ledger.cap[:, 0].max()))
    most_cards = max(1, int(ledger.row_cards.max()))
    cpu = (free_cpu(ledger)[nodes.rows] - size.cpu) / most_cpu
    cards = (free_milli(ledger)[nodes.rows].sum(axis=1) - size.milli * size.cards) / (most_cards * CARD_MILLI)
    points = np.floor((1 - (0.5 * cpu + 0.5 * cards)) * _FULL_POINTS)
    return np.asarray(points, np.int64)


def packing(nodes: Nodes) -> Ints:
    """Cards in use before idle cards of nodes in use, and those before idle nodes."""
    size = _size(nodes)
    free = np.sort(free_milli(nodes.trial.ledger)[nodes.rows], axis=1)
    if not size.cards:
        return np.zeros(len(nodes.rows), np.int64)
    cards = nodes.trial.ledger.row_cards[nodes.rows]
    idle = (free == CARD_MILLI).sum(axis=1)
    first = np.minimum((free < size.milli).sum(axis=1), max(0, free.shape[1] - size.cards))
    got = free[np.arange(len(free))[:, None], first[:, None] + np.arange(size.cards)]
    opened = (got == CARD_MILLI).sum(axis=1)
    third, half = _FULL_POINTS // 3, _FULL_POINTS // 2
    in_use = np.maximum(_FULL_POINTS - got.sum(axis=1) * _FULL_POINTS // CARD_MILLI // 10, half)
    scores = np.where(opened > 0, np.maximum(half - opened, third), in_use)
    return np.asarray(np.where(idle == cards, np.maximum(third - idle, idle), scores), np.int64)


def by_outlook(rule: Rule) -> Callable[[Nodes], Ints]:
    """Nodes by what usual work loses there. Without a mix all of them are as good."""

    def scores(nodes: Nodes) -> Ints:
        trial, rows = nodes.trial, nodes.rows
        if not trial.policy.mix.classes:
            return nodes.fullness()
        outlook = outlook_of(trial, rule)
        size = _size(nodes)
        if len(rows) <= _ALL_UP_TO:
            return outlook.node_scores(trial, rows, size)
        found = nodes.fullness() + _LAST
        near = outlook.fullest_with_room(trial, rows, size, _LOOKED_AT)
        found[near] = outlook.node_scores(trial, rows[near], size)
        return found

    return scores


def card_by_outlook(rule: Rule) -> Callable[[Scene, AskNeed], Mapping[int, tuple[int, ...]]]:
    """Cards by what usual work loses on them. The order tells nothing for several cards, or whole ones."""

    def scores(scene: Scene, ask: AskNeed) -> Mapping[int, tuple[int, ...]]:
        trial = scene.trial
        if trial is None or ask.cards > 1 or ask.alone or not trial.policy.mix.classes:
            return {}
        outlook = outlook_of(trial, rule)
        size = PodSize(scene.need.requests[0], part_of(scene.ledger, ask), 1, whole=False)
        free = free_of(scene.ledger, scene.row, scene.slots)
        by_level = outlook.card_scores(scene.row, free, scene.cpu_milli, size)
        return {slot.col: (-by_level.get(milli, 0),) for slot, milli in zip(scene.slots, free, strict=True)}

    return scores
