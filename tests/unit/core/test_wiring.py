"""Which set of cards of one node goes to a member: against brute force over all sets and all rings."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import pytest
from unit.core import boxes, make
from unit.core.asked import ask
from vc_egpu.core.model.cluster import CardAsk, PodShape
from vc_egpu.core.topology.wiring import Score, Wiring

BOXES = pytest.mark.parametrize("box", sorted(boxes.BOXES))


def brute_score(wiring: Wiring, cards: Sequence[int]) -> Score:
    """The worst pair, and the best of all rings, without any cleverness."""
    worst = min(wiring.pair(one, other) for one, other in combinations(cards, 2))
    first, *rest = cards
    rings = ((first, *order, first) for order in permutations(rest))
    ring = max(min(wiring.pair(one, other) for one, other in pairwise(ring)) for ring in rings)
    return Score(worst, ring)


def brute_best(wiring: Wiring, cards: Sequence[int], count: int) -> Score:
    sets = list(combinations(cards, count))
    worst = max(min(wiring.pair(*pair) for pair in combinations(each, 2)) for each in sets)
    tied = [each for each in sets if min(wiring.pair(*pair) for pair in combinations(each, 2)) == worst]
    return max(brute_score(wiring, each) for each in tied)


def chosen(box: str, count: int, taken: Sequence[int] = (), policy: str = "") -> list[int]:
    """What a pod of so many whole cards gets of a box where some cards are taken; empty: it waits."""
    cards = boxes.BOXES[box]()
    shape = PodShape(asks=(CardAsk("main", "h20", count, make.H20_MIB, 100, whole=True),), card_policy=policy)
    one = replace(shape, asks=(replace(shape.asks[0], cards=1),))
    there = [
        make.placed(pod, f"{box}/{col}")
        for col, pod in zip(taken, make.pods("there", len(taken), one), strict=True)
    ]
    gangs = [make.gang("g"), *([make.gang("there", least=len(taken))] if taken else [])]
    plan = ask(make.snapshot([boxes.node(cards)], gangs, [*there, *make.pods("g", 1, shape)]))
    return [
        int(str(share.card).rpartition("/")[2])
        for admission in plan.admissions
        for placement in admission.members.values()
        for _, share in placement.shares
    ]


@BOXES
@pytest.mark.parametrize("count", range(1, 9))
def test_of_an_empty_box_the_best_set_is_taken(box: str, count: int) -> None:
    wiring, found = boxes.wired(boxes.BOXES[box]()), chosen(box, count)
    assert len(set(found)) == count
    if count > 1:
        assert wiring.score(found) == brute_best(wiring, range(8), count)


def fillings(times: int) -> Iterator[tuple[str, list[int], int]]:
    rng = random.Random(28)
    for _ in range(times):
        taken = sorted(rng.sample(range(8), rng.randint(1, 6)))
        yield rng.choice(sorted(boxes.BOXES)), taken, rng.randint(2, 8 - len(taken))


def test_of_what_a_thousand_fillings_leave_the_best_set_is_taken() -> None:
    for box, taken, count in fillings(1000):
        wiring = boxes.wired(boxes.BOXES[box]())
        free = [col for col in range(8) if col not in taken]
        assert wiring.score(wiring.best(free, count)) == brute_best(wiring, free, count), (box, taken, count)


def test_the_decision_takes_the_same_sets() -> None:
    for box, taken, count in fillings(60):
        wiring = boxes.wired(boxes.BOXES[box]())
        free = [col for col in range(8) if col not in taken]
        found = chosen(box, count, taken)
        assert wiring.score(found) == brute_best(wiring, free, count), (box, taken, count)


def test_two_cards_of_a_v100_box_have_a_double_link() -> None:
    wiring = boxes.wired(boxes.v100_mesh())
    assert [wiring.pair(0, other) for other in (3, 4, 1, 6)] == [50_000, 50_000, 25_000, 6_000]
    found = chosen("v100", 2)
    assert wiring.score(found) == Score(50_000, 50_000)
    assert chosen("v100", 2, taken=[3], policy="topology") != [0, 1]
    assert chosen("v100", 2, policy="binpack") == [0, 1], "who names another policy gets it"


def test_one_card_goes_where_pairs_miss_it_least() -> None:
    """Of 0, 1 and 2 the pair 1-2 is the fast one."""
    assert chosen("v100", 1, taken=[3, 4, 5, 6, 7]) == [0]
    assert chosen("pcie", 1, taken=[0]) == [1], "its partner on the switch is gone already"
    assert chosen("h20", 1) == [0]


def test_nodes_with_better_links_come_first() -> None:
    """The fuller node has two cards left, which no link joins."""
    full, empty = boxes.v100_mesh("a"), boxes.v100_mesh("b")
    two = PodShape(asks=(CardAsk("main", "h20", 2, make.H20_MIB, 100, whole=True),))
    one = replace(two, asks=(replace(two.asks[0], cards=1),))
    taken = [1, 2, 3, 4, 5, 7]
    there = [
        make.placed(pod, f"a/{col}")
        for col, pod in zip(taken, make.pods("there", len(taken), one), strict=True)
    ]
    gangs = [make.gang("g"), make.gang("there", least=6)]
    for policy, node in (("", "b"), ("topology", "b"), ("binpack", "a")):
        pods = [*there, *make.pods("g", 1, replace(two, node_policy=policy))]
        (admission,) = ask(make.snapshot([boxes.node(full), boxes.node(empty)], gangs, pods)).admissions
        assert [str(place.node) for place in admission.members.values()] == [node], policy


def test_sixteen_cards_of_two_sockets_stay_on_one() -> None:
    wiring = boxes.wired(boxes.pcie("big", 16))
    for count in (2, 4, 8):
        found = wiring.best(range(16), count)
        assert len({card // 8 for card in found}) == 1
        assert len({card // 2 for card in found}) == max(1, count // 2)
    assert wiring.best(range(16), 16) == tuple(range(16))
    assert wiring.score(range(16)) == Score(6_000, 6_000)


def test_where_nothing_is_told_all_is_as_before() -> None:
    found = ask(
        make.snapshot(
            [make.node("n1", 4)],
            [make.gang("g")],
            make.pods("g", 1, make.shape(asks=(CardAsk("main", "h20", 2, make.H20_MIB, 100, whole=True),))),
        )
    )
    ((placement,),) = [tuple(a.members.values()) for a in found.admissions]
    assert [str(share.card) for _, share in placement.shares] == ["n1/0", "n1/1"]
