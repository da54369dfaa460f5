"""Moves of gangs that are gone: they count in the budget of an hour, and make others rest."""

from dataclasses import replace

import pytest
from unit.core import make
from unit.core.test_moving import HALF, MIX, MOVING
from vc_egpu.core.books.state import ClusterState, fresh_index, index_of
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Move,
    Node,
    NodeName,
    PodShape,
    Queue,
    QueueName,
    Resources,
    ShareClass,
)
from vc_egpu.core.model.policy import OURS, Moving, Policy
from vc_egpu.core.moving import pauses
from vc_egpu.core.moving.movable import left_in_budget
from vc_egpu.core.trial.trial import Trial
from vc_egpu.report import snapshot_codec
from vc_egpu.sim.world import World

QUEUE = QueueName("q")


def gang(key: str, uid: str = "", move: Move | None = None) -> Gang:
    return Gang(key, uid or key, QUEUE, ShareClass.LOW, 0, 1, 0.0, move=move)


def halves(nodes: int, per_hour: int) -> World:
    """Nodes of one card. On half of each is a low gang: two of them make a whole card, where one moves."""
    policy = Policy(binpack=OURS, mix=MIX, moving=replace(MOVING, per_hour=per_hour))
    found = World(policy, {"h20": make.H20_MIB})
    found.put_queue(Queue(QUEUE, capability={"volcano.sh/vgpu-h20": 16}))
    for number in range(nodes):
        card = Card(CardId(f"n{number}/0"), 0, "h20", make.H20_MIB)
        name = NodeName(f"n{number}")
        found.put_node(Node(name, Resources(64_000, 1 << 39, pods=110), cards=(card,)))
        half_on(found, number, name)
    return found


def half_on(there: World, number: int, name: NodeName) -> None:
    nodes = dict(there.snapshot().nodes)
    for node in nodes.values():
        there.put_node(replace(node, unschedulable=node.name != name))
    ask = CardAsk("main", "h20", 1, HALF, 50)
    shape = PodShape((ask,), Resources(cpu_milli=1000, memory_bytes=1 << 30))
    there.submit(Gang(f"g{number}", f"g{number}", QUEUE, ShareClass.LOW, 0, 1, there.now), (("w", 1, shape),))
    there.settle()
    for node in nodes.values():
        there.put_node(node)


def has_moved(there: World) -> list[str]:
    return [key for key, one in there.snapshot().gangs.items() if one.move is not None]


def left(state: ClusterState, now: float, per_hour: int = 3) -> int:
    trial = Trial(index_of(state.snapshot(1)), Policy(moving=Moving(True, per_hour=per_hour)), now)
    found = left_in_budget(trial)
    trial.close()
    return found


def test_a_gang_that_ends_after_its_move_still_counts_in_the_budget() -> None:
    there = halves(4, per_hour=1)
    there.tick(200)
    there.settle()
    (key,) = has_moved(there)
    there.finish(key)
    for _ in range(5):
        there.tick(600)
        assert not there.decide().moves, "one move within the hour is all that is allowed"
    there.tick(700)
    assert there.decide().moves, "the hour is over"


def test_what_is_gone_is_in_the_snapshot_and_counts_there() -> None:
    state = ClusterState()
    state.put_gang(gang("ns/a", move=Move(100.0, whom="ns/large")))
    state.remove_gang("ns/a")
    snapshot = state.snapshot(1)
    assert left(state, 200.0) == 2
    assert fresh_index(snapshot).moves_of_gone == {"ns/a": Move(100.0, whom="ns/large")}
    again = snapshot_codec.decode(snapshot_codec.encode(snapshot))
    assert again.moves_of_gone == snapshot.moves_of_gone
    state.put_gang(gang("ns/b", move=Move(150.0)))
    state.remove_gang("ns/b")
    assert list(snapshot.moves_of_gone) == ["ns/a"], "a snapshot does not change"


def test_a_gang_of_the_same_name_is_another_one() -> None:
    state = ClusterState()
    state.put_gang(gang("ns/a", "uid-1", Move(100.0)))
    state.remove_gang("ns/a")
    state.put_gang(gang("ns/a", "uid-2", Move(200.0)))
    assert left(state, 300.0) == 1
    state.put_gang(gang("ns/c", "uid-1", Move(100.0)))
    assert left(state, 300.0) == 1, "one that is there again counts once"


def test_a_gang_that_stayed_counts_in_no_budget_and_still_makes_the_waiting_one_rest() -> None:
    state = ClusterState()
    stays = Move(50.0, whom="ns/large").give_up(100.0)
    state.put_gang(gang("ns/a", move=stays))
    for there in (True, False):
        trial = Trial(index_of(state.snapshot(1)), Policy(), 120.0)
        assert pauses.resting(trial) == {"ns/large"}, f"there: {there}"
        trial.close()
        state.remove_gang("ns/a")
    assert left(state, 120.0) == 3


@pytest.mark.parametrize("per_hour", [1, 3])
def test_the_next_leader_counts_what_the_last_one_knew(per_hour: int) -> None:
    first, second = ClusterState(), ClusterState()
    first.put_gang(gang("ns/a", move=Move(100.0, whom="ns/large")))
    first.put_gang(gang("ns/b", move=Move(200.0)))
    first.put_gang(gang("ns/old", move=Move(-9000.0)))
    first.remove_gang("ns/a")
    told = first.moves_since(0.0)
    assert set(told) == {"ns/a", "ns/b"}
    second.put_gang(gang("ns/b", move=Move(250.0)))
    second.remember_moves(told)
    assert left(second, 300.0, per_hour) == max(0, per_hour - 2)
    assert second.moves_since(0.0)["ns/b"].at == 250.0, "what stands on a PodGroup counts more"


def test_only_the_last_of_many_are_remembered() -> None:
    state = ClusterState()
    for number in range(1500):
        state.put_gang(gang(f"ns/g{number}", move=Move(float(number))))
        state.remove_gang(f"ns/g{number}")
    known = state.moves_since(0.0)
    assert len(known) == 1000
    assert "ns/g1499" in known
