"""The end of a context: nobody touches what was made in it any more, and nothing is left behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from unit.native.memory_worlds import CONTEXT_MIB, MIB, World, charged
from unit.native.time_worlds import HARD, Box, Machine

TESTS = Path(__file__).resolve().parents[2]
BEGIN = f"""
import ctypes, sys, time
from ctypes import byref, c_void_p
sys.path.insert(0, {str(TESTS)!r})
from contract.cuda.binding import Driver
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.types |= {{"cuDevResourceGenerateDesc": (0, [c_void_p, c_void_p, ctypes.c_uint]),
             "cuCtxFromGreenCtx": (0, [c_void_p, c_void_p])}}
cu.cuInit(0)
resources, green, words = c_void_p(), c_void_p(), (ctypes.c_uint64 * 64)()
cu.cuDevResourceGenerateDesc(byref(resources), words, 1)
print("ready", flush=True)
input()
began = time.monotonic_ns()

def make_green():
    made, context = c_void_p(), c_void_p()
    cu.cuGreenCtxCreate(byref(made), resources, 0, 1)
    cu.cuCtxFromGreenCtx(byref(context), made)
    cu.cuCtxSetCurrent(context)
    return made

def work(launches=5, ns=300_000):
    spin, stream = cu.kernel("egpu_spin"), cu.stream()
    for _ in range(launches):
        cu.launch(spin, stream, ns)

"""
END = """
print('{"from_ns": %d, "to_ns": %d}' % (began, time.monotonic_ns()))
"""
WAYS = {
    "destroy": "one = c_void_p(); cu.cuCtxCreate_v2(byref(one), 0, 0); work(); cu.cuCtxDestroy_v2(one)",
    "release": "cu.cuCtxSetCurrent(cu.primary()); work(); cu.cuDevicePrimaryCtxRelease_v2(0)",
    "reset": "cu.cuCtxSetCurrent(cu.primary()); work(); cu.cuDevicePrimaryCtxReset_v2(0)",
    "green": "one = make_green(); work(); cu.cuGreenCtxDestroy(one)",
    "green beside": "cu.primary(); one = make_green(); work(); cu.cuGreenCtxDestroy(one)",
}


@pytest.mark.parametrize("way", WAYS)
def test_with_work_in_flight_nothing_of_it_is_touched_afterwards(machine: Machine, way: str) -> None:
    machine.add(Box("a", HARD, 90))
    loop = f"for _ in range(30):\n    {WAYS[way]}\n    time.sleep(0.005)\n"
    program = machine.start(
        "a",
        "-c",
        BEGIN + loop + END,
        program=Path(sys.executable),
        FAKE_CUDA_DEAD_KILLS="1",
        FAKE_CUDA_END_US="5000",
        FAKE_CUDA_CONTEXT_MIB="16",
    )
    program.begin()
    program.result()


@pytest.mark.calm
@pytest.mark.parametrize("then", ["cu.cuGreenCtxDestroy(one)", "pass"], ids=["in turn", "at once"])
def test_however_many_green_contexts_there_are_the_share_is_kept(machine: Machine, then: str) -> None:
    machine.add(Box("a", HARD, 20))
    code = f"""
for _ in range(150):
    one = make_green()
    work(1, 10_000)
    cu.cuCtxSynchronize()
    {then}
make_green()
spin, stream, began = cu.kernel("egpu_spin"), cu.stream(), time.monotonic_ns()
while time.monotonic_ns() < began + 2_000_000_000:
    cu.launch(spin, stream, 1_000_000)
    cu.cuStreamSynchronize(stream)
"""
    program = machine.start("a", "-c", BEGIN + "cu.primary()" + code + END, program=Path(sys.executable))
    program.begin()
    ran = program.result()
    assert 10 < machine.share(program.process.pid, ran["from_ns"], ran["to_ns"]) < 25


@pytest.mark.calm
def test_a_context_beyond_the_thousandth_is_kept_to_the_share_as_well(machine: Machine) -> None:
    machine.add(Box("a", HARD, 20))
    code = """
first = cu.primary()
cu.cuCtxSetCurrent(first)
spin = cu.kernel("egpu_spin")
for _ in range(1030):
    make_green()
    cu.launch(spin, None, 1_000)
stream, began = cu.stream(), time.monotonic_ns()
while time.monotonic_ns() < began + 2_000_000_000:
    cu.launch(spin, stream, 1_000_000)
    cu.cuStreamSynchronize(stream)
"""
    program = machine.start("a", "-c", BEGIN + code + END, program=Path(sys.executable))
    program.begin()
    ran = program.result()
    end_ns = ran["to_ns"]
    assert 10 < machine.share(program.process.pid, end_ns - 2_000_000_000, end_ns) < 25


def test_memory_of_a_green_context_is_the_primary_ones(world: World) -> None:
    code = """
first = cu.primary()
one = make_green()
cu.allocate(64 << 20)
cu.cuGreenCtxDestroy(one)
cu.cuCtxSetCurrent(first)
print("held", flush=True)
input()
cu.cuDevicePrimaryCtxReset_v2(0)
print("given back", flush=True)
input()
"""
    environment = world.environment()
    program = subprocess.Popen(
        [sys.executable, "-c", BEGIN + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=environment,
    )
    assert program.stdin
    assert program.stdout
    told = []
    for _ in range(3):
        told.append((program.stdout.readline().strip(), charged(world) if world.usage.exists() else 0))
        program.stdin.write("go\n")
    program.communicate(timeout=60)
    assert told == [("ready", 0), ("held", (CONTEXT_MIB + 64) * MIB), ("given back", 0)]


def test_a_forked_child_that_clears_up_does_not_hang(machine: Machine) -> None:
    """As destructors do at its end, whatever its parent's threads were just doing."""
    machine.add(Box("a"))
    code = """
import os, threading
context = cu.primary()
cu.cuCtxSetCurrent(context)
spin, stream, other, ended = cu.kernel("egpu_spin"), cu.stream(), cu.stream(), False

def launches():
    cu.cuCtxSetCurrent(context)
    while not ended:
        for _ in range(50):
            cu.launch(spin, stream, 100)
        cu.cuStreamSynchronize(stream)

threads = [threading.Thread(target=launches) for _ in range(4)]
for thread in threads:
    thread.start()
hung = 0
for _ in range(300):
    child = os.fork()
    if not child:
        cu.code("cuStreamDestroy_v2", other)
        os._exit(0)
    patience = time.monotonic() + 5
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > patience:
            os.kill(child, 9)
            os.waitpid(child, 0)
            hung += 1
            break
    if hung:
        break
ended = True
for thread in threads:
    thread.join()
print('{"hung": %d}' % hung)
"""
    program = machine.start("a", "-c", BEGIN + code, program=Path(sys.executable))
    program.begin()
    assert program.result() == {"hung": 0}
