"""Kernels of a few to tens of microseconds, in virtual time: what lies between two of them is no work.

Be it the wait for a share or what the program does. A unit that seems longer than it is waits longer, and
would seem longer still.
"""

from pathlib import Path

import pytest
from unit.native.time_worlds import HARD, Box
from unit.native.virtual_worlds import SECOND, Seen, World

FROM_MS, TO_MS = 500, 1_500
CAP_POINTS = 2.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _has_its_share(seen: Seen, cores: int, from_ms: int, to_ms: int) -> None:
    assert abs(seen.off("a", cores, from_ms, to_ms)) <= CAP_POINTS
    assert seen.busiest_second_ns("a") - seen.longest_ns("a") <= SECOND * cores / 100


@pytest.mark.parametrize("cores", [50, 90])
@pytest.mark.parametrize("length_us", [15, 20, 25, 35])
def test_kernels_that_never_stop_coming(world: World, length_us: int, cores: int) -> None:
    world.add(Box("a", HARD, cores))
    world.start("a", "run", 1000, length_us * 1000, to_ms=TO_MS)
    seen = world.run()
    assert seen.share("a", FROM_MS, TO_MS) > cores - CAP_POINTS  # nothing but its share is in its way
    _has_its_share(seen, cores, FROM_MS, TO_MS)


def test_what_a_crowd_made_look_long_is_seen_to_be_short_once_it_is_gone(world: World) -> None:
    """Beside others what a kernel took is told less exactly; that must not outlast them."""
    world.add(Box("a", HARD, 90))
    world.start("a", "run", 1000, 19_000, to_ms=2_500)
    for index in range(4):
        world.add(Box(f"gone{index}", HARD, 2))
        world.start(f"gone{index}", "run", 1000, 19_000, to_ms=1_000)
    seen = world.run()
    assert seen.share("a", 1_500, 2_500) > 90 - CAP_POINTS
    _has_its_share(seen, 90, 1_500, 2_500)


@pytest.mark.parametrize(("length_us", "cores"), [(3, 20), (6, 30), (6, 50)])
def test_a_program_that_is_slower_than_the_card(world: World, length_us: int, cores: int) -> None:
    """It launches every 8 us, as one that runs in an interpreter."""
    world.add(Box("a", HARD, cores))
    world.start("a", "run", 1000, length_us * 1000, 6_000, to_ms=TO_MS)
    _has_its_share(world.run(), cores, FROM_MS, TO_MS)


@pytest.mark.parametrize(
    ("depth", "length_us", "cores"), [(1, 10, 20), (2, 10, 50), (2, 20, 50), (4, 5, 50), (16, 3, 50)]
)
def test_a_program_that_waits_for_its_kernels(world: World, depth: int, length_us: int, cores: int) -> None:
    world.add(Box("a", HARD, cores))
    world.start("a", "run", depth, length_us * 1000, to_ms=TO_MS)
    _has_its_share(world.run(), cores, FROM_MS, TO_MS)
