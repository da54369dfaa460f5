"""Cards that go round among containers in slices, and kernels so short that launches share a booking.

In virtual time. Units of several containers stay on such a card at the same time, and nobody tells what each
of them took.
"""

from pathlib import Path

import pytest
from unit.native.time_worlds import FREE, HARD, Box
from unit.native.virtual_worlds import MS, SECOND, Seen, World
from vc_egpu_node.isolation import abi

WARM_MS = 2000
"""Until it is known that the card does so, and how long the kernels are, a share is kept less exactly."""
CAP_POINTS = 3.5
SECOND_POINTS = 2.0
ACCOUNTED = 0.1
GROUPS = ((50,), (30, 60), (10, 20, 30, 40))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _run(world: World, group: tuple[int, ...], length_ns: int, to_ms: int) -> Seen:
    for index, cores in enumerate(group):
        world.add(Box(f"c{index}", HARD, cores))
        world.start(f"c{index}", "run", 1000, length_ns, to_ms=to_ms)
    return world.run()


def _accounted(world: World, seen: Seen, box: str) -> float:
    """What the library believes that the container took, by what it did."""
    page = abi.ActivityPage.from_buffer_copy((world.machine.peers / box).read_bytes())
    return float(page.cards[0].busy_ns / int((seen.of(box)["end"] - seen.of(box)["start"]).sum()))


def _busiest_second(seen: Seen, box: str, from_ms: int) -> float:
    """Percent, its longest unit left out, of the seconds that begin on a whole tenth of one."""
    last = int(seen.of(box)["end"].max() // MS)
    most = max(seen.busy_ns(box, at, at + 1000) for at in range(from_ms, last - 1000, 100))
    return 100 * (most - seen.longest_ns(box)) / SECOND


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("length_ns", [MS, 5 * MS, 20 * MS])
def test_shares_are_kept_where_the_card_goes_round(
    world: World, group: tuple[int, ...], length_ns: int
) -> None:
    world.mode = "slices"
    seen = _run(world, group, length_ns, 10_000)
    for index, cores in enumerate(group):
        box = f"c{index}"
        assert seen.share(box, WARM_MS, 10_000) == pytest.approx(cores, abs=CAP_POINTS)
        assert _busiest_second(seen, box, WARM_MS) <= cores + SECOND_POINTS
        assert _accounted(world, seen, box) == pytest.approx(1, abs=ACCOUNTED)


@pytest.mark.parametrize("length_ns", [20_000, 5 * MS])
def test_whoever_is_alone_finds_both_kinds_of_card_alike(tmp_path: Path, length_ns: int) -> None:
    """There is nobody to take turns with; nor does a card that somebody looks at begin later for it."""
    shares = []
    for mode in ("fifo", "slices"):
        (tmp_path / mode).mkdir()
        shares.append(
            _run(World(tmp_path / mode, mode=mode), (90,), length_ns, 1_000).share("c0", 300, 1_000)
        )
    assert shares[1] == pytest.approx(shares[0], abs=0.1)


@pytest.mark.parametrize("mode", ["fifo", "slices"])
@pytest.mark.parametrize("length_ns", [2_000, 10_000])
def test_launches_that_share_a_booking_stay_within_the_share(world: World, mode: str, length_ns: int) -> None:
    world.mode = mode
    group = (30, 60)
    seen = _run(world, group, length_ns, 4_000)
    for index, cores in enumerate(group):
        box = f"c{index}"
        assert cores - 5 < seen.share(box, 300, 4_000) < cores + 1
        assert 100 * seen.busiest_second_ns(box) / SECOND <= cores + 1


ONE_BY_ONE = ((50_000, 0), (50_000, MS), (500_000, MS), (5_000, MS // 2))
"""Kernels of that length, each waited for, and what the program thinks meanwhile."""


@pytest.mark.parametrize(("length_ns", "host_ns"), ONE_BY_ONE)
@pytest.mark.parametrize("long_ns", [5 * MS, 20 * MS])
def test_short_kernels_that_are_waited_for_one_by_one_leave_a_share_alone(
    world: World, long_ns: int, length_ns: int, host_ns: int
) -> None:
    """What such a one takes nobody can tell from its stay: that is mostly the wait for its turn."""
    world.mode = "slices"
    world.add(Box("long", HARD, 60), Box("short"))
    world.start("long", "run", 1, long_ns, to_ms=6_000)
    world.start("short", "run", 1, length_ns, host_ns, to_ms=6_000)
    assert abs(world.run().off("long", 60, WARM_MS, 6_000)) < SECOND_POINTS


@pytest.mark.parametrize(("length_ns", "host_ns"), ONE_BY_ONE)
@pytest.mark.parametrize("cores", [0, 20])
def test_nor_do_they_take_from_several(world: World, cores: int, length_ns: int, host_ns: int) -> None:
    """``cores``: of the short ones; 0: any."""
    world.mode = "slices"
    world.add(Box("a", HARD, 40), Box("b", HARD, 30), Box("short", HARD if cores else FREE, cores or 100))
    for name in ("a", "b"):
        world.start(name, "run", 1, 20 * MS, to_ms=6_000)
    world.start("short", "run", 1, length_ns, host_ns, to_ms=6_000)
    seen = world.run()
    for name, share in (("a", 40), ("b", 30), ("short", cores)):
        assert not share or abs(seen.off(name, share, WARM_MS, 6_000)) < SECOND_POINTS
