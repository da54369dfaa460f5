"""The configuration of the stream: the same columns, metrics and topic everywhere."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from localcluster import toolchain
from localcluster.errors import LocalClusterError
from vc_egpu.usage.table.columns import QUEUE, USAGE, TableShape
from vc_egpu.usage.table.series import SERIES, Role

FOLDER = Path(__file__).parents[3] / "manifests/usage-pipeline"
STORIES = Path(__file__).with_name("pipeline_alerts.yaml")
TYPES = {"VARCHAR": "STRING", "TIMESTAMP": "TIMESTAMP", "DOUBLE": "DOUBLE", "BIGINT": "BIGINT"}


def text(name: str) -> str:
    return (FOLDER / name).read_text()


@pytest.mark.parametrize("shape", [USAGE, QUEUE], ids=lambda shape: shape.name)
@pytest.mark.parametrize("name", ["flink.sql", "hive.sql"])
def test_the_tables_have_the_columns_of_the_contract(name: str, shape: TableShape) -> None:
    (body,) = re.findall(
        rf"CREATE (?:EXTERNAL )?TABLE (?:IF NOT EXISTS )?{shape.name} \((.*?)\n\) PARTITIONED",
        text(name),
        re.S,
    )
    found = [(column, kind) for column, kind in re.findall(r"`(\w+)` ([A-Z]+)", body) if column != "dt"]
    assert found == [(column.name, TYPES[column.type]) for column in shape.columns]


@pytest.mark.parametrize("shape", [USAGE, QUEUE], ids=lambda shape: shape.name)
def test_both_tables_are_filled(shape: TableShape) -> None:
    assert f"INSERT INTO {shape.name}\n" in text("flink.sql")


def test_flink_asks_for_the_metrics_of_the_small_path() -> None:
    asked = set(re.findall(r"'((?:egpu|DCGM)_\w+)'", text("flink.sql")))
    assert asked == {series.metric for series in SERIES if series.role is not Role.RESTART}


def test_prometheus_sends_what_flink_asks_for() -> None:
    (target,) = yaml.safe_load(text("prometheus.yaml"))["remote_write"]
    (rule,) = target["write_relabel_configs"]
    kept = re.compile(rule["regex"])
    for series in SERIES:
        assert bool(kept.fullmatch(series.metric)) is (series.role is not Role.RESTART), series.metric
    assert not kept.fullmatch("egpu_admission_leader")
    assert target["protobuf_message"] == "prometheus.WriteRequest"


def test_all_parts_name_one_topic() -> None:
    assert "'topic' = 'egpu-usage'" in text("flink.sql")
    assert 'topic = "egpu-usage"' in text("telegraf.conf")
    assert "--topic egpu-usage" in text("topic.properties")


def test_the_buffer_is_on_disk_and_hours_are_in_utc() -> None:
    assert 'buffer_strategy = "disk_write_through"' in text("telegraf.conf")
    assert "'table.local-time-zone' = 'UTC'" in text("flink.sql")
    assert text("flink.sql").count("'parquet.utc-timezone' = 'true'") == 2


def test_every_alert_on_a_gap_fires_in_a_story_and_is_silent_in_one() -> None:
    groups = yaml.safe_load(text("alerts.yaml"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    stories = yaml.safe_load(STORIES.read_text())["tests"]
    checks = [check for story in stories for check in story["alert_rule_test"]]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == alerts
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == alerts


def test_the_stories_of_a_gap_happen_as_they_are_told() -> None:
    """By Prometheus' own promtool."""
    try:
        promtool = toolchain.program("promtool")
    except LocalClusterError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [promtool, "test", "rules", STORIES], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
