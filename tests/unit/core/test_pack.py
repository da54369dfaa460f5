"""Which of a node's cards a share gets."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask, one_gang
from unit.core.boxes import BOXES
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import AskNeed, Need, need_of, seats_of
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import Card, CardAsk, CardId, NodeName, Pod, PodShape, Share, ShareClass
from vc_egpu.core.model.policy import PLACEMENTS, TOPOLOGY
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import BINPACK, ROOMIEST, SPREAD, TABLE, CardChoice
from vc_egpu.core.placing.slot import Scene, Slot

UNSET = ShareClass.UNSET
There = tuple[int, int, int, ShareClass]
"""(card, percent of its memory, cores, class) of a share that is there."""


def card_of(policy: str, share_class: ShareClass, *there: There, cores: int = 20) -> str:
    """The card of two that a share of a fifth of the memory gets."""
    gangs, pods = [make.gang("g", share_class=share_class)], list[Pod]()
    for number, (card, percent, taken, whose) in enumerate(there):
        gangs.append(make.gang(f"there{number}", share_class=whose))
        what = make.shape(make.H20_MIB * percent // 100, taken)
        pods.append(make.placed(make.pods(f"there{number}", 1, what)[0], f"n1/{card}"))
    pods += make.pods("g", 1, replace(make.shape(make.H20_MIB // 5, cores), card_policy=policy))
    (admission,) = ask(make.snapshot([make.node("n1", 2)], gangs, pods), preemption=False).admissions
    ((_, share),) = admission.members["w/0"].shares
    return str(share.card)


@pytest.mark.parametrize(
    ("there", "card"),
    [
        ([], "n1/0"),
        ([(0, 10, 0, UNSET), (1, 50, 0, UNSET)], "n1/1"),
        ([(0, 10, 0, UNSET), (1, 90, 0, UNSET)], "n1/0"),
        ([(0, 30, 10, UNSET), (1, 30, 60, UNSET)], "n1/1"),
        ([(0, 30, 10, HIGH), (1, 30, 60, HIGH)], "n1/1"),
        ([(0, 30, 10, LOW), (1, 30, 60, LOW)], "n1/1"),
        ([(0, 30, 10, UNSET), (1, 30, 10, UNSET)], "n1/0"),
    ],
    ids=[
        "the first",
        "the fullest",
        "one that has room",
        "fewest cores left",
        "beside high",
        "beside low",
        "alike",
    ],
)
def test_shares_are_packed(there: list[There], card: str) -> None:
    assert card_of("", UNSET, *there) == card
    assert card_of("binpack", UNSET, *there) == card


@pytest.mark.parametrize(
    ("there", "card"),
    [
        ([], "n1/0"),
        ([(0, 10, 0, UNSET), (0, 10, 0, UNSET), (1, 50, 0, UNSET)], "n1/1"),
        ([(0, 50, 0, UNSET), (1, 10, 0, UNSET)], "n1/1"),
        ([(0, 30, 60, UNSET), (1, 30, 10, UNSET)], "n1/1"),
        ([(0, 30, 60, HIGH), (1, 30, 10, HIGH)], "n1/1"),
        ([(0, 30, 60, LOW), (1, 30, 10, LOW)], "n1/1"),
        ([(0, 30, 10, UNSET), (1, 30, 10, UNSET)], "n1/0"),
    ],
    ids=[
        "the first",
        "fewest sharers",
        "most memory left",
        "most cores left",
        "beside high",
        "beside low",
        "alike",
    ],
)
def test_or_spread_where_that_is_asked_for(there: list[There], card: str) -> None:
    assert card_of("spread", UNSET, *there) == card


@pytest.mark.parametrize("policy", ["binpack", "spread"])
@pytest.mark.parametrize(("cores", "card"), [(30, "n1/1"), (10, "n1/0"), (0, "n1/0")])
def test_high_goes_first_where_it_takes_nobodys_time(policy: str, cores: int, card: str) -> None:
    """The policy would have it beside training, where ten cores are left."""
    trains: There = (0, 40, 90, LOW)
    others: list[There] = [(1, 20, 5, UNSET)] if policy == "binpack" else [(1, 20, 5, UNSET)] * 3
    assert card_of(policy, HIGH, trains, *others, cores=cores) == card


def test_a_card_of_another_model_is_none() -> None:
    """Although it would be the fuller one."""
    node = make.node("n1", 2)
    mixed = replace(node, cards=(replace(node.cards[0], model="t4"), node.cards[1]))
    (admission,) = ask(replace(one_gang(1), nodes={node.name: mixed})).admissions
    assert [share.card for _, share in admission.members["w/0"].shares] == ["n1/1"]
    both = make.shape(asks=(CardAsk("a", "h20", 1, HALF, 0), CardAsk("b", "t4", 1, HALF, 0)))
    (admission,) = ask(replace(one_gang(1, both), nodes={node.name: mixed})).admissions
    assert {name: share.card for name, share in admission.members["w/0"].shares} == {"a": "n1/1", "b": "n1/0"}


def paper(rng: random.Random) -> tuple[Ledger, Board, Need]:
    """A node with something on it, its cards on paper, and a pod of one to three containers."""
    ledger = Ledger()
    ratio, host = rng.choice([1.0, 1.5]), rng.choice([0, 30, 300])
    node = make.node("n1", 3, memory_ratio=ratio, core_ratio=1.2, host_memory_mib=host, max_sharers=4)
    row = ledger.put_node(replace(node, cards=tuple(replace(card, memory_mib=100) for card in node.cards)))
    for _ in range(rng.randrange(4)):
        share = Share(CardId(f"n1/{rng.randrange(3)}"), rng.randint(1, 40), rng.choice([0, 30]))
        booking = ledger.booking(node.name, PodShape(), [share], rng.choice(list(ShareClass)))
        assert booking is not None
        ledger.add(booking)
    asks = [
        CardAsk(
            f"c{at}",
            "h20",
            rng.choice([1, 1, 2]),
            rng.randint(5, 70),
            rng.choice([0, 25]),
            spill=rng.random() < 0.5,
        )
        for at in range(rng.randint(1, 3))
    ]
    asks = [replace(ask, whole=rng.random() < 0.15) for ask in asks]
    return ledger, Board(ledger, row), need_of(ledger, PodShape(tuple(asks)), rng.choice(list(ShareClass)))


def stands(board: Board) -> tuple[object, ...]:
    return board.host_free, [slot.state() for slot in board.slots]


def test_what_was_tried_on_paper_leaves_no_trace_and_what_stays_is_what_the_ledger_books() -> None:
    rng, seen = random.Random(17), Counter[str]()
    for _ in range(150):
        ledger, board, need = paper(rng)
        before = stands(board)
        for _ in board.choices(need, BINPACK.cards, distinct=rng.random() < 0.5):
            seen["choices"] += 1
        assert stands(board) == before
        policy = rng.choice([BINPACK.cards, SPREAD.cards, ROOMIEST])
        placed = fill(board, need, 2, policy)
        seen[f"{len(placed)} placed"] += 1
        ratio = ledger.ratio_for(board.row, need.share_class)
        for assignment in placed:
            ledger.add(Booking(board.row, (0, 0, 0, 0), seats_of(need, assignment, ratio)))
        assert stands(board) == stands(Board(ledger, board.row)), need
        assert bool(ledger.within_limits(np.array([board.row]))[0])
        for assignment in placed:
            board.undo(need, assignment)
        assert stands(board) == before
    assert min(seen[f"{count} placed"] for count in range(3)) > 15, seen


def test_each_policy_that_users_may_name_has_a_row_or_goes_by_links() -> None:
    assert {*TABLE, TOPOLOGY} == set(PLACEMENTS)
    assert TOPOLOGY not in TABLE


class OneByOne:
    """The same choice, which does not say that cards may be ranked once for several pods."""

    card_by_card = False

    def __init__(self, choice: CardChoice) -> None:
        self._choice = choice

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        return self._choice.best(cards, ask, scene)

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
        return self._choice.every(cards, ask)


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("choice", [BINPACK.cards, SPREAD.cards], ids=["binpack", "spread"])
def test_whole_cards_chosen_at_once_are_those_chosen_one_by_one(
    choice: CardChoice, box: Callable[[str], tuple[Card, ...]]
) -> None:
    rng = random.Random(4)
    seen = set()
    for _ in range(60):
        ledger = Ledger()
        row = ledger.put_node(replace(make.node("n1", 8), cards=box("n1")))
        for col in rng.sample(range(8), rng.randrange(8)):
            share = Share(CardId(f"n1/{col}"), rng.randrange(1, 9000), rng.randrange(100))
            booking = ledger.booking(NodeName("n1"), make.shape(1000, 10), [share], ShareClass.LOW)
            assert booking is not None
            ledger.add(booking)
        asks = (CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),)
        need = need_of(ledger, make.shape(asks=asks), ShareClass.UNSET)
        count = rng.randrange(1, 9)
        at_once = fill(Board(ledger, row), need, count, choice)
        assert at_once == fill(Board(ledger, row), need, count, OneByOne(choice))
        seen.add(len(at_once))
    assert len(seen) > 4


class Neighbours:
    """A policy of the kind that topology needs: cards of adjacent columns together."""

    card_by_card = False

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        return next(iter(self.every(cards, ask)), ())

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
        assert ask.cards == 2
        yield from (pair for pair in pairwise(cards) if pair[1].col - pair[0].col == 1)


def test_a_policy_may_choose_cards_as_a_set() -> None:
    """The fullest two are not neighbours, and a key per card would take them."""
    ledger = Ledger()
    node = make.node("n1", 4)
    row = ledger.put_node(node)
    for col, percent in ((0, 30), (1, 90), (2, 20), (3, 10)):
        share = Share(CardId(f"n1/{col}"), make.H20_MIB * percent // 100, 0)
        booking = ledger.booking(node.name, PodShape(), [share], UNSET)
        assert booking is not None
        ledger.add(booking)
    need = need_of(ledger, make.shape(asks=(CardAsk("main", "h20", 2, make.H20_MIB // 2, 0),)), UNSET)
    assert fill(Board(ledger, row), need, 1, BINPACK.cards) == [((0, 2),)]
    board = Board(ledger, row)
    assert fill(board, need, 1, Neighbours()) == [((2, 3),)]
    assert fill(board, need, 1, Neighbours()) == [], "what has room for no pair has no room"
