"""The whole report: all tables of one window, and sentences on what they rest on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from vc_egpu.usage.reports.clusters import Clusters, rows_of
from vc_egpu.usage.reports.pairs import Candidate, Pair, candidates_of, pairs
from vc_egpu.usage.reports.prices import BILLING_COLUMNS, PRICE_COLUMNS, Prices
from vc_egpu.usage.reports.settings import COLUMNS, Settings
from vc_egpu.usage.table.columns import Column
from vc_egpu.usage.table.database import Database
from vc_egpu.usage.table.services import kind_of, service_of
from vc_egpu.usage.table.window import Window, calendar, moment_of, text_of

SCRIPTS: Final = (
    "01_hours.sql",
    "02_idle.sql",
    "03_right_size.sql",
    "04_gains.sql",
    "05_pairs.sql",
    "06_costs.sql",
    "07_tenants.sql",
    "08_focus.sql",
)
TABLES: Final = (
    "summary",
    "clusters",
    "idle_services",
    "idle_windows",
    "idle_gangs",
    "idle_cards",
    "right_sizes",
    "gains",
    "gains_by_hour",
    "pairs",
    "showback",
    "queue_shares",
    "queue_waits",
)
"""The tables of a report, in the order in which people read them."""
OF_ALL_TENANTS: Final = frozenset({"summary", "clusters", "idle_cards", "gains", "gains_by_hour"})
"""Tables about cards that tenants share: a tenant's report has none of them."""
_MOST_WINDOWS: Final = 50
"""Idle hours by weekday are shown for so many services."""
_CALENDAR: Final = (
    Column("hour_start", "TIMESTAMP"),
    Column("hour_index", "BIGINT"),
    Column("local_hour", "BIGINT"),
    Column("local_weekday", "BIGINT"),
    Column("utc_day", "VARCHAR"),
)
_SERVICES: Final = tuple(Column(name, "VARCHAR") for name in ("gang", "pod", "service", "kind"))
_TENANTS: Final = tuple(Column(name, "VARCHAR") for name in ("cluster", "queue", "tenant"))
_ROOT: Final = "root"

_MADE_IN_PYTHON: Final = frozenset({"summary", "clusters", "idle_windows", "pairs"})

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Report:
    """One report. Times in its tables are texts in UTC; memory is in bytes, and names carry their units."""

    window: Window
    zone: str
    currency: str
    tenant: str
    """The only tenant that it tells of; empty for all."""
    notes: tuple[str, ...]
    tables: Mapping[str, Rows]
    clusters: Clusters | None = None
    """Which clusters the sums are over; None: one source was read, and nothing is known of others."""


def prepare(database: Database, window: Window, zone: ZoneInfo, settings: Settings, prices: Prices) -> None:
    """Make all tables of the SQL from ``usage_hourly`` and ``queue_hourly``."""
    hours = [
        {
            "hour_start": hour.start.replace(tzinfo=None),
            "hour_index": hour.index,
            "local_hour": hour.local_hour,
            "local_weekday": hour.local_weekday,
            "utc_day": hour.utc_day,
        }
        for hour in calendar(window, zone)
    ]
    database.fill("calendar", _CALENDAR, hours)
    database.fill("settings", COLUMNS, [replace(settings, currency=prices.currency).row(window)])
    named = database.rows("SELECT DISTINCT gang, pod FROM usage_hourly WHERE pod <> ''")
    database.fill("services", _SERVICES, [row | _service(row["gang"], row["pod"]) for row in named])
    database.fill(
        "tenants",
        _TENANTS,
        _tenants(database.rows("SELECT DISTINCT cluster, queue, parent FROM queue_hourly")),
    )
    nodes = database.rows("SELECT DISTINCT cluster, node FROM usage_hourly")
    database.fill(
        "billings", BILLING_COLUMNS, [row | {"billing": prices.billing(row["node"])} for row in nodes]
    )
    models = [row["model"] for row in database.rows("SELECT DISTINCT model FROM usage_hourly")]
    database.fill("prices", PRICE_COLUMNS, prices.rows(models))
    for script in SCRIPTS:
        database.script(script)


