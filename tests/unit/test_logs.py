"""Logs as JSON: what a collector of logs finds in a line."""

import json
import logging
import sys
from pathlib import Path

import pytest
from vc_egpu import logs


def said(template: str, *values: object, level: int = logging.INFO, failed: bool = False) -> dict[str, str]:
    """The object that a line of the log holds."""
    wrong = None
    if failed:
        try:
            raise ValueError("no\nsuch thing")
        except ValueError:
            wrong = sys.exc_info()
    record = logging.LogRecord("vc_egpu.here", level, __file__, 1, template, values, wrong)
    record.created = 1_800_000_000.25
    found: dict[str, str] = json.loads(logs.JsonFormatter().format(record))
    return found


def test_a_line_has_what_its_message_names() -> None:
    assert said("gang %s: plan %s: %d members", "team/train", "3-17", 8) == {
        "time": "2027-01-15T08:00:00.250+00:00",
        "level": "info",
        "logger": "vc_egpu.here",
        "message": "gang team/train: plan 3-17: 8 members",
        "gang": "team/train",
        "plan": "3-17",
    }


@pytest.mark.parametrize(
    ("template", "values", "named"),
    [
        ("pod %s/%s: no room", ("team", "train-0"), {"pod": "team/train-0"}),
        ("%d pods left, node %s: %s", (3, "node-1", "gone"), {"node": "node-1"}),
        ("100 %% of node %s", ("node-1",), {"node": "node-1"}),
        ("gang %s waits for gang %s", ("a/b", "a/c"), {"gang": "a/b"}),
        ("again in %.2f s: gang %s", (0.5, "a/b"), {"gang": "a/b"}),
        ("nothing at all", (), {}),
        ("the mode of %s", ("gang x",), {}),
    ],
)
def test_names_are_found_where_the_message_has_them(
    template: str, values: tuple[object, ...], named: dict[str, str]
) -> None:
    found = said(template, *values)
    assert {key: found[key] for key in ("gang", "plan", "pod", "node") if key in found} == named


def test_a_fault_and_hostile_text_stay_one_line() -> None:
    found = said("pod %s: %s", 'a/b\n{"gang":"c"}', object, level=logging.ERROR, failed=True)
    assert found["pod"] == 'a/b\n{"gang":"c"}'
    assert "ValueError: no\nsuch thing" in found["error"]
    assert "gang" not in found


@pytest.mark.parametrize(
    ("chosen", "is_json", "wrong"),
    [("json", True, ""), ("text", False, ""), ("", False, ""), ("yaml", False, "'yaml'")],
)
def test_the_environment_chooses(chosen: str, is_json: bool, wrong: str) -> None:
    formatter, said = logs.chosen_in({logs.VARIABLE: chosen})
    assert isinstance(formatter, logs.JsonFormatter) == is_json
    assert bool(said) == bool(wrong)
    assert wrong in said


def test_every_process_begins_its_log_here() -> None:
    packages = Path(__file__).parents[2]
    for source in [*packages.glob("vc-egpu/**/*.py"), *packages.glob("device-plugin/**/*.py")]:
        assert source.name == "logs.py" or "basicConfig" not in source.read_text(), source
