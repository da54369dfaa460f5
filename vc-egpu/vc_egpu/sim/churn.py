"""The openb traces with departures: as dense as the cards allow, so that pods wait.

At its own times the trace never loads its cluster. So its last 39 days come over and over, with shorter gaps:
on average ``load`` times the cards are asked for. Pods run as long as they did, six hours at most. They queue
in the order in which they came, and smaller ones overtake. The first hours are not measured.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Final

from vc_egpu.core.model.cluster import Node
from vc_egpu.sim.load import Load, Work
from vc_egpu.sim.openb import KNOWS_THE_MIX, mix_of
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import CARD_MILLI, PodRow, TableError, nodes_of, pods_of, renamed

_DAYS: Final = 39
_DAY_S: Final = 86_400.0
_LONGEST_S: Final = 6 * 3600.0
_SHORTEST_GAP_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Hours:
    """How long a run is."""

    warm_up: float = 6.0
    measured: float = 6.0
    round_s: float = 10.0
    """Pods that wait are tried again so often."""


@dataclass(slots=True)
class _Means:
    """Averages over time, from the end of the warm-up on."""

    since_s: float
    last_s: float = 0.0
    held: float = 0.0
    waiting: float = 0.0
    held_milli: int = 0
    waiting_milli: int = 0

    def look(self, replay: Replay) -> None:
        """Something happened: until now all was as it was after the last look."""
        now = replay.world.now
        span_s = max(0.0, now - max(self.last_s, self.since_s))
        self.held += self.held_milli * span_s
        self.waiting += self.waiting_milli * span_s
        self.last_s = now
        self.held_milli = replay.totals.held_milli
        self.waiting_milli = replay.waiting_milli

    @property
    def span_s(self) -> float:
        return max(1e-9, self.last_s - self.since_s)


def measure(
    folder: Path, run: tuple[str, float, int], policy: str, part: float = 1.0, hours: Hours | None = None
) -> dict[str, float]:
    """One run of (trace, load, seed) on ``part`` of the nodes.

    ``allocation`` in percent and ``gpu_wait`` in cards asked for by pods that wait, both averaged over time;
    ``multi_gpu_wait_p99`` in seconds. Raises :class:`TableError`.
    """
    name, load, seed = run
    hours = hours or Hours()
    nodes = some_nodes(folder, part, seed)
    pods = pods_of(folder / f"pods-{name}.csv.gz")
    cards_milli = CARD_MILLI * sum(len(node.cards) for node in nodes)
    end_s = 3600 * (hours.warm_up + hours.measured)
    works = dense(pods, load * cards_milli, end_s, seed)
    terms = Terms(
        policy,
        round_s=hours.round_s,
        only_with_room=True,
        mix=mix_of(pods) if policy in KNOWS_THE_MIX else None,
        preemption=False,
        until_s=end_s,
    )
    means = _Means(3600 * hours.warm_up)
    replay = Replay(Load(tuple(nodes), works), terms)
    replay.run(means.look)
    means.look(replay)
    waits = sorted(multi_gpu_waits(replay, means.since_s))
    return {
        "allocation": 100 * means.held / means.span_s / cards_milli,
        "gpu_wait": means.waiting / means.span_s / CARD_MILLI,
        "multi_gpu_wait_p99": waits[min(len(waits) - 1, len(waits) * 99 // 100)] if waits else 0.0,
    }


def some_nodes(folder: Path, part: float, seed: int) -> list[Node]:
    """So many nodes of each kind, at least one: pods that name models find their part. Raises
    :class:`TableError`."""
    nodes = sorted(nodes_of(folder / "nodes.csv.gz"), key=lambda node: node.name)
    dice = random.Random(seed)  # noqa: S311 - a simulation
    kinds: dict[tuple[str, ...], list[int]] = {}
    for number, node in enumerate(nodes):
        kinds.setdefault(tuple(card.model for card in node.cards), []).append(number)
    chosen: list[int] = []
    for _, numbers in sorted(kinds.items()):
        dice.shuffle(numbers)
        chosen += numbers[: max(1, round(part * len(numbers)))]
    dice.shuffle(chosen)
    return renamed(nodes, chosen)


def dense(pods: Sequence[PodRow], load_milli: float, end_s: float, seed: int) -> tuple[Work, ...]:
    """The pods over and over until ``end_s``, so that ``load_milli`` thousandths of a card are asked for."""
    timed = sorted((pod.arrival_s, pod.name, pod) for pod in pods if pod.arrival_s is not None)
    if not timed:
        raise TableError("pods without creation_time cannot come and go")
    recent = [pod for arrival_s, _, pod in timed if arrival_s >= timed[-1][0] - _DAYS * _DAY_S]
    gaps = [
        max(_SHORTEST_GAP_S, (later.arrival_s or 0.0) - (first.arrival_s or 0.0))
        for first, later in pairwise(recent)
    ]
    gaps.append(sum(gaps) / max(1, len(gaps)) or 1.0)
    work_milli_s = sum(pod.gpu_milli * _lifetime_s(pod) for pod in recent)
    factor = work_milli_s / load_milli / sum(gaps)
    start = random.Random(seed).randrange(len(recent))  # noqa: S311 - a simulation
    now, works = 0.0, list[Work]()
    for number in count():
        at = (start + number) % len(recent)
        pod = recent[at]
        works.append(
            Work(
                f"pod/{number}",
                (("t0", 1, pod.shape),),
                pod.gpu_milli,
                arrival_s=now,
                lifetime_s=_lifetime_s(pod),
            )
        )
        now += gaps[at] * factor
        if now >= end_s:
            return tuple(works)
    raise AssertionError


def _lifetime_s(pod: PodRow) -> float:
    return min(_LONGEST_S, pod.lifetime_s or 0.0)


def multi_gpu_waits(replay: Replay, since_s: float) -> list[float]:
    """Seconds that each pod of several cards waited which came after ``since_s``, until now at most."""
    waits = [wait for arrival_s, milli, wait in replay.waits if milli > CARD_MILLI and arrival_s >= since_s]
    now = replay.world.now
    still = [work for work, _ in replay.waiting.values() if work.gpu_milli > CARD_MILLI]
    return waits + [now - work.arrival_s for work in still if work.arrival_s >= since_s]
