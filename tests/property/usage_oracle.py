"""What the reports must say, in plain Python: loops over rows, nothing shared with the SQL."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from property.usage_worlds import GIB, Row, World

Key = tuple[str, ...]
Found = dict[Key, dict[str, Any]]


def hour_of(row: Row) -> int:
    start: datetime = row["hour_start"]
    return int(start.replace(tzinfo=UTC).timestamp()) // 3600


def capped(value: float | None, most: float) -> float | None:
    return None if value is None else min(value, most)


def part_of(row: Row, charge: str = "dominant") -> float:
    memory: float = row["memory_granted_bytes"] / row["card_memory_bytes"]
    cores: float = row["cores_granted_ratio"] or 0.0
    return min(1.0, {"dominant": max(memory, cores), "memory": memory, "cores": cores}[charge])


def held_of(row: Row) -> float:
    return min(float(row["held_seconds"]), 3600.0)


def suspended_of(row: Row) -> float:
    return min(row["suspended_seconds"] or 0.0, held_of(row))


def active_of(row: Row) -> float:
    return held_of(row) - suspended_of(row)


def service_key(row: Row) -> Key:
    return (row["cluster"], row["namespace"], row["pod"].rpartition("-")[0], row["container"], row["model"])


def shares(world: World) -> list[Row]:
    return [row for row in world.usage if row["pod"]]


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


# --- idle -----------------------------------------------------------------------------------------


def is_told(rows: list[Row]) -> bool:
    names = ("compute_used_seconds", "memory_used_max_bytes", "memory_used_mean_bytes")
    return all(row[name] is not None for row in rows for name in names)


def compute_of(rows: list[Row]) -> float | None:
    told = [capped(row["compute_used_seconds"], 3600.0) for row in rows]
    known = [value for value in told if value is not None]
    return math.fsum(known) if known else None


def idles(rows: list[Row]) -> bool:
    """Whether the shares of one service idled in one hour."""
    if not is_told(rows):
        return False
    for row in rows:
        if row["memory_used_max_bytes"] - row["memory_used_mean_bytes"] > 0.01 * row["memory_granted_bytes"]:
            return False
    return (compute_of(rows) or 0.0) < 0.01 * sum(map(active_of, rows))


def idle_services(world: World) -> Found:
    found: Found = {}
    for key, rows in grouped(shares(world), service_key).items():
        hours = {hour: of for hour, of in grouped(rows, hour_of).items() if sum(map(active_of, of)) > 0}
        idle = {hour for hour, of in hours.items() if idles(of)}
        if sum(held_of(row) for hour in idle for row in hours[hour]) < 3600.0:
            continue
        busy = [hour for hour in hours if hour not in idle]
        since = [hour for hour in idle if hour > max(busy, default=-1)]
        held = math.fsum(part_of(row) * active_of(row) for of in hours.values() for row in of)
        active = math.fsum(active_of(row) for of in hours.values() for row in of)
        found[key] = {
            "held_card_hours": held / 3600,
            "idle_card_hours": math.fsum(part_of(r) * active_of(r) for h in idle for r in hours[h]) / 3600,
            "idle_ratio": math.fsum(active_of(row) for hour in idle for row in hours[hour]) / active,
            "idle_since_index": min(since, default=None),
            "minutes_missing": sum(60 - max(row["minutes_seen"] for row in of) for of in hours.values()),
        }
    return found


def idle_gangs(world: World) -> Found:
    """By cluster, namespace and gang: hours since it worked last, if it idled in the last hour."""
    until = int(world.window.until.timestamp()) // 3600
    found: Found = {}
    low = [row for row in shares(world) if row["class"] == "low" and row["gang"] and active_of(row) > 0]
    for key, rows in grouped(low, lambda row: (row["cluster"], row["namespace"], row["gang"])).items():
        hours = grouped(rows, hour_of)
        idle = sorted(hours)
        while any(not idles(hours[hour]) for hour in idle):
            del idle[0]
        if idle and idle[-1] >= until - 1:
            found[key] = {
                "idle_hours": len(idle),
                "idle_card_hours": math.fsum(part_of(r) * active_of(r) for h in idle for r in hours[h])
                / 3600,
                "idle_since_index": idle[0],
            }
    return found


def idle_windows(world: World) -> Found:
    """By service, weekday and hour in UTC."""
    sums: dict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0])
    wanted = idle_services(world)
    for key, rows in grouped(shares(world), service_key).items():
        for of in grouped(rows, hour_of).values():
            active = sum(map(active_of, of))
            if key in wanted and active > 0:
                start: datetime = of[0]["hour_start"]
                cell = sums[*key, str(start.isoweekday()), str(start.hour)]
                cell[0] += active
                cell[1] += active if idles(of) else 0.0
    return {key: {"held_hours": held / 3600, "idle_ratio": idle / held} for key, (held, idle) in sums.items()}


# --- cards ----------------------------------------------------------------------------------------


def cards(world: World) -> dict[tuple[str, str, int], dict[str, Any]]:
    """By cluster, card and hour: its seconds, and its shares."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for key, rows in grouped(world.usage, lambda row: (row["cluster"], row["uuid"], hour_of(row))).items():
        own = [row for row in rows if not row["pod"]]
        on_it = [row for row in rows if row["pod"]]
        seen = max((min(3600.0, row["held_seconds"]) for row in own), default=0.0)
        found[key] = {
            "seconds": max([seen, *map(held_of, on_it)]),
            "shares": on_it,
            "model": rows[0]["model"],
            "node": rows[0]["node"],
            "compute": max(
                (capped(r["compute_used_seconds"], 3600.0) for r in own), default=None, key=lambda v: v or 0
            ),
        }
    return found


