"""What becomes of operations that fail, come late, or are under way when the world changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, let_go, pod, queue
from unit.admission.stage import BROKEN, CONFLICT, GROUPS, KEY, PLAN_ID, REPLICA_SET, Stage, plan, stage_on
from unit.kube.tiny_api import tiny_api
from vc_egpu.admission.execution.evictions import EvictionOrder
from vc_egpu.admission.main import Epoch
from vc_egpu.admission.recovery.orphans import Orphans
from vc_egpu.admission.recovery.rollback import RollBack
from vc_egpu.admission.serving.http import Access
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.owners import LEVER_TIMEOUT_S
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Share
from vc_egpu.core.model.plan import Plan, Withdrawal
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.codec import pod_codec
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.words import names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def let_go_gang(stage: Stage) -> RollBack:
    """A gang that was let go and is not bound; what the rules say about it."""
    for i in range(2):
        raw = pod(f"g-w-{i}", index=i, uid=f"pod-{i}", owners=REPLICA_SET)
        stage.put("pods", let_go(raw, PLAN_ID))
    stage.put("podgroups", group(annotations={names.PLAN: plan(stage.mirror)}))
    stage.drive()
    stage.server.requests.clear()
    return RollBack(tuple(stage.mirror.members[KEY].values()), "not bound", frozenset({NodeName("n1")}))


def roll_back(stage: Stage, back: RollBack) -> None:
    stage.conductor.roll_back(KEY, stage.mirror.groups[KEY], back, 1000.0)
    stage.drive()


@pytest.mark.parametrize("failure", [CONFLICT, BROKEN])
def test_a_roll_back_goes_on_after_its_first_write_failed(stage: Stage, failure: Any) -> None:
    back = let_go_gang(stage)
    stage.server.script.append(failure)
    roll_back(stage, back)
    stage.outcome()  # the failure
    stage.later(60)
    stage.outcome()  # the plan is gone now
    assert stage.plan_text() is None
    stage.outcome()  # the evictions
    assert stage.asked_to_go() == ["g-w-0", "g-w-1"]


def test_a_roll_back_goes_on_after_an_eviction_failed(stage: Stage) -> None:
    back = let_go_gang(stage)
    stage.server.skip = 2  # the plan's removal, one dry try
    stage.server.script.append(BROKEN)
    roll_back(stage, back)
    stage.outcome()
    stage.outcome()
    assert stage.asked_to_go() == []
    stage.later(60)
    stage.outcome()
    assert stage.asked_to_go() == ["g-w-0", "g-w-1"]


def test_a_roll_back_ends_when_its_pods_are_gone(stage: Stage) -> None:
    back = let_go_gang(stage)
    roll_back(stage, back)
    stage.outcome()
    stage.outcome()
    for member in back.pods:
        stage.mirror.apply("pods", deleted({"metadata": {"uid": member.pod.uid, "resourceVersion": "9999"}}))
        stage.conductor.pod_gone(member.pod.uid)
    stage.drive()
    stage.later(60)
    assert stage.inbox.empty()
    assert stage.asked_to_go() == ["g-w-0", "g-w-1"]


def test_a_plain_eviction_that_failed_is_tried_again(stage: Stage) -> None:
    """After Volcano's lever without effect: the pod must not count as asked for ever."""
    back = let_go_gang(stage)
    uid = back.pods[0].pod.uid
    stage.work.evictions.begun[uid] = 0.0
    stage.work.evictions.pressed.add(uid)
    stage.server.script.append(BROKEN)
    stage.conductor.victims.press(uid)
    stage.outcome()
    assert uid not in stage.work.evictions.begun
    assert uid not in stage.work.evictions.pressed
    assert stage.is_tried()


def test_nobody_is_pressed_before_it_was_asked(stage: Stage) -> None:
    """Two thousand pods are tried dry and asked one after the other: the last ones after half a minute."""
    for i in range(2):
        stage.put("pods", let_go(pod(f"g-w-{i}", index=i, uid=f"pod-{i}"), PLAN_ID))
    stage.put("podgroups", group())
    pods = tuple(stage.mirror.members[KEY].values())
    evictions, is_leaving = stage.work.evictions, stage.conductor.rolling.is_leaving
    stage.server.answers.clear()
    order = EvictionOrder(KEY, "", pods, Cause.ROLLBACK)
    evictions.start(stage.executor, stage.work.api, order, stage.work.clock)
    stage.later(LEVER_TIMEOUT_S + 20)
    assert evictions.overdue(stage.work.clock, is_leaving) == []
    stage.server.answers.set()
    stage.outcome()
    stage.later(LEVER_TIMEOUT_S - 1)
    assert evictions.overdue(stage.work.clock, is_leaving) == [], "its controller was asked just now"
    stage.later(1.0)
    assert evictions.overdue(stage.work.clock, is_leaving) == ["pod-0", "pod-1"]


