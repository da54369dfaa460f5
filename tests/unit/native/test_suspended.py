"""The library while its container is suspended: launches and new memory wait, nothing is left behind."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from unit.native.fake_worlds import BUILD
from unit.native.memory_worlds import CONTEXT_MIB, MIB, OK, UUIDS, Actor, Share, World, charged, used
from unit.native.time_worlds import FREE, HIGH, LOW, MS, Box, Machine, Running
from unit.native.turn_program import Told
from vc_egpu_node.isolation.abi import ACTIVITY_BYTES, ActivityPage

FOR_LONG_S = 100
QUIET_S = 0.5
"""So long is looked that nothing happens."""
HELPER = BUILD / "egpu-checkpoint"


def checkpoint(environment: dict[str, str], verb: str, *pids: int) -> str:
    """The helper, in whose environment the cards are."""
    names = ("FAKE_", "EGPU_", "LD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    command: list[str | Path] = [HELPER, "--library", BUILD / "libcuda.so.1", verb, *map(str, pids)]
    done = subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def launched(machine: Machine, program: Running) -> int:
    """How many units it has given the card so far."""
    return sum(
        1 for row in machine.stretches(0, time.monotonic_ns() + 10**12) if row[0] == program.process.pid
    )


def quiet(machine: Machine, program: Running) -> None:
    """What was on its way has ended, and nothing new comes."""
    deadline, before = time.monotonic() + 60, -1
    while (now := launched(machine, program)) != before:
        assert time.monotonic() < deadline
        before = now
        time.sleep(QUIET_S)


def test_launches_wait_and_go_on(machine: Machine) -> None:
    machine.add(Box("a", FREE))
    running = machine.start("a", "run", FOR_LONG_S, 4, MS)
    running.begin()
    machine.wait_for_units(running)
    machine.change("a", suspended=True)
    quiet(machine, running)
    machine.change("a", suspended=False)
    machine.wait_for_units(running, since_ns=time.monotonic_ns(), units=100)


def test_no_hold_is_left_behind(machine: Machine) -> None:
    """A suspended container is not active, whatever it was in the midst of: others of lower class run."""
    machine.add(Box("high", share_class=HIGH, lease_ms=300), Box("low", share_class=LOW, lease_ms=300))
    high = machine.start("high", "run", FOR_LONG_S, 4, 5 * MS)
    high.begin()
    machine.wait_for_units(high)
    low = machine.start("low", "run", FOR_LONG_S, 4, MS)
    low.begin()
    machine.change("high", suspended=True)
    quiet(machine, high)
    environment = {"FAKE_NVML_STATE": str(machine.root / "cards"), "LD_LIBRARY_PATH": str(BUILD)}
    checkpoint(environment, "suspend", high.process.pid)
    machine.wait_for_units(low, since_ns=time.monotonic_ns(), units=100)
    checkpoint(environment, "resume", high.process.pid)
    machine.change("high", suspended=False)
    machine.wait_for_units(high, since_ns=time.monotonic_ns(), units=20)


class Suspendable(World):
    """A container that can be suspended."""

    def suspended(self, flag: bool) -> None:
        """As the agent says it on the page: in place, under the lock."""
        page = bytearray(self.control.read_bytes())
        page[100:104] = int(flag).to_bytes(4, "little")
        sequence = int.from_bytes(page[16:24], "little") + 2
        page[16:24] = sequence.to_bytes(8, "little")
        with self.control.open("r+b") as file:
            file.write(page)

    def checkpoint(self, verb: str, *actors: Actor) -> None:
        """The helper at these programs."""
        environment = {"FAKE_NVML_STATE": str(self.root / "cards"), "LD_LIBRARY_PATH": str(BUILD)}
        checkpoint(environment, verb, *(one.process.pid for one in actors))


@pytest.fixture
def world(tmp_path: Path) -> Suspendable:
    return Suspendable(tmp_path / "c", [Share(UUIDS[0], 1024 * MIB)])


def answers(actor: Actor, within_s: float) -> bool:
    """Whether what it was told is done by then. (The pipe is read no further.)"""
    assert actor.process.stdout
    return bool(select.select([actor.process.stdout], [], [], within_s)[0])


def test_a_new_program_takes_nothing_while_the_container_is_suspended(world: Suspendable) -> None:
    watcher = world.watcher()
    world.suspended(True)
    new = world.actor()
    assert new.do("init") == OK
    new.tell("primary", 0, 0)
    assert not answers(new, QUIET_S)
    assert used(watcher) == 0
    world.suspended(False)
    assert int(new.hear()[0]) == OK
    assert used(watcher) == CONTEXT_MIB * MIB - 2 * MIB
    world.close()


def test_books_and_memory_are_the_same_after_it(world: Suspendable) -> None:
    watcher, actor = world.watcher(), world.actor().start()
    assert actor.do("alloc", 0, 100 * MIB) == OK
    before, held = used(watcher), charged(world)
    room = actor.info()
    world.suspended(True)
    world.checkpoint("suspend", actor)
    assert used(watcher) == 0
    assert charged(world) == held, "it may come back at any moment: nobody in its container gets that memory"
    world.checkpoint("resume", actor)
    world.suspended(False)
    assert (used(watcher), charged(world)) == (before, held)
    assert actor.info() == room
    world.close()


def wanted_ns(world: Suspendable) -> int:
    """When the container last asked for its card, as its neighbours and the agent read it."""
    page = ActivityPage.from_buffer_copy((world.usage.parent / "activity").read_bytes())
    return int(page.cards[0].wanted_ns)


def watched(world: Suspendable, *first: str) -> Told:
    """A program that has worked, and idles."""
    (world.usage.parent / "activity").write_bytes(bytes(ACTIVITY_BYTES))
    program = Told(world.environment())
    for words in ("start 10", *first, "work 1"):
        program.tell(words)
        assert program.hear()
    time.sleep(QUIET_S)
    return program


@pytest.mark.parametrize("words", ["work 1", "copy", "alloc 1", "free"])
def test_a_program_that_is_away_says_that_it_wants_its_cards(world: Suspendable, words: str) -> None:
    """The driver lets none of these return before the program is back, and so the agent must know."""
    program = watched(world, "alloc 1")
    world.suspended(True)
    time.sleep(QUIET_S)  # as the agent does, before it has the program locked
    environment = {"FAKE_NVML_STATE": str(world.root / "cards"), "LD_LIBRARY_PATH": str(BUILD)}
    checkpoint(environment, "suspend", program.process.pid)
    away_ns = time.monotonic_ns()
    time.sleep(QUIET_S)
    assert wanted_ns(world) < away_ns, "it idles, and asks for nothing"
    program.tell(words)
    deadline = time.monotonic() + 60
    while wanted_ns(world) < away_ns:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    checkpoint(environment, "resume", program.process.pid)
    world.suspended(False)
    assert program.hear()
    program.end()
    world.close()


BACK = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from contract.cuda.binding import Driver
cu, pid = Driver(ctypes.CDLL("libcuda.so.1")), int(sys.argv[1])
cu.cuInit(0)
print(*(cu.code(f"cuCheckpointProcess{{what}}", pid, None) for what in ("Restore", "Unlock")))
"""
NOT_PERMITTED = 800


def test_a_container_does_not_bring_itself_back(world: Suspendable) -> None:
    """Whoever has its share of the card meanwhile would run out of memory."""
    watcher, actor = world.watcher(), world.actor().start()
    assert actor.do("alloc", 0, 100 * MIB) == OK
    before, pid = used(watcher), str(actor.process.pid)
    world.suspended(True)
    world.checkpoint("suspend", actor)
    assert world.python(BACK, pid).stdout.split() == [str(NOT_PERMITTED)] * 2
    assert used(watcher) == 0
    world.suspended(False)
    assert world.python(BACK, pid).stdout.split() == [str(OK)] * 2  # its own checkpoints are its own
    assert used(watcher) == before
    world.close()


NVML = """
import pynvml
pynvml.nvmlInit()
found = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print(found.total, found.used)
"""


def test_nvml_goes_on_answering(world: Suspendable) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, 100 * MIB) == OK
    asked = [sys.executable, "-c", NVML]

    def said() -> str:
        environment = world.environment(PYTHONPATH=os.pathsep.join(sys.path))
        return subprocess.run(
            asked, env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    before = said()
    assert before.split()[0] == str(1024 * MIB)
    world.suspended(True)
    world.checkpoint("suspend", actor)
    assert said() == before
    world.close()
