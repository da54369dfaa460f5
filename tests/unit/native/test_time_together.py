"""Kernels of one program that wait for each other on several streams, under a hard share, in virtual time.

Whoever is there spins until the last has come, and the gate holds each of them until the one before it is
paid for. That wait is of the gate's making: were it taken for the kernel's length, each meeting would make
the next one wait longer. Wake-ups that come late decide which of them is seen to end first, so each world is
tried with many seeds.
"""

from pathlib import Path

import pytest
from unit.native.time_worlds import HARD, Box
from unit.native.virtual_worlds import World

PARTIES = 4
KERNEL_NS = 100_000
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
@pytest.mark.parametrize(("cores", "seconds", "least"), [(50, 1, 1500), (30, 2, 400), (10, 6, 50)])
def test_kernels_that_meet_do_so_soon_whichever_ends_first(
    tmp_path: Path, cores: int, seconds: int, least: int, late_one_in: int
) -> None:
    met = [meetings(tmp_path / str(seed), cores, seconds, seed, late_one_in) for seed in SEEDS]
    assert min(met) >= least, met
