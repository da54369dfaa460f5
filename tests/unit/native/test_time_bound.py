"""How much work of a low container may be queued on a card: bounded where a high share sits, and there only.

In virtual time.
"""

from pathlib import Path

import numpy as np
import pytest
from unit.native.time_worlds import FREE, HARD, HIGH, LOW, Box
from unit.native.virtual_worlds import MS, Seen, World

BOUND_NS = 500_000
KERNELS_NS = [20_000, 100_000, MS]
WARM_NS = 500 * MS
"""Until lengths are known, units run alone."""


def _queued_ns(seen: Seen, box: str) -> int:
    """The most that was ahead of a launch on the card, by what it then took there."""
    rows = np.sort(seen.of(box), order="enqueued")
    rows = rows[rows["enqueued"] > WARM_NS]
    return int((np.maximum.accumulate(rows["end"])[:-1] - rows["enqueued"][1:]).max())


def _depth(world: World, length_ns: int, *boxes: Box) -> int:
    world.add(*boxes)
    world.start("low", "run", 1000, length_ns, to_ms=3000)
    return _queued_ns(world.run(), "low")


@pytest.mark.parametrize("length_ns", KERNELS_NS)
def test_where_nobody_is_above_it_a_program_queues_as_it_likes(tmp_path: Path, length_ns: int) -> None:
    deep = _depth(World(tmp_path), length_ns, Box("low", share_class=LOW), Box("other", share_class=LOW))
    assert deep > 10 * max(BOUND_NS, length_ns)


@pytest.mark.parametrize("length_ns", [1_000, *KERNELS_NS])
def test_a_high_share_bounds_it_though_it_is_idle(tmp_path: Path, length_ns: int) -> None:
    """Kernels are off by a fifth, so what is thought to take the bound may take a little more."""
    deep = _depth(World(tmp_path), length_ns, Box("low", share_class=LOW), Box("high", share_class=HIGH))
    assert deep <= 1.3 * max(BOUND_NS, length_ns)


def test_a_batch_of_low_takes_what_the_bound_has_room_for(tmp_path: Path) -> None:
    """Launches that close a batch or open one cost most: so few that they are not what p99 shows."""
    world = World(tmp_path)
    world.add(Box("low", HARD, 90, share_class=LOW), Box("high", share_class=HIGH))
    world.start("low", "run", 100, 1_000, to_ms=2000)
    said = world.run().says[0]
    assert said["recorded"] < 0.005 * said["launches"]


def test_long_batches_of_low_keep_its_hard_share(tmp_path: Path) -> None:
    """Where the card goes round: batches left open when their booking is used up cost it 2 points."""
    world = World(tmp_path, mode="slices")
    world.add(Box("low", HARD, 90, share_class=LOW), Box("high", FREE, share_class=HIGH))
    world.start("low", "run", 1000, 2_000, to_ms=3000)
    assert -1.5 < world.run().off("low", 90, 300, 3000) < 1


def test_a_high_share_on_another_card_does_not(tmp_path: Path) -> None:
    low, high = Box("low", share_class=LOW), Box("high", share_class=HIGH, cards=(1,))
    assert _depth(World(tmp_path), 100_000, low, high) > 10 * BOUND_NS
