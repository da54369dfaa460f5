"""Gangs that change nothing: after a while nobody is evicted any more, and nobody was again and again."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import seeds
from unit.core import make
from vc_egpu.core.model.cluster import Gang, PodShape, Queue, QueueName, ShareClass, SuspensionState
from vc_egpu.core.model.policy import Policy
from vc_egpu.sim.world import World

WORLDS = 40
ROUNDS, STEP_S, QUIET = 60, 47.0, 20
"""Longer in all than any rule about time; in the last rounds nothing may happen any more."""
MOST_EVICTIONS = 3
H20 = "volcano.sh/vgpu-h20"


@dataclass
class Seen:
    """What happened in one world."""

    evicted: Counter[str] = field(default_factory=Counter)
    last: int = -1
    """The last round in which a gang was evicted."""


def _shape(rng: random.Random) -> PodShape:
    memory_mib = rng.choice([make.H20_MIB // 4, make.H20_MIB // 2, make.H20_MIB * 2 // 3])
    return make.shape(memory_mib, rng.choice([0, 25, 50, 100]), cpu_milli=100)


def _queues(rng: random.Random, cards: int) -> list[Queue]:
    caps = {H20: 1000}
    queues = [Queue(QueueName("org"), capability={H20: rng.choice([cards, 1000])})]
    for name in "abc":
        deserved = {H20: rng.randint(1, max(1, cards // 2))} if rng.random() < 0.7 else {}
        span = rng.choice([None, 0.0, 60.0, 600.0])
        parent = QueueName("org") if rng.random() < 0.5 else None
        queue = Queue(QueueName(name), parent, True, caps, deserved, weight=rng.randint(1, 4))
        queues.append(replace(queue, min_runtime_s=span))
    return queues


def world_of(rng: random.Random) -> World:
    """A small cluster, more work than it can hold, and nothing that ends."""
    world = World(Policy(), {"h20": make.H20_MIB})
    nodes = rng.randint(1, 3)
    per_node = rng.randint(1, 4)
    for number in range(nodes):
        host_memory_mib = rng.choice([0, make.H20_MIB, 8 * make.H20_MIB])
        world.put_node(make.node(f"n{number}", per_node, host_memory_mib=host_memory_mib))
    for queue in _queues(rng, nodes * per_node):
        world.put_queue(queue)
    for number in range(rng.randint(4, 12)):
        key, count = f"ns/g{number}", rng.choice([1, 1, 2, 3, 4])
        least = count if rng.random() < 0.7 else rng.randint(1, count)
        share_class = rng.choice([ShareClass.LOW, ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH])
        gang = Gang(key, key, QueueName(rng.choice("abc")), share_class, 0, least, float(number))
        world.submit(replace(gang, single=rng.random() < 0.2), (("w", count, _shape(rng)),))
        if rng.random() < 0.3:
            world.suspendable.add(key)
        if rng.random() < 0.5:
            _round(world)
            world.tick(rng.choice([1.0, 50.0, 400.0]))
    return world


def _round(world: World) -> Counter[str]:
    """Decide, and let those leave that are told to; who was evicted."""
    before = world.snapshot()
    plan = world.decide()
    world.apply(plan)
    gone = world.leave()
    world.check(before)
    return Counter({str(pod.gang): 1 for pod in gone})


def live(rng: random.Random) -> Seen:
    world, seen = world_of(rng), Seen()
    for number in range(ROUNDS):
        evicted = _round(world)
        seen.evicted += evicted
        if evicted:
            seen.last = number
        world.tick(STEP_S)
    states = {pod.suspension for pod in world.snapshot().pods.values()}
    assert SuspensionState.FAILED not in states
    return seen


def test_gangs_that_change_nothing_come_to_rest() -> None:
    some = 0
    for seed in seeds.fresh(WORLDS):
        seen = live(random.Random(seed))
        some += bool(seen.evicted)
        assert seen.last < ROUNDS - QUIET, f"seed {seed}: somebody is evicted in round {seen.last}"
        most = max(seen.evicted.values(), default=0)
        assert most <= MOST_EVICTIONS, f"seed {seed}: {seen.evicted}"
    assert some, "a test in which nobody is ever evicted shows nothing"
