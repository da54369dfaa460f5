"""What a context costs is seen in each container by itself: they write what they like into their pages."""

from pathlib import Path

import pytest
from unit.node.doubtful import CARD, MIB, usage_page
from unit.node.wall_stage import Wall
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.pages import USAGE
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall.offences import Offence


@pytest.fixture
def wall(tmp_path: Path) -> Wall:
    stage = Wall(tmp_path)
    stage.policy = "kill"
    return stage


def claims(wall: Wall, number: int, *mib: int) -> None:
    """So much each process of a container says to have, context and all."""
    page = usage_page(*((400 + 10 * number + place, 5, 1, each, 0) for place, each in enumerate(mib)))
    for place in range(len(mib)):
        abi.UsagePage.from_buffer(page).slots[place].changes = 1
    wall.isolation.pages.path(USAGE, f"g{number}").write_bytes(page)


def runs(wall: Wall, number: int, processes: int = 1) -> list[int]:
    """Processes of a container; their PIDs on the host."""
    found = [500 + 10 * number + place for place in range(processes)]
    for pid in found:
        wall.process(pid, number)
    return found


def test_what_is_forgiven_is_no_more_than_what_was_granted(wall: Wall) -> None:
    """Root starts ten processes past the library, and says of each that it has nothing but its context."""
    wall.let_in(1, 1000)
    pids = runs(wall, 1, 10)
    claims(wall, 1, *[0] * 10)
    looks = [wall.look(*(ProcessSample(pid, 1000, 0) for pid in pids)) for _ in range(4)]
    assert looks[-1] == [Offence.OVER_GRANT]
    assert wall.isolation.ceilings("g1") == {CARD: 2000}
    assert {pid for pid, _ in wall.hosts.killed} == set(pids)


def test_one_context_is_forgiven_however_small_the_share(wall: Wall) -> None:
    wall.let_in(1, 200)
    (pid,) = runs(wall, 1)
    claims(wall, 1, 200)
    assert [wall.look(ProcessSample(pid, 620, 0)) for _ in range(4)] == [[]] * 4


@pytest.mark.parametrize("elsewhere", [2, 200, 900])
def test_who_fills_its_share_pays_for_its_own_context_and_not_for_a_neighbours(
    wall: Wall, elsewhere: int
) -> None:
    """That one was small, large, or a lie."""
    wall.let_in(1, 1000)
    (first,) = runs(wall, 1)
    claims(wall, 1, 0)
    for _ in range(3):
        wall.look(ProcessSample(first, elsewhere, 0))
    wall.let_in(2, 1000)
    assert wall.isolation.context_bytes("g2", CARD) == elsewhere * MIB, "until its own is seen"
    (second,) = runs(wall, 2)
    claims(wall, 2, 1000)
    shown = 1000 - elsewhere + 420
    for _ in range(4):
        assert wall.look(ProcessSample(first, elsewhere, 0), ProcessSample(second, shown, 0)) == []
    assert wall.isolation.context_bytes("g2", CARD) == 420 * MIB
    assert not wall.hosts.killed


def test_what_was_only_taken_from_a_neighbour_is_not_passed_on(wall: Wall) -> None:
    wall.let_in(1, 1000)
    (first,) = runs(wall, 1)
    claims(wall, 1, 0)
    for _ in range(3):
        wall.look(ProcessSample(first, 300, 0))
    wall.let_in(2, 1000)
    wall.grants.release("g1")
    wall.let_in(3, 1000)
    assert wall.isolation.context_bytes("g3", CARD) == 0
