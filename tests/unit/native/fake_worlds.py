"""A machine with fake cards, and programs on it: for tests of the fake driver itself."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fakes.cuda_log import CudaLog

REPOSITORY: Final = Path(__file__).resolve().parents[3]
NATIVE: Final = REPOSITORY / "device-plugin" / "native"
BUILD: Final = NATIVE / "build"
PROGRAMS: Final = BUILD / "programs"


def built() -> None:
    """Builds driver, NVML and programs, where that has not been done."""
    names = [
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        *(f"programs/{p}" for p in ("train", "serve", "meet", "gang", "allocate")),
    ]
    targets = [f"build/{name}" for name in [*names, "programs/train-direct"]]
    subprocess.run(["make", "-s", "-C", str(NATIVE), *targets], check=True, timeout=240)


def _first_line(pipe: int) -> str:
    """Not a byte more: what is read ahead into a buffer is lost to ``communicate``."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe, 1)):
        line += byte
    return line.decode().strip()


@dataclass
class Machine:
    """Fake cards, their state in a folder of its own."""

    folder: Path
    cards: int = 1
    memory_mib: int = 16384
    driver: str = "580.65.06"
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    said: dict[int, str] = field(default_factory=dict)
    """First line of each program, by pid."""

    def __post_init__(self) -> None:
        lines = [f"driver={self.driver}", "cuda=13000"]
        for number in range(1, self.cards + 1):
            lines += [f"card={self.uuid(number)}", f"memory_mib={self.memory_mib}"]
        self.state.write_text("\n".join(lines) + "\n")

    @staticmethod
    def uuid(number: int) -> str:
        return f"GPU-00000000-0000-4000-8000-{number:012d}"

    @property
    def state(self) -> Path:
        return self.folder / "nvml.state"

    def environment(self, label: str = "", **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKE_", "CUDA_"))}
        paths = os.pathsep.join(str(REPOSITORY / part) for part in ("tests", "e2e"))
        mine = {"FAKE_NVML_STATE": str(self.state), "LD_LIBRARY_PATH": str(BUILD), "PYTHONPATH": paths}
        return kept | mine | ({"FAKE_CUDA_LABEL": label} if label else {}) | more

    def start(self, label: str, program: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """A program that has said its first line, mostly "ready"."""
        command = [str(PROGRAMS / program), *arguments]
        return self._start(command, label, more)

    def start_python(self, label: str, code: str, **more: str) -> subprocess.Popen[str]:
        """The same for a few lines of Python, which find `driver`, `context()` and the contract's names."""
        return self._start([sys.executable, "-c", PRELUDE + code], label, more)

    def python(self, code: str, **more: str) -> str:
        """What the lines print, once they have ended well."""
        command = [sys.executable, "-c", PRELUDE + code]
        ran = subprocess.run(
            command, env=self.environment(**more), capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout.strip()

    def _start(self, command: Sequence[str], label: str, more: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env=self.environment(label, **more),
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        assert process.stdout is not None
        self.said[process.pid] = _first_line(process.stdout.fileno())
        return process

    def log(self) -> CudaLog:
        return CudaLog(self.folder / "nvml.state.cuda")

    def nvml(self) -> tuple[int, int, dict[int, int]]:
        """MiB used, utilisation in percent, MiB by pid: of card 1, as the fake NVML gives them."""
        text = subprocess.run(
            [sys.executable, "-c", NVML],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        used, percent, processes = json.loads(text)
        return used, percent, {int(pid): mib for pid, mib in processes.items()}

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


PRELUDE: Final = f"""
import ctypes, os, sys
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p
from contract.cuda.binding import *
driver = Driver(ctypes.CDLL({str(BUILD / "libcuda.so.1")!r}))
driver.cuInit(0)
def context(device=0):
    made = driver.primary(device)
    driver.cuCtxSetCurrent(made)
    return made
"""

NVML: Final = """
import json, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
processes = {p.pid: p.usedGpuMemory >> 20 for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)}
used = pynvml.nvmlDeviceGetMemoryInfo(card).used >> 20
print(json.dumps([used, pynvml.nvmlDeviceGetUtilizationRates(card).gpu, processes]))
"""
