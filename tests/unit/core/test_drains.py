"""Nodes that an operator drains: which gangs go, and that none comes back there."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import DRAIN, Gang, Pod, Snapshot, Taint, Toleration
from vc_egpu.core.model.plan import Eviction
from vc_egpu.core.model.policy import Policy

TOLERATES_ALL = (Toleration(operator="Exists"),)


def world(
    gang: Gang, *cards: str, node: dict[str, Any] | None = None, pod: dict[str, Any] | None = None
) -> Snapshot:
    """Node n1 is drained, n2 is not. Members of a gang on these cards, one on each."""
    members = make.pods(gang.key, len(cards), make.shape(make.H20_MIB, 100, tolerations=TOLERATES_ALL))
    placed = [make.placed(one, card) for one, card in zip(members, cards, strict=True)]
    drained: dict[str, Any] = {"drained": True, "taints": (Taint(DRAIN, "", "NoSchedule"),)}
    nodes = [make.node("n1", 4, **(drained | (node or {}))), make.node("n2", 4)]
    return make.snapshot(nodes, [gang], [replace(placed[0], **(pod or {})), *placed[1:]])


def evicted(snapshot: Snapshot) -> list[tuple[list[str], bool]]:
    evictions: tuple[Eviction, ...] = decide(snapshot, Policy(), 1000.0).evictions
    assert all(one.cause is Cause.DRAIN for one in evictions)
    return [(sorted(uid.rpartition("-")[2] for uid in one.pods), one.whole) for one in evictions]


def test_a_gang_goes_whole_also_where_most_of_it_is_elsewhere() -> None:
    assert evicted(world(make.gang("g", least=3), "n1/0", "n2/0", "n2/1")) == [(["0", "1", "2"], True)]


def test_members_above_the_minimum_go_alone() -> None:
    assert evicted(world(make.gang("g", least=2), "n1/0", "n2/0", "n2/1")) == [(["0"], False)]


def test_of_replicas_those_on_the_node_go() -> None:
    assert evicted(world(make.gang("g", single=True), "n1/0", "n1/1", "n2/1")) == [(["0", "1"], False)]


def test_who_is_elsewhere_stays() -> None:
    assert evicted(world(make.gang("g", least=2), "n2/0", "n2/1")) == []


def test_a_gang_with_a_bare_pod_stays_as_a_whole() -> None:
    assert evicted(world(make.gang("g", least=2), "n1/0", "n1/1", pod={"bare": True})) == []


def test_of_replicas_a_bare_one_keeps_no_other() -> None:
    there = world(make.gang("g", single=True), "n1/0", "n1/1", pod={"bare": True})
    assert evicted(there) == [(["1"], False)]


@pytest.mark.parametrize("why", [{"drained": False}, {"ready": False}], ids=["not drained", "silent"])
def test_no_order_and_no_kubelet(why: dict[str, Any]) -> None:
    """A pod of a node without a kubelet would only be Terminating for ever."""
    assert evicted(world(make.gang("g", least=2), "n1/0", "n1/1", node=why)) == []


def test_nothing_comes_back_there_whatever_it_tolerates() -> None:
    gang = make.gang("g", least=2)
    waiting: list[Pod] = make.pods("g", 2, make.shape(make.H20_MIB, 100, tolerations=TOLERATES_ALL))
    drained = make.node("n1", 4, drained=True)
    (admission,) = decide(
        make.snapshot([drained, make.node("n2", 4)], [gang], waiting), Policy(), 1.0
    ).admissions
    assert {place.node for place in admission.members.values()} == {"n2"}
    plan = decide(make.snapshot([drained, make.node("n2", 1)], [gang], waiting), Policy(), 1.0)
    assert not plan.admissions
    assert "n1 (being drained)" in plan.verdicts["g"].message


def test_it_ends_with_the_order() -> None:
    """The books of a cluster live on: an order that was taken back must not stand in them."""
    there = world(make.gang("g", least=2), "n1/0", "n1/1")
    state = make.state(there)
    assert len(decide(state.snapshot(1), Policy(), 1.0).evictions) == 1
    state.put_node(replace(there.nodes[next(iter(there.nodes))], drained=False, taints=()))
    assert not decide(state.snapshot(2), Policy(), 2.0).evictions
