"""What is launched beside a capture is gated and seen to end; what is captured is let alone."""

from unit.native.test_time_ways import _counted, _page, _start, _wait_until
from unit.native.time_worlds import HARD, HIGH, MS, SECOND_NS, Box, Machine


def test_a_launch_beside_a_capture_does_not_wait_for_its_end(machine: Machine) -> None:
    """The same thread ends the capture: it would wait for itself."""
    machine.add(Box("a", HARD, 90))
    (said,) = machine.together([_start(machine, "a", "capture", 0.5, 5_000)])
    assert said["units"] > 20


def test_what_was_launched_before_a_capture_is_seen_to_end(machine: Machine) -> None:
    """Else high would hold low for as long as it captures."""
    machine.add(Box("high", share_class=HIGH))
    high = _start(machine, "high", "captured", 61, 5_000)
    high.begin()
    _wait_until(lambda: _counted(machine, "high") == 61)
    _wait_until(lambda: _page(machine, "high").cards[0].word % 2 == 0)  # it says that it is idle
    assert high.process.stdin
    high.process.stdin.close()
    assert high.process.wait(30) == 0


def test_a_graph_with_the_handle_of_one_that_is_gone_is_not_taken_for_that(machine: Machine) -> None:
    machine.add(Box("a", HARD, 90))
    running = _start(machine, "a", "regraph", 10, 50_000)
    running.begin()
    machine.wait_for_units(running, units=15)
    running.process.kill()
    assert machine.busiest_second_ns(running.process.pid) < 0.56 * SECOND_NS + 50 * MS
