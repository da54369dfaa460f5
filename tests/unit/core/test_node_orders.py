"""Which nodes members go to: they are dealt one by one for services, and node after node for all others."""

from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.plan import Plan

UNSET = ShareClass.UNSET
SMALL = make.shape(8192, 10)
BARE = make.shape()


def per_node(plan: Plan) -> list[int]:
    """Members of each node that got any."""
    nodes = [place.node for admission in plan.admissions for place in admission.members.values()]
    return sorted(nodes.count(node) for node in set(nodes))


def placed(share_class: ShareClass, *, single: bool, members: int = 4, **policy: Any) -> list[int]:
    gang = make.gang("g", share_class=share_class, single=single, least=1 if single else members)
    shape = make.shape(8192, 10, **policy)
    nodes = [make.node(f"n{number}", 4) for number in range(4)]
    return per_node(ask(make.snapshot(nodes, [gang], make.pods("g", members, shape))))


@pytest.mark.parametrize(
    ("share_class", "single", "counts"),
    [
        (HIGH, True, [1, 1, 1, 1]),
        (HIGH, False, [4]),
        (UNSET, True, [4]),
        (LOW, True, [4]),
    ],
)
def test_by_default_replicas_of_a_high_service_are_spread_and_no_others(
    share_class: ShareClass, single: bool, counts: list[int]
) -> None:
    assert placed(share_class, single=single) == counts


def test_a_policy_that_the_pods_name_goes_before_that() -> None:
    assert placed(LOW, single=False, node_policy="spread") == [1, 1, 1, 1]
    assert placed(HIGH, single=True, node_policy="binpack") == [4]


def test_spread_members_go_on_evenly_once_each_node_has_one() -> None:
    assert placed(LOW, single=False, members=10, node_policy="spread") == [2, 2, 3, 3]


def test_replicas_that_come_later_go_where_the_fewest_of_them_are() -> None:
    """Also where those nodes are fuller by what others have there."""
    gangs = [make.gang("g", share_class=HIGH, single=True), make.gang("others")]
    pods, others = make.pods("g", 4, SMALL), make.pods("others", 2, make.shape(make.H20_MIB // 2, 50))
    there = [make.placed(pods[0], "n0/0"), make.placed(pods[1], "n1/0")]
    there += [make.placed(others[0], "n2/0"), make.placed(others[1], "n3/0")]
    nodes = [make.node(f"n{number}", 4) for number in range(4)]
    (admission,) = ask(make.snapshot(nodes, gangs, [*there, *pods[2:]])).admissions
    assert sorted(str(place.node) for place in admission.members.values()) == ["n2", "n3"]


def test_replicas_of_a_high_service_without_cards_leave_whole_nodes_free() -> None:
    """They are not pinned, and still counted. Spread over all nodes they would keep the large ones out."""
    nodes = [make.node(f"n{number}", 0, cpu_milli=3000) for number in range(3)]
    gangs = [make.gang("web", share_class=HIGH, single=True), make.gang("g", least=2)]
    members = [*make.pods("web", 3, BARE), *make.pods("g", 2, make.shape(cpu_milli=3000))]
    assert {entry.gang for entry in ask(make.snapshot(nodes, gangs, members)).admissions} == {"web", "g"}


def test_members_without_cards_stay_off_nodes_with_cards_while_there_are_others() -> None:
    """A node with cards has cpu for its cards: a member without any must not take it."""
    nodes = [make.node("a-cards", 1, cpu_milli=2000), make.node("b-plain", 0, cpu_milli=2000)]
    gangs = [make.gang("bare", share_class=HIGH, least=2), make.gang("g")]
    members = [*make.pods("bare", 2, BARE), *make.pods("g", 1, make.shape(8192, 10, cpu_milli=2000))]
    assert {entry.gang for entry in ask(make.snapshot(nodes, gangs, members)).admissions} == {"bare", "g"}


def test_members_without_cards_fill_the_fullest_node_first() -> None:
    nodes = [make.node("a", 0, cpu_milli=4000), make.node("b", 0, cpu_milli=4000)]
    there = make.placed(make.pods("old", 1, make.shape(8192, 10, cpu_milli=2000))[0], "b/0")
    gangs = [make.gang("old"), make.gang("bare", share_class=HIGH, least=2), make.gang("g")]
    members = [there, *make.pods("bare", 2, BARE), *make.pods("g", 1, make.shape(cpu_milli=4000))]
    assert {entry.gang for entry in ask(make.snapshot(nodes, gangs, members)).admissions} == {"bare", "g"}


@pytest.mark.parametrize("high", [True, False])
def test_a_gang_that_fits_exactly_beyond_the_first_nodes_is_placed(high: bool) -> None:
    """More nodes are looked at in pieces, and of the later pieces the full ones are left out first."""
    share_class = HIGH if high else LOW
    whole = make.shape(make.H20_MIB, 100)
    nodes = [make.node(f"n{number:03}", 1) for number in range(200)]
    there = [make.placed(pod, f"n{at:03}/0") for at, pod in enumerate(make.pods("full", 198, whole))]
    others = [make.gang("full", share_class=share_class), make.gang("g", share_class=share_class, least=2)]
    (admission,) = ask(make.snapshot(nodes, others, [*there, *make.pods("g", 2, whole)])).admissions
    assert sorted(str(place.node) for place in admission.members.values()) == ["n198", "n199"]
