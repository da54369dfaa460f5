"""Ordinary programs give the same result with the library as without it, on a driver as rude as real ones.

Each is a program of tests/rude_actor.c. What is asserted is what a library around the driver once did to it.
"""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from unit.native.time_worlds import BUILD, HARD, HIGH, LOW, MS, SOFT, Box, Machine, Running

PROGRAM: Final = BUILD / "rude-actor"
RUDE: Final = {"FAKE_CUDA_HOST_TIME": "1", "FAKE_CUDA_SCATTER": "1"}
WORLDS: Final = {
    "no cap": (Box("a"),),
    "hard": (Box("a", HARD, 50),),
    "soft": (Box("a", SOFT, 50, 50), Box("b", SOFT, 50, 50)),
    "low": (Box("a", share_class=LOW), Box("h", share_class=HIGH)),
    "high": (Box("a", share_class=HIGH), Box("l", share_class=LOW)),
}


def _start(
    machine: Machine, *words: object, preload: bool = True, environment: Mapping[str, str] | None = None
) -> Running:
    running = machine.start("a", *words, preload=preload, program=PROGRAM, environment=environment)
    running.begin()
    return running


def _said(
    machine: Machine, *words: object, preload: bool = True, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return _start(machine, *words, preload=preload, environment=environment).result()


def _slices(machine: Machine, world: str = "no cap") -> Machine:
    machine.mode = "slices"
    machine.add(*WORLDS[world])
    return machine


@pytest.mark.parametrize("world", WORLDS)
def test_kernels_that_meet_on_blocking_streams_beside_the_legacy_one(machine: Machine, world: str) -> None:
    """An event that is recorded later on the legacy stream would stand between the two."""
    assert _said(_slices(machine, world), "legacy", 5)["rounds"] == 5


@pytest.mark.parametrize("world", ["no cap", "high"])
def test_long_kernels_on_blocking_streams_run_side_by_side(machine: Machine, world: str) -> None:
    machine.mode = "overlap"
    machine.add(*WORLDS[world])
    assert min(_said(machine, "side", 4)["ms"] for _ in range(2)) < 34  # one after the other: 40


@pytest.mark.parametrize("world", WORLDS)
def test_captures_of_other_threads_are_let_alone(machine: Machine, world: str) -> None:
    said = _said(_slices(machine, world), "captures", 1, 2 * MS, environment=RUDE)
    assert said["made"] > 20
    assert said["spoilt"] == 0


@pytest.mark.parametrize("what", ["copy", "host", "wait"])
def test_what_lies_between_kernels_is_not_charged(machine: Machine, what: str) -> None:
    """20 us of kernels in 10 ms: a share of 20 % is far from used up."""
    machine.mode = "slices"
    machine.add(Box("a", HARD, 20))
    plain = _said(machine, "between", 1, what, 10, preload=False)["ms"]
    assert min(_said(machine, "between", 1, what, 10)["ms"] for _ in range(3)) < 1.2 * plain


def test_code_that_is_loaded_at_the_first_launch_is_not_charged(machine: Machine) -> None:
    machine.mode = "slices"
    machine.add(Box("a", HARD, 50))
    load = {"FAKE_CUDA_LOAD_US": "5000"}
    plain = _said(machine, "lazy", 60, 20_000, preload=False, environment=load)
    ours = _said(machine, "lazy", 60, 20_000, environment=load)
    assert ours["first_ms"] < 1.5 * plain["first_ms"]
    assert ours["pass_ms"] < 10  # half of the card for 1.2 ms of work; charged as loaded it took 45


def test_time_off_the_processor_is_not_charged(machine: Machine) -> None:
    """It uses less than its share, because it seldom has a processor."""
    machine.mode = "slices"
    machine.add(Box("a", HARD, 30))
    plain = _said(machine, "stalled", 2, 200_000, 80, preload=False)["percent"]
    assert max(_said(machine, "stalled", 2, 200_000, 80)["percent"] for _ in range(3)) > 0.85 * plain


def test_captures_that_end_with_their_stream_cost_nothing_later(machine: Machine) -> None:
    machine.mode = "slices"
    machine.add(*WORLDS["low"])
    plain = _said(machine, "drop", 1, preload=False)["percent"]
    assert max(_said(machine, "drop", 1)["percent"] for _ in range(3)) > 0.75 * plain


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("words", [("graphs", 1, 100_000), ("events", 1, 200_000), ("streams", 3000)])
def test_programs_of_many_kinds_end(machine: Machine, world: str, words: tuple[object, ...]) -> None:
    assert _said(_slices(machine, world), *words, environment={"FAKE_CUDA_CONNECTIONS": "1"})


def test_a_pool_near_the_cap_keeps_what_it_has(machine: Machine) -> None:
    said = _said(_slices(machine), "pool", 1)
    assert said["after_mib"] == said["before_mib"] > 7000


def test_free_memory_is_told_at_once_beside_programs_with_many_mappings(machine: Machine) -> None:
    _slices(machine)
    others = [machine.start("a", "maps", 20_000, 0, program=PROGRAM) for _ in range(3)]
    for one in others:
        one.begin()
        assert one.process.stdout
        assert one.process.stdout.readline() == "{}\n"
    assert _said(machine, "maps", 10, 40)["mean_ms"] < 3  # reading all their mappings took 33


@pytest.mark.parametrize("world", WORLDS)
def test_the_driver_is_not_called_after_its_end(machine: Machine, world: str) -> None:
    """A driver's memory is gone then: a program that asks it ends by SIGSEGV, after all its work is done."""
    _slices(machine, world)
    for _ in range(10):
        assert _said(machine, "leave", 20_000, environment={"FAKE_CUDA_EXIT_US": "5000"}) == {}


def test_a_launch_without_cap_and_class_calls_the_driver_once(machine: Machine) -> None:
    _slices(machine)
    calls = machine.root / "calls"
    _said(machine, "pace", 1, 20_000, 1000, environment={"FAKE_CUDA_CALLS": str(calls)})
    counts = dict(line.split() for line in calls.read_text().splitlines())
    assert int(counts["cuLaunchKernel"]) == 20_000
    others = {"cuEventRecord", "cuEventQuery", "cuEventElapsedTime", "cuCtxGetCurrent", "cuStreamIsCapturing"}
    assert sum(int(counts.get(name, 0)) for name in others) < 20


def test_a_cap_measures_few_of_many_short_launches(machine: Machine) -> None:
    machine.mode = "slices"
    machine.add(Box("a", HARD, 90))
    calls = machine.root / "calls"
    _said(machine, "pace", 1, 20_000, 2000, environment={"FAKE_CUDA_CALLS": str(calls)})
    counts = dict(line.split() for line in calls.read_text().splitlines())
    assert 2 <= int(counts["cuEventRecord"]) < 20_000 / 20


# --- holds that end -----------------------------------------------------------------------------------

HELD: Final = (Box("a", share_class=LOW, lease_ms=20_000), Box("h", share_class=HIGH, lease_ms=20_000))


def _hold(machine: Machine) -> Running:
    """High has work all the time from now on."""
    high = machine.start("h", "run", 60, 1000, MS)
    high.begin()
    machine.wait_for_units(high)
    return high


def test_a_held_program_sees_its_signal_within_a_second(machine: Machine) -> None:
    machine.add(*HELD)
    high = _hold(machine)
    low = _start(machine, "term", 60, 200_000)
    time.sleep(1.5)  # it is held by then, and its one launch for a signal's sake is not used up
    sent_ns = time.monotonic_ns()
    low.process.send_signal(signal.SIGTERM)
    out, _ = low.process.communicate(timeout=30)
    said = json.loads(out.splitlines()[-1])
    assert said["asked"] == signal.SIGTERM
    assert said["at_ns"] - sent_ns < 2_000 * MS  # one second, and the machine's own
    high.process.kill()


PYTHON: Final = Path(sys.executable)
SAVES: Final = """
import ctypes, signal, sys, time
cu = ctypes.PyDLL("libcuda.so.1")
def ok(code): assert code == 0, code
def save(*_):
    print(time.monotonic_ns(), flush=True)
    sys.exit(0)
context, module, spin, stream = (ctypes.c_void_p() for _ in range(4))
ok(cu.cuInit(0)); ok(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)); ok(cu.cuCtxSetCurrent(context))
ok(cu.cuModuleLoadData(ctypes.byref(module), (ctypes.c_ubyte * 64)(0x7f, 0x45, 1)))
ok(cu.cuModuleGetFunction(ctypes.byref(spin), module, b"egpu_spin"))
ok(cu.cuStreamCreate(ctypes.byref(stream), 1))
length = ctypes.c_uint64(200_000); with_ = (ctypes.c_void_p * 1)(ctypes.addressof(length))
signal.signal(signal.SIGTERM, save)
print("ready", flush=True); sys.stdin.readline()
for _ in range(10 ** 6):
    ok(cu.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, with_, None)); ok(cu.cuStreamSynchronize(stream))
"""


def test_a_held_program_of_python_that_keeps_its_lock_comes_to_its_handler(machine: Machine) -> None:
    machine.add(*HELD)
    high = _hold(machine)
    low = machine.start("a", "-c", SAVES, program=PYTHON)
    low.begin()
    time.sleep(1.5)
    sent_ns = time.monotonic_ns()
    low.process.send_signal(signal.SIGTERM)
    out, errors = low.process.communicate(timeout=30)
    assert low.process.returncode == 0, errors
    assert int(out.split()[-1]) - sent_ns < 2_500 * MS
    high.process.kill()


def test_no_hold_for_pods_that_are_let_go(machine: Machine) -> None:
    """Pods that are being deleted, and gangs of several pods: the driver's time slice decides."""
    machine.mode = "slices"
    machine.add(*HELD)
    high = _hold(machine)
    low = machine.start("a", "run", 60, 10, 200_000)
    low.begin()
    machine.change("a", unheld=True)
    machine.wait_for_units(low, since_ns=time.monotonic_ns(), units=200)
    assert machine.at_work(high)[-1][1] > machine.at_work(low)[0][0]
    with contextlib.suppress(ProcessLookupError):
        high.process.kill()
        low.process.kill()


# --- shares on a rude card ----------------------------------------------------------------------------


@pytest.mark.calm
@pytest.mark.long
@pytest.mark.parametrize("slice_us", [300, 1000, 2000, 6000])
@pytest.mark.parametrize("connections", [1, 8])
def test_hard_shares_over_slice_lengths_and_queues(machine: Machine, slice_us: int, connections: int) -> None:
    """Within 3 points over 10 s, with the agent's figures; one program short kernels, one long ones."""
    machine.mode = "slices"
    machine.add(Box("a", HARD, 50), Box("b", HARD, 30))
    rude = RUDE | {"FAKE_CUDA_SLICE_US": str(slice_us), "FAKE_CUDA_CONNECTIONS": str(connections)}
    programs = [
        machine.start("a", "run", 30, 20, 200_000, environment=rude),
        machine.start("b", "run", 30, 4, 20 * MS, environment=rude),
    ]
    for one in programs:
        one.begin()
    machine.agent(4)
    began_ns = time.monotonic_ns()
    machine.agent(10)
    ended_ns = time.monotonic_ns()
    for one in programs:
        assert machine.share(one.process.pid, began_ns, ended_ns) == pytest.approx(one.box.cores, abs=3)
