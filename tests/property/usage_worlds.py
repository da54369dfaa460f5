"""Small random worlds of hourly rows: services on cards for days, with holes, restarts and full cards."""

import random
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from vc_egpu.usage.table.columns import EVICTION_CAUSES
from vc_egpu.usage.table.window import Window

GIB = 1 << 30
Row = dict[str, Any]
START = datetime(2026, 11, 2, tzinfo=UTC)


@dataclass(frozen=True)
class World:
    """All that a report reads."""

    window: Window
    usage: list[Row]
    queues: list[Row]


@dataclass(frozen=True)
class _Service:
    namespace: str
    name: str
    queue: str
    share_class: str
    granted: float
    cores: float | None
    highest: float
    busy_hours: frozenset[int]
    first: int
    last: int
    measured: bool
    is_steady: bool
    """Held all the time, seen all the time, with work by day or by night."""


_DAY = frozenset(range(8, 18))
_NIGHT = frozenset({*range(20, 24), *range(5)})


def world(seed: int) -> World:
    """The world of a seed."""
    draw = random.Random(seed)
    steady = draw.random() < 0.4
    hours = 200 if steady else draw.choice((5, 30, 60, 200))
    window = Window(START, START + timedelta(hours=hours))
    usage: list[Row] = []
    for cluster in ("one", "two")[: draw.randint(1, 2)]:
        cards = [
            (
                f"node-{draw.randint(1, 2)}",
                f"GPU-{number}",
                draw.choice(("h20", "l4")),
                (80 if steady else draw.choice((24, 80))) * GIB,
            )
            for number in range(draw.randint(1, 3))
        ]
        for card in cards:
            usage += _card_rows(draw, cluster, card, hours)
        for number in range(draw.randint(1, 4)):
            service = _steady(draw, number, hours) if steady else _service(draw, number, hours)
            for replica in range(draw.choice((1, 1, 2))):
                usage += _share_rows(draw, cluster, draw.choice(cards), service, replica)
    draw.shuffle(usage)
    return World(window, usage, _queue_rows(draw, hours))


def _card_rows(draw: random.Random, cluster: str, card: tuple[str, str, str, int], hours: int) -> list[Row]:
    rows = []
    for hour in range(hours):
        if draw.random() < 0.05:
            continue  # the scrape of the card was missed
        minutes = 60 if draw.random() < 0.8 else draw.randint(1, 59)
        rows.append(
            _base(cluster, card, hour)
            | {"held_seconds": minutes * 60.0, "minutes_seen": minutes, "suspended_seconds": 0.0}
            | {"compute_used_seconds": draw.choice((None, 0.0, draw.uniform(0, 3700)))}
        )
    return rows


