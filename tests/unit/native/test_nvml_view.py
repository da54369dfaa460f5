"""What NVML tells a container of single processes: of its own, whichever function is asked."""

import inspect
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pynvml
import pytest
from unit.native.memory_worlds import CAP, MIB, NATIVE, OK, World

DRIVERS: Final = tuple(
    Path(folder) / "libnvidia-ml.so.1"
    for folder in os.environ.get("VC_EGPU_DRIVER_LIBRARIES", "").split(":")
    if folder
)
TELLS: Final = re.compile(
    "Process|Account|Pids|MemoryInfo|MemoryUsage|MemSize|FbUsage|MemoryLimits|Sessions|ExportTable"
)
"""In names of functions that may tell of memory in use, or of programs."""
HARMLESS: Final = {
    r"nvmlVgpu|nvmlDeviceGetVgpu|nvmlDeviceGetActiveVgpus": "of virtual machines: none is beside containers",
    r"nvmlDevice(Clear|Set)Accounting\w+": "changes, for the root of the machine alone",
    r"nvmlDeviceGetAccounting(Mode|BufferSize)": "a setting",
    r"nvmlSystemGetProcessName": "of a pid that the container sees",
    r"nvmlDeviceGetBAR1MemoryInfo": "the window of the bus: of no program, and no share of memory",
    r"nvmlDeviceGetConfComputeMemSizeInfo|nvmlDeviceSetConfComputeUnprotected": "how the card is divided",
    r"nvmlDevice[GS]etMemoryLimits_v1": "of a control group that the caller can open: its own",
    r"nvmlDeviceGet(Encoder|FBC)Sessions": "of programs that encode: no memory, and not how much of the card",
}

ASKS = """
import ctypes, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
def told(ask):
    try:
        return ask()
    except pynvml.NVMLError as error:
        return error.value
print(told(lambda: sorted(one.pid for one in pynvml.nvmlDeviceGetProcessUtilization(card, 0))))
print(told(lambda: sorted(one.pid for one in pynvml.nvmlDeviceGetProcessesUtilizationInfo(card, 0))))
print(told(lambda: sorted(pynvml.nvmlDeviceGetAccountingPids(card))))
for pid in {pids}:
    print(told(lambda: pynvml.nvmlDeviceGetAccountingStats(card, pid).maxMemoryUsage >> 20))
    print(told(lambda: pynvml.nvmlDeviceGetAccountingStats_v2(card, pid).maxMemoryUsage >> 20))
memory = pynvml.nvmlDeviceGetConfComputeProtectedMemoryUsage(card)
print(memory.total, memory.free + memory.used)
"""


def _wrapped() -> set[str]:
    rows = (NATIVE / "lib" / "base" / "symbols_memory.def").read_text()
    return set(re.findall(r"^EGPU_WRAP_NVML\((\w+)\)", rows, re.MULTILINE))


def _harmless(name: str) -> bool:
    return any(re.fullmatch(f"({pattern})\\w*", name) for pattern in HARMLESS)


def _untreated(names: set[str]) -> list[str]:
    return sorted(
        name for name in names if TELLS.search(name) and name not in _wrapped() and not _harmless(name)
    )


def test_each_function_that_tells_of_programs_is_limited_or_has_a_reason() -> None:
    names = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', inspect.getsource(pynvml)))
    assert len(names) > 300
    assert _untreated(names) == []


@pytest.mark.skipif(not DRIVERS, reason="VC_EGPU_DRIVER_LIBRARIES names no folder with a driver's libraries")
@pytest.mark.parametrize("library", DRIVERS, ids=str)
def test_each_export_of_a_driver_s_nvml_is_limited_or_has_a_reason(library: Path) -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    names = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    assert "nvmlInit_v2" in names
    assert _untreated(names) == []


def test_single_processes_are_the_container_s_own(world: World) -> None:
    stranger = world.actor(preload=None).start()
    actor = world.actor().start()
    assert actor.do("alloc", 0, 64 * MIB) == OK
    pids = [stranger.process.pid, actor.process.pid]
    outside = world.python(ASKS.format(pids=pids), LD_PRELOAD="").stdout.splitlines()
    assert outside[:3] == [str(sorted(pids))] * 3
    inside = world.python(ASKS.format(pids=pids))
    own = f"[{pids[1]}]"
    nobody = str(pynvml.NVML_ERROR_NOT_FOUND)
    assert inside.stdout.splitlines() == [own, own, own, nobody, nobody, *outside[5:7], f"{CAP} {CAP}"], (
        inside.stderr
    )


LISTS = """
import ctypes, sys
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]
class Wide(Process):
    _fields_ = [("guarded", ctypes.c_ulonglong)]
nvml, card = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) == 0
for name, record in (("_v2", Process), ("_v3", Wide if "wide" in sys.argv else Process)):
    found, count = (record * 3)(), ctypes.c_uint(3)
    assert getattr(nvml, "nvmlDeviceGetComputeRunningProcesses" + name)(card, ctypes.byref(count), found) == 0
    print(sorted((one.pid, *one.instances) for one in found[: count.value]))
"""


@pytest.mark.parametrize(("driver", "kind"), [("535.54.03", "wide"), ("535.104.05", ""), ("570.124.06", "")])
def test_lists_have_the_records_that_the_driver_s_have(world: World, driver: str, kind: str) -> None:
    """The first drivers of 535 have a field more in the newest, and so have programs that read them."""
    cards = world.root / "cards"
    cards.write_text(re.sub(r"^driver=.*", f"driver={driver}", cards.read_text()))
    pids = sorted(world.actor().start().process.pid for _ in range(2))
    told = world.python(LISTS, kind)
    assert told.returncode == 0, told.stderr
    rows = [(pid, 2**32 - 1, 2**32 - 1) for pid in pids]
    assert told.stdout.splitlines() == [str(rows)] * 2


def test_a_container_without_processes_there_is_told_of_none(world: World) -> None:
    world.actor(preload=None).start()
    nobody = str(pynvml.NVML_ERROR_NOT_FOUND)
    inside = world.python(ASKS.format(pids=[]))
    assert inside.stdout.splitlines()[:3] == [nobody, nobody, "[]"], inside.stderr
