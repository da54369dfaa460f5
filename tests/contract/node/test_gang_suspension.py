"""A gang of two pods with two ranks each, whose kernels wait for each other, leaves its cards as a whole."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from contract.node.test_library import Container
from contract.node.test_suspension import Suspending
from contract.node.test_suspension import here as _here
from unit.native.memory_worlds import BUILD, CONTEXT_MIB

here = _here
pytestmark = pytest.mark.timeout(300)
HELD_MIB = 100
SIGNAL = "SIGUSR1"
Program = subprocess.Popen[str]


class Pods:
    """Two pods of the gang, and the ranks that run in them."""

    def __init__(self, here: Suspending, *, signal: str = SIGNAL) -> None:
        self.here = here
        self.both = [here.node.container(name, "low") for name in ("low-0", "low-1")]
        here.node.pods = [
            replace(one, running=frozenset({"main"}), suspend_signal=signal) for one in here.node.pods
        ]

    def rank(self, container: Container, *more: str, parties: int = 4) -> Program:
        agree = self.here.node.root / "agree"
        how = ("--parties", str(parties), "--agree", str(agree), "--memory-mib", str(HELD_MIB), *more)
        return begin(container, "gang", *how)

    def train(self, *more: str) -> list[Program]:
        """Two ranks a pod."""
        return [self.rank(container, "--rest", *more) for container in self.both for _ in range(2)]

    def order(self, number: int | None) -> None:
        for container in self.both:
            self.here.order(container, number)

    def until(self, *states: str) -> list[str]:
        return [self.here.until(container, *states).state for container in self.both]

    def reasons(self) -> list[str]:
        return [self.here.said[-1].pods[container.uid].reason for container in self.both]

    def held_mib(self) -> int:
        return sum(one.memory_mib for one in self.here.ask().seen)


def begin(container: Container, program: str, *how: str) -> Program:
    process = subprocess.Popen(
        [BUILD / "programs" / program, *how],
        stdout=subprocess.PIPE, text=True, env=container.environment(),
    )  # fmt: skip
    container.node.training.append(process)
    container.own(process.pid)
    status = container.node.proc / str(process.pid) / "status"
    status.unlink()
    status.symlink_to(f"/proc/{process.pid}/status")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def steps(program: Program, until: int) -> list[int]:
    """What it printed of its steps, up to this one; the counter lies in its memory on the card."""
    assert program.stdout is not None
    found: list[int] = []
    while not found or found[-1] < until:
        word, number = program.stdout.readline().split()
        if word == "step":
            found.append(int(number))
    return found


def test_all_ranks_leave_and_go_on_where_they_were(here: Suspending) -> None:
    gang = Pods(here)
    ranks = gang.train()
    before = [steps(rank, 5) for rank in ranks]
    assert gang.until("running") == ["running"] * 2
    assert gang.reasons() == ["", ""]
    gang.order(1)
    assert gang.until("suspended", "failed") == ["suspended"] * 2
    assert gang.held_mib() == 0
    said = here.said[-1].pods
    assert all(2 * HELD_MIB < said[one.uid].host_mib <= 2 * (HELD_MIB + 2 * CONTEXT_MIB) for one in gang.both)
    gang.order(None)
    assert gang.until("running", "failed") == ["running"] * 2
    for rank, early in zip(ranks, before, strict=True):
        late = steps(rank, 500)
        assert early + late == list(range(1, len(early + late) + 1)), "none is lost, none is done twice"
    assert here.offences == []


def test_one_process_that_cannot_come_to_rest_keeps_its_pod_where_it_is_by_name(here: Suspending) -> None:
    gang = Pods(here)
    ranks = gang.train()
    other = begin(gang.both[1], "train", "--every", "100000", "--kernels", "1", "--ns", "200000")
    gang.until("running")
    assert gang.reasons()[0] == ""
    named = (
        f"process {other.pid} uses the GPU and does not catch {SIGNAL}, its egpu.volcano.sh/suspend-signal"
    )
    assert gang.reasons()[1] == named
    here.order(gang.both[1], 1)
    gang.until("running")
    assert gang.reasons()[1] == named
    assert [steps(rank, 50)[-1] >= 50 for rank in ranks] == [True] * 4


def test_one_that_fails_at_the_last_moment_has_the_others_come_back(here: Suspending) -> None:
    """Its memory turns out to be shared when it is at rest; the admission layer takes the orders back."""
    gang = Pods(here)
    ranks = gang.train()
    gang.until("running")
    code = (
        "import ctypes, signal, sys;"
        f"sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r});"
        "from contract.cuda.binding import Driver; cu = Driver(ctypes.CDLL('libcuda.so.1'));"
        "context, at = ctypes.c_void_p(), ctypes.c_uint64();"
        "cu.cuInit(0); cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cu.cuCtxSetCurrent(context);"
        "cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4 << 20));"
        "cu.cuIpcGetMemHandle((ctypes.c_ubyte * 64)(), at);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT});"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN); print('ready', flush=True);"
        "signal.sigwait({signal.SIGCONT}); signal.signal(signal.SIGUSR1, lambda *_: None); sys.stdin.read()"
    )
    sharer = subprocess.Popen(
        ["python3", "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=gang.both[1].environment(),
    )  # fmt: skip
    here.node.training.append(sharer)
    gang.both[1].own(sharer.pid)
    assert sharer.stdout is not None
    assert sharer.stdout.readline() == "ready\n"
    gang.order(1)
    here.until(gang.both[1], "running", "failed")
    here.until(gang.both[0], "suspended")
    assert f"of process {sharer.pid}: 801" in gang.reasons()[1]
    gang.order(None)
    assert gang.until("running", "failed") == ["running"] * 2
    assert [steps(rank, 50)[-1] >= 50 for rank in ranks] == [True] * 4


def test_without_a_signal_several_processes_are_named_as_the_reason(here: Suspending) -> None:
    gang = Pods(here, signal="")
    ranks = gang.train()
    gang.until("running")
    assert all("2 of its processes use the GPU" in reason for reason in gang.reasons())
    assert all("suspendSeveralProcesses" in reason for reason in gang.reasons())
    assert [steps(rank, 20)[-1] >= 20 for rank in ranks] == [True] * 4