def idle_cards(world: World) -> Found:
    sums: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (cluster, uuid, _), card in cards(world).items():
        if card["seconds"] == 0:
            continue
        row = sums[cluster, card["node"], uuid]
        row["card_hours"] += card["seconds"] / 3600
        compute = card["compute"] if card["compute"] is not None else compute_of(card["shares"]) or 0.0
        if not card["shares"]:
            row["free_hours"] += card["seconds"] / 3600
        elif compute < 0.01 * card["seconds"]:
            row["granted_idle_hours"] += card["seconds"] / 3600
        demand = sum(part_of(share) * active_of(share) for share in card["shares"])
        row["granted_card_hours"] += min(demand, card["seconds"]) / 3600
    names = ("card_hours", "free_hours", "granted_idle_hours", "granted_card_hours")
    return {key: {name: row[name] for name in names} for key, row in sums.items()}


# --- right sizes ----------------------------------------------------------------------------------


def right_sizes(world: World) -> Found:
    until = int(world.window.until.timestamp()) // 3600
    found: Found = {}
    for key, rows in grouped(shares(world), service_key).items():
        found[key] = _right_size(rows, until, world.window.hours)
    return found


def _right_size(rows: list[Row], until: int, window_hours: int) -> dict[str, Any]:
    hours = grouped(rows, hour_of)
    last = hours[max(hours)]
    granted = max(row["memory_granted_bytes"] for row in last)
    cores = max(row["cores_granted_ratio"] or 0.0 for row in last)
    card = max(row["card_memory_bytes"] for row in rows)
    most = max(
        (r["memory_used_max_bytes"] for r in rows if r["memory_used_max_bytes"] is not None), default=None
    )
    seen = sum(max(row["minutes_seen"] for row in of) for of in hours.values()) / 60
    held = math.fsum(map(held_of, rows))
    seen_ratio = min(1.0, sum(row["minutes_seen"] for row in rows) * 60 / held)
    waited = math.fsum(row["launch_wait_share_seconds"] or 0.0 for row in rows) / held
    restarts, ooms = (sum(row[name] or 0.0 for row in rows) for name in ("restarts", "oom_kills"))
    memory: float | None = None
    wanted: float | None = None
    if most is None:
        advice = "not measured"
    elif max(hours) < until - 24:
        advice = "ended"
    elif seen < 24 or seen_ratio < 0.95:
        advice = "too little seen"
    else:
        memory = math.ceil(max(most * (1.3 if restarts else 1.15), most + GIB / 2) / GIB) * GIB
        if memory > card:
            memory = max(card, most)
        if ooms:
            memory = max(memory, granted)
        wanted = _cores(hours, until, cores, waited)
        grows = memory > granted or (wanted is not None and wanted > cores)
        shrinks = memory < granted or (wanted is not None and wanted < cores)
        advice = "grow" if grows else "shrink" if shrinks else "keep"
    saved = 0.0
    if memory is not None:
        after = min(1.0, max(memory / card, cores if wanted is None else wanted))
        saved = (min(1.0, max(granted / card, cores)) - after) * held / 3600 * 168 / window_hours
    return {
        "advice": advice,
        "memory_proposed_bytes": memory,
        "cores_proposed_ratio": wanted,
        "hours_seen": seen,
        "confidence_ratio": 1 / (1 + 24 / seen),
        "saved_card_hours_per_week": saved,
        "hours_exceeded": 0,
    }


