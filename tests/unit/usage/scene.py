"""Two days of a small cluster as minute samples, with services whose idle time, sizes and partners are known.

Each series is a metric, labels, and a function of the minute; None is a minute without a sample.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

GIB: Final = float(1 << 30)
MIB: Final = float(1 << 20)
START: Final = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday."""
DAYS: Final = 2
FIRST_MINUTE: Final = int(START.timestamp()) // 60
MINUTES: Final = DAYS * 24 * 60
CARD: Final = 80 * GIB

Value = Callable[[int], float | None]
"""Of the minute since the start."""


@dataclass(frozen=True, slots=True)
class SceneSeries:
    """One series of the scene."""

    metric: str
    labels: Mapping[str, str]
    value: Value

    def at(self, minute: int) -> float | None:
        """The value at a minute since 1970."""
        since_start = minute - FIRST_MINUTE
        return self.value(since_start) if 0 <= since_start < MINUTES else None


@dataclass(frozen=True, slots=True)
class Service:
    """What one share does: its grant, and by minute its memory in use and the part of time it computes."""

    namespace: str
    pod: str
    uuid: str
    queue: str
    granted: float
    memory: Callable[[int], float]
    busy: Callable[[int], float]
    share_class: str = ""
    cores: float = 0.0
    gang: str = ""
    first: int = 0
    last: int = MINUTES
    gap: range = range(0)
    """Minutes in which nothing was scraped."""
    reset: int = -1
    """The minute in which the agent's counters began again at 0."""
    extra: Mapping[str, Value] = field(default_factory=dict)


def steady(value: float) -> Callable[[int], float]:
    return lambda _minute: value


def by_hour(hours: range | frozenset[int], inside: float, outside: float) -> Callable[[int], float]:
    return lambda minute: inside if minute // 60 % 24 in hours else outside


DAY: Final = frozenset(range(8, 20))
NIGHT: Final = frozenset({*range(21, 24), *range(6)})

SERVICES: Final = (
    Service("lab", "sleeper-7d9f8b6c5b-x2x4z", "GPU-1", "lab", CARD, steady(2 * GIB), steady(0.0)),
    Service(
        "serve", "chat-0", "GPU-2", "serve", CARD, by_hour(DAY, 30 * GIB, 20 * GIB), by_hour(DAY, 0.6, 0.02)
    ),
    Service(
        "serve",
        "batch-0",
        "GPU-3",
        "serve",
        CARD,
        by_hour(NIGHT, 35 * GIB, 10 * GIB),
        by_hour(NIGHT, 0.9, 0.0),
    ),
    Service(
        "train",
        "wide-worker-0",
        "GPU-4",
        "train",
        40 * GIB,
        steady(9 * GIB),
        steady(0.5),
        "low",
        0.8,
        gang="wide-0a1b2c3d-1111-2222-3333-444455556666",
        reset=1000,
    ),
    Service("serve", "fast-0", "GPU-4", "serve", 30 * GIB, steady(25 * GIB), steady(0.3), "high", 0.5),
    Service(
        "train", "young-0", "GPU-5", "train", 20 * GIB, steady(5 * GIB), steady(0.5), first=MINUTES - 300
    ),
    Service("train", "gone-0", "GPU-5", "train", 20 * GIB, steady(5 * GIB), steady(0.5), last=600),
    Service(
        "train", "holey-0", "GPU-5", "train", 20 * GIB, steady(8 * GIB), steady(0.4), gap=range(700, 703)
    ),
)
"""What each shows:

- ``sleeper``: idle from its first hour on; 2 GiB of 80 used.
- ``chat`` and ``batch``: work by day and by night, and both fit on one card.
- ``wide``: 9 of 40 GiB used, half of a card of 0.8; its counters begin again once. It shares with ``fast``.
- ``young``: seen for five hours. ``gone``: ended. ``holey``: three minutes without a scrape.
"""
CARDS: Final = tuple(f"GPU-{number}" for number in range(1, 7))
"""Nothing is ever on the sixth."""


def scene(services: Iterable[Service] = SERVICES) -> list[SceneSeries]:
    """All series."""
    found: list[SceneSeries] = []
    for service in services:
        found += _of_service(service)
    for uuid in CARDS:
        found += _of_card(uuid)
    return [*found, *_of_queues()]


