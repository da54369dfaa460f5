"""What people and programs get: a page that asks nobody, files, patches, texts in both languages."""

import csv
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from property.usage_worlds import world
from vc_egpu.usage.output.files import write_tables
from vc_egpu.usage.output.page import page
from vc_egpu.usage.output.patches import manifests
from vc_egpu.usage.output.terminal import lines
from vc_egpu.usage.output.words import DRAWN, LANGUAGES, SHOWN, words
from vc_egpu.usage.reports.prices import Prices
from vc_egpu.usage.reports.settings import Settings
from vc_egpu.usage.reports.whole import TABLES, Report, report
from vc_egpu.usage.table.columns import QUEUE, USAGE
from vc_egpu.usage.table.database import database
from vc_egpu.usage.table.window import Window

EVIL = '<img src=x onerror=alert(1)>"\x1b[31m'
FOCUS_NOT_NULL = (
    "BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingAccountId", "SubAccountId",
    "BillingCurrency",
    "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory",
    "ChargeDescription", "ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "PricingQuantity",
    "PricingUnit",
    "PricingCategory", "Provider", "Publisher", "InvoiceIssuer", "ServiceCategory", "ServiceSubcategory",
    "ServiceName",
    "SkuId", "SkuPriceId", "ListUnitPrice", "ContractedUnitPrice", "Tags",
)  # fmt: skip
FOCUS_NULLABLE = (
    "BillingAccountName",
    "SubAccountName",
    "ChargeClass",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "RegionId",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """A report of a small world, and its files of both kinds."""
    folder = tmp_path_factory.mktemp("files")
    this = world(11)
    with database() as db:
        db.fill("usage_hourly", USAGE.columns, this.usage)
        db.fill("queue_hourly", QUEUE.columns, this.queues)
        prices = Prices(models={"h20": {"on_demand": 2.0}, "l4": {"on_demand": 1.0}})
        told = report(db, this.window, ZoneInfo("Asia/Shanghai"), Settings(), prices)
        for kind in ("csv", "parquet"):
            write_tables(db, told, folder / kind, kind)
    return told, folder


class Tags(HTMLParser):
    """All tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_asks_nobody_and_runs_nothing(made: tuple[Report, Path], language: str) -> None:
    text = page(made[0], words(language))
    tags = Tags(text).tags
    assert not {"script", "img", "link", "iframe", "object", "form"} & {tag for tag, _ in tags}
    assert not [
        name for _, attributes in tags for name in attributes if name in {"src", "srcset"} or name[:2] == "on"
    ]
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in tags)
    assert "url(" not in text
    assert "default-src 'none'" in text
    assert tags[0] == ("html", {"lang": language})


def test_names_are_text_and_nothing_else(made: tuple[Report, Path]) -> None:
    told, _ = made
    tables = {
        name: [{key: EVIL if isinstance(value, str) else value for key, value in row.items()} for row in rows]
        for name, rows in told.tables.items()
    }
    wild = replace(told, tables=tables, notes=(EVIL,), tenant=EVIL)
    found = Tags(page(wild, words("en")))
    assert "img" not in {tag for tag, _ in found.tags}
    assert EVIL in found.text
    assert "\x1b" not in "\n".join(lines(wild, words("en")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_table_and_column_has_its_words(made: tuple[Report, Path], language: str) -> None:
    texts = words(language).texts
    assert tuple(texts["tables"]) == TABLES
    assert {column for columns in SHOWN.values() for column in columns} <= texts["columns"].keys()
    assert SHOWN.keys() | DRAWN == set(TABLES)
    for table, columns in SHOWN.items():
        for row in made[0].tables.get(table, ()):
            assert set(columns) <= row.keys(), table


def test_languages_have_the_same_texts() -> None:
    one, other = (words(language).texts for language in LANGUAGES)
    assert keys(one) == keys(other)
    marks = [sorted(re.findall(r"\{\w+\}", " ".join(texts["texts"].values()))) for texts in (one, other)]
    assert marks[0] == marks[1]


def keys(texts: Any) -> Any:
    return (
        {name: keys(value) for name, value in texts.items()}
        if isinstance(texts, dict)
        else type(texts).__name__
    )


def test_the_charges_have_the_columns_of_focus(made: tuple[Report, Path]) -> None:
    with (made[1] / "csv" / "chargeback.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {*FOCUS_NOT_NULL, *FOCUS_NULLABLE}
    assert all(row[name] != "" for row in rows for name in FOCUS_NOT_NULL)
    assert {row["ChargeCategory"] for row in rows} == {"Usage"}
    assert all(json.loads(row["Tags"]).keys() == {"namespace", "class", "gang"} for row in rows)
    listed = sum(float(row["ConsumedQuantity"]) * float(row["ListUnitPrice"]) for row in rows)
    assert sum(float(row["ListCost"]) for row in rows) == pytest.approx(listed)


def test_files_have_times_where_the_sql_counts_hours(made: tuple[Report, Path]) -> None:
    with (made[1] / "csv" / "gains_by_hour.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert row["hour_start"].startswith("2026-11-0")
    for path in (made[1] / "csv").glob("*.csv"):
        assert "_index" not in path.read_text().splitlines()[0], path.name


def test_both_kinds_of_files_have_the_same_rows(made: tuple[Report, Path]) -> None:
    told, folder = made
    assert {path.stem for path in (folder / "csv").glob("*.csv")} == {*told.tables, "chargeback"}
    assert {path.stem for path in (folder / "parquet").glob("*.parquet")} == {
        *told.tables,
        "chargeback",
        "usage",
    }
    assert not list(folder.rglob(".*")), "nothing unfinished is left"


def size(kind: str, **fields: Any) -> dict[str, Any]:
    gib = 1 << 30
    row = {"kind": kind, "namespace": "n", "service": "s", "container": "main", "advice": "shrink"}
    numbers = {"memory_granted_bytes": 40.0 * gib, "memory_used_max_bytes": 9.0 * gib, "hours_seen": 48.0}
    return row | numbers | {"memory_proposed_bytes": 11.0 * gib, "cores_proposed_ratio": None} | fields


def patch_of(*rows: dict[str, Any]) -> str:
    window = Window(datetime(2026, 11, 2, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC) + timedelta(hours=1))
    return manifests(Report(window, "UTC", "USD", "", (), {"right_sizes": list(rows)}))


def test_a_patch_names_the_limits_of_each_container() -> None:
    both = patch_of(size("Deployment", cores_proposed_ratio=0.29), size("Deployment", container="side"))
    (document,) = yaml.safe_load_all(both)
    assert (document["kind"], document["metadata"]) == ("Deployment", {"name": "s", "namespace": "n"})
    main, side = document["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["limits"] == {"volcano.sh/vgpu-memory": 11264, "volcano.sh/vgpu-cores": 29}
    assert side == {"name": "side", "resources": {"limits": {"volcano.sh/vgpu-memory": 11264}}}


def test_what_cannot_change_in_place_is_a_comment() -> None:
    text = patch_of(size("Job"), size("Pod", service="t"))
    assert [document for document in yaml.safe_load_all(text) if document] == []
    assert "# Job n/s cannot change in place" in text


def test_what_is_to_stay_is_in_no_patch() -> None:
    rows = [
        size("Deployment", advice=advice, memory_proposed_bytes=None)
        for advice in ("keep", "ended", "too little seen")
    ]
    assert "---" not in patch_of(*rows)
