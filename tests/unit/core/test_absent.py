"""Who was told to go and is still there: members that a gang lacks, and victims in nobody's way."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
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
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason

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
    tail = "" if state.get("lost") else f"; n1 is silent: its pods are {FREED}"
    assert text == head + tail


def test_members_on_a_node_that_is_gone() -> None:
    assert said(1, make.node("n2")) == "2 of 3 members are there; 1 is still leaving n1"


# --- victims -----------------------------------------------------------------------------------------

ALL = make.shape(make.H20_MIB, 100)
SILENT = {"ready": False}
LOST = {"ready": False, "lost": True}


def victims() -> list[Pod]:
    """The two members of a training gang, one on each node, of which all that can be told to go is."""
    return [make.placed(pod, f"n{pod.index + 1}/0") for pod in make.pods("low", 2, ALL)]


def makes_room(there: list[Pod], plan: PlanInForce, state: dict[str, Any] | None = None) -> Snapshot:
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


def is_ready(snapshot: Snapshot) -> bool:
    """Whether high may start; else it waits for its victims."""
    plan = ask(snapshot)
    started = [ready.gang for ready in plan.ready] == ["g"]
    assert started or plan.verdicts["g"].reason is Reason.WAITING_FOR_EVICTION
    return started


STATES = pytest.mark.parametrize("state", [SILENT, LOST, {}])


@STATES
def test_a_plan_is_ready_once_its_own_cards_are_free(state: dict[str, Any]) -> None:
    """Whoever ends later on another node, or never, is not in its way."""
    plan = waits_for("low-w-0", "low-w-1")
    first, last = (replace(pod, phase=PodPhase.TERMINATING) for pod in victims())
    assert not is_ready(makes_room([first, last], plan, state))
    assert not is_ready(makes_room([first], plan, state))
    assert is_ready(makes_room([last], plan, state))
    assert is_ready(makes_room([], plan, state))


@STATES
def test_it_waits_until_all_its_victims_are_told(state: dict[str, Any]) -> None:
    """A ready plan names none, so nobody would tell them any more, and a part of a gang would run on."""
    (_, last) = victims()
    assert not is_ready(makes_room([last], waits_for("low-w-0", "low-w-1"), state))


def test_it_waits_for_who_is_only_to_be_suspended() -> None:
    """An order that a node does not carry out is taken back after a minute, and the plan with it."""
    (_, last) = victims()
    there = [replace(last, suspend_ordered=True, suspendable=True)]
    assert not is_ready(makes_room(there, waits_for("low-w-0", suspends=("low-w-1",))))


def test_members_that_share_a_node_with_who_still_goes_need_room_beside_it() -> None:
    """Cpu of a victim that is on its way out is its own as well as its cards are."""
    plan = waits_for("low-w-0", "low-w-1")
    (_, last) = victims()
    there = [replace(last, phase=PodPhase.TERMINATING, node=NodeName("n1"), shares=())]
    assert is_ready(makes_room(there, plan))
    asks = replace(last.shape, requests=make.node("n1").allocatable)
    assert not is_ready(makes_room([replace(there[0], shape=asks)], plan))


@STATES
def test_shares_that_only_an_agent_reports_count_where_they_are(state: dict[str, Any]) -> None:
    """The last victim was deleted by force; its node's agent said that it was there."""
    share = Share(CardId("n2/0"), make.H20_MIB, 100)
    held = {CardId("n2/0"): ((PodUid("low-w-1"), share),)}
    assert is_ready(replace(makes_room([], waits_for("low-w-0", "low-w-1"), state), held=held))
    on_its_own = {CardId("n1/0"): ((PodUid("low-w-0"), replace(share, card=CardId("n1/0"))),)}
    assert not is_ready(replace(makes_room([], waits_for("low-w-0", "low-w-1"), state), held=on_its_own))
