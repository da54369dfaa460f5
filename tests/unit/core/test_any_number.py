"""Whoever makes pods may have them name any number of things: what that costs is not times the nodes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from unit.core import make
from unit.core.asked import ask
from vc_egpu.core.books.capacity import need_of, places
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.books.state import ClusterState, fresh_index
from vc_egpu.core.model.cluster import (
    CardId,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Resources,
    ShareClass,
)

MANY = {f"x.example.com/{number:03}": 1 for number in range(500)}


def bound(shape: PodShape, uid: str = "other", node: str = "n1") -> Pod:
    """Somebody else's pod that named its node itself."""
    return Pod(PodUid(uid), "ns", uid, shape, PodPhase.PLACED, NodeName(node))


def test_resources_that_no_node_offers_take_no_room_in_the_ledger() -> None:
    pod = bound(PodShape(requests=Resources(scalars=MANY)))
    ledger = fresh_index(make.snapshot([make.node("n1")], [], [pod])).ledger
    assert not ledger.scalar_used
    assert not ledger.copy().scalar_used


def test_what_is_taken_of_a_resource_counts_once_a_node_offers_it() -> None:
    """Device plugins come after the pods, go, and come again."""
    name = "x.example.com/001"
    what = PodShape(requests=Resources(scalars={name: 2, "x.example.com/other": 1}))
    state = ClusterState()

    def free() -> int:
        snapshot = state.snapshot(1)
        index: Any = snapshot.index
        ledger = index.index.ledger
        again = fresh_index(snapshot).ledger
        shape = PodShape(requests=Resources(scalars={name: 1}))
        mask = index.index.mask(shape)
        found, recounted = (places(one, need_of(one, shape, ShareClass.LOW), mask) for one in (ledger, again))
        assert found == recounted
        return found

    plain, offers = make.node("n1"), make.node("n1", allocatable=Resources(64000, 1 << 40, 0, 110, {name: 5}))
    state.put_node(plain)
    state.put_pod(bound(what, "a"))
    state.put_pod(bound(what, "b"))
    assert free() == 0
    state.remove_pod(PodUid("b"))
    state.put_node(offers)
    assert free() == 3
    state.put_pod(bound(what, "c"))
    assert free() == 1
    state.put_node(plain)
    state.remove_pod(PodUid("a"))
    assert free() == 0
    state.put_node(offers)
    assert free() == 3
    state.remove_pod(PodUid("c"))
    assert free() == 5


def test_of_resources_that_no_node_offers_one_is_asked_for() -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1", allocatable=Resources(1, 1, 0, 110, {"x.example.com/250": 1})))
    need = need_of(ledger, PodShape(requests=Resources(scalars=MANY)), ShareClass.LOW)
    assert need.scalars == (("x.example.com/250", 1), ("x.example.com/000", 1))
    none = PodShape(requests=Resources(scalars=dict.fromkeys(MANY, 0)))
    assert need_of(ledger, none, ShareClass.LOW).scalars == ()


class Names(frozenset[CardId]):
    """Which nobody may go through."""

    def __iter__(self) -> Iterator[CardId]:
        raise AssertionError("all of them are gone through")


@pytest.mark.parametrize(("how", "fits"), [("use_cards", 1), ("avoid_cards", 3)])
def test_cards_that_are_named_are_not_gone_through_for_each_node(how: str, fits: int) -> None:
    ledger = Ledger()
    for name in ("n1", "n2"):
        ledger.put_node(make.node(name))
    named: Any = {how: Names({CardId("n1/1"), *(CardId(f"none/{number}") for number in range(100))})}
    need = need_of(ledger, make.shape(make.H20_MIB, 1, **named), ShareClass.LOW)
    assert places(ledger, need, np.ones(len(ledger.names), np.bool_)) == fits


class Ports(tuple[tuple[str, str, int], ...]):
    """Which count how often they are gone through."""

    walks = 0
    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        Ports.walks += 1
        return super().__iter__()


def test_host_ports_are_not_gone_through_for_each_node() -> None:
    ports = Ports(("", "TCP", number) for number in range(1, 200))
    there = PodShape(host_ports=(("10.0.0.1", "TCP", 80),))
    walks = []
    for nodes in (2, 20):
        names = [f"n{number:02}" for number in range(nodes)]
        pods = [bound(there, f"on {name}", name) for name in names]
        asking = make.pods("g", 1, make.shape(1024, 1, host_ports=ports))
        Ports.walks = 0
        plan = ask(make.snapshot([make.node(name) for name in names], [make.gang("g")], [*pods, *asking]))
        walks.append(Ports.walks)
        assert "their nodes lack one of 199 host ports" in plan.verdicts["g"].message
    assert walks[0] == walks[1]
