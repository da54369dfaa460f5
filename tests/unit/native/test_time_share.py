"""Shares of a card's time and the order of classes, judged by the fake card's timeline.

Upper bounds are exact. How much a program gets at least depends on how soon the machine wakes it: `make
bench-isolation` measures that; here it only has to run at all.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native.time_worlds import FREE, HARD, HIGH, LOW, NATIVE, SOFT, Box, Machine, Used

MS = 1_000_000
SECOND = 1000 * MS
ALL_TIME = (0, 1 << 63)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "m")
    yield made
    made.close()


def _share(used: Used, from_ns: int, to_ns: int) -> float:
    return 100 * used.busy_ns / (to_ns - from_ns)


@pytest.mark.parametrize("kernel_ns", [50_000, MS, 20 * MS])
def test_a_hard_share_is_kept_in_every_second(machine: Machine, kernel_ns: int) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "run", 2.2, 1000, kernel_ns)])
    used = machine.used(*ALL_TIME)[said["pid"], 0]
    assert used.busiest_second_ns <= 0.42 * SECOND + 1.2 * kernel_ns
    assert _share(used, said["from_ns"], said["to_ns"]) > 20


def test_two_shares_on_one_card_do_not_take_from_each_other(machine: Machine) -> None:
    machine.add(Box("a", HARD, 30), Box("b", HARD, 60))
    says = machine.together([machine.start(name, "run", 2, 1000, MS) for name in "ab"])
    span = max(say["from_ns"] for say in says) + 100 * MS, min(say["to_ns"] for say in says)
    used = machine.used(*span)
    a, b = (_share(used[say["pid"], 0], *span) for say in says)
    assert 20 < a < 34
    assert 45 < b < 64


def test_processes_of_one_container_have_one_share(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    says = machine.together([machine.start("a", "run", 2, 1000, length) for length in (50_000, MS)])
    span = max(say["from_ns"] for say in says) + 200 * MS, min(say["to_ns"] for say in says)
    used = machine.used(*span)
    both = sum(_share(one, *span) for one in used.values())
    assert 25 < both < 43


def test_soft_shares_divide_by_weight_and_one_alone_has_all(machine: Machine) -> None:
    machine.add(Box("a", SOFT, 1, 25), Box("b", SOFT, 1, 75))
    programs = [machine.start("a", "run", 2.5, 1000, MS), machine.start("b", "run", 1.2, 1000, MS)]
    says = machine.together(programs)
    span = max(say["from_ns"] for say in says) + 150 * MS, min(say["to_ns"] for say in says) - 50 * MS
    used = machine.used(*span)
    a, b = (_share(used[say["pid"], 0], *span) for say in says)
    assert 2 < b / a < 4
    after = says[1]["to_ns"] + 150 * MS, says[0]["to_ns"] - 50 * MS
    assert _share(machine.used(*after)[says[0]["pid"], 0], *after) > 70


def test_a_changed_share_is_in_force_within_200_ms(machine: Machine) -> None:
    machine.add(Box("a", HARD, 80))
    running = machine.start("a", "run", 2, 1000, MS)
    running.begin()
    time.sleep(0.7)  # the time in which it has 80: what is judged comes after
    machine.change("a", cores=20)
    changed = time.monotonic_ns()
    said = running.result()
    span = changed + 200 * MS, said["to_ns"]
    assert _share(machine.used(*span)[said["pid"], 0], *span) < 24


def test_low_waits_while_high_is_active_and_runs_on_after_it(machine: Machine) -> None:
    machine.add(Box("high", share_class=HIGH), Box("low", share_class=LOW))
    low = machine.start("low", "run", 2.5, 100, 200_000)
    high = machine.start("high", "run", 1, 1000, MS)
    low.begin()
    high.begin()
    h, lo = high.result(), low.result()
    span = h["from_ns"] + 50 * MS, h["to_ns"] - 50 * MS
    used = machine.used(*span)
    assert _share(used[h["pid"], 0], *span) > 80
    assert (lo["pid"], 0) not in used or _share(used[lo["pid"], 0], *span) < 5
    after = h["to_ns"] + 50 * MS, lo["to_ns"]
    assert _share(machine.used(*after)[lo["pid"], 0], *after) > 40


def test_a_dead_high_program_holds_nobody_for_longer_than_its_lease(machine: Machine) -> None:
    machine.add(Box("high", share_class=HIGH, lease_ms=300), Box("low", share_class=LOW, lease_ms=300))
    high = machine.start("high", "run", 30, 2, 20 * MS)
    low = machine.start("low", "run", 2, 100, 200_000)
    high.begin()
    time.sleep(0.3)  # it is in the midst of its work
    low.begin()
    time.sleep(0.3)
    high.process.kill()
    killed = time.monotonic_ns()
    said = low.result()
    span = killed + 400 * MS, said["to_ns"]
    assert _share(machine.used(*span)[said["pid"], 0], *span) > 40


def test_high_that_waits_for_its_own_share_leaves_the_gaps(machine: Machine) -> None:
    machine.add(Box("high", HARD, 30, share_class=HIGH), Box("low", share_class=LOW))
    programs = [machine.start("high", "run", 2, 1000, 5 * MS), machine.start("low", "run", 2, 100, 200_000)]
    says = machine.together(programs)
    span = max(say["from_ns"] for say in says) + 200 * MS, min(say["to_ns"] for say in says)
    used = machine.used(*span)
    assert _share(used[says[0]["pid"], 0], *span) < 34
    assert _share(used[says[1]["pid"], 0], *span) > 25


@pytest.mark.parametrize(("share_class", "policy"), [(0, FREE), (0, HARD), (LOW, FREE)])
def test_kernels_that_meet_never_get_stuck(machine: Machine, share_class: int, policy: int) -> None:
    machine.add(Box("a", policy, 50, share_class=share_class), Box("high", share_class=HIGH))
    (said,) = machine.together([machine.start("a", "meet", 1, 4)])
    assert said["rounds"] > 20
    assert said["worst_ns"] < 2 * SECOND


def test_a_graph_holds_what_the_program_put_into_it_and_nothing_of_ours(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "graph", 1.5, 30, 100_000)])
    assert said["nodes"] == 30
    used = machine.used(*ALL_TIME)[said["pid"], 0]
    assert _share(used, said["from_ns"], said["to_ns"]) < 45


def test_garbled_neighbours_hurt_nobody_else(machine: Machine) -> None:
    machine.add(Box("a", HARD, 50, share_class=LOW), Box("b", share_class=HIGH), Box("c", SOFT, 10, 10))
    size = (machine.peers / "b").stat().st_size
    for name in "bc":
        with (machine.peers / name).open("r+b") as page:
            page.write(b"\xff" * size)
    (said,) = machine.together([machine.start("a", "run", 1, 100, MS)])
    used = machine.used(*ALL_TIME)[said["pid"], 0]
    assert 15 < _share(used, said["from_ns"], said["to_ns"]) < 56


def test_a_neighbour_that_cuts_its_page_short_kills_nobody(machine: Machine) -> None:
    machine.add(Box("low", SOFT, 50, 50, share_class=LOW), Box("high", SOFT, 50, 50, share_class=HIGH))
    running = machine.start("low", "run", 1.2, 100, MS)
    running.begin()
    time.sleep(0.4)  # it looks at its neighbour's page all the time
    os.truncate(machine.peers / "high", 0)
    said = running.result()
    used = machine.used(*ALL_TIME)[said["pid"], 0]
    assert _share(used, said["from_ns"], said["to_ns"]) > 60


def test_threads_of_one_program_have_one_share(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "threads", 1.5, 4)])
    used = machine.used(*ALL_TIME)[said["pid"], 0]
    assert used.busiest_second_ns <= 0.43 * SECOND


RACERS = (("threads", 2, 4), ("graph", 1, 20, 100_000), ("meet", 1, 3), ("serve", 2, 50))


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
