"""Every way to give a card work counts; and who waits for whom, in the corners. Judged by the card's log."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from unit.native.time_worlds import BUILD, HARD, HIGH, LOW, Box, Machine, Running
from vc_egpu_node.isolation import abi

MS = 1_000_000
SECOND = 1000 * MS
EVER = 1 << 63
UNTIL_S = 30.0
HEARD_NS = 300 * MS
LONG_MS = 20_000
"""A lease that does not run out on a machine that is busy."""
PROGRAM = BUILD / "ways-actor"
WAYS = (
    "kernel",
    "kernel-default",
    "kernel-ptsz",
    "cooperative",
    "cooperative-ptsz",
    "kernel-ex",
    "kernel-ex-ptsz",
    "set",
    "set-sync",
    "set-ptds",
    "set-ptsz",
    "set-2d",
    "copy",
    "copy-sync",
    "copy-ptds",
    "copy-ptsz",
    "copy-any",
    "copy-2d",
)


def _start(machine: Machine, box: str, *words: object, last_words: str = "") -> Running:
    """A program of tests/ways_actor.c that sees the cards of its container."""
    cards = ",".join(map(str, machine.boxes[box].cards))
    return machine.start(box, *words, program=PROGRAM, FAKE_CUDA_VISIBLE=cards, WAYS_LAST_WORDS=last_words)


def _wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + UNTIL_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def _page(machine: Machine, box: str) -> abi.ActivityPage:
    return abi.ActivityPage.from_buffer_copy((machine.peers / box).read_bytes())


def _counted(machine: Machine, box: str, card: int = 0) -> int:
    """Units that the library has let go there, by the container's own page."""
    return int(_page(machine, box).cards[card].units)


def _ran(machine: Machine, running: Running, card: int = 0) -> int:
    used = machine.used(0, EVER).get((running.process.pid, card))
    return used.units if used else 0


@pytest.mark.parametrize("way", WAYS)
def test_each_unit_is_counted_once_whichever_way_it_came(machine: Machine, way: str) -> None:
    machine.add(Box("a", HARD, 90))
    running = _start(machine, "a", "count", 16, 100_000, way)
    running.begin()
    _wait_until(lambda: _ran(machine, running) == 16)
    running.result()
    assert _counted(machine, "a") == 16


@pytest.mark.parametrize("way", ["kernel-ptsz", "cooperative", "set", "copy-ptds"])
def test_no_way_goes_past_the_share(machine: Machine, way: str) -> None:
    machine.add(Box("a", HARD, 30))
    (said,) = machine.together([_start(machine, "a", way, 1.5, MS)])
    assert machine.busiest_second_ns(said["pid"]) <= 0.32 * SECOND + 1.2 * MS


def test_a_launch_on_several_cards_counts_on_each(machine: Machine) -> None:
    machine.add(Box("a", HARD, 90, cards=(0, 1)))
    running = _start(machine, "a", "count", 48, 100_000, "multi")
    running.begin()
    _wait_until(lambda: [_ran(machine, running, card) for card in (0, 1)] == [48, 48])
    assert [_counted(machine, "a", card) for card in (0, 1)] == [48, 48]
    running.result()


def test_a_launch_on_several_cards_stays_within_the_share_of_each(machine: Machine) -> None:
    machine.add(Box("a", HARD, 30, cards=(0, 1)))
    (said,) = machine.together([_start(machine, "a", "multi", 1.5, MS)])
    for used in machine.used(0, EVER).values():
        assert used.busiest_second_ns <= 0.32 * SECOND + 1.2 * MS
    assert set(machine.used(0, EVER)) == {(said["pid"], 0), (said["pid"], 1)}


def _launched_beside(
    machine: Machine, low: Running, high: Running, high_card: int = 0, since_ns: int = 0
) -> int:
    """Launches of low on the first card while high had work on its card, but for the begin of each piece of
    that work since then: whoever hears of it has to be given a processor first."""
    busy = [(max(begin, since_ns) + HEARD_NS, end) for begin, end in machine.at_work(high, high_card)]
    assert max(end - begin for begin, end in busy) > 0, "high was never at work for long"
    pid = low.process.pid
    launches = {enqueued for who, enqueued, _, _ in machine.stretches(0, EVER) if who == pid}
    return sum(begin < at < end for at in launches for begin, end in busy)


def test_low_on_two_cards_waits_for_high_on_one_of_them(machine: Machine) -> None:
    machine.add(
        Box("high", share_class=HIGH, cards=(1,), lease_ms=LONG_MS),
        Box("low", share_class=LOW, cards=(0, 1), lease_ms=LONG_MS),
    )
    low = _start(machine, "low", "kernel", 3, 100_000)  # on its first card, where nobody else is
    high = machine.start("high", "run", 1, 1000, MS, FAKE_CUDA_VISIBLE="1")
    low.begin()
    machine.wait_for_units(low)
    high.begin()
    machine.wait_for_units(low, since_ns=high.result()["to_ns"])
    assert _launched_beside(machine, low, high, 1) == 0
    low.result()


