"""What nvidia-smi shows in a container. It does not ask NVML's public functions for lists of processes, but
functions of a table without a header."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from unit.native.memory_worlds import BUILD, CAP, MIB, OK, World

PROGRAMS: Final = tuple(Path(one) for one in os.environ.get("VC_EGPU_NVIDIA_SMI", "").split(":") if one)
"""Copies of NVIDIA's own nvidia-smi, of any drivers from 535 on."""

DRIVERS: Final = tuple(
    Path(folder) / "libnvidia-ml.so.1"
    for folder in os.environ.get("VC_EGPU_DRIVER_LIBRARIES", "").split(":")
    if folder
)
"""NVIDIA's own NVML. It needs no card to be asked for its tables."""

WHOSE = """
import ctypes, os, sys
words = ctypes.POINTER(ctypes.c_size_t)()
tools = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
assert ctypes.CDLL(sys.argv[1]).nvmlInternalGetExportTable(ctypes.byref(words), tools) == 0
class Where(ctypes.Structure):
    _fields_ = list(zip(("file", "base", "name", "at"), [ctypes.c_char_p, ctypes.c_void_p] * 2))
where = Where()
for place in range(1, words[0] // 8):
    if ctypes.CDLL(None).dladdr(ctypes.c_void_p(words[place]), ctypes.byref(where)):
        print(place, os.path.basename(where.file).decode())
"""

ASKS = """
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
tools = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
words = ctypes.POINTER(ctypes.c_size_t)()
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2),
                ("guarded", ctypes.c_ulonglong), ("name", ctypes.c_char * 4096)]
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlInternalGetExportTable(ctypes.byref(words), tools) == 0
assert nvml.nvmlInternalGetExportTable(ctypes.byref(ctypes.c_void_p()), bytes(16)) == 2
print(words[0])
card = ctypes.c_void_p()
by_index = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)(words[81])
assert by_index(0, ctypes.byref(card)) == 0
room = int(sys.argv[1]) if len(sys.argv) > 1 else 8
for place in (213, 214, 215) if words[0] > 215 * 8 else ():
    found = (Process * (room + 1))()
    found[room].pid = 12345
    count = ctypes.c_uint(room)
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(words[place])
    code = ask(card, ctypes.byref(count), found)
    assert found[room].pid == 12345
    shown = found[: min(count.value, room)]
    print(code, count.value, [(one.pid, one.bytes, one.name.decode()) for one in shown])
"""


def _driver(world: World, version: str) -> None:
    cards = world.root / "cards"
    cards.write_text(re.sub(r"^driver=.*", f"driver={version}", cards.read_text()))


def _two_containers(world: World) -> tuple[int, int]:
    """Pids of a stranger and of a program of this container, 100 and 64 MiB on the first card."""
    stranger = world.actor(preload=None).start()
    assert stranger.do("alloc", 0, 100 * MIB) == OK
    actor = world.actor().start()
    assert actor.do("alloc", 0, 64 * MIB) == OK
    return stranger.process.pid, actor.process.pid


@pytest.mark.parametrize("driver", ["535.98", "535.261.03", "550.163.01", "570.124.06", "580.65.06"])
def test_the_private_lists_hold_the_container_s_own_processes(world: World, driver: str) -> None:
    _driver(world, driver)
    stranger, own = _two_containers(world)
    seen = world.python(ASKS)
    assert seen.stdout.splitlines()[1:] == [
        f"0 1 [({own}, {world.shares[0].context_bytes + 64 * MIB}, '{BUILD / 'memory-actor'}')]",
        "0 0 []",
        "0 0 []",
    ], seen.stderr
    outside = world.python(ASKS, LD_PRELOAD="")
    assert str(stranger) in outside.stdout.splitlines()[1]


def test_more_processes_than_there_is_room_for(world: World) -> None:
    actors = [world.actor().start() for _ in range(3)]
    seen = subprocess.run(
        [sys.executable, "-c", ASKS, "2"], env=world.environment(), capture_output=True, text=True, check=True
    )
    code, count, rest = seen.stdout.splitlines()[1].split(" ", 2)
    assert (code, count) == ("7", "3")
    assert {actor.process.pid for actor in actors} >= {int(pid) for pid in re.findall(r"\((\d+),", rest)}


@pytest.mark.parametrize("driver", ["470.256.02", "535.86.10", "999.1"])
def test_a_table_that_we_do_not_know_is_the_drivers_own(world: World, driver: str) -> None:
    """An older one ends before the lists. In a newer one the records may be longer: there it is
    what the driver shows a container, whatever that is."""
    _driver(world, driver)
    _two_containers(world)
    assert world.python(ASKS).stdout == world.python(ASKS, LD_PRELOAD="").stdout


@pytest.mark.skipif(not DRIVERS, reason="VC_EGPU_DRIVER_LIBRARIES names no folder with a driver's libraries")
@pytest.mark.parametrize("library", DRIVERS, ids=str)
def test_of_a_driver_s_own_table_the_lists_alone_are_ours(world: World, library: Path) -> None:
    told = world.python(WHOSE, library)
    assert told.returncode == 0, told.stderr
    whose = dict(line.split() for line in told.stdout.splitlines())
    assert len(whose) > 150
    ours = {place for place, file in whose.items() if file == "libvgpu-egpu.so"}
    old = library.resolve().name.startswith("libnvidia-ml.so.470.")
    assert ours == (set() if old else {"213", "214", "215"})
    assert {file for place, file in whose.items() if place not in ours} == {library.name}


@pytest.mark.skipif(not PROGRAMS, reason="VC_EGPU_NVIDIA_SMI names no nvidia-smi")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_nvidia_smi_shows_the_container_s_slice_and_processes(world: World, program: Path) -> None:
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"-- v([\d.]+)", told)
    assert version
    _driver(world, version[1])
    stranger, own = _two_containers(world)

    def says(*arguments: str) -> str:
        done = subprocess.run(
            [program, *arguments], env=world.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    used = world.shares[0].context_bytes + 64 * MIB
    table = says()
    assert re.search(rf"\d+MiB / +{CAP // MIB}MiB", table)
    rows = re.findall(r"(\d+) +C +\S*memory-actor +(\d+)MiB", table)
    assert rows == [(str(own), str(used // MIB))]
    assert says("--query-compute-apps=pid,used_memory", "--format=csv,noheader").splitlines() == [
        f"{own}, {used // MIB} MiB"
    ]
    assert says("--query-gpu=memory.total", "--format=csv,noheader,nounits").split()[0] == str(CAP // MIB)
    assert f"<pid>{own}</pid>" in says("-q", "-x")
    assert str(stranger) not in re.findall(r"\d+", table + says("-q", "-d", "PIDS"))
