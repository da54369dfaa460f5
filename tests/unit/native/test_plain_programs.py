"""Ordinary programs see with the library what they see without it.

Each is run on the fake driver. Where a plain program could see anything else, it is run without the library
as well.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from children import rest_of
from unit.native.time_worlds import BUILD, HARD, HIGH, LOW, SOFT, Box, Machine

PROGRAM = BUILD / "plain-actor"
MIB_OF_CAP = 8192
UINT64_MAX = 2**64 - 1
QUIET = {"FAKE_CUDA_NOISE_PERCENT": "0"}
"""Kernels take as long as they say."""


TRIES = 5
"""A measured share is less where the machine has no processor to spare."""


def _said(
    machine: Machine, *words: object, preload: bool = True, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    running = machine.start("a", *words, preload=preload, program=PROGRAM, environment=environment)
    (said,) = machine.together([running])
    return said


@pytest.mark.parametrize("mode", ["slices", "overlap"])
def test_streams_that_meet_beside_a_launch_on_the_legacy_stream(machine: Machine, mode: str) -> None:
    """A late event on the legacy stream parts the two: the first waits for ever for the second."""
    machine.mode = mode
    machine.add(Box("a"))
    assert _said(machine, "meet", 20) == {"rounds": 20}


@pytest.mark.parametrize(("policy", "share"), [(HARD, 90), (SOFT, 100)])
def test_streams_that_meet_under_a_limit(machine: Machine, policy: int, share: int) -> None:
    machine.mode = "overlap"
    machine.add(Box("a", policy, share, 50))
    assert _said(machine, "meet", 10) == {"rounds": 10}


@pytest.mark.calm
def test_streams_run_side_by_side_after_a_launch_on_the_legacy_stream(machine: Machine) -> None:
    """Two kernels of 20 ms, the second 6 ms after the first: 26 ms, and not 38."""
    machine.mode = "overlap"
    machine.add(Box("a"))
    plain = _said(machine, "side", 8, 20_000_000, preload=False, environment=QUIET)["round_ns"]
    ours = _said(machine, "side", 8, 20_000_000, environment=QUIET)["round_ns"]
    assert 26e6 <= plain < 32e6
    assert ours < plain * 1.15


@pytest.mark.parametrize(
    ("box", "beside"),
    [
        (Box("a"), None),
        (Box("a", HARD, 50), None),
        (Box("a", SOFT, 50, 50), None),
        (Box("a", share_class=LOW), Box("b", share_class=HIGH)),
    ],
    ids=["no cap", "hard", "soft", "low beside idle high"],
)
def test_captures_of_other_threads_are_not_spoilt(machine: Machine, box: Box, beside: Box | None) -> None:
    """A thread in the usual mode that asks about an event spoils all others' captures: they answer 901."""
    machine.mode = "slices"
    machine.add(*(one for one in (box, beside) if one))
    said = _said(machine, "capture", 1.5, 2_000_000)
    assert said["spoilt"] == 0
    assert said["captures"] > 100


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


@pytest.mark.parametrize("length_ns", [20_000, 2_000_000])
def test_a_program_ends_as_it_would(machine: Machine, length_ns: int) -> None:
    """By exit() with kernels under way: nobody calls the driver once its own exit handler has begun."""
    machine.add(Box("a"))
    seen: Counter[tuple[int, str]] = Counter()
    for _ in range(10):
        running = machine.start("a", "leave", length_ns, program=PROGRAM, FAKE_CUDA_EXIT_US="30000")
        running.begin()
        code, _out, errors = rest_of(running.process, 60)
        seen[code, errors] += 1
    assert seen == {(0, ""): 10}


@pytest.mark.parametrize("how", ["stream", "context", "stays"])
def test_a_capture_that_is_left_open_costs_nothing_later(machine: Machine, how: str) -> None:
    """Neither while it stays open, nor once its stream is gone: low has all but a little of an idle card."""
    machine.add(Box("a", share_class=LOW), Box("b", share_class=HIGH))
    best = 0.0
    for _ in range(TRIES):
        best = max(best, _said(machine, "open", 1, 200_000, how, environment=QUIET)["percent"])
        if best > 85:
            break
    assert best > 55, "it was 45 to 52 where the capture counted on"
