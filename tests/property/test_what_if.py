"""What-if against what then happens, in small random clusters: it never says what does not come true."""

import random
from collections import Counter
from dataclasses import replace

import seeds
from property import generate
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import Gang, Pod, PodPhase, PodUid, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.sim.world import World
from vc_egpu.whatif.answers import Answer, Asked, would_start
from vc_egpu.whatif.hypothesis import Tasks

NOW = 1000.0


def without(snapshot: Snapshot, key: str) -> tuple[Snapshot, Asked]:
    """The cluster before a gang came, and the gang."""
    gang = snapshot.gangs[key]
    members = [pod for pod in snapshot.pods.values() if pod.gang == key]
    counted = Counter(pod.task for pod in members)
    shapes = {pod.task: pod.shape for pod in members}
    tasks: Tasks = tuple((task, count, shapes[task]) for task, count in counted.items())
    pods = {uid: pod for uid, pod in snapshot.pods.items() if pod.gang != key}
    gangs = {name: one for name, one in snapshot.gangs.items() if name != key}
    return replace(snapshot, pods=pods, gangs=gangs, index=None), Asked(gang, tasks)


def emptier(snapshot: Snapshot, rng: random.Random) -> Snapshot:
    """Half of what runs is over."""
    over = {key for key in snapshot.gangs if key.startswith("ns/run") and rng.random() < 0.5}
    pods = {uid: pod for uid, pod in snapshot.pods.items() if pod.gang not in over}
    gangs = {key: gang for key, gang in snapshot.gangs.items() if key not in over}
    return replace(snapshot, pods=pods, gangs=gangs, index=None)


def with_ends(snapshot: Snapshot, rng: random.Random) -> Snapshot:
    """Some of what runs says how long it will."""
    pods: dict[PodUid, Pod] = {}
    spans: dict[str | None, float | None] = {}
    for uid, pod in snapshot.pods.items():
        span = spans.setdefault(pod.gang, rng.choice([None, 600.0, 1200.0, 5000.0]))
        is_running = pod.phase is PodPhase.PLACED and pod.shares and pod.started is not None
        pods[uid] = replace(pod, shape=replace(pod.shape, runtime_s=span)) if is_running else pod
    return replace(snapshot, pods=pods, index=None)


def world_of(snapshot: Snapshot) -> World:
    world = World(Policy(), models=dict(snapshot.models))
    for queue in snapshot.queues.values():
        world.state.put_queue(queue)
    for node in snapshot.nodes.values():
        world.state.put_node(node)
    for gang in snapshot.gangs.values():
        world.state.put_gang(gang)
    for pod in snapshot.pods.values():
        world.state.put_pod(pod)
    world.tick(NOW)
    return world


def submitted(world: World, asked: Asked, key: str = "") -> Plan:
    """What the cluster decides when the gang comes."""
    gang = asked.gang if not key else replace(asked.gang, key=key, uid=f"uid-{key}")
    world.submit(gang, asked.tasks)
    return world.decide({gang.key})


def check(answer: Answer, world: World, asked: Asked) -> None:
    gang: Gang = asked.gang
    plan = submitted(world, asked)
    found = next((one for one in plan.admissions if one.gang == gang.key), None)
    if answer.outcome == "waits":
        assert found is None
        assert plan.verdicts[gang.key].reason.value == answer.reason
        return
    assert found is not None
    assert sum(place.members for place in answer.places) == len(found.members)
    going = {one.gang for one in found.evictions} | {one.gang for one in found.suspensions}
    assert {one.gang for one in answer.going} == going
    assert bool(going) == (answer.outcome == "makes room")
    wrong = invariants.check(world.snapshot())  # some of the clusters are made above a cap
    world.apply(plan)
    assert [one for one in invariants.check(world.snapshot()) if one not in wrong] == []
    if answer.outcome == "starts":
        placed = [pod for pod in world.pods_of(gang.key) if pod.phase is PodPhase.PLACED]
        assert len(placed) == len(found.members)


def first_end_that_helps(base: Snapshot, world: World, asked: Asked) -> float | None:
    """When a gang that waits starts without anybody going, as work ends when it said; None: never."""
    submitted(world, asked)
    ends = {
        pod.uid: max(NOW, (pod.started or 0.0) + pod.shape.runtime_s)
        for pod in base.pods.values()
        if pod.shares
        and pod.phase is PodPhase.PLACED
        and pod.started is not None
        and pod.shape.runtime_s is not None
        and pod.started + pod.shape.runtime_s >= NOW
    }
    for at in sorted(set(ends.values())):
        world.tick(at - world.now)
        for uid in [uid for uid, end in ends.items() if end == at]:
            world.state.remove_pod(uid)
        found = [one for one in world.decide({asked.gang.key}).admissions if one.gang == asked.gang.key]
        if found and not found[0].evictions and not found[0].suspensions:
            return at
    return None


def test_what_is_said_is_what_happens(oracle_cases: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds.fresh(oracle_cases // 10):
        case = generate.case(seed)
        base, asked = without(case.snapshot, case.asking[0])
        answer = would_start(base, Policy(), NOW, asked)
        check(answer, world_of(base), asked)
        outcomes[answer.outcome] += 1
    assert set(outcomes) == {"starts", "makes room", "waits"}


def test_so_many_more_start_and_not_one_more(oracle_cases: int) -> None:
    counts = set()
    for seed in seeds.fresh(oracle_cases // 5):
        case = generate.case(seed)
        base, asked = without(emptier(case.snapshot, random.Random(seed)), case.asking[0])
        answer = would_start(base, Policy(), NOW, asked)
        if answer.outcome != "starts":
            continue
        world = world_of(base)
        world.apply(submitted(world, asked))
        for number in range(answer.more):
            plan = submitted(world, asked, f"ns/more{number}")
            (admission,) = plan.admissions
            assert not admission.evictions
            assert not admission.suspensions
            world.apply(plan)
        if answer.more_is_bounded:
            continue
        last = submitted(world, asked, "ns/last").admissions
        assert not last or last[0].evictions or last[0].suspensions
        counts.add(answer.more)
    assert any(counts)


def test_it_starts_at_the_first_end_that_helps_it(oracle_cases: int) -> None:
    forecasts = 0
    for seed in seeds.fresh(oracle_cases // 10):
        case = generate.case(seed)
        base, asked = without(with_ends(case.snapshot, random.Random(seed)), case.asking[0])
        answer = would_start(base, Policy(), NOW, asked)
        if answer.outcome != "waits":
            continue
        starts_at = first_end_that_helps(base, world_of(base), asked)
        said = answer.forecast.at if answer.forecast is not None else None
        assert said == starts_at, seed
        forecasts += said is not None
    assert forecasts
