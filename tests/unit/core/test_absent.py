"""Who was told to go and is still there: members that a gang lacks, and victims that a plan waits for."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.cluster import (
    OUT_OF_SERVICE,
    CardId,
    MemberPlacement,
    Node,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    Share,
    Snapshot,
)
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


# --- victims -----------------------------------------------------------------------------------------

ALL = make.shape(make.H20_MIB, 100)
SILENT = {"ready": False}
LOST = {"ready": False, "lost": True}
N2_IS_SILENT = f"; n2 is silent: who is there is {FREED}"


def victims() -> list[Pod]:
    """The two members of a training gang, one on each node, of which all that can be told to go is."""
    return [make.placed(pod, f"n{pod.index + 1}/0") for pod in make.pods("low", 2, ALL)]


def makes_room(
    there: list[Pod], plan: PlanInForce | None = None, state: dict[str, Any] | None = None
) -> Snapshot:
    """High, for which there is room on n1 once that training is gone; n2 is silent, or what is said."""
    gangs = [make.gang("low", share_class=LOW, least=2), make.gang("g", share_class=HIGH, plan=plan)]
    nodes = [make.node("n1", 1), make.node("n2", 1, **(SILENT if state is None else state))]
    return make.snapshot(nodes, gangs, [*there, *make.pods("g", 1, ALL)])


def waits_for(*uids: str, suspends: tuple[str, ...] = ()) -> PlanInForce:
    """High's plan on n1, which waits until these are gone, or suspended."""
    share = Share(CardId("n1/0"), make.H20_MIB, 100)
    named = frozenset(PodUid(uid) for uid in (*uids, *suspends))
    place = {"w/0": MemberPlacement(NodeName("n1"), (("main", share),))}
    return PlanInForce("1-1", place, named, 90.0, frozenset(PodUid(uid) for uid in suspends))


def waiting(snapshot: Snapshot) -> str:
    """What is said of high, which waits for its victims."""
    verdict = ask(snapshot).verdicts["g"]
    assert verdict.reason is Reason.WAITING_FOR_EVICTION
    return verdict.message


def test_a_plan_says_at_once_that_one_of_its_victims_is_on_a_silent_node() -> None:
    assert waiting(makes_room(victims())) == (
        f"waits until 2 pods of low are gone; they hold 2 cards{N2_IS_SILENT}"
    )
    assert "silent" not in waiting(makes_room(victims(), state={}))


@pytest.mark.parametrize(("state", "end"), [(SILENT, N2_IS_SILENT), (LOST, ""), ({}, "")])
def test_a_waiting_plan_says_what_frees_its_victims(state: dict[str, Any], end: str) -> None:
    (_, last) = victims()
    there = [replace(last, phase=PodPhase.TERMINATING)]
    text = waiting(makes_room(there, waits_for("low-w-0", "low-w-1"), state))
    assert text == f"waits until 1 pod of low is gone; it holds 1 card{end}"


@pytest.mark.parametrize(("phase", "end"), [(PodPhase.PLACED, ""), (PodPhase.TERMINATING, N2_IS_SILENT)])
def test_who_is_to_be_suspended_there_is_told_of_once_it_has_to_go(phase: PodPhase, end: str) -> None:
    """An order that a node does not carry out is taken back after a minute: nobody waits longer."""
    first, last = victims()
    there = [
        replace(first, phase=PodPhase.TERMINATING),
        replace(last, phase=phase, suspend_ordered=True, suspendable=True),
    ]
    text = waiting(makes_room(there, waits_for("low-w-0", suspends=("low-w-1",))))
    assert text == ("waits until 1 pod of low is suspended and 1 pod of low is gone; they hold 2 cards" + end)


def held_on_n2(state: dict[str, Any]) -> Snapshot:
    """The last victim was deleted by force; its node's agent, dead as well, said that it was there."""
    share = Share(CardId("n2/0"), make.H20_MIB, 100)
    held = {CardId("n2/0"): ((PodUid("low-w-1"), share),)}
    return replace(makes_room([], waits_for("low-w-0", "low-w-1"), state), held=held)


def test_who_was_deleted_by_force_on_a_silent_node_may_still_be_on_its_cards() -> None:
    assert waiting(held_on_n2(SILENT)).endswith(N2_IS_SILENT)
    assert "silent" not in waiting(held_on_n2({}))


def test_nobody_is_on_a_node_that_is_out_of_service_whatever_its_agent_said_last() -> None:
    assert [ready.gang for ready in ask(held_on_n2(LOST)).ready] == ["g"]
