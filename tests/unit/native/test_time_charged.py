"""What is charged is the time that kernels ran: no loading of code, no copies, no host functions, no stalls.

Judged by the card's own timeline. A program alone on its card is judged without any figure of the driver.
Where units have others' turns in them, the charge is judged after the agent has told such figures once.
"""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pytest
from unit.native.test_context_ends import BEGIN, END
from unit.native.test_time_ways import _wait_until
from unit.native.time_worlds import EVER, HARD, MS, Box, Machine, Running
from vc_egpu_node.isolation import abi

pytestmark = pytest.mark.calm

RUDE: Final = {"FAKE_CUDA_HOST_TIME": "1", "FAKE_CUDA_SCATTER": "1", "FAKE_CUDA_LOAD_US": "3000"}
PERIOD_S, QUOTA_S = 0.1, 0.04
"""Of a limit of 400m CPUs, as the kernel keeps it: on the processor at first, then off it."""
NEAR: Final = 0.1
PAGE_PLACES: Final = (abi.measured_at(0) + 8, abi.ActivityPage.cards.offset + 160)
"""Of the instant of the driver's last figure on a page, and of the last one that the library has seen."""

PROGRAM: Final = """
lengths, last = {lengths!r}, {rounds!r}
cu.cuCtxSetCurrent(cu.primary())
stream, side, here, size = cu.stream(), cu.stream(), c_void_p(), 6 << 20
cu.cuMemHostAlloc(byref(here), size, 0)
there = cu.allocate(size)
rest = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: time.sleep(0.002))
host_function = ctypes.cast(rest, c_void_p)
spin = cu.kernel("egpu_spin")

def captured():
    made, graph = c_void_p(), c_void_p()
    cu.cuStreamBeginCapture_v2(stream, 2)
    for at in range(10):
        cu.launch(spin, stream, 200_000)
        if at == 5:
            cu.cuLaunchHostFunc(stream, host_function, None)
    cu.cuStreamEndCapture(stream, byref(made))
    cu.cuGraphInstantiateWithFlags(byref(graph), made, 0)
    return graph

{before}
for number in range(last):
    if number % 8 == 0:
        spin = cu.kernel("egpu_spin")
    cu.cuMemcpyHtoDAsync_v2(there, here, size, stream)
    for ns in lengths:
        {work}
    cu.cuLaunchHostFunc(stream, host_function, None)
    cu.launch(spin, stream, lengths[0])
    cu.cuMemcpyDtoHAsync_v2(here, there, size, stream)
    cu.cuCtxSynchronize()
"""
PLAIN: Final = "cu.launch(spin, stream, ns)"
LOADS: Final[Mapping[str, tuple[int, tuple[int, ...], int]]] = {
    "0.2 to 3 ms": (40, (200_000, MS, 3 * MS), 100),
    "20 us": (15, (20_000,) * 60, 100),
    "10 us to 10 ms": (30, (10_000, 50_000, 200_000, 2 * MS, 20_000, 10 * MS), 40),
}
"""Hard share in percent, the lengths of the kernels of a round, and rounds."""
FOR_LONG: Final = 1_000_000
"""Rounds of a program that runs until the test has seen enough."""


def _start(
    machine: Machine, lengths: tuple[int, ...], rounds: int, work: str = PLAIN, before: str = ""
) -> Running:
    code = BEGIN + PROGRAM.format(lengths=lengths, rounds=rounds, work=work, before=before) + END
    return machine.start("a", "-c", code, program=Path(sys.executable), environment=RUDE)


@contextmanager
def _held_to_a_quota(program: Running) -> Iterator[None]:
    """Off the processor for 60 ms of each 100."""
    over = Event()

    def stall() -> None:
        while not over.wait(QUOTA_S):
            program.process.send_signal(signal.SIGSTOP)
            over.wait(PERIOD_S - QUOTA_S)
            program.process.send_signal(signal.SIGCONT)

    thread = Thread(target=stall)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _charged_ns(machine: Machine) -> int:
    return int(abi.ActivityPage.from_buffer_copy((machine.peers / "a").read_bytes()).cards[0].busy_ns)


def _has_seen_the_last_figure(machine: Machine) -> bool:
    page = (machine.peers / "a").read_bytes()
    at, trued_at = (int.from_bytes(page[where : where + 8], "little") for where in PAGE_PLACES)
    return at == trued_at


def _ran_ns(machine: Machine, program: Running) -> int:
    return machine.used(0, EVER)[program.process.pid, 0].busy_ns


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("stalled", [False, True], ids=["", "off the processor"])
def test_the_charge_of_a_program_alone_is_the_time_of_its_kernels(
    machine: Machine, load: str, stalled: bool
) -> None:
    machine.mode = "slices"
    cores, lengths, rounds = LOADS[load]
    machine.add(Box("a", HARD, cores))
    program = _start(machine, lengths, rounds)
    program.begin()
    with _held_to_a_quota(program) if stalled else nullcontext():
        program.result()
    assert _charged_ns(machine) == pytest.approx(_ran_ns(machine, program), rel=NEAR)


@pytest.mark.parametrize(
    ("work", "before", "beside_ns"),
    [
        (PLAIN, "", MS),
        (PLAIN, "", 20 * MS),
        ("cu.launch(spin, side, ns); cu.launch(spin, stream, ns)", "", 0),
        ("cu.cuGraphLaunch(graph, stream)", "graph = captured()", 0),
    ],
    ids=["beside 1 ms", "beside 20 ms", "on two streams", "graphs with a host function"],
)
def test_the_charge_is_near_once_the_driver_was_asked(
    machine: Machine, work: str, before: str, beside_ns: int
) -> None:
    machine.mode = "slices"
    machine.add(Box("a", HARD, 40))
    programs = [_start(machine, (200_000, MS, 3 * MS), FOR_LONG, work, before)]
    if beside_ns:
        machine.add(Box("b", HARD, 40))
        programs.append(machine.start("b", "run", 60, 20, beside_ns, environment=RUDE))
    for one in programs:
        one.begin()
    seen = []
    for seconds in (1.5, 4):
        machine.agent(seconds)
        _wait_until(lambda: _has_seen_the_last_figure(machine))
        seen.append((_charged_ns(machine), _ran_ns(machine, programs[0])))
    (charged_before, ran_before), (charged, ran) = seen
    assert charged - charged_before == pytest.approx(ran - ran_before, rel=NEAR)
