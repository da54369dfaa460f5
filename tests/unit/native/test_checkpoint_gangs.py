"""`egpu-checkpoint` at processes whose kernels wait for each other, as the ranks of a training gang do."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from unit.native.fake_worlds import BUILD, NATIVE, Machine, built

HELPER = BUILD / "egpu-checkpoint"
DONE, NOT_DONE = 0, 1
RANKS = 4
MIB = 64
REST = ("--signal", "USR1", "--drain-ms", 20_000)
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    built()
    subprocess.run(["make", "-s", "-C", str(NATIVE), "build/egpu-checkpoint"], check=True, timeout=240)


class Gang:
    """Ranks that train together; what each of them printed."""

    def __init__(self, fake: Machine, *more: str, ranks: int = RANKS) -> None:
        self.fake = fake
        how = (
            "--parties",
            str(ranks),
            "--agree",
            str(fake.folder / "agree"),
            "--memory-mib",
            str(MIB),
            *more,
        )
        self.ranks = [fake.start(f"rank{number}", "gang", *how) for number in range(ranks)]

    @property
    def pids(self) -> list[int]:
        return [rank.pid for rank in self.ranks]

    def steps(self, until: int) -> list[list[int]]:
        """The steps that each printed from now on, up to this one at least."""
        return [_until(rank, until) for rank in self.ranks]


def _until(rank: subprocess.Popen[str], step: int) -> list[int]:
    assert rank.stdout is not None
    found: list[int] = []
    while not found or found[-1] < step:
        word, number = rank.stdout.readline().split()
        if word == "step":
            found.append(int(number))
    return found


def helper(fake: Machine, *words: object, **more: str) -> "subprocess.Popen[str]":
    command = [str(HELPER), "--library", str(BUILD / "libcuda.so.1"), *map(str, words)]
    return subprocess.Popen(command, env=fake.environment(**more), stdout=subprocess.PIPE, text=True)


def answer(one: "subprocess.Popen[str]") -> tuple[int, dict[str, Any]]:
    out, _ = one.communicate(timeout=120)
    return one.returncode, json.loads(out)


def run(fake: Machine, *words: object) -> tuple[int, dict[str, Any]]:
    return answer(helper(fake, *words))


def follows(steps: list[int], after: int) -> bool:
    return steps == list(range(after + 1, after + 1 + len(steps)))


def test_two_pods_of_two_ranks_leave_and_come_back(fake: Machine) -> None:
    """Each pod's helper begins when it does. None of them knows of the other."""
    gang = Gang(fake, "--rest")
    before = gang.steps(5)
    pods = gang.pids[:2], gang.pids[2:]
    for one in [helper(fake, "suspend", *REST, *pod) for pod in pods]:
        status, said = answer(one)
        assert (status, said["error"]) == (DONE, "")
        assert list(said["states"].values()) == ["checkpointed", "checkpointed"]
    assert fake.nvml()[0] == 0
    for pod in pods:  # the first one's steps wait for the other
        status, said = run(fake, "resume", *REST, *pod)
        assert (status, said["error"]) == (DONE, "")
    after = gang.steps(max(steps[-1] for steps in before) + 50)
    for early, late in zip(before, after, strict=True):
        assert follows(early + late, 0), "no step is lost, none is done twice"
    status, _ = run(fake, "suspend", *REST, *gang.pids)  # and once more
    assert status == DONE
    assert run(fake, "resume", *REST, *gang.pids)[0] == DONE
    gang.steps(after[0][-1] + 10)


def test_a_process_that_does_not_catch_the_signal_is_named_and_nobody_is_touched(fake: Machine) -> None:
    gang = Gang(fake, "--rest")
    deaf = fake.start("deaf", "train", "--ns", "200000", "--kernels", "10", "--every", "1")
    gang.steps(3)
    status, said = run(fake, "suspend", *REST, *gang.pids, deaf.pid)
    assert status == NOT_DONE
    assert said["error"] == f"process {deaf.pid} does not catch SIGUSR1, which its pod names to come to rest"
    assert set(said["states"].values()) == {"running"}
    gang.steps(30)
    assert deaf.poll() is None


