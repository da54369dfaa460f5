"""The fake driver's checkpoints: a process's device memory goes to the host and comes back."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .fake_worlds import Machine, built

HELPER = """
pid, calls = int(os.environ["TARGET"]), sys.argv[1:] or os.environ["CALLS"].split()
codes, state = [], c_int(-1)
for call in calls:
    name, _, argument = call.partition(":")
    lock = (c_uint * 16)(int(argument or 0))
    codes.append(driver.code("cuCheckpointProcess" + name, pid, byref(lock)))
driver.code("cuCheckpointProcessGetState", pid, byref(state))
print(*codes, state.value)
"""
pytestmark = pytest.mark.timeout(300)
RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2
CONTEXT_MIB = 432


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    built()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def ask(machine: Machine, process: subprocess.Popen[str], *calls: str, **more: str) -> list[int]:
    """Codes of the calls, then the state that the process is in."""
    said = machine.python(HELPER, TARGET=str(process.pid), CALLS=" ".join(calls), **more)
    return [int(word) for word in said.split()]


def step(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().split()[-1])


def training(machine: Machine, *arguments: str) -> subprocess.Popen[str]:
    how = ("--ns", "200000", "--kernels", "10", "--every", "1", "--memory-mib", "4000", *arguments)
    return machine.start("training", "train", *how)


def test_memory_goes_and_the_steps_go_on_where_they_were(machine: Machine) -> None:
    process = training(machine)
    assert step(process) == 1
    assert machine.nvml()[0] == 4002 + CONTEXT_MIB
    assert ask(machine, process, "Lock:30000", "Checkpoint") == [0, 0, CHECKPOINTED]
    assert machine.nvml()[0] == 0
    os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
    printed = process.stdout.read() or ""  # type: ignore[union-attr]
    log = machine.log()
    quiet_since = log.now_ns()
    assert ask(machine, process, "Restore", "Unlock") == [0, 0, RUNNING]
    assert all(s.enqueued_ns >= quiet_since for s in log.stretches(since_ns=quiet_since))
    os.set_blocking(process.stdout.fileno(), True)  # type: ignore[union-attr]
    before = int(printed.split()[-1]) if printed.split() else 1
    assert step(process) == before + 1
    assert machine.nvml()[0] == 4002 + CONTEXT_MIB


def test_each_call_only_from_the_state_before_it(machine: Machine) -> None:
    process = training(machine)
    illegal = 401
    assert ask(machine, process, "Checkpoint", "Restore", "Unlock") == [illegal, illegal, illegal, RUNNING]
    assert ask(machine, process, "Lock:30000", "Lock:30000") == [0, illegal, LOCKED]
    assert ask(machine, process, "Unlock") == [0, RUNNING]
    step(process)


def test_a_lock_that_takes_too_long_leaves_the_process_running(machine: Machine) -> None:
    process = machine.start("slow", "train", "--ns", "60000000000", "--kernels", "1")
    deadline = time.monotonic() + 60
    while machine.nvml()[1] == 0:  # it has launched
        assert time.monotonic() < deadline
    assert ask(machine, process, "Lock:50") == [600, RUNNING]


def test_no_room_to_come_back(machine: Machine) -> None:
    process = training(machine, "--memory-mib", "4000")
    assert ask(machine, process, "Lock:30000", "Checkpoint")[-1] == CHECKPOINTED
    hog = machine.start("hog", "allocate", "--style", "jax", "--hold-ms", "60000")
    assert ask(machine, process, "Restore") == [2, CHECKPOINTED]
    hog.kill()
    hog.wait(30)
    assert ask(machine, process, "Restore", "Unlock") == [0, 0, RUNNING]


@pytest.mark.parametrize(
    "code",
    [
        "driver.cuMemAllocManaged(byref(c_uint64()), 4096, 1)",
        "driver.cuIpcGetMemHandle(byref(Handle64()), driver.allocate(4 << 20))",
    ],
)
def test_what_cannot_be_checkpointed(machine: Machine, code: str) -> None:
    process = machine.start_python(
        "shared", f"context(); {code}; print('ready', flush=True); sys.stdin.read()"
    )
    assert ask(machine, process, "Lock:30000", "Checkpoint", "Unlock") == [0, 801, 0, RUNNING]


def test_old_drivers_and_strangers(machine: Machine) -> None:
    process = training(machine)
    machine.state.write_text(machine.state.read_text().replace("580.65.06", "550.54.14"))
    assert ask(machine, process, "Lock:30000")[0] == 801
    machine.state.write_text(machine.state.read_text().replace("550.54.14", "580.65.06"))
    assert machine.python(HELPER, TARGET=str(os.getpid()), CALLS="Lock:10").split()[0] == "1"


def test_faults_of_single_steps(machine: Machine) -> None:
    process = training(machine)
    fault = {"FAKE_CUDA_FAULTS": "cuCheckpointProcessCheckpoint:1:1:999"}
    assert ask(machine, process, "Lock:30000", "Checkpoint", "Unlock", **fault) == [0, 999, 0, RUNNING]
    step(process)
