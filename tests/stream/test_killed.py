"""The whole stream with its real programs, each killed once in mid-flow: the rows of the small path.

Samples go by remote write to Telegraf, from there to Kafka, and Flink makes the tables. Hours pass in
seconds. Each kill falls in the middle of an hour of the scene, so that open windows are in Flink's state.
"""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from stream.both_paths import assert_same, keyed, rows_of, small_path
from stream.programs import PIPELINE, by_hand, needs_flink
from stream.running import AT_ONCE, Stream, stream
from unit.usage.messages import message, messages
from unit.usage.scene import FIRST_MINUTE, START, scene
from vc_egpu.usage.sources.folder import load
from vc_egpu.usage.table.columns import QUEUE, USAGE
from vc_egpu.usage.table.database import database, quoted
from vc_egpu.usage.table.window import Window

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), needs_flink]
SCENE: Final = scene()
MEMORY: Final = next(one for one in SCENE if one.metric == "egpu_node_container_memory_used_bytes")
TROUBLE: Final = 14
"""Hours in which parts are killed."""
HOURS: Final = 29
"""All that are compared. One more closes the last of them."""
MIDDLE: Final = 6 * AT_ONCE
"""The minute of an hour in which something happens."""
AHEAD: Final = 2
"""Hours that the sender is ahead of the tables."""
UNTIL: Final = (START + timedelta(hours=HOURS)).replace(tzinfo=None)
NEXT_VERSION: Final = {
    "`oom_kills` DOUBLE,\n  `dt` STRING": "`oom_kills` DOUBLE, `power_joules` DOUBLE,\n  `dt` STRING",
    "CAST(NULL AS DOUBLE), CAST(NULL AS DOUBLE),\n": (
        "CAST(NULL AS DOUBLE), CAST(NULL AS DOUBLE), CAST(1 AS DOUBLE),\n"
    ),
    "'scan.startup.mode' = 'group-offsets'": "'scan.startup.mode' = 'earliest-offset'",
}
"""The table has one column more, and the job reads all that Kafka still has."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_path(tmp_path_factory.mktemp("small"), HOURS)


def test_each_part_is_killed_once_and_no_row_is_lost_or_there_twice(small: Path, tmp_path: Path) -> None:
    with stream(tmp_path, SCENE) as running:
        while running.minutes_sent < TROUBLE * 60:
            hour, minute = divmod(running.minutes_sent, 60)
            if minute == 0:
                running.until_written(hour - AHEAD)
            if minute == MIDDLE:
                happens(running, hour)
            else:
                running.send_next()
        running.until_written(TROUBLE - AHEAD)
        the_alert_has_its_metrics(running)
        before, begun = running.sent, time.monotonic()
        running.send_next((HOURS + 1 - TROUBLE) * 60 // AT_ONCE)
        running.until_written(HOURS - 1)
        took_s = time.monotonic() - begun
        for part in running.parts:
            part.measure()
        sent = running.sent - before
        print(f"without trouble: {sent} samples in {took_s:.0f} s, {sent / took_s:.0f} a second")
        print(f"{running.sent} samples in all, {running.resent} requests were sent again")
        print("MiB at most:", {part.name: part.peak_kib >> 10 for part in running.parts})
        for shape in (USAGE, QUEUE):
            assert_same(rows_of(running.tables, shape, UNTIL), rows_of(small, shape))
        running.cancel()
        running.submit(NEXT_VERSION)
        the_next_version_adds_nothing_and_loses_nothing(running, small)


def happens(running: Stream, hour: int) -> None:
    """What goes wrong in the middle of an hour."""
    match hour:
        case 2:
            late_double_and_garbage(running)
        case 3:
            a_clock_is_ahead(running)
        case 4:
            running.freeze_kafka()
            running.send_next(3)
            running.kill_telegraf()
            running.thaw_kafka()
            running.telegraf.start()
        case 6:
            running.kafka.kill()
            running.send_next(3)
            running.kafka.start()
        case 8:
            running.worker.kill()
            running.worker.start()
        case 10:
            running.manager.kill()
            running.manager.start()
            running.submit(checkpoint=running.last_checkpoint())
        case 12:
            known = [replace(one, labels={**one.labels, "zone": "a"}) for one in running.series]
            running.series = [*known, replace(known[0], metric="egpu_share_of_the_next_version")]
    running.send_next()


def late_double_and_garbage(running: Stream) -> None:
    """A minute that comes after the others, all of four minutes again, garbage, and hours that are over."""
    minutes = range(FIRST_MINUTE + running.minutes_sent, FIRST_MINUTE + running.minutes_sent + AT_ONCE)
    running.send_next(without=(MEMORY, minutes[1]))
    long_ago = message(MEMORY, FIRST_MINUTE + 10, "1e12")
    ahead = message(MEMORY, FIRST_MINUTE + 10 * 365 * 24 * 60, "1e12")
    no_time = json.dumps({**json.loads(long_ago), "timestamp": None})
    by_hand(running.ports, [*messages(SCENE, minutes, garbage=0.2), long_ago, ahead, no_time])


def a_clock_is_ahead(running: Stream) -> None:
    """By two hours, for one sample among others that are right."""
    labels = {"__name__": MEMORY.metric, **MEMORY.labels}
    running.send_next(more=[(labels, 1e12, int(time.time() + 2 * 3600) * 1000)])


def the_alert_has_its_metrics(running: Stream) -> None:
    """Those of Flink that alerts.yaml names, and the time of the samples in them."""
    told = running.metrics(running.worker)
    names = set(re.findall(r"flink_\w+", (PIPELINE / "alerts.yaml").read_text()))
    assert names
    for name in names:
        values = [float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", told, re.MULTILINE)]
        behind_s = START.timestamp() + TROUBLE * 3600 - max(values) / 1000
        assert 0 < behind_s < 2 * 3600


def the_next_version_adds_nothing_and_loses_nothing(running: Stream, small: Path) -> None:
    """Its rows lie next to the older ones, and reports count each once."""

    def is_written() -> bool:
        files = quoted(f"{running.tables}/usage_hourly/dt=*/part-*")
        with database() as db:
            last = db.one(
                f"SELECT MAX(hour_start) FILTER (power_joules = 1) AS hour "
                f"FROM (SELECT NULL AS power_joules UNION ALL BY NAME "
                f"SELECT * FROM read_parquet({files}, union_by_name=true, hive_partitioning=false))"
            )
        return bool(last["hour"] == UNTIL - timedelta(hours=1))

    running.manager.until("the next version has written all hours", is_written, 180)
    window = Window(START, START + timedelta(hours=HOURS))
    with database() as db:
        loaded = load(db, running.tables, window, datetime.now(UTC))
        for shape in (USAGE, QUEUE):
            assert_same(keyed(db.rows(f"SELECT * FROM {shape.name}"), shape), rows_of(small, shape))
    assert [note for note in loaded.notes if "were there twice" not in note] == []