def _service(draw: random.Random, number: int, hours: int) -> _Service:
    granted = draw.choice((4, 12, 24, 80)) * GIB
    first = draw.randint(0, hours // 2)
    return _Service(
        namespace=draw.choice(("red", "blue")),
        name=f"service{number}",
        queue=draw.choice(("red", "red-sub", "blue")),
        share_class=draw.choice(("", "low", "high")),
        granted=float(granted),
        cores=draw.choice((None, 0.0, 0.25, 0.5, 1.0)),
        highest=draw.uniform(0.1, 1.1) * granted,
        busy_hours=frozenset(hour for hour in range(24) if draw.random() < draw.choice((0.0, 0.3, 0.9))),
        first=first,
        last=draw.choice((hours - 1, draw.randint(first, hours - 1))),
        measured=draw.random() < 0.9,
        is_steady=False,
    )


def _steady(draw: random.Random, number: int, hours: int) -> _Service:
    extra = frozenset({draw.randint(0, 23)}) if draw.random() < 0.3 else frozenset[int]()
    return _Service(
        namespace="red",
        name=f"service{number}",
        queue="red",
        share_class=draw.choice(("", "low")),
        granted=80.0 * GIB,
        cores=0.0,
        highest=draw.choice((30.0, 45.0, 60.0, 75.0)) * GIB if draw.random() < 0.8 else 15.5 * GIB,
        busy_hours=draw.choice((_DAY, _NIGHT)) | extra,
        first=0,
        last=hours - 1,
        measured=True,
        is_steady=True,
    )


def _share_rows(
    draw: random.Random, cluster: str, card: tuple[str, str, str, int], service: _Service, replica: int
) -> list[Row]:
    rows = []
    granted = min(service.granted, float(card[3]))
    for hour in range(service.first, service.last + 1):
        if draw.random() < 0.03 and not service.is_steady:
            continue
        held = 3600.0 if draw.random() < 0.9 or service.is_steady else draw.uniform(1, 3650)
        suspended = draw.choice((0.0, 0.0, 0.0, draw.uniform(0, held / 2)))
        busy = hour % 24 in service.busy_hours
        compute = draw.uniform(0.2, 0.9) * held if busy else draw.choice((0.0, 0.0, draw.uniform(0, 20)))
        used = min(draw.uniform(0.2, 1.0) if busy else 0.3, 1.0) * min(service.highest, 1.1 * granted)
        told = service.measured or draw.random() < 0.5
        rows.append(
            _base(cluster, card, hour)
            | {
                "namespace": service.namespace,
                "queue": service.queue,
                "gang": f"podgroup-{uuid.uuid5(uuid.NAMESPACE_DNS, service.name)}",
                "pod": f"{service.name}-{replica}",
                "container": "main",
                "class": service.share_class,
                "memory_granted_bytes": granted,
                "memory_used_max_bytes": used if told else None,
                "memory_used_mean_bytes": used * draw.choice((1.0, 0.999, 0.9)) if told else None,
                "cores_granted_ratio": service.cores,
                "compute_used_seconds": compute if told else None,
                "compute_used_max_ratio": draw.uniform(0, 1.1) if told else None,
                "held_seconds": held,
                "suspended_seconds": suspended,
                "minutes_seen": 60 if draw.random() < 0.97 else draw.randint(1, 60),
                "launch_wait_share_seconds": draw.choice((None, 0.0, draw.uniform(0, 400))),
                "restarts": draw.choice((None, *[0.0] * 60, 1.0)),
                "oom_kills": draw.choice((None, *[0.0] * 80, 1.0)),
            }
        )
    return rows


def _base(cluster: str, card: tuple[str, str, str, int], hour: int) -> Row:
    node, uuid, model, memory = card
    empty = dict.fromkeys(("namespace", "queue", "gang", "pod", "container", "class"), "")
    return empty | {
        "cluster": cluster,
        "node": node,
        "uuid": uuid,
        "model": model,
        "hour_start": START + timedelta(hours=hour),
        "card_memory_bytes": float(memory),
    }


def _queue_rows(draw: random.Random, hours: int) -> list[Row]:
    rows = []
    parents = {"red": "root", "red-sub": "red", "blue": ""}
    for queue, parent in parents.items():
        for resource in ("", "volcano.sh/vgpu-h20"):
            for hour in range(hours):
                if draw.random() < 0.1:
                    continue
                row: Row = {
                    "cluster": "one",
                    "queue": queue,
                    "parent": parent,
                    "resource": resource,
                    "hour_start": START + timedelta(hours=hour),
                    "waiting": draw.choice((0.0, draw.uniform(0, 5))),
                    "minutes_seen": 60,
                }
                if resource:
                    row |= {
                        "used": draw.uniform(0, 8),
                        "deserved": draw.choice((None, 0.0, draw.uniform(0, 8))),
                    }
                else:
                    row |= {"admitted": float(draw.randint(0, 3)), "wait_seconds": draw.uniform(0, 900)}
                    row |= {f"evicted_{cause}": float(draw.randint(0, 2)) for cause in EVICTION_CAUSES}
                rows.append(row)
    return rows
