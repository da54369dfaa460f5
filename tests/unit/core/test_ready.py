"""Which gangs are decided about at all, and what keeps the others."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.model.cluster import (
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    QueueName,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason

SMALL = make.shape(1024, 1)


def decided(*members: Pod, most: int = 100, **gang: Any) -> Plan:
    """What becomes of a gang of these pods."""
    snapshot = make.snapshot([make.node()], [make.gang("g", **gang)], members)
    return ask(snapshot, max_gang_members=most)


def gated(count: int, *others: str) -> list[Pod]:
    return make.pods("g", count, SMALL, task="-".join(others) or "w", other_gates=others)


def placed(count: int) -> list[Pod]:
    return [make.placed(pod, "n1/0") for pod in make.pods("g", count, SMALL, task="there")]


def test_who_has_members_enough_does_not_wait_for_one_that_somebody_else_holds_back() -> None:
    held = gated(1, "foo.io/bar")
    assert len(decided(*gated(2), *held, least=2).admissions[0].members) == 2
    assert len(decided(*placed(2), *gated(1), *held, least=2).admissions[0].members) == 1


@pytest.mark.parametrize(("there", "ours", "least"), [(0, 0, 1), (0, 1, 2), (1, 0, 1)])
def test_who_has_not_is_told_whose_gate_it_is(there: int, ours: int, least: int) -> None:
    """Whether its minimum lacks that member, or it would grow by it alone."""
    plan = decided(*placed(there), *gated(ours), *gated(1, "foo.io/bar"), least=least)
    verdict = plan.verdicts["g"]
    assert verdict.reason is Reason.WAITING_FOR_GATE
    assert verdict.message == "1 member still has the scheduling gate foo.io/bar of another controller"


@pytest.mark.parametrize("phase", [PodPhase.FAILED, PodPhase.SUCCEEDED])
def test_a_gang_whose_pods_have_ended_is_not_said_to_lack_members(phase: PodPhase) -> None:
    ended = [replace(pod, phase=phase) for pod in gated(1)]
    assert decided(*ended, least=2).verdicts == {}
    assert decided(least=2).verdicts["g"].reason is Reason.WAITING_FOR_MEMBERS, "its pods are still to come"


@pytest.mark.parametrize(
    ("members", "least", "too_large"),
    [(gated(4), 1, False), (gated(5), 1, True), ([*placed(3), *gated(2)], 1, True), (gated(1), 5, True)],
    ids=["just so", "one too many", "with those that run", "by what it needs"],
)
def test_how_large_a_gang_may_be(members: list[Pod], least: int, *, too_large: bool) -> None:
    verdict = decided(*members, least=least, most=4).verdicts["g"]
    assert (verdict.reason is Reason.EXCEEDS_CAP) is too_large
    if too_large:
        assert verdict.message == "has 5 members; a gang may have 4 at most"


@pytest.mark.parametrize(("left_s", "told"), [(29.5, "30 s"), (0.5, "1 s"), (0.0, "")])
def test_a_gang_that_was_rolled_back_is_not_tried_before_its_time(left_s: float, told: str) -> None:
    plan = decided(*gated(1), not_before=100.0 + left_s)
    assert bool(plan.admissions) is (not told)
    if told:
        assert plan.verdicts["g"].message == f"was rolled back and is tried again in {told}"


def test_a_plan_whose_queue_was_deleted_is_not_waited_for() -> None:
    """Its victims run on."""
    plan = PlanInForce("1-1", {"w/0": MemberPlacement(NodeName("n1"))}, frozenset({PodUid("low-w-0")}))
    gangs = [make.gang("g", queue="gone", share_class=HIGH, plan=plan), make.gang("low", share_class=LOW)]
    low = make.placed(make.pods("low", 1, make.shape(make.H20_MIB, 100))[0], "n1/0")
    (withdrawal,) = ask(make.snapshot([make.node("n1", 1)], gangs, [low, *gated(1)])).withdrawals
    assert withdrawal.why == "the queue gone is closed"


def test_a_queue_is_closed_with_any_above_it() -> None:
    queues = [
        make.queue("top", open=False),
        make.queue("middle", parent=QueueName("top")),
        make.queue("all", parent=QueueName("middle")),
        make.queue("beside", parent=QueueName("nowhere")),
    ]
    gangs = [make.gang("g"), make.gang("h", queue="beside")]
    pods = [*gated(1), *make.pods("h", 1, SMALL)]
    plan = ask(make.snapshot([make.node()], gangs, pods, queues))
    assert plan.verdicts["g"].message == "the queue top, which is above all, is closed"
    assert [entry.gang for entry in plan.admissions] == ["h"], "above it is nothing that could be closed"
