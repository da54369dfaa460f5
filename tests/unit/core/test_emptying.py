"""Nodes that are emptied: which ones, and that random clusters lose nothing by it."""

import random
from dataclasses import replace

import pytest
from unit.core import make
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import (
    CardAsk,
    Gang,
    Node,
    NodeName,
    PodPhase,
    PodShape,
    Queue,
    QueueName,
    Resources,
    ShareClass,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Moving, Policy
from vc_egpu.sim.world import World
from vc_egpu.whatif.moves import moves

QUEUE = QueueName("q")
MOVING = Moving(for_empty=True, per_hour=10)


def world(nodes: int, cards: int = 2, moving: Moving = MOVING) -> World:
    found = World(Policy(moving=moving), {"h20": make.H20_MIB})
    found.put_queue(Queue(QUEUE, capability={"volcano.sh/vgpu-h20": 100}))
    for number in range(nodes):
        found.put_node(make.node(f"n{number}", cards))
    return found


def on(there: World, name: str, **changes: object) -> None:
    node = there.snapshot().nodes[NodeName(name)]
    there.put_node(replace(node, **changes))  # type: ignore[arg-type]


def submit(
    there: World, key: str, *, cards: int = 1, members: int = 1, low: bool = True, at: str = ""
) -> None:
    """A gang of whole cards; ``at``: on this node alone, to begin with."""
    for name in there.snapshot().nodes if at else ():
        on(there, name, unschedulable=name != at)
    ask = CardAsk("main", "h20", cards, make.H20_MIB, 100, whole=True)
    shape = PodShape((ask,), Resources(cpu_milli=1000, memory_bytes=1 << 30))
    share_class = ShareClass.LOW if low else ShareClass.HIGH
    there.submit(Gang(key, key, QUEUE, share_class, 0, members, there.now), (("w", members, shape),))
    there.settle()
    for name in there.snapshot().nodes if at else ():
        on(there, name, unschedulable=False)


def two_halves(moving: Moving = MOVING) -> World:
    """Two nodes of two cards with a low gang on each."""
    there = world(2, moving=moving)
    submit(there, "a", at="n0")
    submit(there, "b", at="n1")
    there.tick(700)
    return there


def test_the_node_is_tainted_before_anything_moves() -> None:
    plan = two_halves().decide()
    assert plan.empties == ("n0",)
    assert not plan.moves
    assert not plan.evictions


@pytest.mark.parametrize(
    "change", [{"stays": True}, {"unschedulable": True}, {"ready": False}, {"problem": "no agent"}]
)
def test_some_nodes_are_not_emptied(change: dict[str, object]) -> None:
    there = two_halves()
    on(there, "n0", **change)
    on(there, "n1", stays=True)
    assert not there.decide().empties


def test_nothing_is_emptied_where_nothing_is_won() -> None:
    there = world(3)
    submit(there, "a", at="n0")
    there.tick(700)
    assert not there.decide().empties, "its gang would go to an empty node"
    submit(there, "b", cards=2, at="n1")
    there.tick(700)
    assert not there.decide().empties, "there is no place on the node in use"


def test_no_node_is_emptied_that_is_more_than_half_full() -> None:
    there = world(2, cards=4)
    for number in range(3):
        submit(there, f"a{number}", at="n0")
        submit(there, f"b{number}", at="n1")
    there.finish("b0")
    there.tick(700)
    assert not there.decide().empties, "three cards of four, and three places are not there"
    there.finish("b1")
    there.tick(700)
    assert there.decide().empties == ("n1",)


@pytest.mark.parametrize(
    "moving", [Moving(), replace(MOVING, per_hour=0), replace(MOVING, hours=(5, 6)), Moving(for_waiting=True)]
)
def test_it_is_off_without_budget_and_outside_of_its_hours(moving: Moving) -> None:
    assert not two_halves(moving).decide().empties


def test_one_node_at_a_time_and_a_new_leader_goes_on() -> None:
    there = world(4)
    for number in range(4):
        submit(there, f"g{number}", at=f"n{number}")
    there.tick(700)
    there.apply(there.decide())
    for _ in range(3):
        plan = there.decide()  # of the values alone: nothing is remembered elsewhere
        assert not plan.empties
        there.apply(plan)
        there.leave()
    there.settle()
    nodes = there.snapshot().nodes
    emptied = {name for name, node in nodes.items() if node.emptied is not None}
    assert len(emptied) == 2
    assert in_use(there) == set(nodes) - emptied


def test_what_cannot_be_opened_is_not_waited_for() -> None:
    there = two_halves()
    there.settle()
    (empty,) = (name for name, node in there.snapshot().nodes.items() if node.emptied is not None)
    stuck = replace(there.policy.moving, stuck=frozenset({empty}))
    there.submit(Gang("h", "h", QUEUE, ShareClass.HIGH, 0, 1, there.now), (("w", 1, whole_card()),))
    assert there.decide().opens == (empty,)
    there.policy = replace(there.policy, moving=stuck)
    plan = there.decide()
    assert not plan.opens
    assert [bool(admission.evictions) for admission in plan.admissions] == [True]


def whole_card() -> PodShape:
    ask = CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True)
    return PodShape((ask,), Resources(cpu_milli=1000, memory_bytes=1 << 30))


