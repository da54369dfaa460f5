"""A folder of Parquet files as the two tables: checked, each row once, within the window.

The files may come from the stream, from the small path, or from both. What cannot be used is left out
and told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from vc_egpu.usage.table.columns import QUEUE, USAGE, Column, TableShape
from vc_egpu.usage.table.database import Database, quoted
from vc_egpu.usage.table.window import Window, text_of

_DAY: Final = timedelta(days=1)
_SPAN: Final = timedelta(days=2)
"""What is read at once: 2,000 services fill a row group. DuckDB writes what fills none twice."""
_MAGIC: Final = b"PAR1"
_SHORTEST: Final = 12
_OTHERS: Final = frozenset({".json", ".csv", ".md", ".txt", ".crc", ".part"})
"""Endings of files that lie next to the table and are none of it."""
_BOUND: Final = 1e18
"""No number of ours is as large; NaN, which SQL orders last, is not below it either."""


class FolderError(Exception):
    """The folder cannot be read as the tables; the text is for the user."""


@dataclass(slots=True)
class Loaded:
    """What was read: rows kept, and sentences about the rest."""

    usage_rows: int = 0
    queue_rows: int = 0
    notes: list[str] = field(default_factory=list)


def load(database: Database, folder: Path, window: Window, now: datetime) -> Loaded:
    """Make the tables ``usage_hourly`` and ``queue_hourly`` of a window from a folder."""
    if not folder.is_dir():
        raise FolderError(f"there is no folder {folder}")
    loaded = Loaded()
    usage = _files(folder, USAGE)
    if not usage:
        raise FolderError(f"no Parquet file of {USAGE.name} lies in {folder}")
    loaded.notes += _load(database, USAGE, usage, window, now)
    loaded.usage_rows = database.one("SELECT COUNT(*) AS n FROM usage_hourly")["n"]
    queues = _files(folder, QUEUE) if (folder / QUEUE.name).is_dir() else []
    loaded.notes += _load(database, QUEUE, queues, window, now)
    loaded.queue_rows = database.one("SELECT COUNT(*) AS n FROM queue_hourly")["n"]
    if not loaded.usage_rows:
        raise FolderError(
            f"{folder} has no usable row of {USAGE.name} "
            f"from {text_of(window.since)} to {text_of(window.until)}"
            + "".join(f"; {note}" for note in loaded.notes)
        )
    return loaded


def _files(folder: Path, shape: TableShape) -> list[Path]:
    """The table's own folder, or the folder itself where it has none. Hidden files are unfinished."""
    home = folder / shape.name if (folder / shape.name).is_dir() else folder
    other = QUEUE.name if shape is USAGE else USAGE.name
    found = []
    for path in home.rglob("*"):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "_")) for part in parts)
        if not hidden and other not in parts and path.suffix not in _OTHERS and path.is_file():
            found.append(path)
    return sorted(found)


def _load(
    database: Database,
    shape: TableShape,
    files: Sequence[Path],
    window: Window,
    now: datetime,
) -> list[str]:
    """Fill the table, and say what was left out."""
    notes: list[str] = []
    columns = ", ".join(f'"{column.name}" {column.type}' for column in shape.columns)
    database.run(f"CREATE OR REPLACE TABLE {shape.name} ({columns})")
    files = _of_days(_readable(files, notes), window.since, window.until)
    if not files:
        return notes
    faults: dict[str, int] = {}
    doubled = 0
    for since, until in _spans(window, files):
        of_the_span = _of_days(files, since, until)
        if of_the_span:
            _sift(database, shape, _selected(database, shape, of_the_span), since, until)
            for row in database.rows(
                "SELECT fault, COUNT(*) AS n FROM sifted WHERE fault <> '' GROUP BY fault"
            ):
                faults[row["fault"]] = faults.get(row["fault"], 0) + row["n"]
            doubled += _keep(database, shape)
    faults |= _without_a_time(database, _selected(database, shape, files), now)
    notes += [
        f"{count} rows of {shape.name} are left out: {fault}"
        for fault, count in sorted(faults.items())
        if count
    ]
    if doubled:
        notes.append(f"{doubled} rows of {shape.name} were there twice; each counts once")
    return notes


def _selected(database: Database, shape: TableShape, files: Sequence[Path]) -> str:
    """The query of all rows of some files, each column in its type, or empty where no file has it."""
    listed = ", ".join(quoted(str(path)) for path in files)
    source = f"read_parquet([{listed}], union_by_name=true, hive_partitioning=false)"
    described = database.rows(f"DESCRIBE SELECT * FROM {source}")  # noqa: S608 - paths are quoted
    there = {row["column_name"] for row in described}
    lacking = [column.name for column in shape.columns if column.since_the_first and column.name not in there]
    if lacking:
        raise FolderError(f"{shape.name} lacks the column {', '.join(lacking)}")
    return f"SELECT {_casts(shape, there)} FROM {source}"  # noqa: S608 - names of ours


def _without_a_time(database: Database, selected: str, now: datetime) -> dict[str, int]:
    """Rows that lie in no window: the writer's clock is wrong, or the time is none."""
    counted = database.one(
        f"SELECT COUNT(*) FILTER (hour_start > $1) AS later, COUNT(*) FILTER (hour_start IS NULL) AS none "  # noqa: S608
        f"FROM ({selected})",
        (now.replace(tzinfo=None),),
    )
    return {
        "the hour has not begun, so a clock is wrong": counted["later"],
        "the time is none": counted["none"],
    }


