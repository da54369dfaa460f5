"""Memory that the card's driver holds: the same stories as with the library alone, and what only the driver
holds.

The driver is the fake one, by its own functions, and the control groups are plain folders. Not run on
hardware."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.node.test_library import CARD, Container, Node
from unit.native.memory_worlds import BUILD, MIB, OK, OUT_OF_MEMORY, Actor
from vc_egpu_node.containers.cgroups import ContainerGroups
from vc_egpu_node.isolation.driver_limits import RECORD_NAME, DriverLimits
from vc_egpu_node.isolation.limits_door import SOCKET_NAME, LimitsDoor
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.nvidia.limits import MODULE, NvidiaLimits
from vc_egpu_node.vendors.slices import SliceError


class DriverNode(Node):
    """A node whose driver limits control groups, an agent with its door, and the runtime's hook."""

    def __init__(self, root: Path) -> None:
        (root / "cgroup").mkdir()
        (root / "cgroup" / "cgroup.controllers").write_text("memory dmem\n")
        self.child = Child(
            MODULE, environment={"LD_LIBRARY_PATH": str(BUILD), "FAKE_NVML_STATE": str(root / "cards")}
        )
        self.limits = NvidiaLimits(self.child)
        self.inits: list[subprocess.Popen[bytes]] = []
        super().__init__(root)
        self.say(driver="615.44")
        self.door = self._open()

    def say(self, *, driver: str = "615.44", **of_card: int) -> None:
        """What the driver is like from now on."""
        lines = self.cards.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("driver=", "limits_", "mig="))]
        at = kept.index(f"card={CARD}") + 1
        more = [f"{key}={value}" for key, value in of_card.items()]
        self.cards.write_text("\n".join([f"driver={driver}", *kept[:at], *more, *kept[at:]]) + "\n")

    def _driver(self) -> DriverLimits:
        groups = ContainerGroups(self.root / "proc", self.root / "cgroup")
        return DriverLimits(self.limits, self.root / "containers", groups)

    @property
    def driver_limits(self) -> DriverLimits:
        assert self.isolation.driver is not None
        return self.isolation.driver

    def _open(self) -> LimitsDoor:
        door = LimitsDoor(
            self.root / "run" / SOCKET_NAME,
            lambda name, pid: self.driver_limits.started(self.grants.get(name), pid),
        )
        door.start()
        return door

    def restart(self) -> None:
        """Another agent, after the first one was killed: what that one was about to do it finds on disk."""
        self.door.stop()
        super().restart()
        self.driver_limits.recover(self.grants.all())
        self.door = self._open()

    def hook(self, container: Container) -> "subprocess.Popen[str]":
        """The runtime's, as the container's spec has it, with the container's first process."""
        spec = json.loads(self.grants.path(container.name).read_text())
        hooks = spec["devices"][0]["containerEdits"]["hooks"]
        (hook,) = (one for one in hooks if one["hookName"] == "createRuntime")
        init = subprocess.Popen(["sleep", "600"])
        self.inits.append(init)
        container.own(init.pid)
        process = subprocess.Popen(
            [hook["path"], *hook["args"][1:]], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"ociVersion": "1.2.0", "id": container.inside, "pid": init.pid}))
        process.stdin.close()
        process.stdin = None
        return process

    def start(self, container: Container) -> str:
        """What the runtime is told on stderr; empty: the program may start."""
        said = self.hook(container).communicate(timeout=60)[1]
        return said.strip()

    def limit_mib(self, container: Container) -> int | None:
        """What the driver has for it; None: nothing."""
        return limit_of(self.root / "cards", container.group)

    def close(self) -> None:
        self.door.stop()
        for init in self.inits:
            init.kill()
            init.wait()
        super().close()
        self.child.close()


def limit_of(cards: Path, group: Path) -> int | None:
    """By the driver's own function, in a process of its own."""
    code = (
        "import sys, pynvml as n\n"
        "n.nvmlInit()\n"
        "said = n.c_nvmlGetMemoryLimits_v1_t(sys.argv[2].encode())\n"
        "try:\n"
        "    n.nvmlDeviceGetMemoryLimits_v1(n.nvmlDeviceGetHandleByUUID(sys.argv[1]), said)\n"
        "    print(said.hardLimit >> 20, said.softLimit)\n"
        "except n.NVMLError as error:\n"
        "    print('none', error.value)\n"
    )
    told = run(code, CARD, str(group), cards=cards).split()
    assert told[0] == "none" or told[1] == "0", "no soft limit is ever set: groups above would keep it"
    return None if told[0] == "none" else int(told[0])


def run(code: str, *arguments: str, cards: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"LD_LIBRARY_PATH": str(BUILD), "FAKE_NVML_STATE": str(cards)},
        stdout=subprocess.PIPE, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip


