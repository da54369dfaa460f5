"""A write that lifts a gate and was never answered may still happen: the plan that books its cards stays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import Json, deleted, group, let_go, pod
from unit.admission.stage import (
    BROKEN,
    CONFLICT,
    GROUPS,
    KEY,
    PLAN_ID,
    PODS,
    REPLICA_SET,
    Stage,
    plan,
    stage_on,
)
from vc_egpu.admission.execution import steps
from vc_egpu.admission.execution.carrying import Carrying
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodPhase, PodUid, Share
from vc_egpu.core.model.plan import Plan, Withdrawal
from vc_egpu.kube.wire.errors import (
    Conflict,
    Forbidden,
    KubeError,
    RequestTimeout,
    TooManyRequests,
    Unavailable,
)
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.words import names

WITHDRAWN = Plan(1, (), (Withdrawal(KEY, PLAN_ID, "node n1 takes nothing now"),), (), {})
UID = PodUid("pod-0")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def one_gated(stage: Stage) -> Json:
    raw = pod("g-w-0", uid="pod-0")
    stage.put("pods", raw)
    stage.put("podgroups", group(members=1, annotations={names.PLAN: plan(stage.mirror)}))
    return raw


def writes(stage: Stage, prefix: str) -> list[tuple[str, Any]]:
    return [
        (path, body) for method, path, body in stage.server.requests if method == "PATCH" and prefix in path
    ]


def carry_without_an_answer(stage: Stage) -> Json:
    """The body of the write whose outcome nobody knows."""
    one_gated(stage)
    stage.server.script.append(BROKEN)
    stage.drive()
    stage.outcome()
    ((_, body),) = writes(stage, PODS)
    return dict(body)


def test_a_plan_is_taken_back_only_after_the_unanswered_write_can_not_land_any_more(stage: Stage) -> None:
    late = carry_without_an_answer(stage)
    stage.time_passes(60)  # its back-off is over; the plan is wanted back before it is sent again
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    assert not writes(stage, GROUPS)
    stage.outcome()  # the pod has been written to once more
    present = stage.server.objects[f"{PODS}/g-w-0"]["metadata"]
    assert late["metadata"]["resourceVersion"] != present["resourceVersion"]
    assert stage.is_tried()
    # The gate is still there, and the plan may be followed or taken back; it is decided anew.
    assert stage.mirror.pods[UID].pod.phase is PodPhase.GATED


def test_the_write_that_landed_all_the_same_is_seen_before_the_plan_goes(stage: Stage) -> None:
    carry_without_an_answer(stage)
    raw = stage.server.objects[f"{PODS}/g-w-0"]
    stage.server.put(f"{PODS}/g-w-0", let_go(raw, PLAN_ID))  # the watch is slow
    stage.time_passes(60)
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.mirror.pods[UID].pod.plan_id == PLAN_ID, "its cards count before anybody else may have them"
    assert not writes(stage, GROUPS)


def test_a_second_try_that_is_answered_settles_the_first(stage: Stage) -> None:
    carry_without_an_answer(stage)
    stage.later(60)
    stage.outcome()
    assert stage.mirror.pods[UID].pod.plan_id == PLAN_ID
    assert stage.work.counters["ungated"] == 1
    sent = len(writes(stage, PODS))
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.plan_text() is None
    assert len(writes(stage, PODS)) == sent, "nothing is in doubt"


def test_what_an_earlier_leader_sent_is_in_doubt_too(stage: Stage) -> None:
    one_gated(stage)
    stage.conductor.take_over(steps.Authority(epoch=6, adopted={PLAN_ID}))
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    assert not writes(stage, GROUPS)
    stage.answered()
    assert [path.partition("?")[0] for path, _ in writes(stage, PODS)] == [f"{PODS}/g-w-0/status"]
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.plan_text() is None


def test_a_pod_that_went_meanwhile_is_in_doubt_no_longer(stage: Stage) -> None:
    carry_without_an_answer(stage)
    stage.mirror.apply("pods", deleted({"metadata": {"uid": "pod-0", "resourceVersion": "9999"}}))
    stage.conductor.pod_gone(UID)
    sent = len(writes(stage, PODS))
    stage.time_passes(60)
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.plan_text() is None
    assert len(writes(stage, PODS)) == sent


def test_no_other_gate_falls_for_a_plan_that_shall_go(stage: Stage) -> None:
    carry_without_an_answer(stage)
    stage.time_passes(60)
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()  # settled now; the decision comes next
    assert [path for path, body in writes(stage, PODS)[1:] if "spec" in body] == []
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)  # it wants the plan to stand after all
    stage.drive()
    stage.outcome()
    assert stage.mirror.pods[UID].pod.plan_id == PLAN_ID


def test_victims_whose_gates_may_still_fall_are_asked_first(stage: Stage) -> None:
    """The victims' plan goes with them: nobody may come out of it afterwards."""
    carry_without_an_answer(stage)
    running = pod("g-w-1", index=1, uid="pod-1", owners=REPLICA_SET)
    stage.put("pods", let_go(running, PLAN_ID, bound=True))
    stage.put("pods", pod("h-w-0", gang="h", uid="pod-9"))
    placement = MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-1"), 30000, 30)),))
    waiting: dict[str, Any] = {
        "group_uid": "group-h",
        "state": "waiting",
        "members": {"w/0": PlannedMember(placement, PodUid("pod-9"))},
        "victims": frozenset({PodUid("pod-1")}),
    }
    text = plan(stage.mirror, **waiting)
    stage.put("podgroups", group("h", members=1, annotations={names.PLAN: text}))
    stage.time_passes(60)
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)
    assert not stage.work.evictions.begun
    stage.answered()  # no gate of theirs falls any more
    assert stage.is_tried(), "so that it is decided, and gone on with, at once"
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)
    assert set(stage.work.evictions.begun) == {"pod-1"}
    stage.drive()  # the gated member is not sent on its way while its plan is being taken away
    assert not stage.gates_under_way()
    stage.outcome()
    assert stage.asked_to_go() == ["g-w-1"]
    assert stage.plan_text() is None


