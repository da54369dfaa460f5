"""Members of a gang near each other on the network: one node, one rack, one block; against brute force."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.model.cluster import CardAsk, Node, Pod, PodShape
from vc_egpu.core.model.plan import Plan

WHOLE = PodShape(asks=(CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),))


def node(name: str, cards: int, *domains: str) -> Node:
    return replace(make.node(name, cards), domains=domains)


def racks(*rooms: int, block: str = "b") -> list[Node]:
    """One node a card, so that room is counted in members; rack r0 and on."""
    return [
        node(f"r{rack}-n{number}", 1, f"rack {rack}", block)
        for rack, room in enumerate(rooms)
        for number in range(room)
    ]


def nodes_of(plan: Plan, gang: str = "g") -> list[str]:
    """By member, its node; empty: the gang waits."""
    return [
        str(place.node)
        for admission in plan.admissions
        if admission.gang == gang
        for place in admission.members.values()
    ]


def decided(
    nodes: Iterable[Node], count: int, tier: int | None = None, there: Sequence[Pod] = (), **more: object
) -> Plan:
    gang = make.gang("g", least=count, highest_tier=tier)
    others = [make.gang("there")] if any(pod.gang == "there" for pod in there) else []
    pods = [*there, *make.pods("g", count, replace(WHOLE, **more))]  # type: ignore[arg-type]
    return ask(make.snapshot(nodes, [gang, *others], pods))


def domains(nodes: Iterable[Node], plan: Plan, tier: int = 1) -> set[str]:
    of: Mapping[str, Node] = {str(each.name): each for each in nodes}
    return {of[name].domains[tier - 1] for name in nodes_of(plan)}


def test_one_node_comes_before_a_rack_and_a_rack_before_a_block() -> None:
    one = node("z-large", 4, "rack 9", "b")
    assert set(nodes_of(decided([*racks(4, 4), one], 4))) == {"z-large"}
    two = racks(3, 5, 4)
    assert domains(two, decided(two, 4)) == {"rack 2"}, "the rack that it fills best"
    other = [node(f"x{each.name}", 1, f"x{each.domains[0]}", "b1") for each in racks(3, 2)]
    blocks = [*racks(2, 2, block="b0"), *other]
    assert domains(blocks, decided(blocks, 4), 2) == {"b0"}
    assert domains(blocks, decided(blocks, 5), 2) == {"b1"}


def test_sixteen_members_on_four_racks_take_the_fewest_racks() -> None:
    for rooms, fewest in (((16, 16, 16, 16), 1), ((15, 9, 8, 7), 2), ((4, 4, 4, 4), 4), ((8, 7, 6, 5), 3)):
        nodes = racks(*rooms)
        assert len(domains(nodes, decided(nodes, 16))) == fewest, rooms


def test_small_worlds_take_as_few_racks_as_brute_force_finds() -> None:
    rng = random.Random(16)
    for _ in range(150):
        rooms = [rng.randint(0, 5) for _ in range(rng.randint(1, 5))]
        count = rng.randint(2, 9)
        nodes = racks(*rooms)
        fewest = next(
            (
                size
                for size in range(1, len(rooms) + 1)
                if any(sum(chosen) >= count for chosen in combinations(rooms, size))
            ),
            0,
        )
        plan = decided(nodes, count)
        assert len(domains(nodes, plan)) == fewest, (rooms, count)
        for tier in (1, 2):
            hard = decided(nodes, count, tier)
            fits = max(rooms) >= count if tier == 1 else sum(rooms) >= count
            assert bool(nodes_of(hard)) is fits, (rooms, count, tier)
            assert len(domains(nodes, hard, tier)) <= 1


def test_a_gang_that_has_to_be_in_one_rack_waits_and_says_what_is_short() -> None:
    nodes = racks(3, 2)
    plan = decided(nodes, 4, 1)
    said = plan.verdicts["g"].message
    assert "It has to be in one domain of tier 1" in said
    assert "the roomiest (rack 0) has places for 3 of 4" in said
    assert len(nodes_of(decided(nodes, 4, 2))) == 4
    none = decided([make.node("n1", 4)], 4, 1).verdicts["g"].message
    assert "no node tells of one" in none


def test_a_replacement_and_surplus_stay_in_the_rack() -> None:
    """There is room in the other rack alone."""
    nodes = racks(2, 3)
    members = make.pods("g", 3, WHOLE)
    running = [make.placed(members[0], "r0-n0/0"), make.placed(members[1], "r0-n1/0")]
    gang = make.gang("g", least=3, highest_tier=1)
    waits = ask(make.snapshot(nodes, [gang], [*running, members[2]]))
    assert not waits.admissions
    assert "no node tells of one" not in waits.verdicts["g"].message
    surplus = ask(make.snapshot(nodes, [replace(gang, min_member=2)], [*running, members[2]]))
    assert not surplus.admissions
    roomy = [*nodes, node("r0-n9", 1, "rack 0", "b")]
    assert nodes_of(ask(make.snapshot(roomy, [gang], [*running, members[2]]))) == ["r0-n9"]
    grown = make.snapshot(roomy, [replace(gang, min_member=2)], [*running, members[2]])
    assert nodes_of(ask(grown)) == ["r0-n9"]


def test_members_that_come_later_go_near_those_that_are_there() -> None:
    nodes = racks(3, 3)
    members = make.pods("g", 4, WHOLE)
    running = [make.placed(members[0], "r1-n0/0")]
    gang = make.gang("g", least=3)
    plan = ask(make.snapshot(nodes, [gang], [*running, *members[1:3]]))
    assert domains(nodes, plan) == {"rack 1"}


def test_a_single_replacement_goes_near_the_others() -> None:
    """The other rack is fuller, which binpack would take."""
    nodes = [*racks(3), node("a-full", 2, "rack 9", "b")]
    members = make.pods("g", 3, WHOLE)
    running = [make.placed(members[0], "r0-n0/0"), make.placed(members[1], "r0-n1/0")]
    other = make.placed(make.pods("other", 1, WHOLE)[0], "a-full/0")
    plan = ask(
        make.snapshot(nodes, [make.gang("g", least=3), make.gang("other")], [*running, members[2], other])
    )
    assert nodes_of(plan) == ["r0-n2"]


def test_victims_go_only_where_the_gang_may_be() -> None:
    """Low work sits in both racks: one rack alone is cleared, although each lacks two places."""
    nodes = racks(4, 4)
    low = make.pods("low", 4, WHOLE, task="w")
    there = [make.placed(pod, f"r{at // 2}-n{at % 2}/0") for at, pod in enumerate(low)]
    each = [make.gang(f"low{at}", share_class=LOW) for at in range(4)]
    there = [replace(pod, gang=f"low{at}") for at, pod in enumerate(there)]
    gang = make.gang("g", least=4, share_class=HIGH, highest_tier=1)
    plan = ask(make.snapshot(nodes, [gang, *each], [*there, *make.pods("g", 4, WHOLE)]))
    (admission,) = plan.admissions
    assert len(domains(nodes, plan)) == 1
    assert len(admission.evictions) + len(admission.suspensions) == 2


@pytest.mark.parametrize("tier", [1, None])
def test_mixed_gangs_stay_together(tier: int | None) -> None:
    small = replace(WHOLE, asks=(replace(WHOLE.asks[0], memory_mib=1024, cores_percent=10, whole=False),))
    nodes = racks(2, 3)
    gang = make.gang("g", least=4, highest_tier=tier)
    pods = [*make.pods("g", 2, WHOLE, task="a"), *make.pods("g", 2, small, task="b")]
    plan = ask(make.snapshot(nodes, [gang], pods))
    assert domains(nodes, plan) == {"rack 1"}


def test_nodes_without_a_rack_are_used_last_and_never_by_who_must_be_in_one() -> None:
    nodes = [*racks(2), make.node("a-none", 4)]
    assert "a-none" not in nodes_of(decided(nodes, 2))
    assert len(nodes_of(decided(nodes, 4))) == 4
    assert not nodes_of(decided(nodes, 4, 1))