def _readable(files: Sequence[Path], notes: list[str]) -> list[Path]:
    fine = []
    for path in files:
        if _is_parquet(path):
            fine.append(path)
        else:
            notes.append(f"{path} is no whole Parquet file and is left out")
    return fine


def _is_parquet(path: Path) -> bool:
    """Whether a file begins and ends as Parquet files do: one that was cut off does not."""
    try:
        if path.stat().st_size < _SHORTEST:
            return False
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC)) == _MAGIC
            file.seek(-len(_MAGIC), 2)
            return begins and file.read() == _MAGIC
    except OSError:
        return False


def _of_days(files: Sequence[Path], since: datetime, until: datetime) -> list[Path]:
    """Without the days that the folders' names rule out. A day more on both sides is for local time."""
    first, last = since - _DAY, until + _DAY
    return [
        path
        for path in files
        if (day := _day_of(path)) is None or f"{first:%Y-%m-%d}" <= day <= f"{last:%Y-%m-%d}"
    ]


def _day_of(path: Path) -> str | None:
    return next(
        (part[3:] for part in path.parts if part.startswith("dt=") and len(part) == len("dt=2026-01-01")),
        None,
    )


def _spans(window: Window, files: Sequence[Path]) -> Iterator[tuple[datetime, datetime]]:
    """Spans that fit into memory: two days where the folders are days, else the whole window."""
    if any(_day_of(path) is None for path in files):
        yield window.since, window.until
        return
    since = window.since
    while since < window.until:
        until = min(since + _SPAN, window.until)
        yield since, until
        since = until


def _casts(shape: TableShape, there: set[str]) -> str:
    return ", ".join(
        f'TRY_CAST("{column.name}" AS {column.type}) AS "{column.name}"'
        if column.name in there
        else f'CAST(NULL AS {column.type}) AS "{column.name}"'
        for column in shape.columns
    )


def _sift(database: Database, shape: TableShape, selected: str, since: datetime, until: datetime) -> None:
    """The rows of a span, each with its fault, or none."""
    numbers = [column for column in shape.columns if column.type == "DOUBLE"]
    wild = " OR ".join(
        f'("{c.name}" IS NOT NULL AND NOT ("{c.name}" >= 0 AND "{c.name}" < {_BOUND}))' for c in numbers
    )
    needed = _needed(shape)
    no_name = "uuid IS NULL OR uuid = ''" if shape is USAGE else "queue IS NULL OR queue = ''"
    database.run(
        f"CREATE OR REPLACE TEMP TABLE sifted AS SELECT *, CASE "  # noqa: S608 - names of ours
        f"WHEN hour_start <> date_trunc('hour', hour_start) THEN 'the time is no full hour' "
        f"WHEN {no_name} THEN 'a name is missing' WHEN {wild} THEN 'a number is none, or below 0' "
        f"WHEN {needed} THEN 'a number is missing' "
        f"WHEN minutes_seen < 0 OR minutes_seen > 60 THEN 'more than 60 minutes, or fewer than 0' "
        f"ELSE '' END AS fault FROM ({selected}) "
        "WHERE hour_start >= $1 AND hour_start < $2",
        (since.replace(tzinfo=None), until.replace(tzinfo=None)),
    )


def _needed(shape: TableShape) -> str:
    """The condition of rows that lack a number without which they say nothing."""
    if shape is USAGE:
        granted = "pod <> '' AND memory_granted_bytes IS NULL"
        return f"held_seconds IS NULL OR minutes_seen IS NULL OR ({granted})"
    return "minutes_seen IS NULL"


def _keep(database: Database, shape: TableShape) -> int:
    """Put each row once into the table; returns how many were there twice.

    The fuller one of two rows counts. What grows while an hour is read is the larger of both.
    """
    names = ", ".join(f'"{name}"' for name in shape.names())
    key = ", ".join(f'"{name}"' for name in shape.key)
    picked = ", ".join(_picked(column, shape) for column in shape.columns)
    before = database.one("SELECT COUNT(*) AS n FROM sifted WHERE fault = ''")["n"]
    different = f"SELECT DISTINCT {key} FROM sifted WHERE fault = ''"  # noqa: S608 - names of ours
    distinct = database.one(f"SELECT COUNT(*) AS n FROM ({different})")["n"]  # noqa: S608
    if before == distinct:
        filled = ", ".join(_filled(column) for column in shape.columns)
        database.run(f"INSERT INTO {shape.name} SELECT {filled} FROM sifted WHERE fault = ''")  # noqa: S608
    else:
        database.run(
            f"INSERT INTO {shape.name} ({names}) SELECT {picked} FROM "  # noqa: S608
            f"(SELECT {', '.join(_filled(column) for column in shape.columns)} FROM sifted WHERE fault = '') "
            f"GROUP BY {key}"
        )
    return int(before - distinct)


def _filled(column: Column) -> str:
    if column.is_text:
        return f'COALESCE("{column.name}", \'\') AS "{column.name}"'
    return f'"{column.name}"'


def _picked(column: Column, shape: TableShape) -> str:
    if column.name in shape.key:
        return f'"{column.name}"'
    if column.type == "DOUBLE" and "mean" not in column.name:
        return f'MAX("{column.name}")'
    if column.name == "minutes_seen":
        return 'MAX("minutes_seen")'
    return f'MAX_BY("{column.name}", "minutes_seen")'