def _cores(hours: dict[int, list[Row]], until: int, cores: float, waited: float) -> float | None:
    weights: dict[float, float] = defaultdict(float)
    for hour, rows in hours.items():
        told = [
            capped(r["compute_used_max_ratio"], 1.0) for r in rows if r["compute_used_max_ratio"] is not None
        ]
        if told:
            weights[max(value for value in told if value is not None)] += 0.5 ** ((until - hour) / 24)
    if not cores or not weights:
        return None
    total, up_to = math.fsum(weights.values()), 0.0
    percentile = max(weights)
    for value in sorted(weights):
        up_to += weights[value]
        if up_to >= 0.95 * total * (1 - 1e-9):
            percentile = value
            break
    wanted = max(0.01, min(1.0, math.ceil(percentile * 1.15 * 100 - 1e-6) / 100))
    return max(wanted, cores) if waited > 0.05 else wanted


# --- gains ----------------------------------------------------------------------------------------


def gains(world: World) -> Found:
    sums: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (cluster, _, _), card in cards(world).items():
        on_it = card["shares"]
        if not on_it:
            continue
        unshared, used = sum(map(held_of, on_it)), max(map(held_of, on_it))
        saved = unshared - used
        suspension = min(sum(map(suspended_of, on_it)), saved)
        oversold = min(max(promised_of(on_it) - card["seconds"], 0.0), saved - suspension)
        high = any(share["class"] == "high" and active_of(share) > 0 for share in on_it)
        low = sum(active_of(share) for share in on_it if share["class"] == "low")
        together = min(low, saved - suspension - oversold) if high else 0.0
        row = sums[cluster, card["model"]]
        for name, value in (
            ("unshared", unshared), ("used", used), ("saved", saved), ("by_suspension", suspension),
            ("by_oversubscription", oversold), ("by_colocation", together),
            ("by_slicing", saved - suspension - oversold - together),
        ):  # fmt: skip
            row[f"{name}_card_hours"] += value / 3600
    return {key: dict(row) for key, row in sums.items()}


def promised_of(on_it: Sequence[Row]) -> float:
    """Seconds of a card that its shares were promised: its memory, or the compute of one of the two sides."""
    low = [share for share in on_it if share["class"] == "low"]
    first = [share for share in on_it if share["class"] != "low"]
    return max(
        sum(part_of(share, "memory") * active_of(share) for share in on_it),
        *(
            sum((share["cores_granted_ratio"] or 0.0) * active_of(share) for share in side)
            for side in (low, first)
        ),
    )


# --- costs ----------------------------------------------------------------------------------------


def charges(world: World, price: Callable[[str, str, str], tuple[float, float, float, float]]) -> Found:
    """By cluster, queue, namespace, service and model.

    ``price``: model, node, category to list and contracted price, rate and rate of suspended time.
    """
    sums: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (cluster, _, _), card in cards(world).items():
        rest = card["seconds"]
        first = [share for share in card["shares"] if share["class"] != "low"]
        low = [share for share in card["shares"] if share["class"] == "low"]
        promised = promised_of(card["shares"])
        for group in (first, low):
            asked = sum(part_of(share) * active_of(share) for share in group)
            scale = min(1.0, rest / asked) if asked else 0.0
            for share in group:
                category = (
                    "low" if share["class"] == "low"
                    else "oversold" if promised > card["seconds"]
                    else "reserved" if part_of(share) >= 1 else "shared"
                )  # fmt: skip
                key = (
                    cluster,
                    share["queue"],
                    share["namespace"],
                    share["pod"].rpartition("-")[0],
                    card["model"],
                )
                active, suspended = part_of(share) * active_of(share), part_of(share) * suspended_of(share)
                _charge(sums[key], active * scale, suspended, price(card["model"], card["node"], category))
                sums[key]["requested_card_hours"] += part_of(share) * active_of(share) / 3600
            rest = max(rest - asked, 0.0)
        _charge(
            sums[cluster, "__idle__", "", "", card["model"]],
            rest,
            0.0,
            price(card["model"], card["node"], "idle"),
        )
    return {key: dict(row) for key, row in sums.items()}