@pytest.fixture
def node(fake_nvml: None, tmp_path: Path) -> Iterator[DriverNode]:
    made = DriverNode(tmp_path)
    yield made
    made.close()


Made = Callable[..., Container]


@pytest.fixture(params=["library", "driver"])
def made(request: pytest.FixtureRequest, node: DriverNode) -> Made:
    """Makes containers that one backend holds, each about to start its program."""

    def make(name: str = "g", share_class: str = "unset") -> Container:
        container = node.container(name, share_class, backend=request.param)
        if request.param == "driver":
            assert node.start(container) == ""
        return container

    return make


# --- the same stories on both ----------------------------------------------------------------------


def test_the_grant_is_what_a_program_sees_and_gets(made: Made) -> None:
    actor = made().program()
    assert actor.info()[1] == 1000 * MIB
    assert actor.do("alloc", 1, 500 * MIB) == OK
    assert actor.do("alloc", 2, 600 * MIB) == OUT_OF_MEMORY
    assert actor.do("alloc", 3, 300 * MIB) == OK


def test_two_programs_of_a_container_have_one_grant(made: Made) -> None:
    container = made()
    first, second = container.program(), container.program()
    assert first.do("alloc", 1, 600 * MIB) == OK
    assert second.do("alloc", 1, 600 * MIB) == OUT_OF_MEMORY
    assert second.do("alloc", 1, 200 * MIB) == OK


def test_a_greedy_container_takes_nothing_from_its_neighbour(made: Made) -> None:
    greedy, quiet = made("greedy").program(), made("quiet").program()
    assert [greedy.do("alloc", number, 400 * MIB) for number in (1, 2, 3)] == [OK, OK, OUT_OF_MEMORY]
    assert quiet.do("alloc", 1, 900 * MIB) == OK


def test_a_change_counts_while_the_program_runs(made: Made) -> None:
    container = made()
    actor = container.program()
    assert actor.do("alloc", 1, 500 * MIB) == OK
    container.limit(1200)
    assert actor.do("alloc", 2, 600 * MIB) == OK
    container.limit(400)
    assert actor.info() == (0, 400 * MIB)
    assert actor.do("alloc", 3, 2 * MIB) == OUT_OF_MEMORY
    assert actor.do("free", 1) == OK, "what it has it keeps, and gives back itself"


def test_memory_of_a_program_that_was_killed_is_there_for_the_next(made: Made) -> None:
    container = made()
    first = container.program()
    assert first.do("alloc", 1, 900 * MIB) == OK
    first.kill()
    first.process.wait()
    assert container.program().do("alloc", 1, 900 * MIB) == OK


# --- what only the driver holds ----------------------------------------------------------------------


def past(container: Container) -> Actor:
    """A program without the library, as root may start one, or one that is static."""
    return container.program(preload=None)


def test_a_program_past_the_library_is_held_too(node: DriverNode) -> None:
    loose, held = node.container("loose"), node.container("held", backend="driver")
    assert node.start(held) == ""
    rogue = past(held)
    assert rogue.info()[1] == 1000 * MIB
    assert [rogue.do("alloc", number, 500 * MIB) for number in (1, 2)] == [OK, OUT_OF_MEMORY]
    assert past(loose).do("alloc", 1, 1500 * MIB) == OK, "the library alone holds no such program"


def test_the_limit_stands_before_the_program_does(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.limit_mib(container) is None
    assert node.start(container) == ""
    assert node.limit_mib(container) == 1000


def test_a_container_waits_for_an_agent_that_is_away(node: DriverNode) -> None:
    container = node.container(backend="driver")
    node.door.stop()
    hook = node.hook(container)
    node.restart()
    assert hook.communicate(timeout=60)[1] == ""
    assert node.limit_mib(container) == 1000


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ({"limits_lost": 1}, "reads no limit"),
        ({"limits_error": 4}, "NVML answers 4"),
        ({"limits_error": 3}, "NVML answers 3"),
        ({"driver": "580.10"}, "NVML answers 13"),
        ({"mig": 1}, "NVML answers 3"),
    ],
    ids=["nothing was set", "no right", "not supported", "an older driver", "MIG"],
)
def test_no_program_starts_without_its_limit(node: DriverNode, driver: dict[str, int], words: str) -> None:
    container = node.container(backend="driver")
    node.say(**driver)  # type: ignore[arg-type]
    said = node.start(container)
    assert "the container's memory is not limited" in said
    assert words in said


