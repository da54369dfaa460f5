"""The limiter and the gate of the in-container library: pure C, tried with random steps."""

import subprocess
from pathlib import Path

import pytest
from unit.native.time_building import compiled

STEPS_QUICK = 100_000
STEPS_ALL = 1_000_000
PARTS = ("limiter", "gate", "settle")
SOURCES = ("tests/properties_time.c", *(f"lib/time/{part}.c" for part in PARTS))


def _run(program: Path, steps: int) -> None:
    done = subprocess.run([program, str(steps)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _properties() -> Path:
    return compiled("properties_time", *SOURCES, sanitize="address,undefined")


def test_limiter_and_gate_hold_their_properties() -> None:
    _run(_properties(), STEPS_QUICK)


@pytest.mark.long
def test_limiter_and_gate_hold_their_properties_over_a_million_steps() -> None:
    _run(_properties(), STEPS_ALL)
