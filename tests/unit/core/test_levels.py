"""Members of a gang near each other on the network: one node, one rack, one block; against brute force."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.admission.growing.need import Empty, need
from vc_egpu.core.model.cluster import CardAsk, Node, PlanInForce, Pod, PodShape, PodUid, Resources
from vc_egpu.core.model.neighbours import Neighbours, Spread
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.topology.network import Bound, Domain

WHOLE = PodShape(asks=(CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),))


def node(name: str, cards: int, *domains: str) -> Node:
    network = tuple(Domain(tier, domain) for tier, domain in enumerate(domains, 1) if domain)
    return replace(make.node(name, cards), network=network)


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


def bound(tier: int | None) -> Bound | None:
    return Bound(tier) if tier is not None else None


def decided(
    nodes: Iterable[Node], count: int, tier: int | None = None, there: Sequence[Pod] = (), **more: object
) -> Plan:
    gang = make.gang("g", least=count, bound=bound(tier))
    others = [make.gang("there")] if any(pod.gang == "there" for pod in there) else []
    pods = [*there, *make.pods("g", count, replace(WHOLE, **more))]  # type: ignore[arg-type]
    return ask(make.snapshot(nodes, [gang, *others], pods))


def domains(nodes: Iterable[Node], plan: Plan, tier: int = 1) -> set[str]:
    of: Mapping[str, Node] = {str(each.name): each for each in nodes}
    return {of[name].network[tier - 1].name for name in nodes_of(plan)}


def test_one_node_comes_before_a_rack_and_a_rack_before_a_block() -> None:
    one = node("z-large", 4, "rack 9", "b")
    assert set(nodes_of(decided([*racks(4, 4), one], 4))) == {"z-large"}
    two = racks(3, 5, 4)
    assert domains(two, decided(two, 4)) == {"rack 2"}, "the rack that it fills best"
    other = [node(f"x{each.name}", 1, f"x{each.network[0].name}", "b1") for each in racks(3, 2)]
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
    gang = make.gang("g", least=3, bound=Bound(1))
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


def test_victims_go_only_where_the_gang_may_be() -> None:
    """Low work sits in both racks: one rack alone is cleared, although each lacks two places."""
    nodes = racks(4, 4)
    low = make.pods("low", 4, WHOLE, task="w")
    there = [make.placed(pod, f"r{at // 2}-n{at % 2}/0") for at, pod in enumerate(low)]
    each = [make.gang(f"low{at}", share_class=LOW) for at in range(4)]
    there = [replace(pod, gang=f"low{at}") for at, pod in enumerate(there)]
    gang = make.gang("g", least=4, share_class=HIGH, bound=Bound(1))
    plan = ask(make.snapshot(nodes, [gang, *each], [*there, *make.pods("g", 4, WHOLE)]))
    (admission,) = plan.admissions
    assert len(domains(nodes, plan)) == 1
    assert len(admission.evictions) + len(admission.suspensions) == 2


@pytest.mark.parametrize("tier", [1, None])
def test_mixed_gangs_stay_together(tier: int | None) -> None:
    small = replace(WHOLE, asks=(replace(WHOLE.asks[0], memory_mib=1024, cores_percent=10, whole=False),))
    nodes = racks(2, 3)
    gang = make.gang("g", least=4, bound=bound(tier))
    pods = [*make.pods("g", 2, WHOLE, task="a"), *make.pods("g", 2, small, task="b")]
    plan = ask(make.snapshot(nodes, [gang], pods))
    assert domains(nodes, plan) == {"rack 1"}


def test_nodes_without_a_rack_are_used_last_and_never_by_who_must_be_in_one() -> None:
    nodes = [*racks(2), make.node("a-none", 4)]
    assert "a-none" not in nodes_of(decided(nodes, 2))
    assert len(nodes_of(decided(nodes, 4))) == 4
    assert not nodes_of(decided(nodes, 4, 1))


def in_groups(gang: str, size: int, count: int, shape: PodShape = WHOLE) -> list[Pod]:
    """So many members in subgroups of this size: the first ones in ``("p", "0")``."""
    pods = make.pods(gang, count, shape)
    return [replace(pod, subgroup=("p", str(number // size))) for number, pod in enumerate(pods)]


def by_group(nodes: Iterable[Node], plan: Plan, size: int) -> dict[int, set[str]]:
    """By subgroup of members that come in order: its racks."""
    of = {str(each.name): each.network[0].name for each in nodes}
    (admission,) = plan.admissions
    found: dict[int, set[str]] = {}
    for key, place in admission.members.items():
        found.setdefault(int(key.rpartition("/")[2]) // size, set()).add(of[str(place.node)])
    return found


def test_each_subgroup_is_in_one_rack_and_the_gang_in_one_block() -> None:
    blocks = [*racks(4, 3, block="b0"), *(node(f"y-{at}", 1, f"rack {2 + at // 4}", "b1") for at in range(8))]
    gang = make.gang("g", least=8, bound=Bound(2), subgroups={"p": Bound(1)})
    plan = ask(make.snapshot(blocks, [gang], in_groups("g", 4, 8)))
    assert domains(blocks, plan, 2) == {"b1"}, "the other block has room, but not rack by rack"
    assert all(len(found) == 1 for found in by_group(blocks, plan, 4).values())
    few = blocks[:-1]
    said = ask(make.snapshot(few, [gang], in_groups("g", 4, 8))).verdicts["g"].message
    assert "the roomiest (b0) has places for 7 of 8" in said


def test_a_subgroup_that_finds_no_rack_is_named() -> None:
    nodes = racks(3, 3, 3)
    gang = make.gang("g", least=8, subgroups={"p": Bound(1)})
    plan = ask(make.snapshot(nodes, [gang], in_groups("g", 4, 8)))
    assert not plan.admissions
    said = plan.verdicts["g"].message
    assert (
        "Subgroup p 0 has to be in one domain of tier 1, and the roomiest (rack 0) has places for 3 of 4"
        in said
    )
    wish = make.gang("g", least=8, subgroups={"p": None})
    assert len(nodes_of(ask(make.snapshot(nodes, [wish], in_groups("g", 4, 8))))) == 8


def test_a_replacement_and_surplus_of_a_subgroup_stay_with_it() -> None:
    nodes = racks(4, 4, 4)
    members = in_groups("g", 2, 6)
    there = [
        make.placed(members[at], f"r{at // 2}-n{at % 2}/0", subgroup=members[at].subgroup) for at in range(5)
    ]
    gang = make.gang("g", least=4, subgroups={"p": Bound(1)})
    plan = ask(make.snapshot(nodes, [gang], [*there, members[5]]))
    assert domains(nodes, plan) == {"rack 2"}
    full = [
        each for each in nodes if str(each.name) in {"r0-n0", "r0-n1", "r1-n0", "r1-n1", "r1-n2", "r2-n0"}
    ]
    assert not ask(make.snapshot(full, [gang], [*there, members[5]])).admissions
    grown = [
        replace(pod, uid=PodUid(f"more-{at}"), index=6 + at, subgroup=("p", "9"))
        for at, pod in enumerate(make.pods("g", 3, WHOLE))
    ]
    more = ask(make.snapshot(nodes, [gang], [*there, *grown]))
    assert len(domains(nodes, more)) == 1, "a subgroup of surplus members is in one rack, too"


def test_members_without_cards_are_pinned_where_the_gang_is_bound() -> None:
    bare = PodShape(requests=Resources(cpu_milli=100))
    nodes = racks(2, 2)
    for limit, pinned in ((Bound(1), True), (None, False)):
        gang = make.gang("g", least=3, bound=limit)
        pods = [*make.pods("g", 2, WHOLE), *make.pods("g", 1, bare, task="ps")]
        (admission,) = ask(make.snapshot(nodes, [gang], pods)).admissions
        place = admission.members["ps/0"]
        assert (place.node is not None) is pinned
        assert not place.shares
        if pinned:
            racks_used = {str(member.node)[:2] for member in admission.members.values()}
            assert len(racks_used) == 1


def test_a_tier_by_its_name_and_one_that_nobody_knows() -> None:
    nodes = [
        replace(each, network=tuple(replace(d, level=("rack", "block")[d.tier - 1]) for d in each.network))
        for each in racks(3, 3)
    ]
    for level, starts in (("block", True), ("rack", False), ("zone", False)):
        gang = make.gang("g", least=4, bound=Bound(level=level))
        plan = ask(make.snapshot(nodes, [gang], make.pods("g", 4, WHOLE)))
        assert bool(plan.admissions) is starts, level
        if not starts:
            assert f"one domain of tier '{level}'" in plan.verdicts["g"].message


def test_tiers_may_leave_numbers_out() -> None:
    """Tiers 1 and 5: what may span tier 3 may span tier 1."""
    nodes = [
        replace(each, network=(each.network[0], replace(each.network[1], tier=5))) for each in racks(3, 3)
    ]
    for tier, starts in ((1, False), (3, False), (5, True), (9, True), (0, False)):
        gang = make.gang("g", least=4, bound=Bound(tier))
        plan = ask(make.snapshot(nodes, [gang], make.pods("g", 4, WHOLE)))
        assert bool(plan.admissions) is starts, tier


def test_rules_by_label_say_the_rest_within_the_bound() -> None:
    """Spread over racks as far as its skew demands, and in the one block that the bound allows."""
    nodes = [replace(each, labels={"rack": each.network[0].name}) for each in racks(3, 3)]
    spread = Neighbours(spreads=(Spread("~web@rack", 1),), selected_by=("~web@rack",))
    gang = make.gang("g", least=4, bound=Bound(2))
    pods = make.pods("g", 4, replace(WHOLE, neighbours=spread))
    plan = ask(make.snapshot(nodes, [gang], pods))
    used = [str(name)[:2] for name in nodes_of(plan)]
    assert sorted(used.count(rack) for rack in set(used)) == [2, 2]


def test_a_plan_whose_domain_has_gone_is_taken_back() -> None:
    nodes = racks(2, 2)
    gang = make.gang("g", least=2, bound=Bound(1))
    pods = make.pods("g", 2, WHOLE)
    plan = ask(make.snapshot(nodes, [gang], pods))
    planned = replace(gang, plan=PlanInForce("1-1", plan.admissions[0].members, created=90.0))
    moved = [
        replace(each, network=(Domain(1, f"own {each.name}"),)) if str(each.name).startswith("r0") else each
        for each in nodes
    ]
    assert not ask(make.snapshot(nodes, [planned], pods)).withdrawals
    assert ask(make.snapshot(moved, [planned], pods)).withdrawals


def test_a_gang_that_lacks_a_domain_alone_asks_for_no_node() -> None:
    """Nobody knows in which rack a new node comes. One that lacks cards as well asks for nodes."""
    empty = Empty(1, make.H20_MIB)
    for tiers, nodes in (((1, 1), 0), ((3, 0), 0), ((1, 0), 2)):
        there = racks(*tiers)
        gang = make.gang("g", least=2, bound=Bound(1))
        waiting = make.snapshot(there, [gang], make.pods("g", 2, WHOLE))
        assert need(waiting, ask(waiting).verdicts, "h20", empty).nodes == nodes, tiers
