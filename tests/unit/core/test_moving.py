"""Moves so that less is left over, and what becomes of a move whose gang does not come."""

from dataclasses import replace

from unit.core import make
from vc_egpu.core.check import invariants
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
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
from vc_egpu.core.model.policy import FULLEST, OURS, Mix, Moving, PodClass, Policy
from vc_egpu.core.profiles.table import Rule, Table
from vc_egpu.sim.world import World

HALF = make.H20_MIB // 2
MIX = Mix((
    PodClass(1000, 1, make.H20_MIB, 100, "h20", True, False, PodShape(), 0.8),
    PodClass(1000, 1, HALF, 50, "h20", False, False, PodShape(), 0.2),
))  # fmt: skip
MOVING = Moving(for_fragments=True, per_hour=10)


def world(moving: Moving = MOVING, binpack: str = OURS) -> World:
    """Two nodes of one card, and half of each is taken by a low gang: two halves are left over."""
    found = World(Policy(binpack=binpack, mix=MIX, moving=moving), {"h20": make.H20_MIB})
    found.put_queue(Queue(QueueName("q"), capability={"volcano.sh/vgpu-h20": 16}))
    for name in ("n1", "n2"):
        card = Card(CardId(f"{name}/0"), 0, "h20", make.H20_MIB)
        found.put_node(Node(NodeName(name), Resources(64_000, 1 << 39, pods=110), cards=(card,)))
    for number, name in enumerate(("n1", "n2")):
        submit(found, f"g{number}", node=name)
    for name in ("n1", "n2"):
        node = found.snapshot().nodes[NodeName(name)]
        found.put_node(replace(node, unschedulable=False))
    return found


def submit(there: World, key: str, node: str) -> None:
    """A low gang of one member with half a card, which is let onto this node alone, and stays mobile."""
    for name, one in there.snapshot().nodes.items():
        there.put_node(replace(one, unschedulable=name != node))
    ask = CardAsk("main", "h20", 1, HALF, 50)
    shape = PodShape((ask,), Resources(cpu_milli=1000, memory_bytes=1 << 30))
    there.submit(Gang(key, key, QueueName("q"), ShareClass.LOW, 0, 1, there.now), (("w", 1, shape),))
    there.settle()


def nodes_of(there: World) -> dict[str, str | None]:
    return {key: there.pods_of(key)[0].node for key in ("g0", "g1")}


def test_two_halves_become_one_whole_card() -> None:
    there = world()
    assert nodes_of(there) == {"g0": "n1", "g1": "n2"}
    there.tick(200)
    plan = there.decide()
    assert len(plan.moves) == 1
    assert not plan.evictions, "the new place is claimed first"
    there.apply(plan)
    plan = there.decide()
    assert [eviction.cause for eviction in plan.evictions] == [Cause.DEFRAGMENTATION]
    before = there.snapshot()
    there.settle()
    assert len(set(nodes_of(there).values())) == 1
    assert not invariants.check(there.snapshot(), before=before)


def test_no_gang_moves_back_nor_for_less_than_is_asked_for() -> None:
    there = world()
    there.tick(200)
    there.settle()
    for _ in range(12):
        there.tick(600)
        assert not there.decide().moves
    dear = world(replace(MOVING, least_won_milli=900))
    dear.tick(200)
    assert not dear.decide().moves


def test_only_a_policy_that_scores_fragments_moves_for_them() -> None:
    there = world(binpack=FULLEST)
    there.tick(200)
    assert not there.decide().moves


def test_gangs_move_for_fragments_where_a_rule_places_them_by_that_score() -> None:
    """And where a rule places them otherwise, they stay, whatever the default is."""
    by_rule = world(binpack=FULLEST)
    by_rule.policy = replace(by_rule.policy, profiles=Table((Rule("low", nodes=OURS),)))
    by_rule.tick(200)
    assert by_rule.decide().moves
    otherwise = world()
    otherwise.policy = replace(otherwise.policy, profiles=Table((Rule("low", FULLEST, FULLEST),)))
    otherwise.tick(200)
    assert not otherwise.decide().moves


def test_a_decision_about_some_gangs_moves_none() -> None:
    there = world()
    there.tick(200)
    assert not there.decide([]).moves


def test_a_move_that_is_switched_off_before_its_gang_leaves_is_given_up() -> None:
    there = world()
    there.tick(200)
    there.apply(there.decide())
    there.policy = replace(there.policy, moving=Moving())
    plan = there.decide()
    assert [move.stays for move in plan.moves.values()] == [True]
    assert not plan.evictions


def test_a_gang_that_does_not_come_back_loses_its_claim_after_a_while() -> None:
    there = world()
    there.tick(200)
    plan = there.decide()
    there.apply(plan)
    (key,) = plan.moves
    (pod,) = there.pods_of(key)
    there.state.remove_pod(pod.uid)  # its controller is away
    plan = there.decide()
    assert not plan.moves, "the claim stands"
    there.tick(901)
    move = there.decide().moves[key]
    assert move is not None
    assert not move.places
    assert move.at > 0, "it still counts as moved today"


def test_the_claim_is_kept_while_the_gang_is_on_its_way() -> None:
    there = world()
    there.tick(200)
    there.apply(there.decide())
    there.apply(there.decide())
    assert any(pod.phase is PodPhase.TERMINATING for key in ("g0", "g1") for pod in there.pods_of(key))
    ask = CardAsk("main", "h20", 1, HALF, 50)
    shape = PodShape((ask,), Resources(cpu_milli=1000, memory_bytes=1 << 30))
    for key in ("r0", "r1"):
        there.submit(Gang(key, key, QueueName("q"), ShareClass.LOW, 0, 1, there.now), (("w", 1, shape),))
    assert len(there.decide().admissions) == 1, "one half is free, one is claimed, and one is not yet left"
    there.leave()
    there.settle()
    assert len(set(nodes_of(there).values())) == 1
