"""The stream's SQL in a real Flink: the rows of the small path, with messages that come twice and garbage.

Messages come from files here: test_killed.py has the whole stream.
"""

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from stream.both_paths import assert_same, rows_of, small_path
from stream.programs import HOME, PIPELINE, SMALL_CLIENT, needs_flink
from unit.usage.messages import messages
from unit.usage.scene import FIRST_MINUTE, scene
from vc_egpu.usage.table.columns import QUEUE, USAGE, TableShape

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), needs_flink]
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of the stream, and the store of the small path, for the same hours."""
    folder = tmp_path_factory.mktemp("stream")
    (folder / "in").mkdir()
    minutes = range(FIRST_MINUTE, FIRST_MINUTE + HOURS * 60)
    (folder / "in" / "messages.json").write_text("\n".join(messages(scene(), minutes)))
    script = (PIPELINE / "flink.sql").read_text().replace("s3://usage/", f"file://{folder}/out/")
    head, _, rest = script.partition("WITH (\n  'connector' = 'kafka'")
    (folder / "run.sql").write_text(ONE_PROCESS + head + FILES.format(folder=folder) + rest.partition(")")[2])
    argv = [f"{HOME}/flink/bin/sql-client.sh", "-f", str(folder / "run.sql")]
    env = os.environ | SMALL_CLIENT | {"FLINK_HOME": f"{HOME}/flink", "FLINK_LOG_DIR": str(folder)}
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=840, check=False)
    assert "[ERROR]" not in ran.stdout, ran.stdout[-2000:]
    return folder / "out", small_path(folder, HOURS)


@pytest.mark.parametrize("shape", [USAGE, QUEUE], ids=lambda shape: shape.name)
def test_the_stream_gives_the_rows_of_the_small_path(folders: tuple[Path, Path], shape: TableShape) -> None:
    stream, small = folders
    assert_same(rows_of(stream, shape), rows_of(small, shape))
