"""Containers with unlike kernels on a card that goes round: long ones of one beside short ones of the other.

In virtual time. Whoever runs short kernels seldom has work all the time, though somebody who looks now and
then nearly always finds some: what it took of a long unit's stay is told by what of it ended then.
"""

from pathlib import Path

import pytest
from unit.native.time_worlds import HARD, Box
from unit.native.virtual_worlds import MS, World

CAP_POINTS = 2.0
WARM_MS, TO_MS = 300, 10_000
LONG = 20 * MS


@pytest.mark.parametrize("mode", ["fifo", "slices"])
@pytest.mark.parametrize("group", [(30, 60), (60, 30), (20, 70)], ids=str)
@pytest.mark.parametrize("depth", [10, 1000])
@pytest.mark.parametrize("short", [20_000, 50_000, MS])
def test_each_has_its_share_beside_kernels_of_another_length(
    tmp_path: Path, short: int, depth: int, group: tuple[int, int], mode: str
) -> None:
    """One waits for every tenth of its kernels or for every thousandth, and asks for more all the time."""
    world = World(tmp_path, mode=mode)
    for index, (cores, length) in enumerate(zip(group, (short, LONG), strict=True)):
        world.add(Box(f"c{index}", HARD, cores))
        world.start(f"c{index}", "run", depth, length, to_ms=TO_MS)
    seen = world.run()
    for index, cores in enumerate(group):
        assert abs(seen.off(f"c{index}", cores, WARM_MS, TO_MS)) <= CAP_POINTS
