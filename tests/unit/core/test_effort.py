"""What one gang may cost a decision: one whose refusal is hard to prove must not keep the others waiting."""

import random
from contextlib import closing
from dataclasses import replace
from functools import partialmethod

import pytest
from unit.core import make
from vc_egpu.core import admit
from vc_egpu.core.books.capacity import need_of
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    CardAsk,
    NodeName,
    PlanInForce,
    PodShape,
    Resources,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.effort import DECISION, Effort
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.placing.pack import Board
from vc_egpu.core.placing.place import THOROUGH
from vc_egpu.core.placing.search import MAX_NODES
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial

KEYS = [f"ns/hard{number}" for number in range(3)]


def crowded(share_class: ShareClass) -> Snapshot:
    """Forty nodes, each card more than half full; gangs of four tasks for which counting alone finds room."""
    rng = random.Random(1)
    nodes = [make.node(f"n{number:02}", 2) for number in range(40)]
    gangs, members = [], []
    for card in (card.uuid for node in nodes for card in node.cards):
        gangs.append(make.gang(f"ns/{card}", share_class=ShareClass.LOW))
        load = make.shape(int(make.H20_MIB * rng.uniform(0.5, 0.7)), cpu_milli=10)
        members.append(make.placed(make.pods(f"ns/{card}", 1, load)[0], card))
    for number, key in enumerate(KEYS):
        gangs.append(make.gang(key, share_class=share_class, least=61, created=float(number)))
        for task in range(4):
            asked = int(make.H20_MIB * (0.30 + 0.012 * task + 0.001 * number))
            members += make.pods(key, 16, make.shape(asked, cards=1 + task % 2, cpu_milli=10), f"t{task}")
    return make.snapshot(nodes, gangs, members)


@pytest.mark.parametrize("share_class", [ShareClass.UNSET, ShareClass.HIGH])
def test_a_gang_leaves_others_half_of_what_there_is(share_class: ShareClass) -> None:
    trial = Trial(fresh_index(crowded(share_class)), Policy(), 0.0)
    trial.effort.begin_turn()
    attempt = admit.begin(trial, Recorder(1), trial.index.view(KEYS[0]), [])
    attempt.check_caps()
    attempt.place()
    attempt.make_room()
    attempt.hold()
    attempt.say()
    one_search = THOROUGH * MAX_NODES
    assert DECISION // 2 - one_search <= trial.effort.left < DECISION, "searched, and not for ever"
    assert trial.effort.spent


def test_every_gang_is_told_something_however_little_is_left() -> None:
    plan = decide(crowded(ShareClass.UNSET), Policy(), 0.0)
    assert {key: plan.verdicts[key].reason for key in KEYS} == dict.fromkeys(KEYS, Reason.WAITING_FOR_CARDS)


def test_each_turn_is_half_of_what_is_left() -> None:
    effort = Effort()
    effort.begin_turn()
    assert effort.steps(nodes=10) == DECISION // 20
    effort.searched(steps=DECISION, nodes=10)
    assert effort.spent
    assert effort.steps(nodes=10) == 0
    assert effort.left == 0, "never below nothing"
    effort = Effort()
    effort.searched(steps=100, nodes=10)
    effort.begin_turn()
    assert effort.turn == (DECISION - 1000) // 2


@pytest.mark.timeout(60)
def test_many_containers_with_cards_of_their_own_are_not_all_listed() -> None:
    """Two of sixteen cards for each of eight containers: 10^16 ways to seat one pod."""
    cards = 16
    asks = tuple(CardAsk(f"c{number}", "h20", 2, make.H20_MIB // 4 + number, 0) for number in range(8))
    loads = [
        make.placed(make.pods(f"ns/r{card}", 1, make.shape(1000 + card, cpu_milli=10))[0], f"n1/{card}")
        for card in range(cards)
    ]
    gangs = [make.gang(f"ns/r{card}") for card in range(cards)]
    waiting = make.pods("ns/g", 4, PodShape(asks=asks, requests=Resources(10)))
    snapshot = make.snapshot(
        [make.node("n1", cards)], [*gangs, make.gang("ns/g", least=4)], [*loads, *waiting]
    )
    assert decide(snapshot, Policy(), 0.0).verdicts["ns/g"].reason is Reason.WAITING_FOR_CARDS


def test_who_has_seen_enough_choices_leaves_the_cards_as_they_were() -> None:
    index = fresh_index(make.snapshot([make.node("n1", 4)]))
    asks = tuple(CardAsk(f"c{number}", "h20", 2, 1000 + number, 10) for number in range(2))
    need = need_of(index.ledger, PodShape(asks=asks), ShareClass.UNSET)
    board = Board(index.ledger, index.ledger.rows[NodeName("n1")])
    before = [slot.state() for slot in board.slots]
    with closing(board.choices(need, distinct=True)) as choices:
        assert next(choices) != next(choices)
        assert [slot.state() for slot in board.slots] != before
    assert [slot.state() for slot in board.slots] == before


def test_a_decision_makes_room_for_so_many_and_the_next_one_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each looks at all of low priority: at 5,000 nodes a second for each of some hundred gangs that come at
    once, after which the leader was ended for not having turned, and so was the next."""
    monkeypatch.setattr(Effort, "__init__", partialmethod(Effort.__init__, room=70))
    what = make.shape(make.H20_MIB - 1)
    gangs, members = [], []
    for number in range(40):
        gangs.append(make.gang(f"ns/low{number}", share_class=ShareClass.LOW))
        members.append(make.placed(make.pods(f"ns/low{number}", 1, what)[0], f"n{number}/0"))
    for number in range(4):
        gangs.append(make.gang(f"ns/high{number}", share_class=ShareClass.HIGH, created=float(number)))
        members += make.pods(f"ns/high{number}", 1, what)
    nodes = [make.node(f"n{number}", 1) for number in range(40)]
    plan = decide(make.snapshot(nodes, gangs, members), Policy(), 0.0)
    assert [admission.gang for admission in plan.admissions] == ["ns/high0", "ns/high1"]
    assert {plan.verdicts[f"ns/high{number}"].reason for number in (2, 3)} == {Reason.WAITING_FOR_CARDS}
    assert "would not make room" not in plan.verdicts["ns/high3"].message, "nobody tried"

    planned = {
        entry.gang: PlanInForce(f"1-{entry.gang[-1]}", entry.members, entry.evictions[0].pods)
        for entry in plan.admissions
    }
    gangs = [replace(gang, plan=planned.get(gang.key)) for gang in gangs]
    plan = decide(make.snapshot(nodes, gangs, members), Policy(), 0.0)
    assert [admission.gang for admission in plan.admissions] == ["ns/high2", "ns/high3"]
