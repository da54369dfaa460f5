"""What processes that ended left in their container's usage page, until the library there clears it."""

from pathlib import Path

import pytest
from unit.node.doubtful import CARD, MIB, usage_page
from unit.node.granted import grant
from unit.node.wall_stage import Wall
from vc_egpu_node.containers.processes import ContainerOfProcess, Host
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import Slot, Usage
from vc_egpu_node.isolation.pages import USAGE
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall.ended_processes import AGAIN_S, EndedProcesses


@pytest.fixture
def wall(tmp_path: Path) -> Wall:
    wall = Wall(tmp_path)
    wall.let_in(1, 1000)
    wall.process(500, 1)  # what holds the container
    return wall


def listed(pid: int, mib: int) -> ProcessSample:
    return ProcessSample(pid, mib, 0)


def charged(wall: Wall) -> int:
    return wall.wall.accounts[0].charged_mib


def test_a_program_that_ended_is_not_counted_any_more(wall: Wall) -> None:
    wall.process(501, 1)
    wall.process(502, 1)
    wall.usage(1, (401, 5, 1, 300, 20), (402, 5, 1, 40, 0))
    wall.look(listed(501, 300), listed(502, 40))
    assert charged(wall) == 340
    wall.proc.remove(501)
    wall.look(listed(502, 40))
    assert (charged(wall), wall.wall.accounts[0].managed_mib) == (40, 0)
    usage = wall.wall.last.usages["g1"]
    assert usage is not None
    assert [slot.pid for slot in usage.slots] == [402]


def test_managed_memory_alone_of_who_ended_is_not_counted_either(wall: Wall) -> None:
    """It would keep its pod from being suspended, for good."""
    wall.usage(1, (401, 5, 1, 0, 20))
    wall.look()
    assert wall.wall.accounts[0].managed_mib == 0


def test_a_page_is_its_containers_own(wall: Wall) -> None:
    wall.usage(1, (401, 5, 1, 300, 0))
    before = wall.isolation.pages.read(USAGE, "g1")
    wall.look()
    assert charged(wall) == 0
    assert wall.isolation.pages.read(USAGE, "g1") == before


def test_what_the_library_cannot_judge_is_given_up_for_it(wall: Wall) -> None:
    """Whose slots are of a PID namespace that is gone: the container was started again without the agent."""
    wall.process(501, 1)
    page = usage_page((401, 5, 1, 300, 0), (402, 5, 1, 40, 0), (403, 5, 1, 7, 0))
    shown = abi.UsagePage.from_buffer(page)
    for slot, namespace in zip(shown.slots, (77, 66, 0), strict=False):
        slot.pid_namespace = namespace
    path = wall.isolation.pages.path(USAGE, "g1")
    path.write_bytes(page)
    wall.look(listed(501, 300))
    shown.slots[1].pid_namespace = 0
    assert path.read_bytes() == page  # of the living, and all else, as it was
    assert charged(wall) == 300


def test_who_lives_is_counted_though_the_driver_does_not_list_it(wall: Wall) -> None:
    """A suspended one, say. For the one that it remembers it need not look at all processes again."""
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 300, 0))
    wall.look()
    assert charged(wall) == 300
    wall.look()
    assert (charged(wall), wall.hosts.walks) == (300, 1)
    wall.proc.remove(501)
    wall.look()
    assert charged(wall) == 0


def test_a_number_that_came_again_is_another_process(wall: Wall) -> None:
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 300, 0))
    wall.look()
    wall.proc.put(501, wall.uid(1), f"{1:064x}", own=401, start=6)
    wall.look()
    assert charged(wall) == 0
    wall.usage(1, (401, 6, 1, 200, 0))
    wall.now_monotonic_s += AGAIN_S
    wall.look()
    assert charged(wall) == 200


def test_a_zombie_holds_nothing(wall: Wall) -> None:
    wall.proc.put(501, wall.uid(1), f"{1:064x}", own=401, state="Z")
    wall.usage(1, (401, 5, 1, 300, 0))
    wall.look()
    assert charged(wall) == 0


def test_not_all_processes_are_read_at_each_look(wall: Wall) -> None:
    """A container may write of a new process each time."""
    for number in range(5):
        wall.usage(1, (401, 5 + number, 1, 300, 0))
        wall.look()
    assert (wall.hosts.walks, charged(wall)) == (1, 300)
    wall.now_monotonic_s += AGAIN_S
    wall.look()
    assert (wall.hosts.walks, charged(wall)) == (2, 0)


@pytest.mark.parametrize("why", ["start", "proc"])
def test_where_it_cannot_be_told_it_counts(wall: Wall, why: str) -> None:
    if why == "proc":
        wall.proc.remove(500)  # nobody of that pod is to be seen: as without the host's processes
    wall.usage(1, (401, 0 if why == "start" else 5, 1, 300, 0))
    wall.look()
    assert charged(wall) == 300


def test_memory_that_several_held_counts_while_one_of_them_lives(wall: Wall) -> None:
    wall.process(501, 1)
    wall.process(502, 1)
    page = usage_page((401, 5, 1, 0, 0), (402, 5, 1, 0, 0))
    shown = abi.UsagePage.from_buffer(page)
    shown.shared_used = 2
    for entry, holders in ((shown.shared[0], 0b11), (shown.shared[1], 0b01)):
        entry.key, entry.bytes_card, entry.holders[0] = 1, 100 * MIB, holders
    wall.isolation.pages.path(USAGE, "g1").write_bytes(bytes(page))
    wall.look(listed(501, 0), listed(502, 0))
    assert charged(wall) == 200
    wall.proc.remove(501)
    wall.look(listed(502, 0))
    assert charged(wall) == 100


class Counted(ContainerOfProcess):
    """Many processes of one pod; counts how often one is looked at."""

    def __init__(self, number: int) -> None:
        self.asked = 0
        self.processes = [self._process(pid) for pid in range(1, number + 1)]

    def _process(self, pid: int) -> Host:
        counted = self

        class Process(Host):
            __slots__ = ()

            def __getattribute__(self, name: str) -> object:
                counted.asked += name == "own_pid"
                return super().__getattribute__(name)

        return Process(pid, 5, "c" * 64, "uid-g1", pid)

    def living(self) -> list[Host]:
        """All of them."""
        return self.processes


def test_a_page_full_of_names_and_a_pod_full_of_processes_are_not_multiplied() -> None:
    """Both are the container's to choose, and the look keeps everybody else waiting."""
    hosts = Counted(300)
    slots = tuple(Slot(1000 + n, 5, (MIB,), (0,), 0, index=n) for n in range(abi.USAGE_SLOTS))
    usages = EndedProcesses(hosts).without({"g1": Usage(slots, (0,))}, [grant("g1", (CARD, 9, 0))], {})
    assert usages == {"g1": Usage((), (0,))}
    assert hosts.asked <= 2 * 300


def test_cards_are_told_apart(wall: Wall) -> None:
    """Listed on a card that is not the container's is no sign of life there, but it lives."""
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 300, 0))
    wall.look(listed(501, 10), card=f"{CARD}-other")
    assert charged(wall) == 300
