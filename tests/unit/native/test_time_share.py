"""Shares of a card's time and the order of classes, judged by the fake card's timeline.

Upper bounds are exact, whatever else the machine does: a program that is not woken uses less. That a share is
reached as well is test_time_floors.py's matter; here a program has only to go on, however long that takes.
"""

import os
import subprocess
import time
from pathlib import Path

import pytest
from unit.native.time_worlds import FREE, HARD, HIGH, LOW, MS, NATIVE, SECOND_NS, SOFT, Box, Machine

pytestmark = pytest.mark.calm

FOR_LONG_S = 100
"""Programs that run until the test has seen what it waits for."""


@pytest.mark.parametrize("kernel_ns", [50_000, MS, 20 * MS])
def test_a_hard_share_is_kept_in_every_second(machine: Machine, kernel_ns: int) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "run", 2.2, 1000, kernel_ns)])
    assert 0 < machine.busiest_second_ns(said["pid"]) <= 0.42 * SECOND_NS + 1.2 * kernel_ns


def test_two_shares_on_one_card_do_not_take_from_each_other(machine: Machine) -> None:
    machine.add(Box("a", HARD, 30), Box("b", HARD, 60))
    says = machine.together([machine.start(name, "run", 2, 1000, MS) for name in "ab"])
    a, b = (machine.busiest_second_ns(say["pid"]) for say in says)
    assert 0 < a < 0.34 * SECOND_NS
    assert 0 < b < 0.64 * SECOND_NS


def test_processes_of_one_container_have_one_share(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    says = machine.together([machine.start("a", "run", 2, 1000, length) for length in (50_000, MS)])
    assert 0 < machine.busiest_second_ns(*(say["pid"] for say in says)) < 0.44 * SECOND_NS


def test_a_changed_share_comes_into_force_while_the_program_runs(machine: Machine) -> None:
    machine.add(Box("a", HARD, 80))
    running = machine.start("a", "run", FOR_LONG_S, 1000, MS)
    running.begin()
    machine.wait_for_units(running, units=300)
    machine.change("a", cores=20)
    machine.wait_for_share(running, below=24)


def test_low_waits_while_high_is_active_and_runs_on_after_it(machine: Machine) -> None:
    machine.add(Box("high", share_class=HIGH, lease_ms=20_000), Box("low", share_class=LOW, lease_ms=20_000))
    low = machine.start("low", "run", FOR_LONG_S, 100, 200_000)
    high = machine.start("high", "run", 1, 1000, MS)
    low.begin()
    high.begin()
    machine.wait_for_units(low, since_ns=high.result()["to_ns"], units=20)
    assert machine.percent_beside(low, high) < 5


def test_a_dead_high_program_holds_nobody_for_ever(machine: Machine) -> None:
    machine.add(Box("high", share_class=HIGH, lease_ms=300), Box("low", share_class=LOW, lease_ms=300))
    high = machine.start("high", "run", FOR_LONG_S, 2, 20 * MS)
    low = machine.start("low", "run", FOR_LONG_S, 100, 200_000)
    high.begin()
    machine.wait_for_units(high)  # it is in the midst of its work
    low.begin()
    high.process.kill()
    machine.wait_for_units(low, since_ns=time.monotonic_ns(), units=100)


def test_high_that_waits_for_its_own_share_leaves_the_gaps(machine: Machine) -> None:
    machine.add(Box("high", HARD, 30, share_class=HIGH), Box("low", share_class=LOW))
    high = machine.start("high", "run", FOR_LONG_S, 1000, 5 * MS)
    low = machine.start("low", "run", FOR_LONG_S, 100, 200_000)
    high.begin()
    machine.wait_for_units(high)
    low.begin()
    machine.wait_for_units(low, units=500)
    machine.wait_for_units(high, units=100)
    assert machine.busiest_second_ns(high.process.pid) < 0.34 * SECOND_NS


@pytest.mark.parametrize(("share_class", "policy"), [(0, FREE), (0, HARD), (LOW, FREE)])
def test_kernels_that_meet_never_get_stuck(machine: Machine, share_class: int, policy: int) -> None:
    machine.add(Box("a", policy, 50, share_class=share_class), Box("high", share_class=HIGH))
    (said,) = machine.together([machine.start("a", "meet", 1, 4)])
    assert said["rounds"] >= 3


def test_a_graph_holds_what_the_program_put_into_it_and_nothing_of_ours(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "graph", 1.5, 30, 100_000)])
    assert said["nodes"] == 30
    assert 0 < machine.busiest_second_ns(said["pid"]) < 0.45 * SECOND_NS


def test_garbled_neighbours_hurt_nobody_else(machine: Machine) -> None:
    machine.add(Box("a", HARD, 50, share_class=LOW), Box("b", share_class=HIGH), Box("c", SOFT, 10, 10))
    size = (machine.peers / "b").stat().st_size
    for name in "bc":
        with (machine.peers / name).open("r+b") as page:
            page.write(b"\xff" * size)
    running = machine.start("a", "run", FOR_LONG_S, 100, MS)
    running.begin()
    machine.wait_for_units(running, units=500)
    assert machine.busiest_second_ns(running.process.pid) < 0.56 * SECOND_NS


def test_a_neighbour_that_cuts_its_page_short_kills_nobody(machine: Machine) -> None:
    machine.add(Box("low", SOFT, 50, 50, share_class=LOW), Box("high", SOFT, 50, 50, share_class=HIGH))
    running = machine.start("low", "run", FOR_LONG_S, 100, MS)
    running.begin()
    machine.wait_for_units(running, units=200)  # it looks at its neighbour's page all the time
    os.truncate(machine.peers / "high", 0)
    machine.wait_for_units(running, since_ns=time.monotonic_ns(), units=200)


def test_threads_of_one_program_have_one_share(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "threads", 1.5, 4)])
    assert 0 < machine.busiest_second_ns(said["pid"]) <= 0.43 * SECOND_NS


def test_streams_side_by_side_have_one_share(machine: Machine) -> None:
    """A long kernel is not free because short ones begin and end while it runs."""
    machine.mode = "overlap"
    machine.add(Box("a", HARD, 30))
    (said,) = machine.together([machine.start("a", "beside", 2.2, f"{5 * MS},100000,50000")])
    assert 0 < machine.busiest_second_ns(said["pid"]) < 0.42 * SECOND_NS


RACERS = (
    ("threads", 2, 4),
    ("beside", 2, f"{2 * MS},100000,50000"),
    ("graph", 1, 20, 100_000),
    ("meet", 1, 3),
    ("serve", 2, 50),
)


@pytest.mark.long
def test_no_data_races(machine: Machine, tmp_path: Path) -> None:
    """Library and program as one, under ThreadSanitizer."""
    out = tmp_path / "tsan"
    program = out / "time-actor-tsan"
    subprocess.run(["make", "-s", "-C", NATIVE, f"OUT={out}", str(program)], check=True, capture_output=True)
    machine.add(Box("a", HARD, 60, share_class=HIGH), Box("b", SOFT, 10, 10, share_class=LOW))
    for words in RACERS:
        running = machine.start("a", *words, preload=False, program=program, LD_LIBRARY_PATH=str(out))
        running.begin()
        running.result()