def gated_gang_on_its_way(stage: Stage) -> None:
    """A ready plan whose two members are being sent on their way, slowly."""
    for i in range(2):
        stage.put("pods", pod(f"g-w-{i}", index=i, uid=f"pod-{i}"))
    stage.put("podgroups", group(annotations={names.PLAN: plan(stage.mirror)}))
    stage.server.delay_s = 0.3
    stage.drive()


def test_a_plan_stays_while_a_gate_may_fall_for_it(stage: Stage) -> None:
    """Its cards would be promised to others, and the member's write would arrive all the same."""
    gated_gang_on_its_way(stage)
    stage.mirror.apply("pods", deleted({"metadata": {"uid": "pod-1", "resourceVersion": "9999"}}))
    stage.drive()  # too few are left, and nobody has been heard of yet
    stage.outcome()
    stage.outcome()
    assert stage.plan_text() is not None
    assert not any(method == "PATCH" and GROUPS in path for method, path, _ in stage.server.requests)


def test_a_withdrawal_waits_for_the_members_that_are_on_their_way(stage: Stage) -> None:
    gated_gang_on_its_way(stage)
    withdrawal = Plan(1, (), (Withdrawal(KEY, PLAN_ID, "node n1 takes nothing now"),), (), {})
    stage.conductor.carry_out(withdrawal, 1000.0)
    stage.agenda.take_question()
    assert not stage.work.is_busy(KEY)
    stage.outcome()
    stage.outcome()
    assert stage.is_tried(), "looked at again once all have been heard of"


def test_an_answer_that_comes_after_the_deletion_brings_no_pod_back(stage: Stage) -> None:
    raw = pod("g-w-0", uid="pod-0")
    stage.mirror.apply("pods", added(raw))
    late = let_go(raw, PLAN_ID)
    stage.mirror.apply("pods", deleted(raw))
    stage.mirror.apply("pods", Change(ChangeKind.MODIFIED, late))
    assert PodUid("pod-0") not in stage.mirror.pods
    assert not stage.mirror.snapshot().pods


def test_a_queue_whose_status_is_counted_anew_brings_no_decision(stage: Stage) -> None:
    stage.agenda.take_question()
    counted = queue()
    counted["status"] = {"state": "Open", "allocated": {"volcano.sh/vgpu-h20": "3"}}
    stage.mirror.apply("queues", added(counted))
    assert stage.agenda.all_for is None
    stage.mirror.apply("queues", added(queue(cap=7)))
    assert stage.agenda.all_for is Why.QUEUE


def test_ever_new_tokens_are_not_all_reviewed(tmp_path: Path) -> None:
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        access = Access(api)
        assert not any(access.allows("10.0.0.9", f"Bearer {i}", "/metrics") for i in range(50))
        assert 10 <= len(server.requests) < 20
        api.close()


def test_a_plan_from_a_template_is_given_up_when_not_all_its_pods_come(stage: Stage) -> None:
    """The Job was scaled down, or a task waits for another: it would hold its cards for ever."""
    for i in range(2):
        stage.put("pods", pod(f"g-w-{i}", index=i, uid=f"pod-{i}"))
    share = Share(CardId("GPU-n1-0"), 30000, 30)
    placement = MemberPlacement(NodeName("n1"), (("main", share),))
    members = {f"w/{i}": PlannedMember(placement) for i in range(3)}
    text = plan(stage.mirror, members=members, created=1000.0)
    stage.put("podgroups", group(members=2, annotations={names.PLAN: text}))
    stage.mirror.settle_all()
    stage.drive()
    assert not decide(stage.mirror.snapshot(), Policy(), 1030.0).withdrawals
    assert [w.gang for w in decide(stage.mirror.snapshot(), Policy(), 1100.0).withdrawals] == [KEY]


