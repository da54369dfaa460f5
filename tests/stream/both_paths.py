"""What the small path makes of the scene, and how rows of the stream compare with it."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from unit.usage.fake_prometheus import fake_prometheus
from unit.usage.scene import FIRST_MINUTE, scene
from vc_egpu.usage.main import main
from vc_egpu.usage.table.columns import TableShape
from vc_egpu.usage.table.database import database, quoted

NOT_IN_THE_STREAM = frozenset({"card_memory_bytes", "parent", "restarts", "oom_kills"})
"""Empty in rows of shares and resources; the reports take them from other rows."""
Rows = dict[tuple[Any, ...], dict[str, Any]]


def small_path(folder: Path, hours: int) -> Path:
    """The store of a report over the first hours of the scene."""
    with fake_prometheus(scene()) as fake:
        until = datetime.fromtimestamp((FIRST_MINUTE + hours * 60) * 60).astimezone().isoformat()
        argv = [
            *("--prometheus", fake.url, "--store", str(folder / "store")),
            *("--since", "2026-11-02", "--until", until),
        ]
        assert main([*argv, "--output", str(folder / "report.txt")]) == 0
    return folder / "store"


def rows_of(folder: Path, shape: TableShape, until: datetime | None = None) -> Rows:
    """By key; an error where one is there twice. ``until``: only hours that begin before."""
    files = [str(path) for path in (folder / shape.name).glob("dt=*/*") if path.name[0] not in "._"]
    if not files:
        return {}
    with database() as db:
        listed = ", ".join(quoted(path) for path in sorted(files))
        found = db.rows(f"SELECT * FROM read_parquet([{listed}], hive_partitioning=false)")
    if until is not None:
        found = [row for row in found if row["hour_start"] < until]
    return keyed(found, shape)


def keyed(found: list[dict[str, Any]], shape: TableShape) -> Rows:
    """By key; an error where one is there twice."""
    by_key = {tuple(row[name] for name in shape.key): row for row in found}
    assert len(by_key) == len(found), "a row is there twice"
    return by_key


def assert_same(stream: Rows, small: Rows) -> None:
    """Cell by cell."""
    assert stream.keys() == small.keys()
    for key, row in small.items():
        for name, value in row.items():
            mine = stream[key][name]
            if name in NOT_IN_THE_STREAM and not mine:
                continue
            same = mine == (pytest.approx(value) if isinstance(value, float) else value)
            assert same, f"{key} {name}: {mine}, by the small path {value}"
