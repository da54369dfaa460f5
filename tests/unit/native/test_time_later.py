"""What a program could not have at its first launch it asks for again: nobody would ever see it."""

import os
import resource
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.native.test_context_ends import BEGIN, END
from unit.native.time_worlds import HARD, MS, Box, Machine, Running
from vc_egpu_node.isolation import abi

LONG_MS = 20_000
SEEN_S = 30


def _wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + SEEN_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def _active(machine: Machine, name: str) -> bool:
    page = abi.ActivityPage.from_buffer_copy((machine.peers / name).read_bytes())
    return bool(page.cards[0].word & 1)


def _is_watched(program: Running) -> bool:
    tasks = Path(f"/proc/{program.process.pid}/task")
    return any(one.read_text() == "egpu-watch\n" for one in tasks.glob("*/comm"))


@pytest.mark.parametrize(
    "kind", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS], ids=["no descriptor", "no memory"]
)
def test_page_and_watcher_that_were_not_to_be_had_at_first(machine: Machine, kind: int) -> None:
    machine.add(Box("a", HARD, 50, lease_ms=LONG_MS))
    program = machine.start("a", "run", 60, 1, MS)
    before = resource.prlimit(program.process.pid, kind)
    resource.prlimit(program.process.pid, kind, (0, before[1]))
    program.begin()
    machine.wait_for_units(program, units=20)
    assert not _active(machine, "a")
    resource.prlimit(program.process.pid, kind, before)
    _wait_until(lambda: _is_watched(program))
    _wait_until(lambda: _active(machine, "a"))
    program.process.kill()


SLOTS_AT, SLOT_BYTES, SLOTS = 64 + 16 * 1792, 320, 32


def _owners(page: bytes) -> list[int]:
    return [struct.unpack_from("<Q", page, SLOTS_AT + at * SLOT_BYTES)[0] for at in range(SLOTS)]


def test_a_place_among_the_processes_of_its_container_once_one_is_free(machine: Machine) -> None:
    machine.add(Box("a", HARD, 50, lease_ms=LONG_MS))
    page = machine.peers / "a"
    slot = struct.pack("<QQ", 7, (1 << 62)).ljust(SLOT_BYTES, b"\0")
    with page.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), slot * SLOTS, SLOTS_AT)
        program = machine.start("a", "run", 60, 1, MS)
        program.begin()
        machine.wait_for_units(program, units=20)
        assert set(_owners(page.read_bytes())) == {7}
        os.pwrite(file.fileno(), bytes(SLOT_BYTES), SLOTS_AT + 5 * SLOT_BYTES)
    _wait_until(lambda: _owners(page.read_bytes())[5] not in (0, 7))
    machine.wait_for_units(program, units=20, since_ns=time.monotonic_ns())
    program.process.kill()


def test_limits_that_a_first_launch_could_not_read_hold_the_next(machine: Machine) -> None:
    """It was made without a context, and without a descriptor to spare."""
    machine.add(Box("a", HARD, 30))
    code = """
import resource
before, nothing = resource.getrlimit(resource.RLIMIT_NOFILE), c_void_p()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
assert cu.code("cuLaunchKernel", nothing, 1, 1, 1, 1, 1, 1, 0, nothing, nothing, nothing)
resource.setrlimit(resource.RLIMIT_NOFILE, before)
cu.cuCtxSetCurrent(cu.primary())
spin, stream, began = cu.kernel("egpu_spin"), cu.stream(), time.monotonic_ns()
while time.monotonic_ns() < began + 1_500_000_000:
    cu.launch(spin, stream, 1_000_000)
    cu.cuStreamSynchronize(stream)
"""
    program = machine.start("a", "-c", BEGIN + code + END, program=Path(sys.executable))
    program.begin()
    program.result()
    assert machine.busiest_second_ns(program.process.pid) <= 0.32 * 1000 * MS + 1.2 * MS
