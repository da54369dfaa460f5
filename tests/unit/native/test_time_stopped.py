"""A program that is stopped for longer than its lease, as a debugger does, and goes on."""

import signal
import subprocess
import time

from unit.native.test_time_ways import _counted, _page, _start, _wait_until
from unit.native.time_building import compiled
from unit.native.time_worlds import HIGH, LOW, MS, Box, Machine

LONG_MS = 20_000


def test_one_that_was_stopped_takes_no_hold_from_another_of_its_container(machine: Machine) -> None:
    """Its place was given to the other meanwhile: at its end it must not leave that."""
    machine.add(Box("high", share_class=HIGH, lease_ms=500), Box("low", share_class=LOW, lease_ms=LONG_MS))
    stopped = _start(machine, "high", "count", 16, MS, "kernel")
    stopped.begin()
    _wait_until(lambda: _counted(machine, "high") == 16)
    time.sleep(0.3)
    stopped.process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    high = machine.start("high", "run", 3, 100_000, MS)
    low = machine.start("low", "run", 10, 1, 100_000)
    high.begin()
    machine.wait_for_units(high)
    stopped.process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    stopped.result()
    assert _page(machine, "high").cards[0].word % 2 == 1  # it says that it is active
    low.begin()
    high.result()
    assert machine.percent_beside(low, high) == 0
    low.process.kill()


WORD_AT = 64
"""In an activity page (abi/activity.h): the word of its first card."""


def test_one_that_was_taken_for_dead_says_again_that_it_is_active(machine: Machine) -> None:
    """Another of its container that became idle meanwhile took their word back."""
    machine.add(Box("high", share_class=HIGH, lease_ms=500))
    high = machine.start("high", "run", 3, 100_000, MS)
    high.begin()
    machine.wait_for_units(high)
    with (machine.peers / "high").open("r+b") as page:
        page.seek(WORD_AT)
        page.write((_page(machine, "high").cards[0].word + 1).to_bytes(4, "little"))
    time.sleep(0.3)
    assert _page(machine, "high").cards[0].word % 2 == 1
    high.process.kill()


def test_a_thread_is_not_cancelled_while_it_waits_for_a_short_lock() -> None:
    """It may be the one that asks the card what has ended, for which all others would wait for good."""
    program = compiled("spin-cancelled", "tests/spin_cancelled.c")
    run = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "passed\n")