def _charge(
    row: dict[str, float], seconds: float, suspended: float, price: tuple[float, float, float, float]
) -> None:
    listed, contracted, rate, suspended_rate = price
    row["charged_card_hours"] += seconds / 3600
    row["list_cost"] += seconds / 3600 * listed
    row["contracted_cost"] += seconds / 3600 * contracted
    row["billed_cost"] += (seconds * rate + suspended * suspended_rate) / 3600 * contracted


# --- pairs ----------------------------------------------------------------------------------------


def pairs(world: World, host_bytes: float) -> list[tuple[Key, Key, str, int, float]]:
    """One service, the other, how they fit, hours of conflict, card-hours saved in a week; best first."""
    until = int(world.window.until.timestamp()) // 3600
    span = min(world.window.hours, 168)
    candidates = {}
    for key, rows in grouped(shares(world), service_key).items():
        hours = {
            h: of
            for h, of in grouped(rows, hour_of).items()
            if h >= until - span and sum(map(held_of, of)) > 0
        }
        busy = {h for h, of in hours.items() if (compute_of(of) or 0.0) > 0.1 * sum(map(active_of, of))}
        if not busy or not all(is_told(of) for of in hours.values()) or max(hours) < until - 24:
            continue
        if min(max(map(part_of, of)) for of in hours.values()) < 0.5:
            continue
        if sum(max(row["minutes_seen"] for row in of) for of in hours.values()) < 0.95 * 60 * span:
            continue
        kept = [row for of in hours.values() for row in of]
        low = max(row["class"] for row in grouped(rows, hour_of)[max(hours)]) == "low"
        most = max(row["memory_used_max_bytes"] for row in kept)
        card = max(row["card_memory_bytes"] for row in kept)
        candidates[key] = (busy, most, card, low, sum(map(active_of, kept)) / 3600 / len(hours))
    found = []
    for one, other in itertools.combinations(sorted(candidates), 2):
        first, second = candidates[one], candidates[other]
        both = len(first[0] & second[0])
        how = _how(first, second, host_bytes)
        if (
            one[0] == other[0]
            and one[4] == other[4]
            and how
            and both <= 0.05 * min(len(first[0]), len(second[0]))
        ):
            found.append((one, other, how, both, min(first[4], second[4]) * 168))
    chosen, taken = [], set[Key]()
    for pair in sorted(found, key=lambda pair: (-pair[4], pair[3], pair[0], pair[1])):
        if not taken & {pair[0], pair[1]}:
            chosen.append(pair)
            taken |= {pair[0], pair[1]}
    return chosen


def _how(one: tuple[Any, ...], other: tuple[Any, ...], host_bytes: float) -> str:
    (_, most1, card1, low1, _), (_, most2, card2, low2, _) = one, other
    card = min(card1, card2)
    if max(most1, most2) > card:
        return ""
    if most1 + most2 <= card:
        return "share"
    if any(low and most <= host_bytes for most, low in ((most1, low1), (most2, low2))):
        return "suspension"
    return "spill" if most1 + most2 - card <= host_bytes else ""


# --- queues ---------------------------------------------------------------------------------------


def queue_shares(world: World) -> Found:
    found: Found = {}
    for key, rows in grouped(
        [r for r in world.queues if r["resource"]], lambda r: (r["queue"], r["resource"])
    ).items():
        deserving = [row for row in rows if row.get("deserved")]
        found[key] = {
            "used": sum(row["used"] for row in rows) / len(rows),
            "used_of_deserved_ratio": sum(r["used"] for r in deserving)
            / sum(r["deserved"] for r in deserving)
            if deserving
            else None,
            "hours_above_deserved": sum(row["used"] > row["deserved"] for row in deserving),
            "hours_below_deserved_and_waiting": sum(
                row["used"] < row["deserved"] and row["waiting"] > 0 for row in deserving
            ),
        }
    return found


def queue_waits(world: World) -> Found:
    found: Found = {}
    for key, rows in grouped([r for r in world.queues if not r["resource"]], lambda r: (r["queue"],)).items():
        admitted = sum(row["admitted"] for row in rows)
        found[key] = {
            "admitted": admitted,
            "mean_wait_seconds": sum(row["wait_seconds"] for row in rows) / admitted if admitted else None,
            "evicted_node": sum(row["evicted_node"] for row in rows),
            "evicted_priority": sum(row["evicted_priority"] for row in rows),
        }
    return found