def test_a_dry_run_names_the_node() -> None:
    there = two_halves()
    (found,) = moves(there.snapshot(), there.policy, there.now).moved
    assert (found.gang, found.leaves, found.goes_to, found.empties) == ("a", ("n0",), ("n1",), "n0")


def in_use(there: World) -> set[NodeName | None]:
    return {pod.node for pod in there.snapshot().pods.values() if pod.node is not None}


def may_be_emptied(node: Node) -> bool:
    return node.is_up and not node.unschedulable and not node.stays


def judge(there: World, plan: Plan) -> None:
    """What is true of every decision."""
    snapshot = there.snapshot()
    for name in plan.empties:
        pods = [pod for pod in snapshot.pods.values() if pod.node == name]
        assert may_be_emptied(snapshot.nodes[name])
        assert all(snapshot.gangs[str(pod.gang)].share_class is ShareClass.LOW for pod in pods)
    for admission in plan.admissions:
        for place in admission.members.values():
            assert place.node is None or snapshot.nodes[place.node].emptied is None
        assert not (admission.evictions and plan.opens)
    for move in plan.moves.values():
        for place in move.places.values():
            assert place.node in in_use(there)


def test_random_clusters_lose_nothing() -> None:
    emptied = 0
    for seed in range(60):
        rng = random.Random(seed)
        there = world(rng.randint(2, 5), cards=rng.randint(1, 4), moving=replace(MOVING, per_hour=50))
        for number in range(rng.randint(1, 8)):
            submit(
                there,
                f"g{number}",
                cards=rng.randint(1, 2),
                members=rng.randint(1, 2),
                low=rng.random() < 0.8,
            )
        for name in there.snapshot().nodes:
            on(there, name, stays=rng.random() < 0.2)
        for key in [key for key in there.snapshot().gangs if rng.random() < 0.4]:
            there.finish(key)
        there.settle()
        there.tick(700)
        runs = {pod.gang for pod in there.snapshot().pods.values() if pod.phase is PodPhase.PLACED}
        used = in_use(there)
        for _ in range(20):
            before, plan = there.snapshot(), there.decide()
            judge(there, plan)
            emptied += len(plan.empties)
            there.apply(plan)
            there.leave()
            assert not invariants.check(there.snapshot(), before=before), f"seed {seed}"
        assert in_use(there) <= used, f"seed {seed}: more nodes are in use than before"
        still = {pod.gang for pod in there.snapshot().pods.values() if pod.phase is PodPhase.PLACED}
        assert runs <= still, f"seed {seed}: a gang that ran does not run any more"
    assert emptied >= 5
