"""Containers with unlike kernels on a card that goes round: long ones of one beside short ones of the other.

In virtual time. Whoever runs short kernels seldom has work all the time, though somebody who looks now and
then nearly always finds some: what it took of a long unit's stay is told by what of it ended then.
"""

from pathlib import Path

import pytest
from unit.native.time_worlds import HARD, SOFT, Box
from unit.native.virtual_worlds import MS, SECOND, Seen, World

CAP_POINTS = 2.0
WARM_MS, TO_MS = 300, 10_000
LONG = 20 * MS
SEVERAL = "5000,8000,10000,15000,20000,30000,50000,120000"
"""The kernels of one program, launched in any order. What the library gathers is then of several of them."""
SOFT_POINTS = 3.0
SECOND_POINTS = 3.5
"""What a second may hold above share and one unit, until it is known how the card runs units."""


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


def _beyond(seen: Seen, box: str, cores: int) -> float:
    return 100 * (seen.busiest_second_ns(box) - seen.longest_ns(box)) / SECOND - cores


@pytest.mark.parametrize(
    ("lengths", "depth", "group", "seed"),
    [
        ((5_000, LONG), 10, (30, 60), 1),
        ((5_000, LONG), 10, (60, 30), 1),
        ((5_000, LONG), 10, (20, 70), 3),
        ((20_000, LONG), 1000, (20, 70), 6),
        ((30_000, MS), 10, (20, 70), 2),
        ((50_000, LONG), 10, (20, 70), 2),
        ((50_000, LONG), 1000, (20, 70), 2),
    ],
    ids=str,
)
def test_the_wait_for_a_turn_is_no_length(
    tmp_path: Path, lengths: tuple[int, int], depth: int, group: tuple[int, int], seed: int
) -> None:
    """It may be a hundred times as long; those that stand behind one another tell it from that."""
    world = World(tmp_path, mode="slices", seed=seed)
    for index, (cores, words) in enumerate(
        zip(group, ((depth, lengths[0]), (1000, lengths[1])), strict=True)
    ):
        world.add(Box(f"c{index}", HARD, cores))
        world.start(f"c{index}", "run", *words, to_ms=TO_MS)
    seen = world.run()
    for index, cores in enumerate(group):
        assert abs(seen.off(f"c{index}", cores, WARM_MS, TO_MS)) <= CAP_POINTS
        assert _beyond(seen, f"c{index}", cores) <= SECOND_POINTS


def test_a_kernel_of_two_lengths_is_not_taken_for_its_shorter_one(tmp_path: Path) -> None:
    """Nobody's units are longer than a turn there: what others had of a stay is told by their ends."""
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        world = World(tmp_path / str(seed), mode="slices", seed=seed)
        world.add(Box("both", HARD, 50), Box("one", HARD, 50))
        world.start("both", "run", 1000, f"20000,{MS}", to_ms=TO_MS)
        world.start("one", "run", 1000, MS, to_ms=TO_MS)
        assert world.run().off("both", 50, WARM_MS, TO_MS) <= CAP_POINTS


@pytest.mark.parametrize("seed", [1, 2])
def test_a_few_long_ones_among_the_short_of_a_kernel_are_paid_for(tmp_path: Path, seed: int) -> None:
    """One of nine is 50 times as long: whatever the others take, each is paid for as it was seen."""
    world = World(tmp_path, mode="slices", seed=seed)
    world.add(Box("few", HARD, 30), Box("one", HARD, 60))
    world.start("few", "run", 1000, "20000," * 8 + f"{MS}", to_ms=TO_MS)
    world.start("one", "run", 1000, MS, to_ms=TO_MS)
    seen = world.run()
    assert seen.off("few", 30, WARM_MS, TO_MS) <= CAP_POINTS
    assert _beyond(seen, "few", 30) <= SECOND_POINTS
    assert abs(seen.off("one", 60, WARM_MS, TO_MS)) <= CAP_POINTS


@pytest.mark.parametrize("mode", ["fifo", "slices"])
@pytest.mark.parametrize("depth", [10, 1000])
def test_a_program_of_several_short_kernels_has_its_share(tmp_path: Path, depth: int, mode: str) -> None:
    """Each is always of one length, and so is what is gathered of them: what is longer is a wait for a turn.

    And a long unit that was launched in the midst of them is not one for which a card left what was gathered.
    """
    world = World(tmp_path, mode=mode)
    world.add(Box("several", HARD, 30), Box("one", HARD, 60))
    world.start("several", "run", depth, SEVERAL, 0, "each", to_ms=TO_MS)
    world.start("one", "run", 1000, LONG, to_ms=TO_MS)
    seen = world.run()
    assert seen.share("several", WARM_MS, TO_MS) == pytest.approx(30, abs=CAP_POINTS)
    assert abs(seen.off("one", 60, WARM_MS, TO_MS)) <= CAP_POINTS


@pytest.mark.parametrize("length", [MS, LONG], ids=str)
def test_a_program_of_several_short_kernels_has_its_weight(tmp_path: Path, length: int) -> None:
    world = World(tmp_path, mode="slices")
    world.add(Box("several", SOFT, 1, 25), Box("one", SOFT, 1, 75))
    world.start("several", "run", 1000, SEVERAL, 0, "each", to_ms=TO_MS)
    world.start("one", "run", 1000, length, to_ms=TO_MS)
    seen = world.run()
    assert seen.share("several", WARM_MS, TO_MS) == pytest.approx(25, abs=SOFT_POINTS)
    assert seen.share("one", WARM_MS, TO_MS) == pytest.approx(75, abs=SOFT_POINTS)


def _soft(tmp_path: Path, mode: str, weights: tuple[int, int], depth: int, lengths: tuple[int, int]) -> Seen:
    world = World(tmp_path, mode=mode)
    for index, (weight, length) in enumerate(zip(weights, lengths, strict=True)):
        world.add(Box(f"c{index}", SOFT, 1, weight))
        world.start(f"c{index}", "run", depth, length, to_ms=2 * TO_MS)
    return world.run()


@pytest.mark.parametrize("mode", ["fifo", "slices"])
@pytest.mark.parametrize("weights", [(50, 50), (25, 75), (75, 25)], ids=str)
@pytest.mark.parametrize(
    ("depth", "lengths"),
    [(10, (20_000, LONG)), (1000, (20_000, LONG)), (10, (50_000, LONG)), (10, (50_000, MS))],
    ids=str,
)
def test_soft_shares_divide_by_weight_beside_kernels_of_another_length(
    tmp_path: Path, depth: int, lengths: tuple[int, int], weights: tuple[int, int], mode: str
) -> None:
    """Nobody is alone on the card: what short kernels took is seen from those behind one another."""
    seen = _soft(tmp_path, mode, weights, depth, lengths)
    for index, weight in enumerate(weights):
        assert seen.share(f"c{index}", WARM_MS, 2 * TO_MS) == pytest.approx(weight, abs=SOFT_POINTS)


@pytest.mark.parametrize("lengths", [(20_000, LONG), (50_000, LONG), (50_000, MS)], ids=str)
def test_short_kernels_have_their_weight_within_a_second(tmp_path: Path, lengths: tuple[int, int]) -> None:
    """Whoever paid for the wait for its turn would launch one by one, and wait for a turn with each."""
    seen = _soft(tmp_path, "slices", (25, 75), 10, lengths)
    assert seen.share("c0", 1000, 3000) > 25 - SOFT_POINTS
