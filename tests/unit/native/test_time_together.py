"""Streams of one program side by side on a card, under a hard share, in virtual time.

What runs together takes the card's time once, and takes all of it: also while a long unit runs by itself.

Of kernels that wait for each other whoever is there spins until the last has come, and the gate holds each of
them until the one before it is paid for. That wait is of the gate's making: were it taken for the kernel's
length, each meeting would make the next one wait longer. Wake-ups that come late decide which of them is seen
to end first, so each world is tried with many seeds.
"""

from pathlib import Path

import pytest
from unit.native.time_worlds import HARD, Box
from unit.native.virtual_worlds import MS, SECOND, World

PARTIES = 4
KERNEL_NS = 100_000
RUN_MS, WARM_MS = 5000, 300
SHARE_POINTS = 2.0
SECOND_POINTS = 2.5
"""By so much a second may hold more than the share and one unit: a long unit is paid for when it ends."""
SEEDS = range(1, 13)
RARE, OFTEN = 500, 3
"""One of so many wake-ups comes late: on a machine at rest, and on a busy one."""


def meetings(folder: Path, cores: int, seconds: int, seed: int, late_one_in: int) -> int:
    """How often they met in that time."""
    folder.mkdir()
    world = World(folder, seed=seed, late_one_in=late_one_in)
    world.add(Box("a", HARD, cores))
    world.start("a", "meet", PARTIES, KERNEL_NS, to_ms=1000 * seconds)
    return len(world.run().says[0]["took_ns"])


@pytest.mark.parametrize("late_one_in", [RARE, OFTEN])
@pytest.mark.parametrize(("cores", "seconds", "least"), [(50, 1, 1000), (30, 2, 300), (10, 6, 40)])
def test_kernels_that_meet_do_so_soon_whichever_ends_first(
    tmp_path: Path, cores: int, seconds: int, least: int, late_one_in: int
) -> None:
    met = [meetings(tmp_path / str(seed), cores, seconds, seed, late_one_in) for seed in SEEDS]
    assert min(met) >= least, met


@pytest.mark.parametrize("kernels", ["each", "one"])
@pytest.mark.parametrize("depth", [1, 100])
@pytest.mark.parametrize(
    "lengths", [(20 * MS, 50_000), (20 * MS, MS), (MS, 50_000), (5 * MS, 100_000, 50_000), (MS, MS)]
)
@pytest.mark.parametrize("cores", [20, 50, 80])
def test_streams_side_by_side_have_one_share(
    tmp_path: Path, cores: int, lengths: tuple[int, ...], depth: int, kernels: str
) -> None:
    """Each kernel of a length of its own, or one whose launches differ in length."""
    world = World(tmp_path, mode="overlap")
    world.add(Box("a", HARD, cores))
    words = ",".join(map(str, lengths))
    world.start("a", "beside", depth, words, *(["0 one"] if kernels == "one" else []), to_ms=RUN_MS)
    seen = world.run()
    assert abs(seen.off("a", cores, WARM_MS, RUN_MS)) < SHARE_POINTS
    beyond = 100 * (seen.busiest_second_ns("a") - seen.longest_ns("a")) / SECOND - cores
    assert beyond < SECOND_POINTS