def test_a_plan_that_could_not_be_taken_back_is_tried_again_in_its_time(stage: Stage) -> None:
    """Decisions come many times a second, and each finds that it does not hold."""
    one_gated(stage)
    stage.server.script.append(BROKEN)
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.answered()
    for _ in range(3):
        stage.conductor.carry_out(WITHDRAWN, 1000.0)
        assert not stage.work.is_busy(KEY)
        stage.drive()
        assert not stage.gates_under_way(), "no gate falls for it meanwhile"
    stage.later(60)
    assert not stage.gates_under_way()
    assert stage.is_tried(), "it is decided anew"
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.plan_text() is None


def test_a_plan_that_shall_go_while_its_podgroup_is_written_to_goes_after_that(stage: Stage) -> None:
    one_gated(stage)
    stage.server.answers.clear()
    stage.conductor.plans.enqueue(KEY, stage.mirror.groups[KEY])
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.agenda.take_question()
    stage.server.answers.set()
    stage.outcome()
    assert not stage.gates_under_way(), "no gate falls for it"
    assert stage.is_tried()
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.plan_text() is None


@pytest.mark.parametrize(
    ("error", "in_doubt"),
    [
        (None, False),
        (Conflict("x"), False),
        (Forbidden("x"), False),
        (TooManyRequests("x"), False),
        (RequestTimeout("x"), True),
        (Unavailable("x"), True),
        (KubeError("x"), True),
    ],
)
def test_which_answers_leave_doubt(error: KubeError | None, *, in_doubt: bool) -> None:
    carrying = Carrying()
    assert carrying.begin(UID)
    assert not carrying.begin(UID)
    carrying.ended(UID, error)
    assert carrying.is_settled(KEY, [UID]) is not in_doubt
    if in_doubt:
        carrying.ended(UID, Forbidden("x"))
        assert not carrying.is_settled(KEY, [UID]), "a refusal says nothing of the write before"
        carrying.ended(UID, Conflict("x"))
        assert carrying.is_settled(KEY, [UID])


def test_a_fence_that_is_refused_for_being_late_reads_what_is_there(stage: Stage) -> None:
    carry_without_an_answer(stage)
    stage.server.script.append(CONFLICT)
    stage.time_passes(60)
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.answered()
    assert stage.server.requests[-1][0] == "GET"
    stage.conductor.carry_out(WITHDRAWN, 1000.0)
    stage.outcome()
    assert stage.plan_text() is None
