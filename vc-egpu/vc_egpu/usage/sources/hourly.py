"""Rows of the two tables from the minute series of a span of hours. Pure.

The series of a grant names a share: queue, gang, class, model and node. All other series of that share are
joined to it by namespace, pod, container and card.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from vc_egpu.usage.sources.minutes import (
    CounterHour,
    GaugeHour,
    MinuteSeries,
    counter_hours,
    gauge_hours,
)
from vc_egpu.usage.table.columns import EVICTION_CAUSES, QUEUE, USAGE
from vc_egpu.usage.table.series import GRANT, Kind, Role, Series
from vc_egpu.usage.table.window import moment_of

Told = Mapping[Series, Sequence[MinuteSeries]]
Row = dict[str, Any]
_Key = tuple[str, ...]
_MIB = 1 << 20


def usage_rows(told: Told, cluster: str, hours: range) -> list[Row]:
    """Rows of shares and cards in these hours since 1970. ``cluster``: the name where no label says it."""
    return [*_share_rows(told, cluster, hours), *_card_rows(told, cluster, hours)]


# --- shares ---------------------------------------------------------------------------------------


def _share_rows(told: Told, cluster: str, hours: range) -> Iterable[Row]:
    gauges = _by_value(told, Role.SHARE, Kind.GAUGE, cluster)
    counters = _by_value(told, Role.SHARE, Kind.COUNTER, cluster)
    restarts = _restarts(told, cluster)
    card_memory = _by_value(told, Role.CARD, Kind.GAUGE, cluster).get("card_memory", {})
    for key, hour, named, granted in _named(told.get(GRANT, ()), GRANT, cluster, hours):
        used = _of(gauges, "memory_used", key, hour)
        compute, wait = (_of(counters, value, key, hour) for value in ("compute", "launch_wait"))
        held, suspended = (_of(counters, value, key, hour) for value in ("held", "suspended"))
        card = card_memory.get((key[0], key[-1]), {}).get(hour)
        minutes = used.minutes if used else granted.minutes
        yield _row(USAGE.names(), hour, named) | {
            "cluster": key[0],
            "memory_granted_bytes": granted.highest,
            "card_memory_bytes": card.highest if card else None,
            "memory_used_max_bytes": used.highest if used else None,
            "memory_used_mean_bytes": used.mean if used else None,
            "cores_granted_ratio": cores.highest if (cores := _of(gauges, "cores", key, hour)) else None,
            "compute_used_seconds": compute.growth if compute else None,
            "compute_used_max_ratio": compute.highest_rate if compute else None,
            "held_seconds": held.growth if held else minutes * 60.0,
            "suspended_seconds": suspended.growth if suspended else 0.0,
            "launch_wait_share_seconds": wait.growth if wait else None,
            "minutes_seen": minutes,
            **restarts.get((*key[:-1], str(hour)), {}),
        }


def _restarts(told: Told, cluster: str) -> dict[_Key, Row]:
    """By cluster, namespace, pod, container and hour: restarts, and those by the OOM killer."""
    counts = _by_value(told, Role.RESTART, Kind.COUNTER, cluster).get("restarts", {})
    killed = _by_value(told, Role.RESTART, Kind.GAUGE, cluster).get("oom", {})
    found = {}
    for key, hours in counts.items():
        for hour, count in hours.items():
            last = killed.get(key, {}).get(hour)
            by_oom = count.growth if last and last.highest > 0 else 0.0
            found[*key, str(hour)] = {"restarts": count.growth, "oom_kills": by_oom}
    return found


# --- cards ----------------------------------------------------------------------------------------


def _card_rows(told: Told, cluster: str, hours: range) -> Iterable[Row]:
    gauges = _by_value(told, Role.CARD, Kind.GAUGE, cluster) | _by_value(told, Role.DCGM, Kind.GAUGE, cluster)
    source = next((series for series in told if series.value == "card_memory"), None)
    if source is None:
        return
    for key, hour, named, memory in _named(told[source], source, cluster, hours):
        used, busy = (_of(gauges, value, key, hour) for value in ("memory_used_mib", "utilisation_percent"))
        allocated, cores = (_of(gauges, value, key, hour) for value in ("allocated", "cores"))
        yield _row(USAGE.names(), hour, named) | {
            "cluster": key[0],
            "memory_granted_bytes": allocated.highest if allocated else None,
            "card_memory_bytes": memory.highest,
            "memory_used_max_bytes": used.highest * _MIB if used else None,
            "memory_used_mean_bytes": used.mean * _MIB if used else None,
            "cores_granted_ratio": cores.highest if cores else None,
            "compute_used_seconds": busy.mean / 100 * busy.minutes * 60 if busy else None,
            "compute_used_max_ratio": busy.highest / 100 if busy else None,
            "held_seconds": memory.minutes * 60.0,
            "suspended_seconds": 0.0,
            "minutes_seen": memory.minutes,
        }


# --- queues ---------------------------------------------------------------------------------------


def queue_rows(told: Told, cluster: str, hours: range) -> list[Row]:
    """Rows of queues in these hours since 1970."""
    book = _QueueBook({}, {}, {})
    for series, found in told.items():
        if series.value == "info":
            for one in found:
                book.meet(one, cluster)
    for series, found in told.items():
        if series.role is Role.QUEUE and series.value != "info":
            for one in found:
                where = one.labels.get("cluster") or cluster
                for hour, value in _hours_of(series, one).items():
                    if hour in hours:
                        book.add(series.value, (where, one.labels.get("queue", "")), hour, one.labels, value)
    return book.told()


@dataclass(frozen=True, slots=True)
class _QueueBook:
    """The rows so far by cluster, queue, resource and hour, each queue's parent, and its minutes."""

    rows: dict[tuple[str, str, str, int], Row]
    parents: dict[tuple[str, str], str]
    seen: dict[tuple[str, str, int], int]

    def meet(self, one: MinuteSeries, cluster: str) -> None:
        queue = (one.labels.get("cluster") or cluster, one.labels.get("queue", ""))
        self.parents[queue] = one.labels.get("parent", "")
        for hour, gauge in gauge_hours(one).items():
            self.seen[*queue, hour] = max(self.seen.get((*queue, hour), 0), gauge.minutes)

    def add(
        self,
        value: str,
        queue: tuple[str, str],
        hour: int,
        labels: Mapping[str, str],
        told: GaugeHour | CounterHour,
    ) -> None:
        key = (*queue, labels.get("resource", ""), hour)
        row = self.rows.setdefault(key, _queue_row(*key))
        row["minutes_seen"] = max(row["minutes_seen"], told.minutes)
        if isinstance(told, CounterHour):
            name = f"evicted_{labels.get('cause', '')}" if value == "evicted" else value
            if name in row:
                row[name] += told.growth
        elif value == "waiting_gangs":  # a reason that nobody waits for has no series
            row["waiting"] += told.mean * told.minutes / max(self.seen.get((*queue, hour), 0), told.minutes)
        elif value == "waiting_resources":
            row["waiting"] += told.mean
        else:
            row[value] = told.mean

    def told(self) -> list[Row]:
        for (cluster, queue, _, _), row in self.rows.items():
            row["parent"] = self.parents.get((cluster, queue), "")
        return list(self.rows.values())


