"""The reports against plain Python on random small worlds: every number equal, and what must always hold."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import seeds

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from property import usage_oracle as oracle
from property.usage_worlds import GIB, World, world
from vc_egpu.usage.reports.prices import Prices
from vc_egpu.usage.reports.settings import Settings
from vc_egpu.usage.reports.whole import Report, report
from vc_egpu.usage.table.columns import QUEUE, USAGE
from vc_egpu.usage.table.database import Database, database
from vc_egpu.usage.table.window import moment_of, text_of

WORLDS = 200 if os.environ.get("VC_EGPU_LONG") == "1" else 40
AT_ONCE = 10
HOST_BYTES = 16.0 * GIB
PRICES = Prices(
    currency="EUR",
    models={"h20": {"on_demand": 3.0, "reserved": 2.0, "spot": 1.0}, "l4": {"on_demand": 0.7}},
    nodes=[("node-1", "reserved")],
    rates={"low": 0.5, "oversold": 0.25, "suspended": 0.1},
    model_rates={"l4": {"shared": 1.5}},
)
SERVICE = ("cluster", "namespace", "service", "container", "model")


def price(model: str, node: str, category: str) -> tuple[float, float, float, float]:
    """As the operator's file says it, by hand."""
    rates = {"low": 0.5, "oversold": 0.25, "shared": 1.5 if model == "l4" else 1.0}
    contracted = {"h20": 2.0 if node == "node-1" else 3.0, "l4": 0.7}[model]
    return {"h20": 3.0, "l4": 0.7}[model], contracted, rates.get(category, 1.0), 0.1


def made(db: Database, this: World) -> Report:
    db.fill("usage_hourly", USAGE.columns, this.usage)
    db.fill("queue_hourly", QUEUE.columns, this.queues)
    return report(db, this.window, ZoneInfo("UTC"), Settings(host_memory_bytes=HOST_BYTES), PRICES)


def differences(
    rows: Iterable[Mapping[str, Any]], key: Sequence[str], expected: Mapping[Any, Mapping[str, Any]]
) -> list[str]:
    found = {tuple(str(row[name]) for name in key): row for row in rows}
    wrong = [f"{key}: only one side has it" for key in found.keys() ^ expected.keys()]
    for name, values in expected.items():
        for column, value in values.items():
            mine = found.get(name, {}).get(column)
            same = (
                math.isclose(mine, value, rel_tol=1e-9, abs_tol=1e-9)
                if isinstance(mine, int | float) and isinstance(value, int | float)
                else mine == value
            )
            if name in found and not same:
                wrong.append(f"{name} {column}: {mine}, by hand {value}")
    return wrong


def times(rows: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Indices of hours as the report writes them."""
    return {
        key: {
            name.removesuffix("_index"): text_of(moment_of(value))
            if name.endswith("_index") and value
            else value
            for name, value in row.items()
        }
        for key, row in rows.items()
    }


def compared(this: World, told: Report) -> list[str]:
    """All differences of one world."""
    tables = told.tables
    windows = (*SERVICE, "local_weekday", "local_hour")
    return [
        *differences(tables["idle_services"], SERVICE, times(oracle.idle_services(this))),
        *differences(tables["idle_gangs"], ("cluster", "namespace", "gang"), times(oracle.idle_gangs(this))),
        *differences(tables["idle_windows"], windows, oracle.idle_windows(this)),
        *differences(tables["idle_cards"], ("cluster", "node", "uuid"), oracle.idle_cards(this)),
        *differences(tables["right_sizes"], SERVICE, oracle.right_sizes(this)),
        *differences(tables["gains"], ("cluster", "model"), oracle.gains(this)),
        *differences(
            tables["showback"],
            ("cluster", "queue", "namespace", "service", "model"),
            kept(oracle.charges(this, price)),
        ),
        *differences(tables["queue_shares"], ("queue", "resource"), oracle.queue_shares(this)),
        *differences(tables["queue_waits"], ("queue",), oracle.queue_waits(this)),
        *pair_differences(this, told),
    ]


def kept(charges: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    """Without rows that neither ask nor pay for anything."""
    return {
        key: row
        for key, row in charges.items()
        if row["charged_card_hours"] > 1e-12
        or row.get("requested_card_hours", 0) > 0
        or row["billed_cost"] > 0
    }


def pair_differences(this: World, told: Report) -> list[str]:
    mine = [
        (
            tuple(
                row[name] for name in ("cluster", "namespace_one", "service_one", "container_one", "model")
            ),
            tuple(
                row[name]
                for name in ("cluster", "namespace_other", "service_other", "container_other", "model")
            ),
            row["method"],
            row["conflict_hours"],
            round(row["saved_card_hours_per_week"], 6),
        )
        for row in told.tables["pairs"]
    ]
    by_hand = [(*pair[:4], round(pair[4], 6)) for pair in oracle.pairs(this, HOST_BYTES)]
    return [] if sorted(mine) == sorted(by_hand) else [f"pairs {mine}, by hand {by_hand}"]


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE))
def test_every_number_is_the_one_counted_by_hand(first: int) -> None:
    wrong = []
    with database() as db:
        for seed in seeds.fresh(AT_ONCE, after=first):
            this = world(seed)
            wrong += [f"seed {seed}: {text}" for text in compared(this, made(db, this))]
    assert wrong == []


def test_the_worlds_have_what_the_reports_tell_of() -> None:
    """Else equal would mean empty on both sides."""
    advice, methods, idle, gangs = set[str](), set[str](), 0, 0
    for seed in range(200):
        this = world(seed)
        advice |= {row["advice"] for row in oracle.right_sizes(this).values()}
        methods |= {pair[2] for pair in oracle.pairs(this, HOST_BYTES)}
        idle += len(oracle.idle_services(this))
        gangs += len(oracle.idle_gangs(this))
    assert advice == {"shrink", "grow", "keep", "ended", "too little seen", "not measured"}
    assert methods == {"share", "spill", "suspension"}
    assert idle > 100
    assert gangs > 20


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE * 4))
def test_what_always_holds(first: int) -> None:
    with database() as db:
        for seed in seeds.fresh(AT_ONCE, after=first):
            this = world(seed)
            told = made(db, this)
            charged = sum(row["charged_card_hours"] for row in told.tables["showback"])
            whole = sum(card["seconds"] for card in oracle.cards(this).values()) / 3600
            assert charged == pytest.approx(whole), f"seed {seed}: charges and idle time are all card-hours"
            for row in told.tables["right_sizes"]:
                assert row["hours_exceeded"] == 0, f"seed {seed}"
                if row["memory_proposed_bytes"] is not None:
                    assert row["memory_proposed_bytes"] >= row["memory_used_max_bytes"], f"seed {seed}"
                    assert row["hours_seen"] >= 24, f"seed {seed}"
            for row in told.tables["gains"]:
                parts = [
                    row[f"by_{name}_card_hours"]
                    for name in ("slicing", "colocation", "oversubscription", "suspension")
                ]
                assert min(parts) >= -1e-9, f"seed {seed}"
                assert sum(parts) == pytest.approx(row["saved_card_hours"]), f"seed {seed}"


def test_a_window_of_less_than_a_day_proposes_nothing_and_says_so() -> None:
    with database() as db:
        this = world(3)
        short = World(
            type(this.window)(this.window.since, this.window.since + timedelta(hours=5)),
            this.usage,
            this.queues,
        )
        told = made(db, short)
    assert {row["advice"] for row in told.tables["right_sizes"]} <= {"too little seen", "not measured"}
    assert all(row["memory_proposed_bytes"] is None for row in told.tables["right_sizes"])
