"""Sums of what pods request: right for any mix of containers, and one step for each quantity."""

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from vc_egpu.jobs.objects import requests

NAMES = ("cpu", "memory", "volcano.sh/vgpu-h20", "a.example/x")


def container(draw: Random, *, init: bool = False) -> dict[str, Any]:
    asked = {name: str(draw.randrange(5)) for name in NAMES if draw.random() < 0.5}
    made: dict[str, Any] = {"resources": {"requests": asked}}
    if init and draw.random() < 0.5:
        made["restartPolicy"] = "Always"
    return made


def step_by_step(spec: dict[str, Any], name: str) -> int:
    """The most that is set aside at any time, resource by resource, as Kubernetes has it."""
    beside, most = 0, 0
    for one in spec["initContainers"]:
        amount = int(one["resources"]["requests"].get(name, 0))
        most = max(most, beside + amount)
        beside += amount if one.get("restartPolicy") == "Always" else 0
    return max(
        most, beside + sum(int(one["resources"]["requests"].get(name, 0)) for one in spec["containers"])
    )


def test_a_sum_is_the_most_that_is_set_aside_at_any_time() -> None:
    draw = Random(24)
    for _ in range(500):
        spec = {
            "initContainers": [container(draw, init=True) for _ in range(draw.randrange(5))],
            "containers": [container(draw) for _ in range(draw.randrange(1, 4))],
        }
        found = requests.of_pod(spec)
        for name in NAMES:
            assert found.get(name, 0) == step_by_step(spec, name), (name, spec)


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_each_quantity_is_added_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hundred containers with thirty names each took seconds: all names were added for each of them."""
    added = 0

    class Counting(Fraction):
        def __add__(self, other: Any) -> Any:
            nonlocal added
            added += 1
            return Counting(Fraction.__add__(self, other))

        __radd__ = __add__

    monkeypatch.setattr(requests, "parse_fraction", Counting)
    many = [
        {
            "resources": {"requests": {f"a.example/{number}-{index}": "1" for index in range(30)}},
            "restartPolicy": "Always",
        }
        for number in range(40)
    ]
    found = requests.of_pod({kind: many})
    assert len(found) == 1201
    assert added <= 3 * 1200