def test_a_strange_process_gets_no_limit_of_a_container(node: DriverNode) -> None:
    mine, other = node.container("mine", backend="driver"), node.container("other")
    assert node.start(mine) == ""
    (pid,) = (init.pid for init in node.inits)
    of_another = dataclasses.replace(mine.grant, pod_uid=other.uid)
    assert "of no container of pod" in node.driver_limits.started(of_another, pid)
    assert "knows of no such container" in node.driver_limits.started(node.grants.get("other"), pid)
    assert "is not seen" in node.driver_limits.started(mine.grant, 4_000_000)


# --- ends, deaths and restarts -----------------------------------------------------------------------


def test_the_end_of_a_container_clears_its_limit(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.start(container) == ""
    node.grants.release(container.name)
    assert node.limit_mib(container) is None


def test_a_container_that_ended_while_no_agent_was_there(node: DriverNode) -> None:
    gone, stays = node.container("gone", backend="driver"), node.container("stays", backend="driver")
    assert [node.start(one) for one in (gone, stays)] == ["", ""]
    node.door.stop()
    gone.group.rmdir()
    node.restart()
    node.grants.release("gone")
    assert node.limit_mib(stays) == 1000


def test_a_limit_that_a_killed_agent_left_behind_goes(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.start(container) == ""
    node.grants.path(container.name).unlink()  # its spec went, and then the agent died
    node.restart()
    assert node.limit_mib(container) is None


def test_an_agent_that_died_between_record_and_driver_is_made_up_for(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.start(container) == ""
    node.limits.limit(CARD, container.group, 3000)  # as if the record had been written alone
    node.restart()
    assert node.limit_mib(container) == 1000


def test_a_folder_of_the_same_name_is_another_group(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.start(container) == ""
    keep = container.group.with_name("keep")  # so that its inode is not given out again
    container.group.rename(keep)
    container.group.mkdir()
    node.limits.limit(CARD, container.group, 77)
    node.grants.release(container.name)
    assert node.limit_mib(container) == 77, "that is not the one that was limited"


def test_what_the_driver_refuses_now_is_done_later(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.start(container) == ""
    node.say(limits_error=999)
    container.limit(500)
    assert "was not changed" in node.driver_limits.behind(container.name)
    assert node.limit_mib(container) == 1000
    node.say()
    node.driver_limits.settle(node.grants.all())
    assert (node.driver_limits.behind(container.name), node.limit_mib(container)) == ("", 500)


def test_a_record_that_cannot_be_read_stops_nothing(node: DriverNode) -> None:
    container = node.container(backend="driver")
    assert node.start(container) == ""
    (node.root / "containers" / container.name / RECORD_NAME).write_text("{")
    node.restart()
    container.limit(500)
    node.grants.release(container.name)


# --- what the node can --------------------------------------------------------------------------------


def test_the_node_says_why_its_driver_holds_nothing(node: DriverNode) -> None:
    assert node.driver_limits.trouble([CARD]) == ""
    (node.root / "cgroup" / "cgroup.controllers").unlink()
    assert "version 1" in node.driver_limits.trouble([CARD])


def test_a_right_that_the_agent_lacks_is_found_before_a_container_starts(node: DriverNode) -> None:
    own = node.root / "cgroup" / "kubepods" / "pod0bd41001-1111-2222-3333-999999999999" / ("f" * 64)
    own.mkdir(parents=True)
    (own / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    node.say(limits_error=4)
    said = node.driver_limits.trouble([CARD])
    assert "components/driver-root" in said
    assert node.driver_limits.trouble([CARD]) == said


def test_a_refusal_at_a_start_counts_for_the_node(node: DriverNode) -> None:
    container = node.container(backend="driver")
    node.say(limits_error=3)
    assert node.start(container) != ""
    assert "does not set memory limits" in node.driver_limits.trouble([CARD])


def test_a_card_that_is_gone_is_told_as_such(node: DriverNode) -> None:
    group = node.container().group
    with pytest.raises(SliceError) as raised:
        node.limits.limit("GPU-gone", group, 1)
    assert raised.value.why == "absent"
    node.limits.clear(CARD, group)
    with pytest.raises(SliceError):
        node.limits.clear(CARD, group / "gone")


def test_the_hook_says_what_it_was_called_wrongly_with() -> None:
    program = BUILD / "egpu-limits"
    for arguments, text, words in (
        ([], "", "arguments"),
        (["name", "/nowhere"], "{}", "names no process"),
        (["name", "/" + "x" * 200], '{"pid": 1}', "is too long"),
    ):
        ended = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert ended.stderr.startswith("egpu-limits: ")
        assert words in ended.stderr


def test_who_hangs_up_at_the_door_disturbs_nobody(node: DriverNode) -> None:
    for sent in (b"", b"\n", b"name\n", b"name x\n", b"\xff\xfe 1"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(node.door.path))
            client.sendall(sent)
    assert node.start(node.container(backend="driver")) == ""
