"""What a share of a card's time gets at least, and how soon.

The machine has to wake programs in time for that, so these run alone and not with the quick tests; `make
bench-isolation` has the exact figures.
"""

import time

import pytest
from unit.native.time_worlds import FREE, HARD, HIGH, LOW, MS, SECOND_NS, SOFT, Box, Machine

pytestmark = [pytest.mark.long, pytest.mark.calm]


@pytest.mark.parametrize("kernel_ns", [50_000, MS, 20 * MS])
def test_a_hard_share_is_reached(machine: Machine, kernel_ns: int) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([machine.start("a", "run", 2.2, 1000, kernel_ns)])
    assert machine.share(said["pid"], said["from_ns"], said["to_ns"]) > 20


def test_two_shares_on_one_card_are_both_reached(machine: Machine) -> None:
    machine.add(Box("a", HARD, 30), Box("b", HARD, 60))
    says = machine.together([machine.start(name, "run", 2, 1000, MS) for name in "ab"])
    span = max(say["from_ns"] for say in says) + 100 * MS, min(say["to_ns"] for say in says)
    a, b = (machine.share(say["pid"], *span) for say in says)
    assert 20 < a < 34
    assert 45 < b < 64


def test_processes_of_one_container_reach_its_share(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    says = machine.together([machine.start("a", "run", 2, 1000, length) for length in (50_000, MS)])
    span = max(say["from_ns"] for say in says) + 200 * MS, min(say["to_ns"] for say in says)
    assert 25 < sum(machine.share(say["pid"], *span) for say in says) < 43


def test_soft_shares_divide_by_weight_and_one_alone_has_all(machine: Machine) -> None:
    machine.add(Box("a", SOFT, 1, 25), Box("b", SOFT, 1, 75))
    programs = [machine.start("a", "run", 2.5, 1000, MS), machine.start("b", "run", 1.2, 1000, MS)]
    says = machine.together(programs)
    span = max(say["from_ns"] for say in says) + 150 * MS, min(say["to_ns"] for say in says) - 50 * MS
    a, b = (machine.share(say["pid"], *span) for say in says)
    assert 2 < b / a < 4
    after = says[1]["to_ns"] + 150 * MS, says[0]["to_ns"] - 50 * MS
    assert machine.share(says[0]["pid"], *after) > 70


def test_a_changed_share_is_in_force_within_200_ms(machine: Machine) -> None:
    machine.add(Box("a", HARD, 80))
    running = machine.start("a", "run", 2, 1000, MS)
    running.begin()
    time.sleep(0.7)  # the time in which it has 80: what is judged comes after
    machine.change("a", cores=20)
    changed = time.monotonic_ns()
    said = running.result()
    assert 10 < machine.share(said["pid"], changed + 200 * MS, said["to_ns"]) < 24


def test_high_has_the_card_while_low_waits(machine: Machine) -> None:
    machine.add(Box("high", share_class=HIGH), Box("low", share_class=LOW))
    low = machine.start("low", "run", 2.5, 100, 200_000)
    high = machine.start("high", "run", 1, 1000, MS)
    low.begin()
    high.begin()
    h, lo = high.result(), low.result()
    span = h["from_ns"] + 50 * MS, h["to_ns"] - 50 * MS
    assert machine.share(h["pid"], *span) > 80
    assert machine.share(lo["pid"], *span) < 5
    assert machine.share(lo["pid"], h["to_ns"] + 50 * MS, lo["to_ns"]) > 40


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
    assert machine.share(said["pid"], killed + 400 * MS, said["to_ns"]) > 40


def test_low_has_what_the_share_of_high_leaves(machine: Machine) -> None:
    machine.add(Box("high", HARD, 30, share_class=HIGH), Box("low", share_class=LOW))
    programs = [machine.start("high", "run", 2, 1000, 5 * MS), machine.start("low", "run", 2, 100, 200_000)]
    says = machine.together(programs)
    span = max(say["from_ns"] for say in says) + 200 * MS, min(say["to_ns"] for say in says)
    assert machine.share(says[0]["pid"], *span) < 34
    assert machine.share(says[1]["pid"], *span) > 25


@pytest.mark.parametrize(("share_class", "policy"), [(0, FREE), (0, HARD), (LOW, FREE)])
def test_kernels_that_meet_do_so_soon(machine: Machine, share_class: int, policy: int) -> None:
    machine.add(Box("a", policy, 50, share_class=share_class), Box("high", share_class=HIGH))
    (said,) = machine.together([machine.start("a", "meet", 1, 4)])
    assert said["rounds"] > 20
    assert said["worst_ns"] < 2 * SECOND_NS


def test_garbled_neighbours_take_nothing(machine: Machine) -> None:
    machine.add(Box("a", HARD, 50, share_class=LOW), Box("b", share_class=HIGH))
    page = machine.peers / "b"
    with page.open("r+b") as file:
        file.write(b"\xff" * page.stat().st_size)
    (said,) = machine.together([machine.start("a", "run", 1, 100, MS)])
    assert machine.share(said["pid"], said["from_ns"], said["to_ns"]) > 15