def _queue_row(cluster: str, queue: str, resource: str, hour: int) -> Row:
    counts = {f"evicted_{cause}": 0.0 for cause in EVICTION_CAUSES}
    return _row(QUEUE.names(), hour, {}) | counts | {
        "cluster": cluster, "queue": queue, "resource": resource, "waiting": 0.0, "admitted": 0.0,
        "wait_seconds": 0.0, "minutes_seen": 0,
    }  # fmt: skip


# --- joins ----------------------------------------------------------------------------------------


def _hours_of(series: Series, one: MinuteSeries) -> Mapping[int, GaugeHour | CounterHour]:
    return gauge_hours(one) if series.kind is Kind.GAUGE else counter_hours(one)


def _key(series: Series, labels: Mapping[str, str], cluster: str) -> _Key:
    by = series.by[: _KEYS[series.role]]
    return (labels.get("cluster") or cluster, *(labels.get(label, "") for label in by))


_KEYS = {Role.SHARE: 4, Role.RESTART: 3, Role.CARD: 1, Role.DCGM: 1, Role.QUEUE: 2}
"""How many of the labels, from the first on, tell one thing from another."""


def _by_value(told: Told, role: Role, kind: Kind, cluster: str) -> dict[str, dict[_Key, dict[int, Any]]]:
    """By the name of the values and the key: what each hour has."""
    found: dict[str, dict[_Key, dict[int, Any]]] = defaultdict(dict)
    for series, several in told.items():
        if series.role is role and series.kind is kind:
            for one in several:
                found[series.value].setdefault(_key(series, one.labels, cluster), {}).update(
                    _hours_of(series, one)
                )
    return found


def _of(found: Mapping[str, Mapping[_Key, Mapping[int, Any]]], value: str, key: _Key, hour: int) -> Any:
    return found.get(value, {}).get(key, {}).get(hour)


def _named(
    several: Iterable[MinuteSeries], series: Series, cluster: str, hours: range
) -> Iterable[tuple[_Key, int, Mapping[str, str], GaugeHour]]:
    """Each thing and hour with the labels that name it: those seen in most minutes, if they changed."""
    best: dict[tuple[_Key, int], tuple[int, list[tuple[str, str]], GaugeHour, MinuteSeries]] = {}
    for one in several:
        key = _key(series, one.labels, cluster)
        for hour, gauge in gauge_hours(one).items():
            if hour in hours:
                mine = (gauge.minutes, sorted(one.labels.items()), gauge, one)
                before = best.get((key, hour))
                if before is None or mine[:2] > before[:2]:
                    best[key, hour] = mine
    for (key, hour), (_, _, gauge, one) in best.items():
        yield key, hour, one.labels, gauge


def _row(names: Iterable[str], hour: int, labels: Mapping[str, str]) -> Row:
    texts = {column.name for column in (*USAGE.columns, *QUEUE.columns) if column.is_text}
    row: Row = {name: labels.get(name, "") if name in texts else None for name in names}
    row["hour_start"] = moment_of(hour).astimezone(UTC).replace(tzinfo=None)
    return row