def _of_service(service: Service) -> Iterator[SceneSeries]:
    key = {"namespace": service.namespace, "pod": service.pod, "container": "main", "uuid": service.uuid}
    named = key | {
        "node": f"node-{service.uuid[-1]}", "model": "h20", "queue": service.queue,
        "gang": service.gang or "podgroup-0a1b2c3d-1111-2222-3333-444455556666", "class": service.share_class,
    }  # fmt: skip

    def seen(value: Value) -> Value:
        return lambda m: value(m) if service.first <= m < service.last and m not in service.gap else None

    def counter(rate: Callable[[int], float]) -> Value:
        sums = [0.0]
        for minute in range(MINUTES):
            runs = service.first <= minute < service.last
            sums.append(0.0 if minute == service.reset else sums[-1] + (rate(minute) * 60 if runs else 0.0))
        return seen(lambda minute: sums[minute + 1])

    level2 = key | {"instance": "10.0.0.1:9445"}
    yield SceneSeries("egpu_share_memory_bytes", named, seen(steady(service.granted)))
    yield SceneSeries("egpu_share_cores_ratio", named, seen(steady(service.cores)))
    yield SceneSeries("egpu_node_container_memory_used_bytes", level2, seen(service.memory))
    yield SceneSeries("egpu_node_container_compute_used_seconds_total", level2, counter(service.busy))
    yield SceneSeries("egpu_node_container_share_seconds_total", level2, counter(steady(1.0)))
    yield SceneSeries("egpu_node_container_suspended_seconds_total", level2, counter(steady(0.0)))
    waits = level2 | {"cause": "share"}
    yield SceneSeries("egpu_node_container_launch_wait_seconds_total", waits, counter(steady(0.01)))


def _of_card(uuid: str) -> Iterator[SceneSeries]:
    card = {"node": f"node-{uuid[-1]}", "uuid": uuid, "index": "0", "model": "h20"}
    yield SceneSeries("egpu_card_memory_bytes", card, steady(CARD))
    dcgm = {"UUID": uuid, "gpu": "0", "modelName": "NVIDIA H20", "Hostname": card["node"]}
    yield SceneSeries("DCGM_FI_DEV_FB_USED", dcgm, steady(1024.0))
    yield SceneSeries("DCGM_FI_DEV_GPU_UTIL", dcgm, steady(50.0 if uuid != "GPU-1" else 0.0))


def _of_queues() -> Iterator[SceneSeries]:
    for queue, parent in (("lab", "root"), ("serve", "root"), ("train", "lab")):
        named = {"queue": queue, "parent": parent, "state": "Open"}
        yield SceneSeries("egpu_queue_info", named, steady(1.0))
        for metric, value in (("used", 3.0), ("deserved", 2.0), ("capability", 6.0)):
            labels = {"queue": queue, "resource": "volcano.sh/vgpu-h20"}
            yield SceneSeries(f"egpu_queue_{metric}", labels, steady(value))
    waiting = {"queue": "train", "reason": "WaitingForCards", "class": "low"}
    yield SceneSeries("egpu_queue_waiting_gangs", waiting, lambda m: 2.0 if m < 720 else None)
    for metric, each in (("egpu_gangs_admitted_total", 1.0), ("egpu_gang_wait_seconds_sum", 90.0)):
        labels = {"queue": "train", "class": "low"}
        yield SceneSeries(metric, labels, lambda m, each=each: each * (1 + m // 720))  # type: ignore[misc]
    evicted = {"queue": "train", "class": "low", "cause": "priority"}
    yield SceneSeries("egpu_pods_evicted_total", evicted, lambda m: 4.0 if m >= 1500 else 0.0)


def openmetrics(series: Iterable[SceneSeries], second: int = 15) -> Iterator[str]:
    """The scene as text that ``promtool tsdb create-blocks-from`` takes; samples lie within minutes."""
    families: dict[str, list[SceneSeries]] = {}
    for one in series:
        families.setdefault(one.metric, []).append(one)
    for metric, members in families.items():
        kind = "counter" if metric.endswith("_total") else "gauge"
        yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
        for one in members:
            labels = ",".join(f'{name}="{value}"' for name, value in one.labels.items())
            for minute in range(FIRST_MINUTE, FIRST_MINUTE + MINUTES):
                value = one.at(minute)
                if value is not None:
                    yield f"{metric}{{{labels}}} {value!r} {minute * 60 + second}\n"
    yield "# EOF\n"
