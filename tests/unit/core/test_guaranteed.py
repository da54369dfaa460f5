"""A queue gets what it is guaranteed at any time, whatever others did, and only low gangs go for it."""

import random
from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import CardAsk, Gang, PodPhase, PodShape, Queue, QueueName, ShareClass, Taint
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.standing import guaranteed
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial
from vc_egpu.sim.world import World

H20, NATIVE = "volcano.sh/vgpu-h20", "volcano.sh/gpu-h20"
WHOLE = make.shape(asks=(CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),), cpu_milli=10)
LIVES, STEPS = 6, 40


def kept(queues: list[Queue], cards: int = 4, **node: Any) -> dict[str, list[tuple[int, int]]]:
    """By queue, (MiB, cores) of each place that is kept on an empty node."""
    index = fresh_index(make.snapshot([make.node("n1", cards, **node)], queues=queues))
    trial = Trial(index, Policy(), 0.0)
    guaranteed.book(trial)
    return {
        claim.queue: [(seat.memory_mib, seat.high) for b in claim.bookings.values() for seat in b.seats]
        for claim in trial.claims.of(ClaimKind.GUARANTEE)
    }


@pytest.mark.parametrize(
    ("guarantee", "places"),
    [
        ({H20: 2}, [(make.H20_MIB, 100)] * 2),
        ({H20: 9}, [(make.H20_MIB, 100)] * 4),
        ({H20: 2, f"{H20}-memory": 20_000, f"{H20}-cores": 50}, [(10_000, 25)] * 2),
        ({f"{H20}-memory": make.H20_MIB + 1000}, [((make.H20_MIB + 1000) // 2, 0)] * 2),
        ({H20: 1, f"{H20}-cores": 50}, [(make.H20_MIB // 2, 50)]),
        ({H20: 0}, []),
        ({H20: -5, f"{H20}-memory": -1}, []),
        ({H20: 10**15}, [(make.H20_MIB, 100)] * 4),
        ({f"{H20}-cores": 10**15}, [(make.H20_MIB, 100)] * 4),
        ({"cpu": 4000, "volcano.sh/vgpu-t4": 3, NATIVE: 2}, []),
    ],
)
def test_places(guarantee: dict[str, int], places: list[tuple[int, int]]) -> None:
    found = kept([make.queue("q", guarantee=guarantee)])
    assert found.get("q", []) == places


def test_a_taint_of_the_cards_nodes_does_not_matter_and_a_cordon_does() -> None:
    queue = make.queue("q", guarantee={H20: 1})
    assert kept([queue], taints=(Taint("gpu", "yes", "NoSchedule"),))
    assert not kept([queue], unschedulable=True)


def test_a_circle_of_parents_ends() -> None:
    one = make.queue("a", guarantee={H20: 1}, parent=QueueName("b"))
    other = make.queue("b", guarantee={H20: 1}, parent=QueueName("a"))
    assert sum(map(len, kept([one, other]).values())) <= 2


def _other(rng: random.Random, number: int, now: float) -> tuple[Gang, PodShape, int]:
    key, count = f"ns/other{number}", rng.choice([1, 1, 2, 3])
    share_class = rng.choice([ShareClass.LOW, ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH])
    memory_mib = rng.choice([10_000, 30_000, 60_000])
    shape = rng.choice([WHOLE, make.shape(memory_mib, rng.choice([0, 25, 60]), cpu_milli=10)])
    return Gang(key, key, QueueName("other"), share_class, 0, count, now), shape, count


def _round(world: World) -> None:
    """Decide, carry out, and let those go that are told to: only low ones go for the owner."""
    plan, pods = world.decide(), world.snapshot().pods
    for admission in plan.admissions:
        going = [uid for eviction in admission.evictions for uid in eviction.pods]
        going += [uid for suspension in admission.suspensions for uid in suspension.pods]
        if admission.cause is Cause.GUARANTEE and going:
            assert admission.gang.startswith("ns/own")
            assert all(pods[uid].runs_as in {ShareClass.LOW, None} for uid in going)
    before = world.snapshot()
    world.apply(plan)
    world.leave()
    world.check(before)


def _life(rng: random.Random) -> int:
    """How often the owner came."""
    world, many = World(Policy(), {"h20": make.H20_MIB}), rng.randint(1, 3)
    for number in range(3):
        world.put_node(make.node(f"n{number}", 2))
    world.put_queue(make.queue("own", guarantee={H20: many}))
    world.put_queue(make.queue("other"))
    born, came, mine, others = 0, 0, list[str](), list[str]()
    for _ in range(STEPS):
        for _ in range(rng.randint(0, 2)):
            gang, shape, count = _other(rng, born, world.now)
            world.submit(gang, (("w", count, shape),))
            if rng.random() < 0.3:
                world.suspendable.add(gang.key)
            others.append(gang.key)
            born += 1
        if others and rng.random() < 0.4:
            world.finish(others.pop(rng.randrange(len(others))))
        if mine and rng.random() < 0.3:
            world.finish(mine.pop())
        used = sum(pod.gang in mine for pod in world.snapshot().pods.values())
        if used < many and rng.random() < 0.3:
            key, came = f"ns/own{came}", came + 1
            count = rng.randint(1, many - used)
            share_class = rng.choice([ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH])
            gang = Gang(key, key, QueueName("own"), share_class, 0, count, world.now)
            world.submit(gang, (("w", count, WHOLE),))
            mine.append(key)
            for _ in range(4):
                _round(world)
            states = [pod.phase for pod in world.pods_of(key)]
            assert states == [PodPhase.PLACED] * count, world.decide().verdicts.get(key)
        _round(world)
        world.tick(rng.choice([5.0, 60.0, 200.0]))
    return came


def test_the_owner_gets_its_cards_at_any_time() -> None:
    assert sum(_life(random.Random(seed)) for seed in range(LIVES)) > LIVES


def test_nobody_gets_the_cards_where_nothing_may_be_evicted_for_the_owner() -> None:
    """Low gangs would not leave them then."""
    low = replace(make.gang("ns/low", share_class=ShareClass.LOW, queue="other"))
    queues = [make.queue("own", guarantee={H20: 2}), make.queue("other")]
    snapshot = make.snapshot([make.node()], [low], make.pods("ns/low", 1, WHOLE), queues)
    world = World(Policy(preemption=False), {"h20": make.H20_MIB})
    for node in snapshot.nodes.values():
        world.put_node(node)
    for queue in queues:
        world.put_queue(queue)
    world.submit(low, (("w", 1, WHOLE),))
    assert not world.decide().admissions
