"""A folder of Parquet from anywhere: what is double, wild, cut off, too new, too old or in another time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from vc_egpu.usage.sources.folder import FolderError, Loaded, load
from vc_egpu.usage.table.columns import QUEUE, USAGE, Column
from vc_egpu.usage.table.database import Database, database
from vc_egpu.usage.table.window import Window

START = datetime(2026, 11, 2, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(days=2))
NOW = START + timedelta(days=2, minutes=30)
Row = dict[str, Any]


def share(hour: int = 0, **fields: Any) -> Row:
    row: Row = dict.fromkeys(USAGE.names())
    row |= {column.name: "" for column in USAGE.columns if column.is_text}
    row |= {"cluster": "c", "namespace": "n", "pod": "p-0", "container": "m", "node": "n1", "uuid": "GPU-1"}
    row |= {
        "hour_start": START + timedelta(hours=hour),
        "memory_granted_bytes": 8.0,
        "card_memory_bytes": 80.0,
    }
    return row | {"held_seconds": 3600.0, "suspended_seconds": 0.0, "minutes_seen": 60, "queue": "q"} | fields


@pytest.fixture
def db() -> Iterator[Database]:
    with database() as opened:
        yield opened


def put(db: Database, path: Path, rows: list[Row], columns: tuple[Column, ...] = USAGE.columns) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    db.fill("written", columns, rows)
    db.write_parquet("SELECT * FROM written", path)
    return path


def day(folder: Path, name: str = "a.parquet", number: int = 2) -> Path:
    return folder / "usage_hourly" / f"dt=2026-11-0{number}" / name


def read(db: Database, folder: Path) -> tuple[list[Row], Loaded]:
    loaded = load(db, folder, WINDOW, NOW)
    return db.rows("SELECT * FROM usage_hourly ORDER BY hour_start, pod"), loaded


def test_rows_come_back_as_they_were_written(db: Database, tmp_path: Path) -> None:
    rows = [share(0), share(5, memory_used_max_bytes=3.5)]
    put(db, day(tmp_path), rows)
    found, loaded = read(db, tmp_path)
    assert [row["memory_used_max_bytes"] for row in found] == [None, 3.5]
    assert found[0]["hour_start"] == START.replace(tzinfo=None)
    assert (loaded.usage_rows, loaded.notes) == (2, [])


def test_a_row_that_is_there_twice_counts_once_and_the_fuller_one_counts(
    db: Database, tmp_path: Path
) -> None:
    part = {"minutes_seen": 20, "held_seconds": 1200.0, "memory_used_max_bytes": 5.0}
    put(db, day(tmp_path, "a"), [share(1, memory_used_mean_bytes=1.0, queue="old", **part), share(2)])
    full = {"memory_used_max_bytes": 4.0, "memory_used_mean_bytes": 2.0}
    put(db, day(tmp_path, "b"), [share(1, **full), share(2)])
    found, loaded = read(db, tmp_path)
    assert len(found) == 2
    first = found[0]
    assert (first["minutes_seen"], first["held_seconds"], first["memory_used_max_bytes"]) == (60, 3600.0, 5.0)
    assert (first["memory_used_mean_bytes"], first["queue"]) == (2.0, "q")
    assert loaded.notes == ["2 rows of usage_hourly were there twice; each counts once"]


@pytest.mark.parametrize(
    ("wild", "why"),
    [
        ({"held_seconds": float("inf")}, "a number is none, or below 0"),
        ({"memory_used_max_bytes": -1.0}, "a number is none, or below 0"),
        ({"minutes_seen": 61}, "more than 60 minutes, or fewer than 0"),
        ({"hour_start": START + timedelta(minutes=7)}, "the time is no full hour"),
        ({"uuid": ""}, "a name is missing"),
        ({"held_seconds": None}, "a number is missing"),
        ({"memory_granted_bytes": None}, "a number is missing"),
    ],
)
def test_garbage_is_left_out_and_told(db: Database, tmp_path: Path, wild: Row, why: str) -> None:
    put(db, day(tmp_path), [share(1), share(2, **wild)])
    found, loaded = read(db, tmp_path)
    assert len(found) == 1
    assert loaded.notes == [f"1 rows of usage_hourly are left out: {why}"]


def test_a_number_that_is_none_is_garbage(db: Database, tmp_path: Path) -> None:
    """By SQL: on the way from Python it would become an empty one."""
    path = put(db, day(tmp_path), [share(2)])
    db.write_parquet("SELECT * REPLACE (CAST('NaN' AS DOUBLE) AS held_seconds) FROM written", path)
    with pytest.raises(FolderError, match="1 rows of usage_hourly are left out: a number is none"):
        read(db, tmp_path)


def test_rows_of_a_clock_that_is_ahead_are_told(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path), [share(1), share(100)])
    found, loaded = read(db, tmp_path)
    assert len(found) == 1
    assert loaded.notes == [
        "1 rows of usage_hourly are left out: the hour has not begun, so a clock is wrong"
    ]


def test_a_file_that_was_cut_off_is_left_out_and_told(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path), [share(1)])
    cut = put(db, day(tmp_path, "cut.parquet"), [share(2)])
    cut.write_bytes(cut.read_bytes()[:-9])
    day(tmp_path, "empty.parquet").touch()
    day(tmp_path, ".inprogress").write_bytes(b"PAR1")
    day(tmp_path, "_SUCCESS").touch()
    found, loaded = read(db, tmp_path)
    assert len(found) == 1
    assert sorted(note.partition(" is no")[0].rpartition("/")[2] for note in loaded.notes) == [
        "cut.parquet", "empty.parquet",
    ]  # fmt: skip


def test_files_of_two_schemas_are_one_table(db: Database, tmp_path: Path) -> None:
    first = tuple(column for column in USAGE.columns if column.since_the_first)
    put(db, day(tmp_path, "old"), [share(1)], first)
    put(db, day(tmp_path, "new"), [share(2, restarts=1.0, later=7.0)], (*USAGE.columns, Column("later")))
    found, loaded = read(db, tmp_path)
    assert [row["restarts"] for row in found] == [None, 1.0]
    assert loaded.notes == []


def test_a_column_of_the_first_schema_must_be_there(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path), [share(1)], tuple(column for column in USAGE.columns if column.name != "uuid"))
    with pytest.raises(FolderError, match="usage_hourly lacks the column uuid"):
        read(db, tmp_path)


def test_times_with_a_zone_are_taken_in_utc(db: Database, tmp_path: Path) -> None:
    path = day(tmp_path)
    path.parent.mkdir(parents=True)
    db.fill("written", USAGE.columns, [share(1)])
    zoned = "TIMESTAMPTZ '2026-11-02 04:00:00+02:00'"
    db.write_parquet(f"SELECT * REPLACE ({zoned} AS hour_start) FROM written", path)
    found, _ = read(db, tmp_path)
    assert found[0]["hour_start"] == datetime(2026, 11, 2, 2)  # noqa: DTZ001 - the column has no zone


def test_a_day_s_folder_in_local_time_is_found(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path, number=4), [share(47)])
    assert len(read(db, tmp_path)[0]) == 1


def test_only_the_window_is_read(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path), [share(-1), share(0), share(47), share(48)])
    assert len(read(db, tmp_path)[0]) == 2


def test_files_without_folders_of_days_are_read_too(db: Database, tmp_path: Path) -> None:
    put(db, tmp_path / "part-0", [share(1)])
    assert len(read(db, tmp_path)[0]) == 1


def test_queues_are_read_where_they_are(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path), [share(1)])
    row = {"cluster": "c", "queue": "q", "hour_start": START, "minutes_seen": 60}
    put(db, tmp_path / "queue_hourly" / "dt=2026-11-02" / "a", [row], QUEUE.columns)
    _, loaded = read(db, tmp_path)
    assert (loaded.usage_rows, loaded.queue_rows) == (1, 1)


@pytest.mark.parametrize("what", ["nothing", "no folder"])
def test_no_table_is_told(db: Database, tmp_path: Path, what: str) -> None:
    folder = tmp_path if what == "nothing" else tmp_path / "not there"
    with pytest.raises(FolderError, match=r"no Parquet file|there is no folder"):
        load(db, folder, WINDOW, NOW)


def test_hours_elsewhere_are_told(db: Database, tmp_path: Path) -> None:
    put(db, day(tmp_path), [share(-5)])
    with pytest.raises(FolderError, match="no usable row"):
        load(db, tmp_path, WINDOW, NOW)