def report(
    database: Database,
    window: Window,
    zone: ZoneInfo,
    settings: Settings,
    prices: Prices,
    *,
    tenant: str = "",
    notes: Sequence[str] = (),
    clusters: Clusters | None = None,
) -> Report:
    """The report of a database whose ``usage_hourly`` and ``queue_hourly`` are filled."""
    prepare(database, window, zone, settings, prices)
    found = pairs(
        candidates_of(
            database.rows("SELECT * FROM pair_candidates"), database.rows("SELECT * FROM pair_busy_hours")
        ),
        settings,
    )
    tables: dict[str, Rows] = {"pairs": [_pair_row(pair, zone) for pair in found]}
    for table in TABLES:
        if table not in _MADE_IN_PYTHON:
            tables[table] = database.rows(f"SELECT * FROM {table}")  # noqa: S608 - names of ours
    tables["idle_windows"] = _windows_of(database, tenant)
    said = [*notes, *_notes(database, prices)]
    tables["summary"] = [_summary(database, tables)]
    if clusters is not None:
        tables["summary"][0] |= clusters.in_short()
        tables["clusters"] = rows_of(database, clusters)
    if tenant:
        tables = {
            name: _of_tenant(rows, tenant) for name, rows in tables.items() if name not in OF_ALL_TENANTS
        }
    ordered: dict[str, Rows] = {
        name: [_readable(row) for row in tables[name]] for name in TABLES if name in tables
    }
    return Report(window, zone.key, prices.currency, tenant, tuple(said), ordered, clusters)


def _tenants(queues: Iterable[Mapping[str, Any]]) -> Rows:
    """The topmost queue below the root of each queue. Parents in a ring stop at the first."""
    parents = {(row["cluster"], row["queue"]): row["parent"] for row in queues if row["parent"]}
    rows = []
    for (cluster, queue), first in parents.items():
        seen, top, parent = {queue}, queue, first
        while parent not in {"", _ROOT} and parent not in seen:
            seen.add(parent)
            top, parent = parent, parents.get((cluster, parent), "")
        rows.append({"cluster": cluster, "queue": queue, "tenant": top})
    return rows


def _service(gang: str, pod: str) -> dict[str, str]:
    return {"service": service_of(gang, pod), "kind": kind_of(gang, pod)}


def _windows_of(database: Database, tenant: str) -> Rows:
    """The windows of the services that idle most."""
    return database.rows(
        "SELECT w.* FROM idle_windows w JOIN (SELECT * FROM idle_services WHERE $1 = '' OR tenant = $1 "
        "ORDER BY idle_card_hours DESC LIMIT $2) s ON s.cluster = w.cluster AND s.namespace = w.namespace "
        "AND s.service = w.service AND s.container = w.container AND s.model = w.model "
        "ORDER BY w.cluster, w.namespace, w.service, w.container, w.model, w.local_weekday, w.local_hour",
        (tenant, _MOST_WINDOWS),
    )


def _summary(database: Database, tables: Mapping[str, Rows]) -> dict[str, Any]:
    cards = database.one(
        "SELECT COUNT(DISTINCT cluster || '/' || uuid) AS cards, "
        "COALESCE(SUM(seconds), 0.0) / 3600.0 AS card_hours FROM card_hours"
    )
    granted = database.one(
        "SELECT COALESCE(SUM(charged_card_hours), 0.0) AS n FROM charges WHERE category <> 'idle'"
    )
    used = database.one("SELECT COALESCE(SUM(compute_used_seconds), 0.0) / 3600.0 AS n FROM share_hours")
    slack = database.one(
        "SELECT 1.0 - SUM(memory_used_max_bytes * active_seconds) "
        "/ SUM(memory_granted_bytes * active_seconds) AS n FROM share_hours "
        "WHERE memory_used_max_bytes IS NOT NULL AND active_seconds > 0.0"
    )
    return {
        "cards": cards["cards"],
        "card_hours": cards["card_hours"],
        "granted_card_hours": granted["n"],
        "compute_used_card_hours": used["n"],
        "idle_card_hours_of_shares": sum(row["idle_card_hours"] for row in tables["idle_services"]),
        "memory_slack_ratio": slack["n"],
        "saved_card_hours": sum(row["saved_card_hours"] for row in tables["gains"]),
        "could_save_card_hours_per_week": sum(
            row["saved_card_hours_per_week"] for row in tables["right_sizes"]
        ),
    }


