"""Ordinary programs see with the library what they see without it.

Each is run on the fake driver. Where a plain program could see anything else, it is run without the library
as well.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from unit.native.time_worlds import BUILD, Box, Machine

PROGRAM = BUILD / "plain-actor"
MIB_OF_CAP = 8192
UINT64_MAX = 2**64 - 1


def _said(
    machine: Machine, *words: object, preload: bool = True, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    running = machine.start("a", *words, preload=preload, program=PROGRAM, **(environment or {}))
    (said,) = machine.together([running])
    return said


@pytest.mark.parametrize("threshold", [1 << 50, UINT64_MAX], ids=["a large threshold", "the largest"])
def test_a_pool_near_the_cap_keeps_what_it_has(machine: Machine, threshold: int) -> None:
    """It has room inside: nothing more is to be had from the card, and nothing to be given back."""
    machine.add(Box("a"))
    for preload in (False, True):
        said = _said(machine, "pool", threshold, preload=preload)
        assert said["before_mib"] == said["asked_mib"]
        assert said["after_mib"] == said["before_mib"], preload
    assert said["asked_mib"] > MIB_OF_CAP * 0.8


def test_a_pool_that_cannot_grow_says_so(machine: Machine) -> None:
    """More than the cap is refused. What the pool has inside it still gives after that refusal."""
    machine.add(Box("a"))
    said = _said(machine, "full")
    assert said["result"] == 2
    assert said["within"] == 0
    assert said["left_mib"] < MIB_OF_CAP
