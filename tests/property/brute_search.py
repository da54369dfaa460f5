"""The dumb alternative to choosing victims: every set of them is tried; caps and guarantees are spelt out.

As slow on purpose as :mod:`property.brute`, on which it stands.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from property.brute import fits, world
from vc_egpu.core.model.cluster import (
    Gang,
    Pod,
    PodPhase,
    PodShape,
    Queue,
    Snapshot,
)


def core_choices(gang: Gang, pods: list[Pod]) -> Iterator[list[PodShape]]:
    """Every set of waiting members that makes a gang that does not run yet whole; equal sets once."""
    seen: list[list[tuple[str, PodShape]]] = []
    minimums = gang.min_task_member if sum(gang.min_task_member.values()) <= gang.min_member else {}
    for group in combinations(pods, gang.min_member):
        counts = {task: sum(1 for pod in group if pod.task == task) for task in minimums}
        if any(counts[task] < least for task, least in minimums.items()):
            continue
        mark = [(pod.task, pod.shape) for pod in group]
        if mark not in seen:
            seen.append(mark)
            yield [pod.shape for pod in group]


def use(snapshot: Snapshot, queue: str) -> dict[str, int]:
    """What a queue and all below it use."""
    total: dict[str, int] = {}
    for pod in snapshot.pods.values():
        gang = snapshot.gangs.get(pod.gang) if pod.gang else None
        if gang is None or pod.phase not in {PodPhase.PLACED, PodPhase.TERMINATING}:
            continue
        if queue in chain(snapshot, gang.queue):
            for key, amount in pod_amounts(pod.shape).items():
                total[key] = total.get(key, 0) + amount
    return total


def without_idle_guarantees(snapshot: Snapshot) -> Snapshot:
    """No queue is guaranteed more than it uses: the oracle knows no places that are kept for queues.

    Those have lives of their own: ``tests/unit/core/test_guaranteed.py``.
    """
    queues = {}
    for name, queue in snapshot.queues.items():
        used = use(snapshot, name)
        least = {key: min(amount, used.get(key, 0)) for key, amount in queue.guarantee.items()}
        queues[name] = replace(queue, guarantee=least)
    return replace(snapshot, queues=queues)


def chain(snapshot: Snapshot, queue: str) -> list[str]:
    names: list[str] = []
    current: str | None = queue
    while current is not None:
        names.append(current)
        entry: Queue | None = snapshot.queues.get(current)  # type: ignore[call-overload]
        current = entry.parent if entry else None
    return names


def pod_amounts(shape: PodShape) -> dict[str, int]:
    total = {"cpu": shape.requests.cpu_milli, "memory": shape.requests.memory_bytes}
    for ask in shape.asks:
        if ask.native:
            total[f"volcano.sh/gpu-{ask.model}"] = total.get(f"volcano.sh/gpu-{ask.model}", 0) + ask.cards
            continue
        for key, each in (
            (f"vgpu-{ask.model}", 1),
            (f"vgpu-{ask.model}-memory", ask.memory_mib),
            (f"vgpu-{ask.model}-cores", ask.cores_percent),
        ):
            total[f"volcano.sh/{key}"] = total.get(f"volcano.sh/{key}", 0) + each * ask.cards
    return total


def caps_allow(snapshot: Snapshot, queue: str, shapes: list[PodShape]) -> bool:
    """Whether the queue and all above it allow these shapes on top of what they use."""
    return full_queues(snapshot, queue, shapes) == []


def full_queues(snapshot: Snapshot, queue: str, shapes: list[PodShape]) -> list[str] | None:
    """Queues whose present use forbids these shapes, the nearest first; None if some never allows them."""
    asked: dict[str, int] = {}
    for shape in shapes:
        for key, amount in pod_amounts(shape).items():
            asked[key] = asked.get(key, 0) + amount
    full: list[str] = []
    for name in chain(snapshot, queue):
        entry = snapshot.queues[name]  # type: ignore[index]
        used = use(snapshot, name)
        for key, amount in asked.items():
            cap = entry.capability.get(key)
            model_key = "gpu-" in key and not key.endswith(("-memory", "-cores"))
            if cap is None and model_key and name == queue and amount:
                return None
            if cap is None or not amount:
                continue
            if amount > cap:
                return None
            if used.get(key, 0) + amount > cap:
                full.append(name)
    return list(dict.fromkeys(full))


def placeable(
    snapshot: Snapshot,
    gang: Gang,
    pods: list[Pod],
    without: Iterable[str] = (),
    suspended: Iterable[str] = (),
) -> bool:
    """Whether some allowed core of the gang fits once the given pods are gone, and others suspended."""
    gone, asleep = list(without), list(suspended)
    return any(
        caps_allow(snapshot, gang.queue, shapes)
        and fits(world(snapshot, gone, asleep), shapes, gang.share_class)
        for shapes in core_choices(gang, pods)
    )


def cards_of(pods: Iterable[Pod]) -> int:
    return sum(len({share.card for _, share in pod.shares}) for pod in pods)


def victim_options(gang: Gang, placed: list[Pod]) -> list[tuple[Pod, ...]]:
    """Nobody, any members above the minimum, or everybody."""
    if any(pod.bare for pod in placed):
        return [()]  # nobody would make them anew
    return _parts(gang, placed)


def _parts(gang: Gang, placed: list[Pod]) -> list[tuple[Pod, ...]]:
    options: list[tuple[Pod, ...]] = [()]
    minimums = gang.min_task_member if sum(gang.min_task_member.values()) <= gang.min_member else {}
    for count in range(1, len(placed) - gang.min_member + 1):
        for group in combinations(placed, count):
            stay = [pod for pod in placed if pod not in group]
            if all(sum(1 for p in stay if p.task == t) >= least for t, least in minimums.items()):
                options.append(group)
    if tuple(placed) not in options:
        options.append(tuple(placed))
    return options


def guarantees_hold(snapshot: Snapshot, preemptor: Gang, victims: list[Pod]) -> bool:
    """No queue of a victim falls below what it is guaranteed of anything its victims use."""
    for name, entry in snapshot.queues.items():
        if name in chain(snapshot, preemptor.queue):
            continue
        taken: dict[str, int] = {}
        for pod in victims:
            if name in chain(snapshot, snapshot.gangs[str(pod.gang)].queue):
                for key, amount in pod_amounts(pod.shape).items():
                    taken[key] = taken.get(key, 0) + amount
        used = use(snapshot, name)
        for key, guaranteed in entry.guarantee.items():
            if taken.get(key, 0) and used.get(key, 0) - taken[key] < guaranteed:
                return False
    return True


def suspension_options(snapshot: Snapshot, gang: Gang, placed: list[Pod]) -> list[tuple[Pod, ...]]:
    """As :func:`victim_options`, of a gang all of whose members could be suspended; else nobody."""
    silent = {node.name for node in snapshot.nodes.values() if not node.ready and not node.lost}
    if not all((pod.suspendable and pod.node not in silent) or not pod.shares for pod in placed):
        return [()]
    return [tuple(pod for pod in group if pod.shares) for group in _parts(gang, placed)]


def hosts_hold(snapshot: Snapshot, suspended: list[Pod]) -> bool:
    """Whether every node's host memory takes those that are suspended, before anybody else is gone."""
    there = world(snapshot, (), [pod.uid for pod in suspended])
    nodes = {pod.node for pod in suspended}
    return all(node.host >= 0 for node in there if node.node.name in nodes)


Cost = tuple[int, int]
"""Cards that evicted members hold, then those that suspended ones do."""


def stage(snapshot: Snapshot, pods: Iterable[Pod], now: float) -> int:
    """How late these may go: 2 where a gang went three times within the hour, 1 where one has just begun."""
    late = 0
    for key in {str(pod.gang) for pod in pods}:
        gang = snapshot.gangs[key]
        placed = [p for p in snapshot.pods.values() if p.gang == key and p.phase is PodPhase.PLACED]
        if sum(now - 3600 <= at <= now for at in gang.victim_at) >= 3:
            late = 2
        elif now - min(p.started for p in placed if p.started is not None) < 120:
            late = max(late, 1)
    return late


def order(snapshot: Snapshot, evicted: list[Pod], asleep: list[Pod], now: float) -> tuple[bool, int]:
    """Suspensions before evictions; of either kind first those of gangs that have run for long."""
    return bool(evicted), stage(snapshot, evicted or asleep, now)
