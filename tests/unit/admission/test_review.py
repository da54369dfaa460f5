"""No gate falls for a plan before it was looked at with what its nodes and pods are by now; then it does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import added, node, pod, queue
from unit.admission.stage import GROUPS, PODS, LoopStage, loop_on
from vc_egpu.admission.execution.outcomes import GateWrite, GroupWrite
from vc_egpu.admission.state.agenda import Why
from vc_egpu.core.model.cluster import NodeName
from vc_egpu.core.model.plan import Plan
from vc_egpu.volcano.words import names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LoopStage]:
    with loop_on(tmp_path) as found:
        yield found


def test_a_plan_whose_nodes_stay_what_they_were_is_followed_at_once(stage: LoopStage) -> None:
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    assert stage.after(GateWrite, 2) == ["g-w-0", "g-w-1"]


def test_no_gate_falls_for_a_node_that_closed_in_the_same_moment(stage: LoopStage) -> None:
    stage.arrives("podgroups", stage.planned())
    stage.arrives("nodes", node(spec={"unschedulable": True}))
    stage.turn()
    assert stage.after(GroupWrite, 1) == []
    stands = stage.server.objects[f"{GROUPS}/g"]["metadata"]["annotations"]
    assert names.PLAN not in stands


def test_gates_fall_in_the_same_turn_if_the_node_changed_for_no_harm(stage: LoopStage) -> None:
    stage.arrives("podgroups", stage.planned())
    changed = node()
    changed["metadata"]["labels"]["zone"] = "a"
    stage.arrives("nodes", changed)
    stage.turn()
    assert stage.after(GateWrite, 2) == ["g-w-0", "g-w-1"]


ELSEWHERE = {"nodeSelector": {"zone": "elsewhere"}}
"""What others may add to a pod while it is gated: its node is not one of those any more."""


def test_no_gate_falls_for_a_pod_that_may_not_go_there_any_more(stage: LoopStage) -> None:
    stage.arrives("podgroups", stage.planned())
    stage.arrives("pods", pod("g-w-1", index=1, uid="pod-1", spec=ELSEWHERE))
    stage.turn()
    assert stage.after(GroupWrite, 1) == []


def test_a_plan_is_looked_at_again_when_a_pod_changed_since_it_was_found_to_hold(stage: LoopStage) -> None:
    stage.agenda.review((NodeName("n1"),))  # the first look is the decision's
    stage.gates_fall("pod-0", "pod-1")
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    stage.gates_have_fallen("pod-0", "pod-1")
    stage.arrives("pods", pod("g-w-1", index=1, uid="pod-1", spec=ELSEWHERE))
    stage.turn()
    assert stage.after(GroupWrite, 1) == []


def test_who_is_held_back_for_a_node_is_looked_at_though_nothing_else_happens(stage: LoopStage) -> None:
    stage.gates_fall("pod-0", "pod-1")
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    stage.turn()
    stage.gates_have_fallen("pod-0", "pod-1")
    stage.agenda.review((NodeName("n1"),))
    stage.agenda.look_at("default/g")
    stage.deliver("queues", added(queue()))  # it says what it said before: that wants no decision
    stage.agenda.take_question()
    stage.turn()
    assert stage.after(GateWrite, 2) == ["g-w-0", "g-w-1"]


def test_a_pod_that_goes_where_it_was_planned_holds_nobody_else_back_there(stage: LoopStage) -> None:
    """Its pin is a wish that it did not have before."""
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    stage.after(GateWrite, 2)
    for name in ("g-w-0", "g-w-1"):
        assert stage.mirror.groups["default/g"].outstanding
        stage.mirror.apply("pods", added(stage.server.objects[f"{PODS}/{name}"]))
        assert not stage.agenda.unreviewed


def test_a_decision_that_can_not_be_made_keeps_nobody_back_for_ever(stage: LoopStage) -> None:
    def failing(*_: object) -> Plan:
        raise ZeroDivisionError

    stage.decides(failing)
    stage.agenda.review((NodeName("n1"),))
    stage.agenda.try_all(Why.NODE)
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    assert stage.after(GateWrite, 2) == ["g-w-0", "g-w-1"]
