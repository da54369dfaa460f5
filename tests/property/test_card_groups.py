"""Rules on which cards of a node go together: counts and choices against trying every set of cards."""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest
from seeds import RUN
from vc_egpu.core.books.capacity import need_of, rooms
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Node,
    NodeName,
    PodShape,
    Resources,
    ShareClass,
)
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import BINPACK
from vc_egpu.core.topology.groups import GroupRule

MIB = 1000
RULES = {
    "rings of four": (GroupRule(within=4), 8),
    "halves of eight, then evenly": (GroupRule(within=4, even=True), 8),
    "pairs": (GroupRule(unit=2), 8),
}


def node(rule: GroupRule, cards: int, free: Sequence[int]) -> Node:
    return Node(
        NodeName("n"),
        Resources(cpu_milli=10**6, memory_bytes=1 << 40, pods=100),
        cards=tuple(
            Card(
                CardId(f"c{i}"),
                i,
                "npu",
                MIB,
                usable=i in free,
                group=i // 4,
                module=i // 2,
                rule=rule,
                stack=False,
            )
            for i in range(cards)
        ),
    )


def allowed(rule: GroupRule, chosen: Sequence[int]) -> bool:
    """By the words of the rule."""
    groups = [sum(col // 4 == number for col in chosen) for number in range(2)]
    if rule.within and len(chosen) <= rule.within:
        return 0 in groups
    if rule.even:
        return groups[0] == groups[1]
    if rule.unit > 1 and len(chosen) % rule.unit == 0:
        return all(col ^ 1 in chosen for col in chosen)
    return True


def most(rule: GroupRule, free: tuple[int, ...], cards: int) -> int:
    """Pods of that many cards, by trying every set."""
    best = 0
    for chosen in combinations(free, cards):
        if allowed(rule, chosen):
            rest = tuple(col for col in free if col not in chosen)
            best = max(best, 1 + most(rule, rest, cards))
    return best


def asks() -> Iterator[tuple[int, PodShape]]:
    for cards in (1, 2, 3, 4, 6, 8):
        ask = CardAsk("main", "npu", cards, MIB, 100, whole=True)
        yield cards, PodShape(asks=(ask,), requests=Resources(cpu_milli=1))


@pytest.mark.parametrize("name", RULES)
def test_counts_and_choices_are_those_of_trying(name: str) -> None:
    rule, cards = RULES[name]
    rng = random.Random(RUN)
    for _ in range(25):
        free = tuple(col for col in range(cards) if rng.random() < 0.7)
        for count, shape in asks():
            ledger = Ledger()
            row = ledger.put_node(node(rule, cards, free))
            need = need_of(ledger, shape, ShareClass.UNSET)
            fits = int(rooms(ledger, need, np.array([row]))[0][0])
            if count == 1 or rule.within or rule.unit > 1:
                assert fits == most(rule, free, count), (free, count)
            placed = fill(Board(ledger, row), need, fits, BINPACK.cards)
            assert len(placed) == fits
            taken = [col for (cols,) in placed for col in cols]
            assert len(set(taken)) == len(taken) and set(taken) <= set(free)
            assert all(allowed(rule, cols) for (cols,) in placed if count > 1)


@pytest.mark.parametrize(("free", "first"), [("0 4567", 0), ("0123 67", 6), ("012 67", 6)])
def test_a_ring_is_broken_last(free: str, first: int) -> None:
    """One card is taken where an even rest is left, two are taken where none is left."""
    left = [[int(col) for col in part] for part in free.split()]
    ledger = Ledger()
    row = ledger.put_node(node(GroupRule(within=4), 8, [col for part in left for col in part]))
    cards = 1 if first == 0 else 2
    ask = CardAsk("main", "npu", cards, MIB, 100, whole=True)
    need = need_of(ledger, PodShape(asks=(ask,), requests=Resources(cpu_milli=1)), ShareClass.UNSET)
    assignment = Board(ledger, row).choose(need, BINPACK.cards)
    assert assignment is not None and assignment[0][0] == first
