"""Where the members are that a gang lacks: some have been told to go and are still there."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.cluster import OUT_OF_SERVICE, Node, PodPhase
from vc_egpu.core.decide import decide
from vc_egpu.core.policy import Policy
from vc_egpu.core.reasons import Reason

FREED = f"gone once it is back, is deleted, or is tainted {OUT_OF_SERVICE}"


def said(going: int, *nodes: Node, members: int = 3) -> str:
    """What is said of a gang of three whose first members are on their way off n1, then n2."""
    pods = make.pods("g", members, make.shape(1024, 1))
    for number in range(going):
        card = f"n{number % 2 + 1}/0"
        pods[number] = replace(make.placed(pods[number], card), phase=PodPhase.TERMINATING)
    snapshot = make.snapshot(nodes, [make.gang("g", least=3)], pods)
    verdict = decide(snapshot, Policy(), 0.0).verdicts["g"]
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS
    assert verdict.numbers.get("leaving", 0) == going
    return verdict.message


def test_members_that_are_still_to_be_made() -> None:
    assert said(0, make.node("n1"), make.node("n2"), members=1) == "1 of 3 members are there"


def test_members_that_end_on_nodes_that_work() -> None:
    both = make.node("n1"), make.node("n2")
    assert said(1, *both) == "2 of 3 members are there; 1 is still leaving n1"
    assert said(3, *both) == "0 of 3 members are there; 3 are still leaving n1, n2"


@pytest.mark.parametrize("state", [{"ready": False}, {"ready": False, "lost": True}])
def test_members_that_nobody_ends(state: dict[str, Any]) -> None:
    text = said(3, make.node("n1", **state), make.node("n2"))
    head = "0 of 3 members are there; 3 are still leaving n1, n2"
    tail = "" if state.get("lost") else f"; n1 is silent: who is there is {FREED}"
    assert text == head + tail


def test_members_on_a_node_that_is_gone() -> None:
    assert said(1, make.node("n2")) == "2 of 3 members are there; 1 is still leaving n1"
