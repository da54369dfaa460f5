"""The configuration of the stream: the same columns, metrics and topic everywhere."""

import re
from pathlib import Path

import pytest
import yaml
from vc_egpu.usage.table.columns import QUEUE, USAGE, TableShape
from vc_egpu.usage.table.series import SERIES, Role

FOLDER = Path(__file__).parents[3] / "manifests/usage-pipeline"
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
