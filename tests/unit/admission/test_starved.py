"""A running gang is given up for want of room, and for want of nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import added, group, let_go, node, pod, queue
from unit.admission.stage import PLAN_ID, LoopStage, loop_on
from vc_egpu.admission.recovery.rollback import STARVED_S, finds_no_room
from vc_egpu.admission.state.agenda import Why
from vc_egpu.core.model.reasons import Reason, Verdict

KEY = "default/g"
FULL_S = STARVED_S + 10


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LoopStage]:
    """One member of two runs; the other one's replacement waits."""
    with loop_on(tmp_path) as found:
        running = let_go(pod("g-w-0", index=0, uid="pod-0"), PLAN_ID, bound=True, phase="Running")
        found.arrives("pods", running)
        found.arrives("podgroups", group())
        yield found


def given_up(stage: LoopStage, after_s: float) -> bool:
    """Whether the gang is rolled back once so much time has passed."""
    stage.turn()
    stage.later(after_s)
    stage.turn()
    return bool(stage.work.counters.get("rolled_back"))


def full(stage: LoopStage) -> None:
    """There is one card, and it is taken by the one that runs."""
    stage.arrives("nodes", node(cards=0))
    stage.agenda.try_all(Why.NODE)


def test_a_replacement_that_finds_no_room_for_ten_minutes_ends_the_gang(stage: LoopStage) -> None:
    full(stage)
    assert not given_up(stage, STARVED_S - 10)
    assert given_up(stage, 20)


def test_nobody_is_given_up_while_the_operator_lets_nothing_in(stage: LoopStage) -> None:
    full(stage)
    stage.mirror.around.switches = {"stopAdmitting": "true"}
    assert not given_up(stage, FULL_S)
    stage.mirror.around.switches = {}
    assert not given_up(stage, 1), "it had no chance until now"
    assert given_up(stage, FULL_S)


def test_nobody_is_given_up_for_a_cap(stage: LoopStage) -> None:
    stage.mirror.apply("queues", added(queue(cap=1)))
    stage.agenda.try_all(Why.NODE)
    assert not given_up(stage, FULL_S)
    verdict = stage.said()
    assert verdict is not None
    assert verdict.reason in {Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_CAP}


@pytest.mark.parametrize("reason", list(Reason))
def test_what_is_want_of_room(reason: Reason) -> None:
    cards = {Reason.WAITING_FOR_CARDS, Reason.WAITING_FOR_TURN}
    room = cards | {Reason.WAITING_FOR_MODEL, Reason.WAITING_FOR_ENVIRONMENT, Reason.WAITING_FOR_EVICTION}
    wants = room | {Reason.WRITE_REFUSED}
    assert finds_no_room(Verdict(reason, "")) is (reason in wants)


def test_a_back_off_is_no_want_of_room() -> None:
    assert not finds_no_room(Verdict(Reason.WAITING_FOR_CARDS, "tried again in 600 s", {"seconds": 600}))


def test_what_was_not_decided_yet_is_no_want_of_room() -> None:
    assert not finds_no_room(None)
