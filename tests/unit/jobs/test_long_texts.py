"""Texts of strangers: each has a length, said in the model and in the CRD, and each scan is linear in it."""

from collections.abc import Iterator
from typing import Any

import pytest
from unit.jobs.worlds import task
from vc_egpu.jobs.rules.times import duration_s, seconds
from vc_egpu.volcano.api.crds import TRAITS, crd
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.api.meta import LONGEST_DURATION, ApiObject, ModelError
from vc_egpu.volcano.api.queue import Queue

NOUGHTS = "0" * 40_000
"""As a duration it took 24 seconds: a search began again at each digit, and held all other threads up."""


def of_spec(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j", "namespace": "n"}, "spec": {"tasks": [task()], **spec}}


@pytest.mark.parametrize(
    ("spec", "path", "most"),
    [
        ({"policies": [{"timeout": NOUGHTS}]}, "spec.policies[0].timeout", 64),
        ({"tasks": [task(policies=[{"timeout": NOUGHTS}])]}, "spec.tasks[0].policies[0].timeout", 64),
        ({"runningEstimate": NOUGHTS}, "spec.runningEstimate", 64),
        ({"volumes": [{"mountPath": NOUGHTS}]}, "spec.volumes[0].mountPath", 4096),
    ],
)
def test_a_text_that_is_too_long_is_refused_with_its_path(spec: dict[str, Any], path: str, most: int) -> None:
    with pytest.raises(ModelError) as caught:
        Job.parse(of_spec(**spec))
    assert caught.value.problems[0][0] == path
    assert f"at most {most} characters" in str(caught.value)


def test_a_quantity_that_is_too_long_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        Queue.parse({"metadata": {"name": "q"}, "spec": {"capability": {"cpu": NOUGHTS}}})
    assert any("at most 64 characters" in text for _, text in caught.value.problems)


def test_the_longest_duration_is_taken() -> None:
    longest = "2562047h47m16.854775807s"
    assert len(longest) < LONGEST_DURATION
    Job.parse(of_spec(policies=[{"timeout": longest}]))
    assert duration_s(longest) == pytest.approx(9_223_372_036.85)


@pytest.mark.parametrize("text", [NOUGHTS, "0" * LONGEST_DURATION + "s", "5", "1h 3m", "h", "1..5s"])
def test_a_duration_is_read_from_left_to_right_or_not_at_all(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_s(text)


def test_a_time_that_is_too_long_is_none() -> None:
    assert seconds("2025-06-15T15:00:00.123456Z") == pytest.approx(1_749_999_600.123456)
    assert seconds(f"2025-06-15T15:00:00.{NOUGHTS}Z") == 0.0


@pytest.mark.parametrize("model", TRAITS)
def test_what_has_to_fit_a_pattern_has_a_length_in_its_crd(model: type[ApiObject]) -> None:
    for path, schema in _schemas(crd(model), model.__name__):
        if isinstance(schema.get("pattern"), str):
            assert schema["pattern"].startswith("^"), path
            assert schema["pattern"].endswith("$"), path
            assert 0 < schema.get("maxLength", 0) <= 4096, path


def _schemas(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from _schemas(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _schemas(item, path)
