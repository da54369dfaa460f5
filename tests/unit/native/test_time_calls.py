"""A launch calls the system only where somebody is in its way. In virtual time: every call is counted.

And what low knows of high without asking, it knows in time.
"""

from pathlib import Path

import numpy as np
import pytest
from unit.native.time_worlds import FREE, HARD, HIGH, LOW, UNSET, Box
from unit.native.virtual_worlds import MS, SECOND, World

KERNEL_NS = 20_000
WARM_MS = 800
TO_MS = 2_000
WAKE_NS = 450_000
"""A wake-up comes up to 300 us late; what was asked meanwhile and 20 us of launches come with it."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("share_class", [UNSET, LOW])
@pytest.mark.parametrize("policy", [FREE, HARD])
@pytest.mark.parametrize("neighbours", [0, 1, 3])
def test_a_launch_beside_idle_neighbours_calls_nobody(
    world: World, share_class: int, policy: int, neighbours: int
) -> None:
    world.add(Box("a", policy, 90, share_class=share_class))
    world.start("a", "run", 2, 2000, to_ms=TO_MS)
    for index in range(neighbours):
        world.add(Box(f"high{index}", share_class=HIGH))
        if share_class == LOW:  # they may have held it
            world.start(f"high{index}", "run", 10, KERNEL_NS, to_ms=100)
    seen = world.run()
    assert len(seen.of("a")) > 50_000
    assert seen.share("a", WARM_MS, TO_MS) < 85  # else it would wait for its share
    assert not len(seen.called("a", WARM_MS, TO_MS))


@pytest.mark.parametrize("neighbours", [1, 3])
def test_low_beside_idle_low_and_idle_high_calls_nobody(world: World, neighbours: int) -> None:
    world.add(Box("a", share_class=LOW), Box("high", share_class=HIGH))
    world.start("a", "run", 2, 2000, to_ms=TO_MS)
    for index in range(neighbours):
        world.add(Box(f"low{index}", share_class=LOW))
        world.start(f"low{index}", "run", 10, KERNEL_NS, to_ms=100)
    seen = world.run()
    assert len(seen.of("a")) > 50_000
    assert not len(seen.called("a", WARM_MS, TO_MS))


def test_high_beside_idle_low_calls_only_after_a_long_pause(world: World) -> None:
    world.add(Box("high", share_class=HIGH), Box("low", share_class=LOW))
    world.start("low", "run", 10, KERNEL_NS, to_ms=100)
    world.start("high", "serve", 20, 7, to_ms=8_000)
    seen = world.run()
    ends = np.sort(seen.of("high")["end"])
    for at in seen.called("high", 1_500, 8_000)["at"]:  # low is idle to it a second after its last launch
        before = ends[ends <= at]
        assert at - before[-1] > 45 * MS
    assert len(seen.of("high")) > 4_000


@pytest.mark.parametrize("neighbours", [1, 3])
@pytest.mark.parametrize(("depth", "length"), [(10, KERNEL_NS), (1, 300_000), (1, MS)])
def test_low_that_asks_nobody_hears_of_high_at_once(
    world: World, neighbours: int, depth: int, length: int
) -> None:
    """High comes again after seconds of which low had all."""
    world.add(Box("low", share_class=LOW))
    world.start("low", "run", depth, length, to_ms=TO_MS + 200)
    for index in range(neighbours):
        world.add(Box(f"high{index}", share_class=HIGH))
    world.start("high0", "run", 10, KERNEL_NS, to_ms=100)
    world.start(f"high{neighbours - 1}", "run", 4000, KERNEL_NS, from_ms=TO_MS, to_ms=TO_MS + 50)
    seen = world.run()
    assert not len(seen.called("low", WARM_MS, TO_MS))
    late = seen.of(f"high{neighbours - 1}")
    begins = int(late["enqueued"][late["enqueued"] > 200 * MS].min())
    enqueued = seen.of("low")["enqueued"]
    held = enqueued[(enqueued > begins + WAKE_NS) & (enqueued < (TO_MS + 75) * MS)]
    assert not len(held)
    assert seen.share("low", TO_MS + 100, TO_MS + 195) > 90


@pytest.mark.parametrize("mode", ["fifo", "slices"])
@pytest.mark.parametrize("cores", [30, 90])
def test_short_units_gathered_into_long_batches_keep_their_share(
    tmp_path: Path, mode: str, cores: int
) -> None:
    world = World(tmp_path, mode=mode)
    world.add(Box("a", HARD, cores))
    world.start("a", "run", 1000, 2000, to_ms=3_000)
    seen = world.run()
    assert seen.share("a", 300, 3_000) == pytest.approx(cores, abs=2)
    assert seen.busiest_second_ns("a") <= SECOND * cores / 100 + seen.longest_ns("a")
