"""What an earlier leader left: writes that come late, and tries that were in vain."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import added, group
from unit.admission.stage import PODS, REPLICA_SET, Stage, stage_on
from unit.admission.suspended_gang import (
    ABLE,
    UIDS,
    VICTIM,
    answer,
    lifted,
    order_on,
    ordered,
    report,
    running_gang,
    said_of,
    states,
    suspend,
    suspendable_on,
    until,
    waiting_for,
)
from vc_egpu.admission.telling import suspension_words as words
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.core.model.plan import Plan, Resume, Suspension
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.volcano.codec.suspension import PodSuspension

ABOVE_TIMEOUT_S = 61.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with suspendable_on(tmp_path) as found:
        yield found


def says(stage: Stage, reason: str) -> bool:
    said = [said_of(stage, f"{PODS}/{uid}") for uid in UIDS]
    return all(one is not None and one.reason == reason for one in said)


def test_a_condition_that_an_earlier_leader_wrote_late_does_not_stay(stage: Stage) -> None:
    suspend(stage)
    until(stage, lambda: says(stage, "Suspended"))
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    until(stage, lambda: lifted(stage))
    answer(stage, "running")
    until(stage, lambda: says(stage, "Resumed"))
    raw = stage.server.objects[f"{PODS}/v-0"]
    late = words.condition(words.Said("True", "Suspended", "by one that is gone"), 1000.0)
    stage.put("pods", {**raw, "status": {**raw["status"], "conditions": [late]}})
    assert not says(stage, "Resumed")
    until(stage, lambda: says(stage, "Resumed"))


@pytest.mark.parametrize(("ago_s", "is_tried"), [(10.0, False), (590.0, False), (610.0, True)])
def test_what_was_tried_in_vain_is_not_tried_again_by_the_next_leader(
    stage: Stage, tmp_path: Path, ago_s: float, is_tried: bool
) -> None:
    stage.conductor.suspending.telling.wall = lambda: time.time() - ago_s
    stage.conductor.carry_out(Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),)), 1000.0)
    until(stage, lambda: ordered(stage))
    answer(stage, "running", reason="a process did not let itself be locked in 5 s")
    until(stage, lambda: lifted(stage) and says(stage, "SuspendFailed"))

    folder = tmp_path / "next"
    folder.mkdir()
    with stage_on(folder) as following:
        running_gang(following)
        for uid in UIDS:
            following.mirror.apply("pods", added(_newer(stage, uid)))
        following.mirror.settle_all()
        following.conductor.take_over(following.conductor.plans.authority)
        pods = [following.mirror.snapshot().pods[uid] for uid in UIDS]
        assert [pod.suspendable for pod in pods] == [is_tried] * 2
        following.later(601)
        following.tick()
        assert all(following.mirror.snapshot().pods[uid].suspendable for uid in UIDS)


def _newer(stage: Stage, uid: str) -> dict[str, object]:
    raw = stage.server.objects[f"{PODS}/{uid}"]
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": "999999"}}


def test_an_answer_that_is_heard_before_its_order_is_seen_costs_no_plan(stage: Stage) -> None:
    stage.server.delay_s = 0.3
    waiting_for(stage, set(UIDS), set(UIDS))
    stage.drive()  # the orders are on their way
    early = PodSuspension(state=SuspensionState.SUSPENDED, plan_id="5-9", suspendable=False)
    report(stage, dict.fromkeys(UIDS, early))
    stage.conductor.carry_out(Plan(2), 1000.0)
    stage.server.delay_s = 0
    until(stage, lambda: ordered(stage))
    assert stage.plan_text() is not None
    assert not stage.work.counters.get("suspensions_failed")


def test_who_does_not_come_back_in_time_is_told_of_to_the_decision(stage: Stage) -> None:
    suspend(stage)
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    until(stage, lambda: lifted(stage))
    stage.tick()
    assert not any(stage.mirror.snapshot().pods[uid].overdue for uid in UIDS)
    stage.later(61.0)
    stage.tick()
    assert all(stage.mirror.snapshot().pods[uid].overdue for uid in UIDS)
    answer(stage, "running")
    stage.tick()
    assert not any(stage.mirror.snapshot().pods[uid].overdue for uid in UIDS)


def test_an_order_says_when_it_was_given(stage: Stage) -> None:
    suspend(stage)
    pods = [stage.mirror.snapshot().pods[uid] for uid in UIDS]
    assert all(abs(pod.suspended_since - time.time()) < 600 for pod in pods)


def test_an_order_that_meets_its_own_taking_back_is_given_once_and_stands(stage: Stage) -> None:
    """Room was wanted, was not wanted any more, and is wanted again while the API server is slow."""
    stage.conductor.carry_out(Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),)), 1000.0)
    until(stage, lambda: ordered(stage))
    stage.server.delay_s = 0.3
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    stage.drive()  # the orders are on their way off
    waiting_for(stage, set(UIDS), set(UIDS))
    stage.server.delay_s = 0
    until(stage, lambda: ordered(stage))
    assert not stage.mirror.answers.lifting
    answer(stage, "suspended")
    assert states(stage) == [(True, SuspensionState.SUSPENDED)] * 2
    assert stage.work.counters["suspend_orders"] == 4
    assert not stage.work.counters.get("suspensions_failed")
    assert stage.plan_text() is not None


def test_a_way_back_that_nobody_could_be_told_of_is_not_counted_to_the_next_order(stage: Stage) -> None:
    """Where thousands of gangs are told that they wait there may be no write left to say that one leaves."""
    stage.work.reports.limit = TokenBucket(1e-9, 1)
    stage.work.reports.limit.take()
    suspend(stage)
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    until(stage, lambda: lifted(stage))
    answer(stage, "running")
    assert not any(stage.mirror.pods[uid].pod.suspend_ordered for uid in UIDS)
    stage.later(600.0)
    stage.conductor.carry_out(Plan(3, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),)), 1000.0)
    until(stage, lambda: ordered(stage))
    stage.tick()
    stage.drive()
    assert not stage.work.counters.get("suspensions_failed")
    assert ordered(stage), "its node has a minute from now on"


def test_a_replica_that_cannot_leave_says_nothing_of_the_others(stage: Stage) -> None:
    """Of a Deployment: each was told by itself, and goes or stays by itself."""
    replicas = group("v", members=1)
    replicas["metadata"]["ownerReferences"] = REPLICA_SET
    stage.put("podgroups", replicas)
    stage.conductor.carry_out(Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),)), 1000.0)
    until(stage, lambda: ordered(stage))
    orders = [order_on(stage, uid) for uid in UIDS]
    said = [PodSuspension(plan_id=order.plan_id, suspendable=True, reason="no") for order in orders if order]
    report(stage, {UIDS[0]: said[0], UIDS[1]: ABLE})
    until(stage, lambda: order_on(stage, UIDS[0]) is None and not stage.mirror.answers.lifting)
    assert order_on(stage, UIDS[1]) is not None
    assert [stage.mirror.pods[uid].pod.suspendable for uid in UIDS] == [False, True]
    until(stage, lambda: words.failed_at(stage.mirror.pods[UIDS[0]]) is not None)
    stage.mirror.answers.unfit.clear()
    stage.conductor.suspending.take_over(stage.work.clock)
    assert list(stage.mirror.answers.unfit) == UIDS[:1], "nor does the next leader think so"
    stage.later(ABOVE_TIMEOUT_S)
    stage.tick()
    until(stage, lambda: lifted(stage))
    assert not any(stage.mirror.pods[uid].pod.suspendable for uid in UIDS)
