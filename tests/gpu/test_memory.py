"""Memory on a real card: the cap in every way, exactly what is free, NVML's view, what spills."""

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.standalone import BUILD, MIB, ON_FAKE, Node
from unit.native.memory_worlds import OK, OUT_OF_MEMORY, Actor
from unit.native.test_memory_programs import PROCESSES, WAYS, Program

PROGRAMS = 200
SEEDS = 20
ROUNDS = 24
TOLERANCE_MIB = 64
ROOM_MIB = 384
"""Of a cap, what is left beside its programs' contexts."""
EACH = PROGRAMS // SEEDS
OF_THE_FAKE = ("external", "multicast")
"""What needs another interface's memory, or a switch between cards."""


class Container:
    """A container for programs that allocate as they are told; quacks like the fake's `World`."""

    def __init__(self, node: Node, name: str, memory_mib: int, physical_mib: int | None = None) -> None:
        node.add(name, memory_mib, physical_mib=physical_mib)
        self.node, self.name = node, name
        self.actors: list[Actor] = []

    def actor(self, way: str = "dlsym") -> Actor:
        """A program in it."""
        process = subprocess.Popen(
            [BUILD / "memory-actor", way], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, bufsize=1, env=self.node.environment(self.name),
            start_new_session=True,
        )  # fmt: skip
        self.actors.append(Actor(process))
        return self.actors[-1]

    def close(self) -> None:
        """Ends all of them."""
        for one in self.actors:
            if one.process.poll() is None:
                one.kill()
            for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
                if pipe:
                    pipe.close()


@pytest.fixture
def containers(node: Node) -> Iterator[list[Container]]:
    made: list[Container] = []
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs_stay_within_their_cap(node: Node, containers: list[Container], seed: int) -> None:
    """Ten programs each, three at a time, some killed in the middle: what the card's own figures say."""
    chance = random.Random(seed)
    cap_mib = PROCESSES * node.context_mib + ROOM_MIB
    box = Container(node, "a", cap_mib)
    containers.append(box)
    before = node.used_mib()
    programs: list[Program] = []
    started = 0
    for _ in range(ROUNDS):
        while len(programs) < PROCESSES and started < EACH:
            actor = box.actor(chance.choice([way for way in WAYS if way != "direct"]))
            started += 1
            assert actor.do("init") == OK
            code = actor.do("primary", 0, 0)
            assert code in (OK, OUT_OF_MEMORY)
            if code == OK:
                assert actor.do("pool", 0) == OK
                programs.append(Program(actor, chance, node.root, OF_THE_FAKE))
        for program in programs:
            program.step()
        if chance.random() < 0.3 and programs:
            programs.pop(chance.randrange(len(programs))).actor.kill()
        for program in programs:
            program.settle()
        # What a killed one held leaves the card a little after it: nothing may stay above.
        most = before + cap_mib + TOLERANCE_MIB
        assert node.settle(most, timeout_s=5) <= most
    for program in programs:
        program.free_all()
    box.close()
    assert node.settle(before + 8) <= before + 8


def test_exactly_what_is_free_can_be_had(node: Node, containers: list[Container]) -> None:
    box = Container(node, "a", node.context_mib + 1000)
    containers.append(box)
    actor = box.actor().start()
    free, total = actor.info()
    assert total == (node.context_mib + 1000) * MIB
    assert 0 < free <= 1000 * MIB
    assert actor.do("alloc", 1, free) == OK
    assert actor.do("alloc", 2, 2 * MIB) == OUT_OF_MEMORY
    assert actor.info()[0] < 2 * MIB


def test_a_lowered_cap_harms_no_running_work(node: Node, containers: list[Container]) -> None:
    box = Container(node, "a", node.context_mib + 1000)
    containers.append(box)
    actor = box.actor().start()
    assert actor.do("alloc", 1, 800 * MIB) == OK
    node.change("a", memory_mib=node.context_mib + 200)
    free, total = actor.info()
    assert (free, total) == (0, (node.context_mib + 200) * MIB)
    assert actor.do("alloc", 2, 2 * MIB) == OUT_OF_MEMORY
    assert actor.do("free", 1) == OK
    assert actor.do("alloc", 2, 2 * MIB) == OK


SEES = """
import pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(card, pynvml.nvmlMemory_v2)
print(memory.total >> 20, memory.used >> 20, len(pynvml.nvmlDeviceGetComputeRunningProcesses(card)))
"""


def test_nvml_shows_a_container_its_own_slice(node: Node, containers: list[Container]) -> None:
    boxes = [Container(node, name, node.context_mib + room) for name, room in (("a", 1000), ("b", 500))]
    containers += boxes
    mine, other = (box.actor().start() for box in boxes)
    assert mine.do("alloc", 1, 300 * MIB) == OK
    assert other.do("alloc", 1, 100 * MIB) == OK
    said = subprocess.run(
        [sys.executable, "-c", SEES], env=node.environment("a"), capture_output=True, text=True, check=True
    )
    total, used, processes = map(int, said.stdout.split())
    assert total == node.context_mib + 1000
    assert used == pytest.approx(node.context_mib + 300, abs=TOLERANCE_MIB)
    assert processes == 1


@pytest.mark.skipif(ON_FAKE or not shutil.which("nvidia-smi"), reason="there is no nvidia-smi here")
def test_nvidia_smi_shows_a_container_its_own_slice(node: Node, containers: list[Container]) -> None:
    containers.append(Container(node, "a", node.context_mib + 1000))
    said = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"],
        env=node.environment("a"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(said.stdout) == node.context_mib + 1000


def test_what_goes_beyond_the_card_spills_to_the_host(node: Node, containers: list[Container]) -> None:
    """1000 MiB of its own on the card and 600 on the host; never more than is free on the card."""
    before = node.used_mib()
    assert node.free_mib() > node.context_mib + 2000
    box = Container(node, "a", node.context_mib + 1600, node.context_mib + 1000)
    containers.append(box)
    actor = box.actor().start()
    for number in range(1, 17):
        assert actor.do("alloc", number, 98 * MIB) == OK, number
    assert actor.do("alloc", 99, 98 * MIB) == OUT_OF_MEMORY
    assert node.used_mib() - before <= node.context_mib + 1000 + TOLERANCE_MIB
    for number in range(1, 17):
        assert actor.do("free", number) == OK


def test_programs_find_the_library_once(node: Node, containers: list[Container]) -> None:
    containers.append(Container(node, "a", node.context_mib + 100))
    assert "cuMemAlloc_v2" in containers[0].actor().ask("wrapped")
    assert Path(node.environment("a")["LD_PRELOAD"]).exists()
