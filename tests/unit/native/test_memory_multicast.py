"""Memory that is bound to a multicast object stays charged until it is unbound or the object is gone."""

import subprocess
import sys
from pathlib import Path

import pytest
from unit.native.memory_worlds import (
    CAP,
    CONTEXT_MIB,
    MIB,
    OK,
    OUT_OF_MEMORY,
    Actor,
    World,
    charged,
    used,
)

PIECE = 64 * MIB
TESTS = Path(__file__).resolve().parents[2]

PROGRAM = f"""
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
sys.path.insert(0, {str(TESTS)!r})
from contract.cuda.binding import AllocationProperties, Driver, Location
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.primary())
SIZE = {PIECE}
object_, memory, address, before = c_uint64(), c_uint64(), c_uint64(), cu.free_bytes()

def say(what):
    print(what, before - cu.free_bytes())

team = (c_uint64 * 4)(1, SIZE)
cu.cuMulticastCreate(byref(object_), team)
cu.cuMulticastAddDevice(object_, 0)
say("object")
cu.cuMemCreate(byref(memory), SIZE, byref(AllocationProperties(1, 0, Location(1, 0))), 0)
say("memory")
"""
MAPPED = """
cu.cuMemAddressReserve(byref(address), SIZE, 0, 0, 0)
cu.cuMemMap(address, SIZE, 0, memory, 0)
"""
BINDS = {
    "cuMulticastBindMem": "cu.cuMulticastBindMem(object_, 0, memory, 0, SIZE, 0)",
    "cuMulticastBindMem_v2": "cu.cuMulticastBindMem_v2(object_, 0, 0, memory, 0, SIZE, 0)",
    "cuMulticastBindAddr": MAPPED
    + "cu.cuMulticastBindAddr(object_, 0, address, SIZE, 0)\ncu.cuMemUnmap(address, SIZE)",
    "cuMulticastBindAddr_v2": MAPPED
    + "cu.cuMulticastBindAddr_v2(object_, 0, 0, address, SIZE, 0)\ncu.cuMemUnmap(address, SIZE)",
}
ENDS = {
    "unbound": "cu.cuMulticastUnbind(object_, 0, 0, SIZE)",
    "the object is released": "cu.cuMemRelease(object_)",
    "the mapping of the object is gone too": MAPPED.replace("memory", "object_")
    + 'say("mapped")\ncu.cuMemRelease(object_)\nsay("released")\ncu.cuMemUnmap(address, SIZE)',
}


def _said(world: World, *steps: str) -> dict[str, int]:
    run = subprocess.run(
        [sys.executable, "-c", "\n".join((PROGRAM, *steps))],
        capture_output=True,
        text=True,
        check=False,
        env=world.environment(),
    )
    assert run.returncode == 0, run.stderr
    return {line.split()[0]: int(line.split()[1]) for line in run.stdout.splitlines()}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("bind", BINDS)
def test_charged_until_it_is_bound_no_more(world: World, bind: str, end: str) -> None:
    watcher = world.watcher()
    steps = (BINDS[bind], 'say("bound")', "cu.cuMemRelease(memory)", 'say("kept")', ENDS[end], 'say("over")')
    said = _said(world, *steps)
    assert said.pop("over") == said.pop("object") == 0
    assert set(said.values()) == {PIECE}
    assert watcher.info()[0] == watcher.info()[1]


def test_what_is_bound_twice_ends_with_the_last(world: World) -> None:
    bind = 'cu.cuMulticastBindMem(object_, {at}, memory, 0, SIZE // 2, 0)\nsay("bound")'
    unbind = 'cu.cuMulticastUnbind(object_, 0, {at}, SIZE // 2)\nsay("{what}")'
    said = _said(
        world,
        bind.format(at=0),
        bind.format(at="SIZE // 2"),
        "cu.cuMemRelease(memory)",
        unbind.format(at=0, what="first"),
        unbind.format(at="SIZE // 2", what="second"),
    )
    assert said == {"object": 0, "memory": PIECE, "bound": PIECE, "first": PIECE, "second": 0}


def test_an_object_that_is_mapped_has_no_memory_of_its_own(world: World) -> None:
    said = _said(world, MAPPED.replace("memory", "object_"), 'say("mapped")')
    assert said["mapped"] == PIECE  # the memory's, nothing for the object


def test_bound_memory_leaves_with_its_process(world: World) -> None:
    _said(world, BINDS["cuMulticastBindMem"])
    last = world.actor().start()
    assert last.info()[0] == CAP - CONTEXT_MIB * MIB


def _passed_on(maker: Actor, taker: Actor) -> None:
    """The taker has the maker's object 1 as its own 1, on its team."""
    assert maker.do("object", 1, 2 * PIECE) == OK
    code, file = maker.ask("export", 1)
    assert int(code) == OK
    assert taker.do("import", 1, maker.process.pid, file) == OK
    assert taker.do("join", 1) == OK


def test_an_object_of_another_process_is_no_memory(world: World) -> None:
    maker, taker = world.actor().start(), world.actor().start()
    before = charged(world)
    _passed_on(maker, taker)
    assert taker.do("map", 1, PIECE) == OK
    assert charged(world) == before
    assert taker.do("unmap-release", 1) == OK
    assert charged(world) == before


@pytest.mark.parametrize("who", ["maker", "taker"])
def test_what_is_bound_to_an_object_of_several_processes_stays_charged(world: World, who: str) -> None:
    """Whoever lets go of the object does not know whether it is gone."""
    watcher, maker, taker = world.watcher(), world.actor().start(), world.actor().start()
    _passed_on(maker, taker)
    binder, other = (maker, taker) if who == "maker" else (taker, maker)
    before = charged(world)
    assert binder.do("bind", 1, PIECE) == OK
    assert charged(world) == before + PIECE
    assert binder.do("release", 1) == OK
    assert used(watcher) == before + PIECE - 4 * MIB  # two contexts in which nothing was launched
    assert charged(world) == before + PIECE
    assert binder.do("alloc", 2, CAP - before - PIECE + 2 * MIB) == OUT_OF_MEMORY
    binder.kill()
    assert other.do("release", 1) == OK
    assert other.info()[0] == CAP - CONTEXT_MIB * MIB


def test_what_is_unbound_from_an_object_of_several_processes_is_not_charged(world: World) -> None:
    watcher, maker, taker = world.watcher(), world.actor().start(), world.actor().start()
    _passed_on(maker, taker)
    before, there = charged(world), used(watcher)
    for _ in range(3):
        assert taker.do("bind", 1, PIECE) == OK
        assert charged(world) == before + PIECE
        assert taker.do("unbind", 1, PIECE) == OK
        assert (charged(world), used(watcher)) == (before, there)
