"""A program that runs for weeks has hundreds of neighbours, one after the other."""

import time
from pathlib import Path

import pytest
from unit.native.time_worlds import HIGH, LOW, MS, Box, Machine, Running

pytestmark = pytest.mark.calm

AT_ONCE = 120
ROUNDS = 3
LONG_MS = 20_000
SEEN_S = 30


def _wait_until_seen(low: Running, name: str) -> None:
    """Until the program has that neighbour's page before it."""
    maps = Path(f"/proc/{low.process.pid}/maps")
    end = time.monotonic() + SEEN_S
    while name not in maps.read_text():
        assert time.monotonic() < end, f"{name} is not seen"
        time.sleep(0.02)


def test_low_is_held_by_a_neighbour_that_comes_after_hundreds_of_others(machine: Machine) -> None:
    machine.add(Box("low", share_class=LOW, lease_ms=LONG_MS))
    low = machine.start("low", "run", 60, 1, 100_000)
    low.begin()
    machine.wait_for_units(low)
    for turn in range(ROUNDS):
        names = [f"past-{turn}-{index}" for index in range(AT_ONCE)]
        machine.add(*(Box(name, share_class=HIGH) for name in names))
        _wait_until_seen(low, names[0])
        machine.remove(*names)
    machine.add(Box("last", share_class=HIGH, lease_ms=LONG_MS))
    _wait_until_seen(low, "peers/last")
    high = machine.start("last", "run", 1, 1000, MS)
    high.begin()
    machine.wait_for_units(low, since_ns=high.result()["to_ns"])
    # Not held it has half of the card. A unit of 100 us goes where high's program had no processor for long.
    assert machine.percent_beside(low, high) < 1
    low.process.kill()
