"""The stream's SQL in a real Flink: the rows of the small path, with messages that come twice and garbage.

It needs a Flink home with the connectors for files and Parquet: VC_EGPU_FLINK_HOME names it. What belongs
there stands in docs/usage-reports.md, 'The stream to a warehouse'.
"""

import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from unit.usage.fake_prometheus import fake_prometheus
from unit.usage.messages import messages
from unit.usage.scene import FIRST_MINUTE, scene
from vc_egpu.usage.main import main
from vc_egpu.usage.table.columns import QUEUE, USAGE, TableShape
from vc_egpu.usage.table.database import database, quoted

HOME = os.environ.get("VC_EGPU_FLINK_HOME", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not HOME, reason="no Flink: VC_EGPU_FLINK_HOME"),
]
SQL = Path(__file__).parents[3] / "manifests/usage-pipeline/flink.sql"
HOURS = 13
ONE_PROCESS = """SET 'execution.target' = 'local';
SET 'table.dml-sync' = 'true';
SET 'parallelism.default' = '1';
SET 'restart-strategy.type' = 'none';
"""
FILES = """WITH (
  'connector' = 'filesystem', 'path' = 'file://{folder}/in', 'format' = 'json',
  'json.ignore-parse-errors' = 'true', 'json.timestamp-format.standard' = 'ISO-8601'
)"""
NOT_IN_THE_STREAM = frozenset({"card_memory_bytes", "parent", "restarts", "oom_kills"})
"""Empty in rows of shares and resources; the reports take them from other rows."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of the stream, and the store of the small path, for the same hours."""
    folder = tmp_path_factory.mktemp("stream")
    (folder / "in").mkdir()
    minutes = range(FIRST_MINUTE, FIRST_MINUTE + HOURS * 60)
    (folder / "in" / "messages.json").write_text("\n".join(messages(scene(), minutes)))
    script = SQL.read_text().replace("s3://usage/", f"file://{folder}/out/")
    head, _, rest = script.partition("WITH (\n  'connector' = 'kafka'")
    (folder / "run.sql").write_text(ONE_PROCESS + head + FILES.format(folder=folder) + rest.partition(")")[2])
    argv = [f"{HOME}/bin/sql-client.sh", "-f", str(folder / "run.sql")]
    ran = subprocess.run(
        argv, env=os.environ | {"FLINK_HOME": HOME}, capture_output=True, text=True, timeout=840, check=False
    )
    assert "[ERROR]" not in ran.stdout, ran.stdout[-2000:]
    with fake_prometheus(scene()) as fake:
        until = datetime.fromtimestamp((FIRST_MINUTE + HOURS * 60) * 60).astimezone().isoformat()
        argv = [
            "--prometheus",
            fake.url,
            "--store",
            str(folder / "store"),
            "--since",
            "2026-11-02",
            "--until",
            until,
        ]
        assert main([*argv, "--output", str(folder / "report.txt")]) == 0
    return folder / "out", folder / "store"


def rows(folder: Path, shape: TableShape) -> dict[tuple[Any, ...], dict[str, Any]]:
    with database() as db:
        files = quoted(str(folder / shape.name / "dt=*" / "*"))
        found = db.rows(f"SELECT * FROM read_parquet({files}, hive_partitioning=false)")
    keyed = {tuple(row[name] for name in shape.key): row for row in found}
    assert len(keyed) == len(found), "a row is there twice"
    return keyed


@pytest.mark.parametrize("shape", [USAGE, QUEUE], ids=lambda shape: shape.name)
def test_the_stream_gives_the_rows_of_the_small_path(folders: tuple[Path, Path], shape: TableShape) -> None:
    stream, small = (rows(folder, shape) for folder in folders)
    assert stream.keys() == small.keys()
    for key, row in small.items():
        for name, value in row.items():
            mine = stream[key][name]
            if name in NOT_IN_THE_STREAM and not mine:
                continue
            same = mine == (pytest.approx(value) if isinstance(value, float) else value)
            assert same, f"{key} {name}: {mine}, by the small path {value}"
