"""Work in a stream of another context than the thread's own, or of a thread that has none."""

import sys
from pathlib import Path

import pytest
from unit.native.test_context_ends import BEGIN, END
from unit.native.test_time_ways import _counted, _ran, _wait_until
from unit.native.time_worlds import HARD, MS, Box, Machine, Running

pytestmark = pytest.mark.calm

MAKE = """
def at_other(device=0):
    other = c_void_p()
    cu.cuCtxCreate_v2(byref(other), 0, device)
    spin, stream = cu.kernel("egpu_spin"), cu.stream()
    return other, spin, stream

"""
FROM = {
    "no context": "cu.cuCtxSetCurrent(None)",
    "another context of the card": "cu.cuCtxSetCurrent(cu.primary())",
    "another card": "cu.cuCtxSetCurrent(cu.primary(1))",
}


def _start(machine: Machine, code: str, dead_kills: str = "0") -> Running:
    whole = BEGIN + MAKE + code + END
    return machine.start("a", "-c", whole, program=Path(sys.executable), FAKE_CUDA_DEAD_KILLS=dead_kills)


@pytest.mark.parametrize("where", FROM)
def test_a_launch_counts_where_its_stream_is(machine: Machine, where: str) -> None:
    machine.add(Box("a", HARD, 90, cards=(0, 1)))
    code = f"""
other, spin, stream = at_other()
{FROM[where]}
for _ in range(16):
    cu.launch(spin, stream, 1_000_000)
    cu.cuStreamSynchronize(stream)
input()
"""
    program = _start(machine, code)
    program.begin()
    _wait_until(lambda: _counted(machine, "a") == 16)
    assert _counted(machine, "a", 1) == 0
    assert _ran(machine, program) == 16


@pytest.mark.parametrize("where", FROM)
def test_no_share_is_left_by_launching_from_elsewhere(machine: Machine, where: str) -> None:
    machine.add(Box("a", HARD, 30, cards=(0, 1)))
    code = f"""
other, spin, stream = at_other()
{FROM[where]}
began = time.monotonic_ns()
while time.monotonic_ns() < began + 1_500_000_000:
    cu.launch(spin, stream, 1_000_000)
    cu.cuStreamSynchronize(stream)
"""
    program = _start(machine, code)
    program.begin()
    program.result()
    assert machine.busiest_second_ns(program.process.pid) <= 0.32 * 1000 * MS + 1.2 * MS


@pytest.mark.parametrize(
    ("made", "ended"),
    [
        ("other = c_void_p(); cu.cuCtxCreate_v2(byref(other), 0, 0)", "cu.cuCtxDestroy_v2(other)"),
        ("green = make_green()", "cu.cuGreenCtxDestroy(green)"),
    ],
    ids=["context", "green context"],
)
def test_a_context_ends_with_what_others_launched_into_its_streams(
    machine: Machine, made: str, ended: str
) -> None:
    """Nobody touches those streams afterwards: with NVIDIA's driver that may end the program."""
    machine.add(Box("a", HARD, 90))
    code = f"""
first = cu.primary()
cu.cuCtxSetCurrent(first)
spin = cu.kernel("egpu_spin")
for _ in range(30):
    {made}
    stream = cu.stream()
    cu.cuCtxSetCurrent(first)
    for _ in range(40):
        cu.launch(spin, stream, 1_000)
    {ended}
    time.sleep(0.005)
"""
    program = _start(machine, code, dead_kills="1")
    program.begin()
    program.result()


def test_a_stream_with_the_handle_of_one_that_is_gone_is_not_taken_for_that(machine: Machine) -> None:
    machine.add(Box("a", HARD, 90, cards=(0, 1)))
    code = """
contexts = [cu.primary(0), cu.primary(1)]
kernels, handles = [], set()
for context in contexts:
    cu.cuCtxSetCurrent(context)
    kernels.append(cu.kernel("egpu_spin"))
cu.cuCtxSetCurrent(None)
for turn in range(64):
    cu.cuCtxSetCurrent(contexts[turn % 2])
    stream = cu.stream()
    handles.add(stream)
    cu.cuCtxSetCurrent(None)
    cu.launch(kernels[turn % 2], stream, 100_000)
    cu.cuStreamSynchronize(stream)
    cu.cuStreamDestroy_v2(stream)
assert len(handles) < 16, handles
input()
"""
    program = _start(machine, code)
    program.begin()
    _wait_until(lambda: [_counted(machine, "a", card) for card in (0, 1)] == [32, 32])