def test_one_that_cannot_be_checkpointed_lets_all_go_on(fake: Machine) -> None:
    gang = Gang(fake, "--rest", ranks=2)
    code = (
        "import signal; context();"
        "driver.cuMemAllocManaged(byref(c_uint64()), 4096, 1);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT});"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN); print('ready', flush=True);"
        "signal.sigwait({signal.SIGCONT}); signal.signal(signal.SIGUSR1, lambda *_: None); sys.stdin.read()"
    )
    managed = fake.start_python("managed", code)
    gang.steps(3)
    status, said = run(fake, "suspend", *REST, *gang.pids, managed.pid)
    assert status == NOT_DONE
    assert f"of process {managed.pid}: 801" in said["error"]
    assert "managed, or shared between processes" in said["error"]
    gang.steps(30)


def test_one_that_does_not_come_to_rest_in_time_is_not_left_waiting(fake: Machine) -> None:
    """Its ranks come to rest after the helper gave up hope, and are let go on then."""
    gang = Gang(fake, "--rest", "--kernels", "4", "--ns", "100000000", "--memory-mib", "1", ranks=2)
    gang.steps(1)
    status, said = run(fake, "suspend", "--signal", "USR1", "--drain-ms", 300, *gang.pids)
    assert (status, set(said["states"].values())) == (NOT_DONE, {"running"})
    assert "did not come to rest within 300 ms of SIGUSR1" in said["error"]
    status, _ = run(fake, "resume", *REST, *gang.pids)
    assert status == DONE
    gang.steps(6)


def test_a_helper_that_is_killed_leaves_nobody_at_rest_for_ever(fake: Machine) -> None:
    gang = Gang(fake, "--rest")
    gang.steps(3)
    for pid in gang.pids:  # all that the killed one did
        os.kill(pid, signal.SIGUSR1)
    status, said = run(fake, "resume", *REST, *gang.pids)
    assert (status, said["error"]) == (DONE, "")
    gang.steps(40)


def test_without_a_signal_ranks_of_one_pod_are_caught_where_they_wait_for_nobody(fake: Machine) -> None:
    """Tried again and again: between two steps the host waits and no rank is ahead of another."""
    gang = Gang(fake, "--kernels", "1", "--ns", "20000000", ranks=2)
    before = gang.steps(2)
    status, said = run(fake, "suspend", "--lock-ms", 60_000, *gang.pids)
    assert (status, said["error"]) == (DONE, "")
    assert run(fake, "resume", *gang.pids)[0] == DONE
    for early, late in zip(before, gang.steps(30), strict=True):
        assert follows(early + late, 0)


def test_without_a_signal_a_rank_elsewhere_keeps_it_from_being_locked(fake: Machine) -> None:
    """Its kernel waits for one that is never launched: given up in time."""
    gang = Gang(fake, "--kernels", "8", ranks=2)
    gang.steps(3)
    first, second = gang.pids
    fake.python(f"driver.cuCheckpointProcessLock({first}, None)")
    began = time.monotonic()
    status, said = run(fake, "suspend", "--lock-ms", 500, second)
    assert (status, said["states"]) == (NOT_DONE, {str(second): "running"})
    assert f"process {second} was not locked within 500 ms: its work in flight does not end" in said["error"]
    assert time.monotonic() - began < 30
    assert run(fake, "resume", first)[0] == DONE
    gang.steps(30)


def test_a_process_that_is_not_there_is_not_signalled(fake: Machine) -> None:
    gang = Gang(fake, "--rest", ranks=2)
    gang.steps(1)
    stat = Path(f"/proc/{gang.pids[0]}/stat").read_text()
    start = int(stat.rpartition(")")[2].split()[19])
    status, said = run(fake, "suspend", *REST, f"{gang.pids[0]}:{start + 1}")
    assert (status, list(said["states"].values())) == (DONE, ["gone"])
    gang.steps(20)


def test_a_driver_that_answers_nothing_about_a_peer_does_not_hang_the_helper(fake: Machine) -> None:
    """As seen with NCCL on driver 575: nothing comes back about the second while the first is locked."""
    gang = Gang(fake, "--rest", ranks=2)
    gang.steps(3)
    how = {"FAKE_CUDA_CHECKPOINT_PEERS": "1"}
    status, said = answer(helper(fake, "suspend", "--lock-ms", 2_000, *REST, *gang.pids, **how))
    assert (status, set(said["states"].values())) == (NOT_DONE, {"running"})
    assert "answers nothing about one process while another one is locked" in said["error"]
    gang.steps(20)
