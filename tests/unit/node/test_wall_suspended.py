"""A container that was suspended comes back to what it had: nothing of that is over because it was away."""

from collections.abc import Callable

from unit.node.doubtful import CARD, MIB, usage_page
from unit.node.wall_stage import Wall
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.pages import USAGE
from vc_egpu_node.vendors.base import ProcessSample


def away_and_back(
    wall: Wall, one: Grant, back: ProcessSample, holds: Callable[[], bool] = lambda: True
) -> None:
    """The driver is asked before the gate opens, and looked at after."""
    wall.isolation.gate([one], wall.grants.all(), closed=True)
    for _ in range(5):
        assert wall.look(ProcessSample(back.pid, 0, 0)) == []
        assert wall.look() == []
        assert holds()
    wall.isolation.gate([one], wall.grants.all(), closed=False)
    assert wall.look() == []
    for _ in range(3):
        assert wall.look(back) == []
        assert holds()


def test_what_it_may_use_above_its_grant_it_may_use_again(wall: Wall) -> None:
    wall.policy = "kill"
    after = wall.lowered(1, 1000, 400, uses_mib=900, share_class="low")
    used = ProcessSample(501, 900, 0)
    assert wall.look(used) == []
    away_and_back(wall, after, used)
    assert (wall.hosts.killed, wall.isolation.ceilings("g1")) == ([], {CARD: 900})


def test_what_counts_beyond_the_library_counts_at_once(wall: Wall) -> None:
    one = wall.let_in(1, 2000, "low")
    wall.process(501, 1)
    page = usage_page((401, 5, 0, 100, 0))
    abi.UsagePage.from_buffer(page).slots[0].changes = 1
    wall.isolation.pages.path(USAGE, "g1").write_bytes(page)
    used = ProcessSample(501, 600, 0)  # 500 of it are code
    for _ in range(3):
        wall.look(used)
    told = wall.isolation.beyond("g1")
    assert told.on(0) == 500 * MIB
    away_and_back(wall, one, used, lambda: told == wall.isolation.beyond("g1"))
