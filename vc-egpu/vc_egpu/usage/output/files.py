"""The report as files: each table as CSV or Parquet, the charges in FOCUS columns, the hours themselves."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vc_egpu.usage.output.patches import manifests
from vc_egpu.usage.reports.whole import OF_ALL_TENANTS, TABLES, Report
from vc_egpu.usage.table.columns import Column
from vc_egpu.usage.table.database import Database, quoted

_MADE_IN_PYTHON: Final = frozenset({"pairs", "summary", "clusters"})


class OutputError(Exception):
    """A file cannot be written; the text is for the user."""


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from None


def write_tables(database: Database, report: Report, folder: Path, kind: str) -> list[Path]:
    """Write all tables into a folder. ``kind``: ``csv`` or ``parquet``. Returns the files."""
    write = database.write_csv if kind == "csv" else database.write_parquet
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from None
    written = [
        _one(write, _query(database, report, table), folder / f"{table}.{kind}") for table in report.tables
    ]
    written.append(_one(write, _charges(report), folder / f"chargeback.{kind}"))
    if kind == "parquet":
        written.append(_one(write, _hours(report), folder / "usage.parquet"))
    write_text(folder / "right-sizes.yaml", manifests(report))
    return [*written, folder / "right-sizes.yaml"]


def _one(write: Callable[[str, Path], None], query: str, path: Path) -> Path:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    write(query, part)
    part.replace(path)
    return path


def _query(database: Database, report: Report, table: str) -> str:
    if table not in TABLES:
        raise KeyError(table)
    if table in _MADE_IN_PYTHON:
        rows = report.tables[table]
        columns = [
            Column(name, _type(value)) for name, value in (rows[0] if rows else {"nothing": ""}).items()
        ]
        database.fill(f"file_{table}", columns, rows)
        return f"SELECT * FROM file_{table}"  # noqa: S608 - a name of ours
    whole = f"SELECT {_columns(database, table)} FROM {table}"  # noqa: S608 - names of ours
    if report.tenant and table not in OF_ALL_TENANTS:
        return f"{whole} WHERE tenant = {quoted(report.tenant)}"
    return whole


def _columns(database: Database, table: str) -> str:
    """All columns of a table; hours since 1970 become times."""
    described = database.rows(f"DESCRIBE {table}")
    return ", ".join(
        f"make_timestamp({name} * 3600000000) AS {_time_name(name)}"
        if name.endswith("_index")
        else f'"{name}"'
        for name in (row["column_name"] for row in described)
    )


def _time_name(column: str) -> str:
    return "hour_start" if column == "hour_index" else column.removesuffix("_index")


def _charges(report: Report) -> str:
    if not report.tenant:
        return "SELECT * FROM chargeback"
    queues = f"SELECT DISTINCT queue FROM charges WHERE tenant = {quoted(report.tenant)}"  # noqa: S608
    return f'SELECT * FROM chargeback WHERE "SubAccountId" IN ({queues})'  # noqa: S608


def _hours(report: Report) -> str:
    if not report.tenant:
        return "SELECT * FROM usage_hourly ORDER BY hour_start, node, uuid, namespace, pod, container"
    queues = f"SELECT DISTINCT queue FROM share_hours WHERE tenant = {quoted(report.tenant)}"  # noqa: S608
    return f"SELECT * FROM usage_hourly WHERE pod <> '' AND queue IN ({queues})"  # noqa: S608


def _type(value: object) -> str:
    if isinstance(value, str):
        return "VARCHAR"
    return "BIGINT" if isinstance(value, int) else "DOUBLE"
