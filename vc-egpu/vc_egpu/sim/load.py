"""What a replay plays: the cluster at its begin, and the gangs that come.

The gangs are the pods of a table. Where it does not say when they come or how long they run, both are drawn
from a seed. Intervals and lifetimes have an exponential distribution, as a memoryless source has them.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.core.model.cluster import Node, PodShape, Queue, QueueName, ShareClass, Snapshot
from vc_egpu.sim.table import PodRow, TableError

QUEUE: Final = QueueName("all")
"""The queue of pods that name none."""


@dataclass(frozen=True, slots=True)
class Work:
    """A gang that comes."""

    key: str
    tasks: tuple[tuple[str, int, PodShape], ...]
    """(task, members, shape)."""
    gpu_milli: int
    """All members together."""
    queue: QueueName = QUEUE
    share_class: ShareClass = ShareClass.UNSET
    arrival_s: float = 0.0
    lifetime_s: float | None = None
    """From the moment when all members have their places; None: it never ends."""
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    least: int | None = None
    """So many members start together; None: all of them."""
    single: bool = False
    """Members are placed one by one above that."""

    @property
    def shapes(self) -> list[PodShape]:
        """One for each member."""
        return [shape for _, members, shape in self.tasks for _ in range(members)]


@dataclass(frozen=True, slots=True)
class Load:
    """A cluster and its work."""

    nodes: tuple[Node, ...]
    works: tuple[Work, ...]
    """In the order in which they come."""
    queues: tuple[Queue, ...] = (Queue(QUEUE),)
    begin: Snapshot | None = None
    """What is there already: its pods hold their cards, its gangs wait. ``nodes`` are then added to it."""
    ends: Mapping[str, float] = field(default_factory=dict)
    """When gangs end that run at the begin, by key; others of them never do."""
    lifetimes: Mapping[str, float] = field(default_factory=dict)
    """How long gangs run that wait at the begin, by key; others of them never end."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How missing times are drawn."""

    seed: int = 1
    interval_s: float = 1.0
    """Mean time from one gang to the next."""
    lifetime_s: float | None = None
    """Mean; None: gangs without a lifetime never end."""
    again: bool = False
    """Draw also what the table has."""


def works_of(pods: Sequence[PodRow], draw: Draw) -> list[Work]:
    """The gangs of a table of pods, in the order in which they come. Raises :class:`TableError`."""
    members: dict[str, list[PodRow]] = {}
    for pod in pods:
        members.setdefault(f"gang/{pod.gang}" if pod.gang else f"pod/{pod.name}", []).append(pod)
    works = [_work(key, alike) for key, alike in members.items()]
    dice = random.Random(draw.seed)  # noqa: S311 - a simulation
    known = [work for work in works if work.arrival_s >= 0]
    if len(known) < len(works) or draw.again:
        if known and not draw.again:
            raise TableError("some pods have an arrival and some have none")
        works = _with_arrivals(works, draw, dice)
    if draw.lifetime_s is not None:
        rate = 1 / max(draw.lifetime_s, 1e-9)
        works = [
            replace(work, lifetime_s=dice.expovariate(rate))
            if work.lifetime_s is None or draw.again
            else work
            for work in works
        ]
    return sorted(works, key=lambda work: work.arrival_s)


def _with_arrivals(works: Iterable[Work], draw: Draw, dice: random.Random) -> list[Work]:
    now, found = 0.0, []
    for work in works:
        now += dice.expovariate(1 / max(draw.interval_s, 1e-9))
        found.append(replace(work, arrival_s=now))
    return found


def _work(key: str, pods: Sequence[PodRow]) -> Work:
    first = pods[0]
    if len({(pod.queue, pod.share_class) for pod in pods}) > 1:
        raise TableError(f"the pods of {key} are of more than one queue or class")
    tasks: dict[str, tuple[str, int, PodShape]] = {}
    for pod in pods:
        known = next((name for name, (_, _, shape) in tasks.items() if shape == pod.shape), None)
        name = known or f"t{len(tasks)}"
        count = tasks[name][1] if known else 0
        tasks[name] = (name, count + 1, pod.shape)
    arrivals = [pod.arrival_s for pod in pods if pod.arrival_s is not None]
    lifetimes = [pod.lifetime_s for pod in pods if pod.lifetime_s is not None]
    return Work(
        key=key,
        tasks=tuple(tasks.values()),
        gpu_milli=sum(pod.gpu_milli for pod in pods),
        queue=QueueName(first.queue) if first.queue else QUEUE,
        share_class=first.share_class,
        owner=first.owner,
        labels={key: value for pod in pods for key, value in pod.labels.items()},
        arrival_s=max(arrivals) if len(arrivals) == len(pods) else -1.0,
        lifetime_s=max(lifetimes) if lifetimes else None,
    )