def test_containers_of_a_low_pod_wait_for_high_on_the_card_of_one_of_them(machine: Machine) -> None:
    """What one computes waits for what the other computes, most likely: both rest, none spins."""
    machine.add(
        Box("high", share_class=HIGH, cards=(1,), lease_ms=LONG_MS),
        Box("low", share_class=LOW, cards=(0,), lease_ms=LONG_MS, pod="p"),
        Box("sibling", share_class=LOW, cards=(1,), lease_ms=LONG_MS, pod="p"),
        Box("alone", share_class=LOW, cards=(0,), lease_ms=LONG_MS),
    )
    low, alone = (_start(machine, name, "kernel", 60, 100_000) for name in ("low", "alone"))
    high = machine.start("high", "run", 1, 1000, MS, FAKE_CUDA_VISIBLE="1")
    for one in (low, alone):
        one.begin()
        machine.wait_for_units(one)
    high.begin()
    ended = high.result()["to_ns"]
    for one in (low, alone):
        machine.wait_for_units(one, since_ns=ended)
    assert _launched_beside(machine, low, high, 1) == 0
    assert _launched_beside(machine, alone, high, 1) > 0, "high is on a card that it does not use"


def test_low_has_its_floor_after_it_was_held_for_long(machine: Machine) -> None:
    machine.add(
        Box("high", share_class=HIGH, lease_ms=LONG_MS),
        Box("low", share_class=LOW, floor_percent=20, floor_after_ms=400, lease_ms=LONG_MS),
        Box("never", share_class=LOW, floor_percent=0, floor_after_ms=0, lease_ms=LONG_MS),
    )
    high = machine.start("high", "run", 60, 1000, MS)
    low, never = (_start(machine, name, "kernel", 60, 200_000) for name in ("low", "never"))
    high.begin()
    machine.wait_for_units(high)
    began = time.monotonic_ns()
    for one in (low, never):
        one.begin()

    def after_it_was_held() -> list[int]:
        pieces = [(max(begin, began) + 400 * MS, end) for begin, end in machine.at_work(high)]
        rows = [row[1] for row in machine.stretches(began, EVER) if row[0] == low.process.pid]
        return [at for at in rows if any(begin < at < end for begin, end in pieces)]

    _wait_until(lambda: len(after_it_was_held()) >= 3)
    high.process.kill()
    ended = time.monotonic_ns()
    assert _launched_beside(machine, never, high, since_ns=began) == 0
    before_it_was_held = _launched_beside(machine, low, high, since_ns=began) - len(after_it_was_held())
    assert before_it_was_held <= len(machine.at_work(high))  # a hold outlasts a short break of high
    busy = sum(end - begin for begin, end in machine.at_work(high) if end > began)
    assert len(after_it_was_held()) * 200_000 < 0.3 * busy + 3 * MS
    assert machine.share(low.process.pid, began, ended) < 30


def test_a_kernel_without_progress_holds_nobody_for_longer_than_is_called_a_hang(machine: Machine) -> None:
    machine.add(
        Box("high", share_class=HIGH, hang_ms=600, lease_ms=LONG_MS),
        Box("low", share_class=LOW, hang_ms=600, lease_ms=LONG_MS),
    )
    high = _start(machine, "high", "hang", 2.5, 1000)
    low = _start(machine, "low", "count", 64, 100_000, "kernel")
    high.begin()
    _wait_until(lambda: _page(machine, "high").cards[0].word % 2 == 1)  # it says that it is active
    low.begin()
    lo, h = low.result(), high.result()
    rows = [row for row in machine.stretches(0, EVER) if row[0] == lo["pid"]]
    assert len(rows) >= 64
    assert min(start for _, _, start, _ in rows) - h["from_ns"] > 590 * MS


def test_children_that_are_forked_and_end_change_nothing(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([_start(machine, "a", "fork", 1.5, MS)])
    used = machine.used(0, EVER)
    assert {pid for pid, _ in used} == {said["pid"]}
    assert machine.busiest_second_ns(said["pid"]) <= 0.42 * SECOND + 1.2 * MS


def test_a_child_forked_before_may_use_the_card_under_the_same_share(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    (said,) = machine.together([_start(machine, "a", "child", 1.5, MS)])
    assert machine.busiest_second_ns(said["pid"]) <= 0.42 * SECOND + 1.2 * MS


def test_a_process_that_ends_leaves_no_hold_behind(machine: Machine) -> None:
    machine.add(Box("high", share_class=HIGH, lease_ms=60_000), Box("low", share_class=LOW, lease_ms=60_000))
    high = _start(machine, "high", "kernel", 0.3, MS)
    low = _start(machine, "low", "count", 16, 100_000, "kernel")
    high.begin()
    machine.wait_for_units(high)
    low.begin()
    high.result()
    low.result(UNTIL_S)  # long before the lease ends


def test_a_program_that_takes_long_to_end_is_not_at_work_again_meanwhile(machine: Machine) -> None:
    """Its kernel is there until the last. Our thread, which would see that and say so, has ended by then."""
    machine.add(Box("high", share_class=HIGH, lease_ms=60_000), Box("low", share_class=LOW))
    words = _full(machine.root / "words")
    high = _start(machine, "high", "hang", 0.05, MS, last_words=words)
    high.begin()
    _wait_until(lambda: _active(machine, "high"))
    assert _watches(high)
    assert high.process.stdin
    high.process.stdin.close()
    _wait_until(lambda: _page(machine, "high").slots_used == 0)
    assert not _watches(high)
    time.sleep(0.05)
    assert not _active(machine, "high")
    assert _page(machine, "high").slots_used == 0
    assert high.process.poll() is None, "it did not take long"


def _watches(running: Running) -> bool:
    """Whether our thread is there in this program."""
    threads = Path(f"/proc/{running.process.pid}/task").iterdir()
    return any((thread / "comm").read_text() == "egpu-watch\n" for thread in threads)


def _active(machine: Machine, box: str) -> bool:
    return bool(_page(machine, box).cards[0].word & 1)


def _full(fifo: Path) -> str:
    """A pipe of this name into which nothing goes any more."""
    os.mkfifo(fifo)
    filled = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(filled, bytes(4096))
    return str(fifo)
