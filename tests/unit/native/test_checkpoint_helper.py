"""`egpu-checkpoint` against the fake driver: all processes or none, and nothing left behind by a failure."""

import json
import os
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from unit.native.fake_worlds import BUILD, NATIVE, Machine, built

HELPER = BUILD / "egpu-checkpoint"
CONTEXT_MIB = 432
DONE, NOT_DONE, UNUSABLE, STRANDED = range(4)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    built()
    subprocess.run(["make", "-s", "-C", str(NATIVE), "build/egpu-checkpoint"], check=True, timeout=240)


@dataclass(frozen=True)
class Answer:
    """What the helper said, and its exit status."""

    status: int
    said: dict[str, Any]

    @property
    def states(self) -> list[str]:
        return list(self.said["states"].values())


def run(fake: Machine, *words: object, faults: str = "") -> Answer:
    more = {"FAKE_CUDA_FAULTS": faults} if faults else {}
    command = [str(HELPER), "--library", str(BUILD / "libcuda.so.1"), *map(str, words)]
    ran = subprocess.run(
        command, env=fake.environment(**more), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.count("\n") == 1, ran.stdout + ran.stderr
    return Answer(ran.returncode, json.loads(ran.stdout))


def train(
    fake: Machine, label: str = "training", mib: int = 2000, **environment: str
) -> subprocess.Popen[str]:
    how = ("--ns", "200000", "--kernels", "10", "--every", "1", "--memory-mib", str(mib))
    return fake.start(label, "train", *how, **environment)


def step(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().split()[-1])


def start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_all_processes_go_and_come_back(fake: Machine) -> None:
    one, two = train(fake, "one"), train(fake, "two")
    idle = os.getpid()  # no CUDA in this one
    named = [f"{p}:{start_of(p)}" for p in (one.pid, two.pid, idle)]
    assert run(fake, "state", *named).states == ["running", "running", "none"]
    answer = run(fake, "suspend", *named)
    assert (answer.status, answer.said["error"]) == (DONE, "")
    assert answer.states == ["checkpointed", "checkpointed", "none"]
    assert fake.nvml()[0] == 0
    assert run(fake, "suspend", *named).status == DONE  # said twice, done once
    back = run(fake, "resume", *named)
    assert (back.status, back.states) == (DONE, ["running", "running", "none"])
    assert fake.nvml()[0] == 2 * (2002 + CONTEXT_MIB)
    assert step(one) < step(one)
    assert step(two) < step(two)
    assert run(fake, "resume", *named).status == DONE


def test_one_that_cannot_be_locked_leaves_all_running(tmp_path: Path) -> None:
    with closing(Machine(tmp_path, cards=2)) as fake:
        slow = fake.start("slow", "train", "--ns", "60000000000", "--kernels", "1")
        deadline = time.monotonic() + 60
        while fake.nvml()[1] == 0:  # it has launched
            assert time.monotonic() < deadline
        quick = train(fake, CUDA_VISIBLE_DEVICES="1")
        answer = run(fake, "suspend", "--lock-ms", 200, quick.pid, slow.pid)
        assert (answer.status, answer.states) == (NOT_DONE, ["running", "running"])
        assert str(slow.pid) in answer.said["error"]
        step(quick)


@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
def test_a_failure_half_way_takes_all_back(fake: Machine, call: str) -> None:
    both = [train(fake, "one", 1000), train(fake, "two", 1000)]
    pids = [process.pid for process in both]
    answer = run(fake, "suspend", *pids, faults=f"cuCheckpointProcess{call}:2:1:999")
    assert (answer.status, answer.states) == (NOT_DONE, ["running", "running"])
    assert any(f"cuCheckpointProcess{call} of process {pid}: 999" in answer.said["error"] for pid in pids)
    assert fake.nvml()[0] == 2 * (1002 + CONTEXT_MIB)
    for process in both:
        step(process)


def test_what_cannot_be_brought_back_is_said(fake: Machine) -> None:
    both = [train(fake, "one", 1000), train(fake, "two", 1000)]
    pids = [process.pid for process in both]
    faults = "cuCheckpointProcessCheckpoint:2:1:999,cuCheckpointProcessRestore:1:1:2"
    answer = run(fake, "suspend", *pids, faults=faults)
    assert (answer.status, answer.states) == (STRANDED, ["checkpointed", "locked"])
    assert "cuCheckpointProcessCheckpoint" in answer.said["error"]  # the first thing that went wrong
    again = run(fake, "resume", *pids)
    assert (again.status, again.states) == (DONE, ["running", "running"])


def test_no_room_to_come_back(fake: Machine) -> None:
    process = train(fake, "training", 4000)
    assert run(fake, "suspend", process.pid).status == DONE
    hog = fake.start("hog", "allocate", "--style", "jax", "--hold-ms", "60000")
    answer = run(fake, "resume", process.pid)
    assert (answer.status, answer.states) == (STRANDED, ["checkpointed"])
    assert "cuCheckpointProcessRestore" in answer.said["error"]
    hog.kill()
    hog.wait(30)
    assert run(fake, "resume", process.pid).status == DONE


def test_a_cut_off_run_is_finished_by_the_next(fake: Machine) -> None:
    process = train(fake)
    code = f"driver.cuCheckpointProcessLock({process.pid}, None)"
    fake.python(code)
    assert run(fake, "state", process.pid).states == ["locked"]
    assert run(fake, "suspend", process.pid).states == ["checkpointed"]
    fake.python(f"driver.cuCheckpointProcessRestore({process.pid}, None)")
    assert run(fake, "resume", process.pid).states == ["running"]


def test_a_later_process_of_the_same_number_is_not_touched(fake: Machine) -> None:
    process = train(fake)
    answer = run(fake, "suspend", f"{process.pid}:{start_of(process.pid) + 1}")
    assert (answer.status, answer.states) == (DONE, ["gone"])
    step(process)


def test_managed_memory_is_refused_and_runs_on(fake: Machine) -> None:
    code = "context(); driver.cuMemAllocManaged(byref(c_uint64()), 4096, 1); print('ready', flush=True)"
    process = fake.start_python("managed", f"{code}; sys.stdin.read()")
    answer = run(fake, "suspend", process.pid)
    assert (answer.status, answer.states) == (NOT_DONE, ["running"])
    assert "801" in answer.said["error"]


def test_an_old_driver_and_no_driver(fake: Machine) -> None:
    process = train(fake)
    fake.state.write_text(fake.state.read_text().replace("580.65.06", "550.54.14"))
    answer = run(fake, "suspend", process.pid)
    assert (answer.status, "801" in answer.said["error"]) == (NOT_DONE, True)
    assert run(fake, "--library", "/nowhere/libcuda.so.1", "state", process.pid).status == UNUSABLE
    old = run(fake, "--library", BUILD / "libnvidia-ml.so.1", "state", process.pid)
    assert (old.status, "older than 570" in old.said["error"]) == (UNUSABLE, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no verb"),
        (("kill", 1), "no such verb: kill"),
        (("suspend", "one"), "one is no PID[:START]"),
        (("suspend", -1), "no such flag: -1"),
        (("suspend", "1:"), " is no PID[:START]"),
        (("suspend", "99999999999999999999"), "is no PID[:START]"),
        (("suspend", 1, "1:2"), "process 1 is named twice"),
        (("suspend", *range(1, 131)), "more than 128 processes"),
        (("suspend", "--lock-ms", 0), "--lock-ms is 1 to 600000, not 0"),
        (("suspend", "--signal", "KILL", 1), "--signal is USR1, USR2 or TSTP, not KILL"),
        (("suspend", "--drain-ms", -5, 1), "--drain-ms is 1 to 600000, not -5"),
        (("state", '1";'), '1"; is no PID[:START]'),
    ],
)
def test_wrong_words(fake: Machine, words: tuple[object, ...], text: str) -> None:
    answer = run(fake, *words)
    assert (answer.status, answer.said["ok"]) == (UNUSABLE, False)
    assert text in answer.said["error"]


def test_words_of_one_text_and_a_file_for_the_answer(fake: Machine, tmp_path: Path) -> None:
    process = train(fake)
    answer = run(fake, "--result", tmp_path / "said", "--words", f"suspend --lock-ms 5000 {process.pid}")
    assert answer.states == ["checkpointed"]
    assert json.loads((tmp_path / "said").read_text()) == answer.said
