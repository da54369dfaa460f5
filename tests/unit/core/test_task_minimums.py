"""A running gang that has members enough, and of one task too few: its master is no surplus."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    Share,
    ShareClass,
    plan_key,
)
from vc_egpu.core.model.reasons import Reason

WHOLE = make.shape(make.H20_MIB, 100)


def elastic(share_class: ShareClass = ShareClass.UNSET, **more: Any) -> Gang:
    """A master and two workers at least; it has four workers."""
    return make.gang("g", share_class=share_class, least=3, min_task_member={"master": 1, "w": 2}, **more)


def workers(**more: Any) -> list[Pod]:
    gated = make.pods("g", 4, WHOLE)
    return [make.placed(pod, f"n1/{number}", **more) for number, pod in enumerate(gated)]


def master(**more: Any) -> Pod:
    (pod,) = make.pods("g", 1, WHOLE, task="master", **more)
    return pod


def test_its_replacement_goes_before_everybody() -> None:
    rival = make.gang("rival", share_class=HIGH)
    pods = [*workers(), master(), *make.pods("rival", 1, WHOLE)]
    plan = ask(make.snapshot([make.node("n1", 5)], [elastic(created=50.0), rival], pods))
    assert [entry.gang for entry in plan.admissions] == ["g"]


@pytest.mark.parametrize("share_class", list(ShareClass))
def test_its_cards_are_kept_for_the_replacement(share_class: ShareClass) -> None:
    failed = make.placed(master(), "n1/4", phase=PodPhase.FAILED, finished=99.0)
    pods = [*workers(), failed, *make.pods("rival", 1, WHOLE)]
    plan = ask(make.snapshot([make.node("n1", 5)], [elastic(share_class), make.gang("rival")], pods))
    assert not plan.admissions, "of low priority too: nobody chose it as a member above the minimum"


def test_it_comes_back_in_a_queue_that_is_closed() -> None:
    closed = make.queue(open=False)
    plan = ask(make.snapshot([make.node("n1", 5)], [elastic()], [*workers(), master()], [closed]))
    assert set(plan.admissions[0].members) == {"master/0"}, plan.verdicts["g"].message
    worker = make.placed(master(), "n1/4")
    more = make.pods("g", 5, WHOLE)[4]
    plan = ask(make.snapshot([make.node("n1", 6)], [elastic()], [*workers(), worker, more], [closed]))
    assert plan.verdicts["g"].reason is Reason.QUEUE_CLOSED, "that one is above the minimum"


def test_it_does_not_wait_for_members_that_are_suspended() -> None:
    away = workers(suspend_ordered=True)
    plan = ask(make.snapshot([make.node("n1", 5)], [elastic(LOW)], [*away, master()]))
    assert set(plan.admissions[0].members) == {"master/0"}, plan.verdicts["g"].message


def test_a_gang_whose_master_is_gone_says_so() -> None:
    verdict = ask(make.snapshot([make.node("n1", 5)], [elastic()], workers())).verdicts["g"]
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS
    assert verdict.message == "0 of 1 members of task master are there"


@pytest.mark.parametrize("minimums", [{"master": 1, "w": 2}, {"master": -5, "w": 7}])
def test_minimums_that_are_more_than_the_gangs_own_do_not_count(minimums: dict[str, int]) -> None:
    """As in Volcano; one below zero is none and makes no room for others."""
    gang = make.gang("g", least=2, min_task_member=minimums)
    plan = ask(make.snapshot([make.node("n1", 2)], [gang], make.pods("g", 2, WHOLE)))
    assert set(plan.admissions[0].members) == {"w/0", "w/1"}


def test_members_are_taken_by_their_index() -> None:
    """The tenth does not come before the second."""
    gang, pods = make.gang("g", least=2), make.pods("g", 11, WHOLE)
    plan = ask(make.snapshot([make.node("n1", 3)], [gang], pods))
    assert set(plan.admissions[0].members) == {"w/0", "w/1", "w/2"}


def plan_of(members: list[Pod]) -> PlanInForce:
    """A ready plan, made a moment ago, that gives each of these a card of its own."""
    share = Share(CardId("n1/0"), make.H20_MIB, 100)
    places = {
        plan_key(pod): MemberPlacement(
            NodeName("n1"), (("main", replace(share, card=CardId(f"n1/{number}"))),)
        )
        for number, pod in enumerate(members)
    }
    return PlanInForce("1-1", places, created=100.0)


@pytest.mark.parametrize("least", [3, 5])
def test_no_worker_is_let_go_once_the_planned_master_is_gone(least: int) -> None:
    """By number there are enough without it where four are more than the gang needs."""
    gated = make.pods("g", 4, WHOLE)
    gang = replace(elastic(), min_member=least, plan=plan_of([master(), *gated]))
    (given_up,) = ask(make.snapshot([make.node("n1", 5)], [gang], gated)).withdrawals
    assert given_up.why == "1 of its planned members are gone"


def test_a_plan_that_names_no_master_any_more_is_given_up() -> None:
    gated = make.pods("g", 4, WHOLE)
    gang = elastic(plan=plan_of(gated))
    (given_up,) = ask(make.snapshot([make.node("n1", 5)], [gang], gated)).withdrawals
    assert given_up.why == "0 of 1 members of task master are there"
    there = [*gated, make.placed(master(), "n1/4")]
    assert not ask(make.snapshot([make.node("n1", 5)], [gang], there)).withdrawals


def test_the_plan_goes_on_without_a_worker_too_many() -> None:
    gated = make.pods("g", 4, WHOLE)
    gang = elastic(plan=plan_of([*gated, master()]))
    assert not ask(make.snapshot([make.node("n1", 5)], [gang], [*gated[1:], master()])).withdrawals
