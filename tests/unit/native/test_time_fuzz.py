"""Neighbours write what they like into their own pages: who reads them goes on, and keeps to its share."""

import random
import time

import pytest
from unit.native.time_worlds import HARD, HIGH, LOW, MS, SECOND_NS, SOFT, Box, Machine

FOR_LONG_S = 300
CHANGES = 300
WORDS = (0, 1, 2, 3, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)


def _nonsense(chance: random.Random, page: bytearray) -> None:
    """Words at the edges, stamps of now and of the future, single bytes: anywhere."""
    for _ in range(chance.randrange(1, 40)):
        at = chance.randrange(len(page) // 8) * 8
        now = time.monotonic_ns()
        word = chance.choice([*WORDS, now, now + SECOND_NS, now - SECOND_NS, chance.getrandbits(64)])
        page[at : at + 8] = word.to_bytes(8, "little")
    page[chance.randrange(len(page))] = chance.randrange(256)


@pytest.mark.parametrize("share_class", [LOW, HIGH])
@pytest.mark.parametrize("seed", range(2))
def test_pages_of_neighbours_that_change_at_random(machine: Machine, share_class: int, seed: int) -> None:
    """A claim lasts no longer than a hang, whatever the page says: the program is never held for ever."""
    chance = random.Random(seed)
    machine.add(
        Box("a", HARD, 40, share_class=share_class, hang_ms=200, lease_ms=200),
        Box("b", share_class=HIGH),
        Box("c", SOFT, 10, 10),
    )
    running = machine.start("a", "run", FOR_LONG_S, 100, MS)
    running.begin()
    machine.wait_for_units(running)
    pages = [machine.peers / name for name in "bc"]
    for _ in range(CHANGES):
        path = chance.choice(pages)
        page = bytearray(path.read_bytes())
        _nonsense(chance, page)
        with path.open("r+b") as file:
            file.write(page)
        time.sleep(0.002)  # what is written is looked at, in all its states
    machine.wait_for_units(running, since_ns=time.monotonic_ns(), units=50)
    assert machine.busiest_second_ns(running.process.pid) <= 0.42 * SECOND_NS + 2 * MS