def _notes(database: Database, prices: Prices) -> Iterable[str]:
    """What the numbers do not rest on: hours and minutes that are missing, prices that are."""
    seen = {row["hour_index"] for row in database.rows("SELECT DISTINCT hour_index FROM card_hours")}
    hours = [
        row["hour_index"] for row in database.rows("SELECT hour_index FROM calendar ORDER BY hour_index")
    ]
    for first, last in _spans([hour for hour in hours if hour not in seen]):
        yield f"nothing is known from {text_of(moment_of(first))} to {text_of(moment_of(last + 1))}"
    missing = database.one(
        "SELECT COALESCE(SUM(60 - minutes_seen), 0) AS n, COUNT(*) * 60 AS of_all "
        "FROM card_hours WHERE minutes_seen > 0"
    )
    if missing["n"]:
        yield f"{missing['n']} of {missing['of_all']} minutes of cards are missing in hours that were seen"
    alone = database.one("SELECT COUNT(*) AS n FROM card_hours WHERE minutes_seen = 0")
    if alone["n"]:
        yield (
            f"{alone['n']} card-hours have shares and no row of their card: "
            "the card is taken as there for as long as its longest share"
        )
    if prices.models:
        models = {row["model"] for row in database.rows("SELECT DISTINCT model FROM card_hours")}
        for model in sorted(models - set(prices.models)):
            yield f"no price is named for {model or 'cards without a model'}: its cost is 0"
    else:
        yield "no prices are named: costs are 0, and card-hours tell instead"
    lost = database.one(
        "SELECT COUNT(*) AS n FROM usage_hourly u "
        "LEFT JOIN card_sizes z ON z.cluster = u.cluster AND z.uuid = u.uuid "
        "WHERE u.pod <> '' AND COALESCE(z.card_memory_bytes, 0.0) <= 0.0"
    )
    if lost["n"]:
        yield f"{lost['n']} rows of shares are left out: nothing tells how large their card is"


def _spans(hours: Sequence[int]) -> Iterable[tuple[int, int]]:
    start = last = None
    for hour in hours:
        if last is not None and start is not None and hour != last + 1:
            yield start, last
            start = hour
        start, last = hour if start is None else start, hour
    if start is not None and last is not None:
        yield start, last


def _of_tenant(rows: Rows, tenant: str) -> Rows:
    return [
        row
        for row in rows
        if row.get("tenant") == tenant or (row.get("tenant_one") == tenant == row.get("tenant_other"))
    ]


def _pair_row(pair: Pair, zone: ZoneInfo) -> dict[str, Any]:
    hours = sorted(
        {f"{local:%a %H}" for local in (moment_of(hour).astimezone(zone) for hour in pair.conflicts)}
    )
    one, other = pair.one, pair.other
    return {
        "cluster": one.key[0],
        "model": one.key[4],
        "card_memory_bytes": min(one.card_memory_bytes, other.card_memory_bytes),
        **_partner(one, "one"),
        **_partner(other, "other"),
        "method": pair.method,
        "spill_bytes": pair.spill_bytes,
        "overlap_ratio": pair.overlap_ratio,
        "conflict_hours": len(pair.conflicts),
        "conflicts": ", ".join(hours),
        "saved_card_hours_per_week": pair.saved_card_hours_per_week,
    }


def _partner(candidate: Candidate, which: str) -> dict[str, Any]:
    """The columns of one service of a pair, as it was seen last."""
    _, namespace, service, container, _ = candidate.key
    columns = {
        "tenant": candidate.tenant,
        "namespace": namespace,
        "service": service,
        "container": container,
        "kind": candidate.kind,
        "class": candidate.share_class,
        "memory_granted_bytes": candidate.memory_granted_bytes,
        "memory_used_max_bytes": candidate.memory_used_max_bytes,
    }
    return {f"{name}_{which}": value for name, value in columns.items()}


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Hours since 1970 as times."""
    named: dict[str, Any] = {}
    for name, value in row.items():
        if name == "hour_index":
            named["hour_start"] = text_of(moment_of(value))
        elif name.endswith("_index"):
            named[name.removesuffix("_index")] = None if value is None else text_of(moment_of(value))
        elif isinstance(value, datetime):
            named[name] = value.isoformat()
        else:
            named[name] = value
    return named
