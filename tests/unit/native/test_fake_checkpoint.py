"""The fake driver's checkpoints: a process's device memory goes to the host and comes back."""

import os
import subprocess
import time

import pytest
from unit.native.fake_worlds import Machine, built

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


def ask(fake: Machine, process: subprocess.Popen[str], *calls: str, **more: str) -> list[int]:
    """Codes of the calls, then the state that the process is in."""
    said = fake.python(HELPER, TARGET=str(process.pid), CALLS=" ".join(calls), **more)
    return [int(word) for word in said.split()]


def step(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().split()[-1])


def training(fake: Machine, *arguments: str) -> subprocess.Popen[str]:
    how = ("--ns", "200000", "--kernels", "10", "--every", "1", "--memory-mib", "4000", *arguments)
    return fake.start("training", "train", *how)


def test_memory_goes_and_the_steps_go_on_where_they_were(fake: Machine) -> None:
    process = training(fake)
    assert step(process) == 1
    assert fake.nvml()[0] == 4002 + CONTEXT_MIB
    assert ask(fake, process, "Lock:30000", "Checkpoint") == [0, 0, CHECKPOINTED]
    assert fake.nvml()[0] == 0
    os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
    printed = process.stdout.read() or ""  # type: ignore[union-attr]
    log = fake.log()
    quiet_since = log.now_ns()
    assert ask(fake, process, "Restore", "Unlock") == [0, 0, RUNNING]
    assert all(s.enqueued_ns >= quiet_since for s in log.stretches(since_ns=quiet_since))
    os.set_blocking(process.stdout.fileno(), True)  # type: ignore[union-attr]
    before = int(printed.split()[-1]) if printed.split() else 1
    assert step(process) == before + 1
    assert fake.nvml()[0] == 4002 + CONTEXT_MIB


def test_each_call_only_from_the_state_before_it(fake: Machine) -> None:
    process = training(fake)
    illegal = 401
    assert ask(fake, process, "Checkpoint", "Restore", "Unlock") == [illegal, illegal, illegal, RUNNING]
    assert ask(fake, process, "Lock:30000", "Lock:30000") == [0, illegal, LOCKED]
    assert ask(fake, process, "Unlock") == [0, RUNNING]
    step(process)


def test_a_lock_that_takes_too_long_leaves_the_process_running(fake: Machine) -> None:
    process = fake.start("slow", "train", "--ns", "60000000000", "--kernels", "1")
    deadline = time.monotonic() + 60
    while fake.nvml()[1] == 0:  # it has launched
        assert time.monotonic() < deadline
    assert ask(fake, process, "Lock:50") == [600, RUNNING]


def test_no_room_to_come_back(fake: Machine) -> None:
    process = training(fake, "--memory-mib", "4000")
    assert ask(fake, process, "Lock:30000", "Checkpoint")[-1] == CHECKPOINTED
    hog = fake.start("hog", "allocate", "--style", "jax", "--hold-ms", "60000")
    assert ask(fake, process, "Restore") == [2, CHECKPOINTED]
    hog.kill()
    hog.wait(30)
    assert ask(fake, process, "Restore", "Unlock") == [0, 0, RUNNING]


@pytest.mark.parametrize(
    "code",
    [
        "driver.cuMemAllocManaged(byref(c_uint64()), 4096, 1)",
        "driver.cuIpcGetMemHandle(byref(Handle64()), driver.allocate(4 << 20))",
    ],
)
def test_what_cannot_be_checkpointed(fake: Machine, code: str) -> None:
    process = fake.start_python("shared", f"context(); {code}; print('ready', flush=True); sys.stdin.read()")
    assert ask(fake, process, "Lock:30000", "Checkpoint", "Unlock") == [0, 801, 0, RUNNING]


def test_old_drivers_and_strangers(fake: Machine) -> None:
    process = training(fake)
    fake.state.write_text(fake.state.read_text().replace("580.65.06", "550.54.14"))
    assert ask(fake, process, "Lock:30000")[0] == 801
    fake.state.write_text(fake.state.read_text().replace("550.54.14", "580.65.06"))
    assert fake.python(HELPER, TARGET=str(os.getpid()), CALLS="Lock:10").split()[0] == "1"


def test_faults_of_single_steps(fake: Machine) -> None:
    process = training(fake)
    fault = {"FAKE_CUDA_FAULTS": "cuCheckpointProcessCheckpoint:1:1:999"}
    assert ask(fake, process, "Lock:30000", "Checkpoint", "Unlock", **fault) == [0, 999, 0, RUNNING]
    step(process)
