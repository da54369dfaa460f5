"""Gangs told to leave their cards and to come back: whole, whatever fails, from annotations alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import deleted
from unit.admission.stage import BROKEN, CONFLICT, GROUPS, PODS, Stage
from unit.admission.suspended_gang import (
    ABLE,
    UIDS,
    VICTIM,
    answer,
    in_time,
    lifted,
    order_on,
    ordered,
    other_victim,
    report,
    said_of,
    states,
    suspend,
    suspendable_on,
    until,
    waiting_for,
)
from vc_egpu.admission.serving.metrics import Level1
from vc_egpu.admission.telling import suspension_words as words
from vc_egpu.admission.view import View
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import PodUid, QueueName, SuspensionState
from vc_egpu.core.model.plan import Eviction, Plan, Resume, Suspension
from vc_egpu.volcano.codec.suspension import PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names

ABOVE_TIMEOUT_S = 61.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with suspendable_on(tmp_path) as found:
        yield found


def test_a_gang_is_told_to_leave_as_a_whole_and_says_where_its_memory_is(stage: Stage) -> None:
    suspend(stage)
    orders = [order_on(stage, uid) for uid in UIDS]
    assert [order.pod_uid for order in orders if order] == UIDS
    assert len({order.plan_id for order in orders if order}) == 1
    assert states(stage) == [(True, SuspensionState.SUSPENDED)] * 2
    assert stage.agenda.all_for is not None, "room came about"
    until(
        stage,
        lambda: (said_of(stage, f"{GROUPS}/v") or words.Said("", "", "")).reason == "Suspended",
    )
    until(
        stage,
        lambda: (said_of(stage, f"{PODS}/v-1") or words.Said("", "", "")).reason == "Suspended",
    )
    said = said_of(stage, f"{GROUPS}/v")
    assert said is not None
    assert "2 of 2 pods on 1 node, 62000 MiB of GPU memory on the host" in said.message
    assert "a user asked for it" in said.message


def test_suspended_is_believed_only_for_the_present_order(stage: Stage) -> None:
    """The answer to an order that was taken back: the memory may be on the card again."""
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    until(stage, lambda: ordered(stage))
    report(stage, dict.fromkeys(UIDS, PodSuspension(state=SuspensionState.SUSPENDED, plan_id="4-9")))
    assert states(stage) == [(True, SuspensionState.RESUMING)] * 2


def test_the_cards_of_who_comes_back_are_its_own_before_the_order_is_off(stage: Stage) -> None:
    suspend(stage)
    stage.server.delay_s = 0.2
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    assert states(stage) == [(False, SuspensionState.SUSPENDED)] * 2, "booked in full from now on"
    until(stage, lambda: lifted(stage))
    stage.server.delay_s = 0
    answer(stage, "running")
    assert states(stage) == [(False, SuspensionState.RUNNING)] * 2
    until(
        stage,
        lambda: (said_of(stage, f"{PODS}/v-0") or words.Said("", "", "")).reason == "Resumed",
    )
    until(
        stage,
        lambda: (said_of(stage, f"{GROUPS}/v") or words.Said("", "", "")).reason == "Resumed",
    )
    assert stage.work.counters["resumed"] == 2


def test_a_node_that_brings_nobody_back_is_named(stage: Stage) -> None:
    suspend(stage)
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    until(stage, lambda: lifted(stage))
    stage.later(ABOVE_TIMEOUT_S)
    stage.tick()
    late = "its node takes longer than 60 s"
    until(stage, lambda: late in (said_of(stage, f"{PODS}/v-0") or words.Said("", "", "")).message)
    assert states(stage) == [(False, SuspensionState.SUSPENDED)] * 2, "booked in full all the while"


@pytest.mark.parametrize(("relieves", "counts"), [("team", 0), ("elsewhere", 2), (None, 2)])
def test_those_that_make_room_in_their_own_cap_count_in_no_queue(
    stage: Stage, relieves: QueueName | None, counts: int
) -> None:
    """The order says so: the next leader counts alike. Once it is taken back they count again."""
    waiting_for(stage, set(UIDS), set(UIDS), relieves=relieves)
    until(stage, lambda: ordered(stage))
    orders = [order_on(stage, uid) for uid in UIDS]
    assert {order.off_quota for order in orders if order} == {counts == 0}

    def used() -> int:
        use = index_of(stage.mirror.snapshot()).uses.total[QueueName("team")]
        return use["volcano.sh/vgpu-h20"] - 1  # the gang that waits for them

    assert used() == counts
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    assert used() == 2


def test_nobody_is_evicted_until_all_who_can_have_left_for_a_while(stage: Stage) -> None:
    evicted = other_victim(stage)
    waiting_for(stage, {*UIDS, evicted}, set(UIDS))
    until(stage, lambda: ordered(stage))
    order = order_on(stage, UIDS[0])
    assert order is not None
    assert order.why == "makes room for Job default/g of higher priority"
    assert order.cause is Cause.PRIORITY
    stage.conductor.carry_out(Plan(2), 1000.0)
    assert stage.asked_to_go() == []
    answer(stage, "suspended")
    stage.conductor.carry_out(Plan(3), 1000.0)
    until(stage, lambda: stage.asked_to_go() == ["e-0"])
    assert stage.plan_text() is not None


def test_who_cannot_leave_any_more_costs_the_plan_and_nobody_its_work(stage: Stage) -> None:
    evicted = other_victim(stage)
    report(stage, {UIDS[0]: ABLE, UIDS[1]: PodSuspension(reason="it uses managed memory")})
    waiting_for(stage, {*UIDS, evicted}, set(UIDS))
    until(stage, lambda: stage.plan_text() is None)
    assert not any(order_on(stage, uid) for uid in UIDS)
    assert stage.asked_to_go() == []


def test_an_agent_that_does_not_answer_has_its_orders_taken_back(stage: Stage) -> None:
    waiting_for(stage, set(UIDS), set(UIDS))
    until(stage, lambda: ordered(stage))
    stage.later(ABOVE_TIMEOUT_S)
    stage.tick()
    until(stage, lambda: lifted(stage))
    assert not any(stage.mirror.pods[uid].pod.suspendable for uid in UIDS), "evicted the next time"
    stage.conductor.carry_out(Plan(2), 1000.0)
    until(stage, lambda: stage.plan_text() is None)
    assert stage.work.counters["suspensions_failed"] == 1
    stage.later(601.0)
    stage.tick()
    assert all(stage.mirror.pods[uid].pod.suspendable for uid in UIDS)
    assert not stage.conductor.suspending


def test_who_has_left_already_comes_back_when_there_is_room_and_not_before(stage: Stage) -> None:
    """One member left, others may have its room by now; the other never did: a gang goes as a whole."""
    raw = stage.server.objects[f"{PODS}/v-0"]
    annotations = {**raw["metadata"]["annotations"], names.PAUSE: "true"}
    stage.put("pods", {**raw, "metadata": {**raw["metadata"], "annotations": annotations}})
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    until(stage, lambda: ordered(stage))
    order = order_on(stage, UIDS[0])
    assert order is not None
    away = PodSuspension(state=SuspensionState.SUSPENDED, plan_id=order.plan_id, suspendable=True)
    report(stage, {UIDS[0]: away, UIDS[1]: ABLE})
    stage.later(ABOVE_TIMEOUT_S)
    stage.tick()
    until(stage, lambda: order_on(stage, UIDS[1]) is None and not stage.mirror.answers.lifting)
    assert states(stage) == [(True, SuspensionState.SUSPENDED), (False, SuspensionState.RUNNING)]
    assert not stage.mirror.snapshot().pods[UIDS[0]].pause_wished, "the decision may bring it back"
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS[:1])),)), 1000.0)
    until(stage, lambda: lifted(stage))


def test_who_was_away_is_not_called_back_because_its_node_is_confused(stage: Stage) -> None:
    """Others may be on its cards: only the decision knows."""
    suspend(stage)
    report(stage, dict.fromkeys(UIDS, ABLE))
    stage.drive()
    stage.later(ABOVE_TIMEOUT_S)
    stage.tick()
    stage.drive()
    assert all(order_on(stage, uid) for uid in UIDS)
    assert states(stage) == [(True, SuspensionState.RUNNING)] * 2, "booked in full all the same"


def test_an_agent_that_tried_in_vain_is_not_waited_for(stage: Stage) -> None:
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    until(stage, lambda: ordered(stage))
    answer(stage, "running", reason="a process did not let itself be locked in 5 s")
    until(stage, lambda: lifted(stage))
    until(
        stage,
        lambda: (said_of(stage, f"{PODS}/v-0") or words.Said("", "", "")).reason == "SuspendFailed",
    )
    said = said_of(stage, f"{PODS}/v-0")
    assert said is not None
    assert "did not let itself be locked in 5 s" in said.message


def test_a_gang_of_which_one_member_cannot_leave_is_taken_back_as_a_whole(stage: Stage) -> None:
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    stage.server.script_for = names.SUSPEND
    stage.server.script.append(CONFLICT)  # one of the two has to be looked at again
    stage.drive()
    report(stage, dict.fromkeys(UIDS, PodSuspension(reason="no room on the host")))
    until(stage, lambda: lifted(stage) and stage.work.counters.get("suspensions_failed") == 1)
    assert states(stage) == [(False, SuspensionState.RUNNING)] * 2


@pytest.mark.parametrize("failure", [CONFLICT, BROKEN])
def test_orders_and_their_removal_are_written_again_after_a_failure(stage: Stage, failure: Any) -> None:
    stage.server.script_for = names.SUSPEND
    stage.server.script += [failure]
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    stage.drive()
    in_time(stage, lambda: ordered(stage))
    assert not stage.server.script
    answer(stage, "suspended")
    stage.server.script += [failure]
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    stage.drive()

    def through() -> bool:
        assert not any(found for found, _ in states(stage)), "booked in full whatever became of the write"
        return lifted(stage)

    in_time(stage, through)
    assert not stage.server.script


def order_by_hand(stage: Stage, uid: PodUid, text: str | None = None) -> None:
    """As an earlier leader left it."""
    raw = stage.server.objects[f"{PODS}/{uid}"]
    order = SuspendOrder(pod_uid=uid, plan_id="4-7", why="makes room for gang default/g").encode()
    annotations = {**raw["metadata"]["annotations"], names.SUSPEND: text or order}
    stage.put("pods", {**raw, "metadata": {**raw["metadata"], "annotations": annotations}})


def test_a_new_leader_finishes_what_a_dead_one_began(stage: Stage) -> None:
    """Killed between two members: half a gang gets nowhere, and leaving only makes room."""
    order_by_hand(stage, UIDS[0])
    stage.drive()
    stage.later(6.0)
    stage.tick()
    until(stage, lambda: ordered(stage))
    assert {order.plan_id for uid in UIDS if (order := order_on(stage, uid))} == {"4-7"}


def test_a_new_leader_goes_on_for_the_plan_that_waits(stage: Stage) -> None:
    order_by_hand(stage, UIDS[0])
    waiting_for(stage, set(UIDS), set(UIDS))
    until(stage, lambda: ordered(stage))
    answer(stage, "suspended")
    assert states(stage) == [(True, SuspensionState.SUSPENDED)] * 2


def test_a_new_leader_waits_for_old_orders_no_longer_than_for_its_own(stage: Stage) -> None:
    for uid in UIDS:
        order_by_hand(stage, uid)
    stage.drive()
    stage.later(ABOVE_TIMEOUT_S)
    stage.tick()
    until(stage, lambda: lifted(stage))


def test_an_order_that_nobody_can_read_is_taken_off(stage: Stage) -> None:
    order_by_hand(stage, UIDS[0], text="{")
    until(stage, lambda: lifted(stage))
    assert states(stage) == [(False, SuspensionState.RUNNING)] * 2


def test_a_node_speaks_for_its_own_pods_only(stage: Stage) -> None:
    other = dict.fromkeys(UIDS, PodSuspension(state=SuspensionState.FAILED))
    report(stage, other, name="n2")
    assert states(stage) == [(False, SuspensionState.RUNNING)] * 2


@pytest.mark.parametrize("text", ["", "{", '{"version":1,"pods":[]}', '{"version":9,"pods":{}}'])
def test_a_node_that_reports_garbage_has_pods_that_run_and_cannot_be_suspended(
    stage: Stage, text: str
) -> None:
    suspend(stage)
    report(stage, {}, text=text)
    assert states(stage) == [(True, SuspensionState.RUNNING)] * 2, "their cards count as their own"
    assert not any(stage.mirror.pods[uid].pod.suspendable for uid in UIDS)


def test_a_wish_that_cannot_be_met_is_answered_with_the_reason(stage: Stage) -> None:
    report(stage, dict.fromkeys(UIDS, PodSuspension(reason="driver 550.54 has no process checkpoint")))
    raw = stage.server.objects[f"{PODS}/v-0"]
    annotations = {**raw["metadata"]["annotations"], names.PAUSE: "true"}
    stage.put("pods", {**raw, "metadata": {**raw["metadata"], "annotations": annotations}})
    until(
        stage,
        lambda: (said_of(stage, f"{PODS}/v-0") or words.Said("", "", "")).reason == "NotSuspendable",
    )
    said = said_of(stage, f"{PODS}/v-0")
    assert said is not None
    assert "driver 550.54 has no process checkpoint" in said.message
    assert stage.mirror.snapshot().pods[UIDS[0]].pause_wished


def test_a_wish_that_the_host_has_no_room_for_is_answered_too(stage: Stage) -> None:
    raw = stage.server.objects[f"{PODS}/v-0"]
    annotations = {**raw["metadata"]["annotations"], names.PAUSE: "true"}
    stage.put("pods", {**raw, "metadata": {**raw["metadata"], "annotations": annotations}})
    stage.drive()
    assert said_of(stage, f"{PODS}/v-0") is None, "the decision may still meet it"
    stage.later(3.5)
    stage.tick()
    until(
        stage,
        lambda: (said_of(stage, f"{PODS}/v-0") or words.Said("", "", "")).reason == "NotSuspendable",
    )
    said = said_of(stage, f"{PODS}/v-0")
    assert said is not None
    assert "0 MiB of host memory aside, the 2 pods of its gang there need 60000 MiB" in said.message


def test_a_gang_that_could_not_be_brought_back_is_made_anew(stage: Stage) -> None:
    suspend(stage)
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    until(stage, lambda: lifted(stage))
    answer(stage, "failed", reason="restore: out of memory")
    stage.conductor.carry_out(
        Plan(3, evictions=(Eviction(VICTIM, frozenset(UIDS), whole=True, cause=Cause.ROLLBACK),)), 1000.0
    )
    until(stage, lambda: stage.asked_to_go() == ["v-0", "v-1"])
    labels = {"queue": "team", "class": "low", "cause": "rollback"}
    assert stage.work.figures.registry.get_sample_value("egpu_pods_evicted_total", labels) == 2
    stage.conductor.carry_out(
        Plan(4, evictions=(Eviction(VICTIM, frozenset(UIDS), whole=True, cause=Cause.ROLLBACK),)), 1000.0
    )
    stage.drive()
    assert stage.asked_to_go() == ["v-0", "v-1"], "asked once"


@pytest.mark.parametrize("reason", [words.SUSPENDED, words.RESTORE_FAILED])
def test_of_a_gang_that_was_evicted_nobody_says_that_it_runs_or_is_away(stage: Stage, reason: str) -> None:
    suspend(stage)
    if reason == words.RESTORE_FAILED:
        stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
        until(stage, lambda: lifted(stage))
        answer(stage, "failed", reason="out of memory")
    until(stage, lambda: (said_of(stage, f"{GROUPS}/v") or words.Said("", "", "")).reason == reason)
    for uid in UIDS:
        stage.mirror.apply("pods", deleted(stage.server.remove(f"{PODS}/{uid}")))
    until(stage, lambda: said_of(stage, f"{GROUPS}/v") == words.of_gang([], 0, 0))
    assert "run" not in words.of_gang([], 0, 0).message


def test_metrics_tell_who_is_away_and_what_lies_on_the_host(stage: Stage) -> None:
    suspend(stage)
    view = View(
        stage.mirror.snapshot(),
        {},
        stage.work.counters,
        5,
        admitting=True,
        figures=stage.work.figures,
    )
    level1 = Level1(lambda: view)
    text = "".join(level1.answer(path).decode() for path in level1.paths)
    card = 'node="n1",uuid="GPU-n1-0",index="0",model="h20"'
    assert f"egpu_card_suspended_sharers{{{card}}} 2" in text
    assert f"egpu_card_memory_allocated_bytes{{{card}}} 0" in text
    assert f'egpu_host_memory_booked_bytes{{node="n1",for="suspended"}} {60000 << 20}' in text
    assert text.count("egpu_share_suspended{") == 2
    assert 'egpu_admission_operations_total{operation="suspend_orders"} 2' in text
    assert 'egpu_pods_suspended_total{queue="team",class="low",cause="wish"} 2' in text
    # Its first one is to be seen as growth.
    assert 'egpu_admission_operations_total{operation="suspensions_failed"} 0' in text


def test_a_resume_waits_until_its_orders_are_written(stage: Stage) -> None:
    """Otherwise an order could land after its own removal."""
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    stage.drive()
    stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    until(stage, lambda: ordered(stage))
    assert not stage.mirror.answers.lifting
