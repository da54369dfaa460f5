"""A suspended gang does not wait for ever for a card that was taken out, or for a node that is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import deleted, node
from unit.admission.stage import PODS, Stage
from unit.admission.suspended_gang import UIDS, VICTIM, answer, said_of, suspend, suspendable_on, until
from vc_egpu.admission.suspension.stranded import DEFAULT_AFTER_S
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.volcano.words import names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with suspendable_on(tmp_path) as found:
        suspend(found)
        yield found


def report(stage: Stage, cards: int, **changes: str) -> None:
    """The node says the same about its pods, and that it has so many cards."""
    said = stage.nodes["n1"]["metadata"]["annotations"][names.NODE_SUSPENSION]
    raw = node(cards=cards, **changes)
    raw["metadata"]["annotations"][names.NODE_SUSPENSION] = said
    stage.node_says(raw)


def lasts(stage: Stage, seconds: float) -> list[bool]:
    """Time passes; whether its members count as stranded then."""
    stage.tick()
    stage.later(seconds)
    stage.tick()
    return [stage.mirror.snapshot().pods[uid].stranded for uid in UIDS]


def test_a_card_that_was_taken_out_is_waited_for_a_while(stage: Stage) -> None:
    report(stage, cards=0)
    assert lasts(stage, DEFAULT_AFTER_S - 1) == [False, False]
    stage.agenda.take_question()
    assert lasts(stage, 2) == [True, True]
    assert stage.agenda.all_for is not None, "there is something to decide"
    plan = decide(stage.mirror.snapshot(), Policy(), 1000.0)
    assert [(one.gang, one.pods) for one in plan.evictions] == [(VICTIM, frozenset(UIDS))]
    stage.conductor.carry_out(plan, 1000.0)
    until(stage, lambda: sorted(stage.asked_to_go()) == sorted(UIDS))


def test_a_card_that_comes_back_ends_the_wait(stage: Stage) -> None:
    report(stage, cards=0)
    assert lasts(stage, DEFAULT_AFTER_S - 1) == [False, False]
    report(stage, cards=4)
    assert lasts(stage, 2) == [False, False]
    report(stage, cards=0)
    assert lasts(stage, DEFAULT_AFTER_S - 1) == [False, False], "from the beginning"
    assert lasts(stage, 2) == [True, True]
    report(stage, cards=4)
    assert lasts(stage, 0) == [False, False], "the decision brings it back instead"


def test_a_node_that_is_gone_takes_its_cards_along(stage: Stage) -> None:
    stage.mirror.apply("nodes", deleted(node()))
    assert lasts(stage, DEFAULT_AFTER_S) == [True, True]


def test_a_node_that_cannot_be_read_says_nothing_about_its_cards(stage: Stage) -> None:
    report(stage, cards=0, inventory="garbage")
    assert lasts(stage, 2 * DEFAULT_AFTER_S) == [False, False]


def test_the_operator_may_have_it_wait_for_ever(stage: Stage) -> None:
    stage.conductor.suspending.stranded.after_s = 0.0
    report(stage, cards=0)
    assert lasts(stage, 100 * DEFAULT_AFTER_S) == [False, False]


def test_who_came_back_is_not_stranded(stage: Stage) -> None:
    for uid in UIDS:
        raw = stage.server.objects[f"{PODS}/{uid}"]
        annotations = {k: v for k, v in raw["metadata"]["annotations"].items() if k != names.SUSPEND}
        stage.put("pods", {**raw, "metadata": {**raw["metadata"], "annotations": annotations}})
    answer(stage, "running")
    report(stage, cards=0)
    assert lasts(stage, 2 * DEFAULT_AFTER_S) == [False, False]


def test_it_is_told_at_once(stage: Stage) -> None:
    report(stage, cards=0)
    stage.tick()

    def said() -> str:
        condition = said_of(stage, f"{PODS}/v-0")
        return condition.message if condition is not None else ""

    until(stage, lambda: "card GPU-n1-0 is not among the cards of node n1 any more" in said())
    assert "replaced if that lasts 600 s" in said()