def test_an_orphan_whose_removal_failed_is_removed_later() -> None:
    orphans = Orphans()
    raw = pod("g-w-0", uid="pod-0")
    del raw["spec"]["schedulingGates"]
    raw["spec"]["nodeName"] = "n1"
    orphans.note(pod_codec.pod(raw, TABLE), 0.0)
    assert orphans.due(5.0) == ["pod-0"]
    assert orphans.due(50.0) == []
    orphans.failed(PodUid("pod-0"), 50.0)
    assert orphans.due(51.0) == []
    assert orphans.due(55.0) == ["pod-0"]


def test_victims_that_a_budget_lets_go_only_one_by_one_all_stay(stage: Stage) -> None:
    labels = {"app": "r", names.MANAGED_LABEL: "true"}
    for i in range(2):
        raw = pod(f"v-{i}", gang="v", uid=f"victim-{i}", owners=REPLICA_SET, metadata={"labels": labels})
        stage.put("pods", let_go(raw, "5-9", bound=True))
    stage.put("pods", pod("g-w-0", uid="pod-0"))
    budget = {
        "metadata": {
            "name": "b",
            "namespace": "default",
            "uid": "b",
            "resourceVersion": "1",
            "generation": 1,
        },
        "spec": {"selector": {"matchLabels": {"app": "r"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 1},
    }
    stage.mirror.apply("poddisruptionbudgets", added(budget))
    victims = frozenset({PodUid("victim-0"), PodUid("victim-1")})
    text = plan(stage.mirror, state="waiting", victims=victims)
    stage.put("podgroups", group(annotations={names.PLAN: text}))
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)
    stage.outcome()
    assert stage.plan_text() is None
    assert stage.asked_to_go() == []
    assert all(stage.mirror.pods[uid].pod.protected for uid in victims)


def test_victims_whom_two_budgets_guard_all_stay(stage: Stage) -> None:
    """The second one came in between: the API server refuses each of them, as if it had evicted it."""
    raw = pod("v-0", gang="v", uid="victim-0", owners=REPLICA_SET)
    stage.put("pods", let_go(raw, "5-9", bound=True))
    theirs = plan(stage.mirror, group_uid="group-v", plan_id="5-9")
    stage.put("podgroups", group("v", members=1, annotations={names.PLAN: theirs}))
    stage.put("pods", pod("g-w-0", uid="pod-0"))
    text = plan(stage.mirror, state="waiting", victims=frozenset({PodUid("victim-0")}))
    stage.put("podgroups", group(annotations={names.PLAN: text}))
    refused = {"kind": "Status", "status": "Failure", "message": "more than one budget", "code": 500}
    stage.server.script.append((201, refused, {}))
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)
    stage.outcome()
    stage.outcome()
    assert stage.plan_text() is None
    assert stage.asked_to_go() == []
    assert names.PLAN in stage.server.objects[f"{GROUPS}/v"]["metadata"]["annotations"]


@pytest.mark.parametrize("failure", [CONFLICT, BROKEN])
def test_what_failed_for_a_gang_that_is_gone_is_forgotten(stage: Stage, failure: Any) -> None:
    back = let_go_gang(stage)
    stage.server.script.append(failure)
    roll_back(stage, back)
    raw = stage.server.remove(f"{GROUPS}/g")
    stage.mirror.apply("podgroups", deleted(raw))
    stage.outcome()
    stage.later(60)
    assert not stage.work.retries


def test_an_old_leadership_never_gets_what_is_left_of_a_later_one() -> None:
    class Lease:
        epoch = 5

        def remaining_s(self) -> float:
            type(self).epoch = 7  # lost and won again while the old loop asks
            return 9.0

    assert Epoch(Lease()).remaining_s() == 0.0


@pytest.mark.parametrize(("failure", "void"), [(CONFLICT, set()), (BROKEN, {"5-1"})])
def test_only_a_plan_that_may_still_come_is_kept_in_mind(stage: Stage, failure: Any, void: set[str]) -> None:
    """A scheduler beside us writes to PodGroups all the time, and a leader leads for months."""
    for i in range(2):
        stage.put("pods", pod(f"g-w-{i}", index=i, uid=f"pod-{i}"))
    stage.put("podgroups", group())
    stage.server.script.append(failure)
    stage.conductor.carry_out(decide(stage.mirror.snapshot(), Policy(), 1000.0), 1000.0)
    stage.outcome()
    assert stage.conductor.plans.dropped == void
