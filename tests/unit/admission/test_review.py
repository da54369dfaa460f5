"""No gate falls for a plan before it was looked at with what its nodes and pods are by now; then it does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import added, node, pod, queue
from unit.admission.test_conduct import GROUPS, PODS
from unit.admission.test_loop import Stage, stage_on
from vc_egpu.admission import deciding
from vc_egpu.admission import loop as loop_module
from vc_egpu.core.model.cluster import NodeName, PodUid
from vc_egpu.volcano.words import names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def test_a_plan_whose_nodes_stay_what_they_were_is_followed_at_once(stage: Stage) -> None:
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    assert stage.after("carry", 2) == ["g-w-0", "g-w-1"]


def test_no_gate_falls_for_a_node_that_closed_in_the_same_moment(stage: Stage) -> None:
    stage.arrives("podgroups", stage.planned())
    stage.arrives("nodes", node(spec={"unschedulable": True}))
    stage.turn()
    assert stage.after("strip", 1) == []
    stands = stage.server.objects[f"{GROUPS}/g"]["metadata"]["annotations"]
    assert names.PLAN not in stands


def test_gates_fall_in_the_same_turn_if_the_node_changed_for_no_harm(stage: Stage) -> None:
    stage.arrives("podgroups", stage.planned())
    changed = node()
    changed["metadata"]["labels"]["zone"] = "a"
    stage.arrives("nodes", changed)
    stage.turn()
    assert stage.after("carry", 2) == ["g-w-0", "g-w-1"]


ELSEWHERE = {"nodeSelector": {"zone": "elsewhere"}}
"""What others may add to a pod while it is gated: its node is not one of those any more."""


def test_no_gate_falls_for_a_pod_that_may_not_go_there_any_more(stage: Stage) -> None:
    stage.arrives("podgroups", stage.planned())
    stage.arrives("pods", pod("g-w-1", index=1, uid="pod-1", spec=ELSEWHERE))
    stage.turn()
    assert stage.after("strip", 1) == []


def test_a_plan_is_looked_at_again_when_a_pod_changed_since_it_was_found_to_hold(stage: Stage) -> None:
    stage.mirror.inventory.unreviewed.add(NodeName("n1"))  # the first look is the decision's
    stage.loop._conductor._carrying.under_way.update(map(PodUid, ("pod-0", "pod-1")))  # writes that take long
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    stage.loop._conductor._carrying.under_way.clear()
    stage.arrives("pods", pod("g-w-1", index=1, uid="pod-1", spec=ELSEWHERE))
    stage.turn()
    assert stage.after("strip", 1) == []


def test_who_is_held_back_for_a_node_is_looked_at_though_nothing_else_happens(stage: Stage) -> None:
    stage.loop._conductor._carrying.under_way.update(map(PodUid, ("pod-0", "pod-1")))
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    stage.turn()
    stage.loop._conductor._carrying.under_way.clear()
    stage.mirror.inventory.unreviewed.add(NodeName("n1"))
    stage.mirror.dirty.add("default/g")
    stage.loop._inbox.put(("queues", added(queue())))  # it says what it said before: that wants no decision
    stage.mirror.freed, stage.mirror.tries = False, set()
    stage.turn()
    assert stage.after("carry", 2) == ["g-w-0", "g-w-1"]


def test_a_pod_that_goes_where_it_was_planned_holds_nobody_else_back_there(stage: Stage) -> None:
    """Its pin is a wish that it did not have before."""
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    stage.after("carry", 2)
    for name in ("g-w-0", "g-w-1"):
        assert stage.mirror.groups["default/g"].outstanding
        stage.mirror.apply("pods", added(stage.server.objects[f"{PODS}/{name}"]))
        assert not stage.mirror.inventory.unreviewed


def test_a_decision_that_can_not_be_made_keeps_nobody_back_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    def safely(*args: object) -> object:
        return deciding.decide_safely(*args, how=failing)  # type: ignore[arg-type]

    monkeypatch.setattr(loop_module, "decide_safely", safely)
    stage.mirror.inventory.unreviewed.add(NodeName("n1"))
    stage.mirror.freed = True
    stage.arrives("podgroups", stage.planned())
    stage.turn()
    assert stage.after("carry", 2) == ["g-w-0", "g-w-1"]
