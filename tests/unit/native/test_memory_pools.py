"""What threads of one program do to a pool at the same time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native.memory_worlds import CONTEXT_MIB, MIB, OK, OUT_OF_MEMORY, UUIDS, Share, World

THREADS = 4
PIECE = 32 * MIB
"""What a pool takes from the card at a time."""
CONTEXT = CONTEXT_MIB * MIB
CAP = CONTEXT + THREADS * PIECE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, [Share(UUIDS[0], CAP)])
    yield world
    world.close()


def test_threads_that_fill_a_pool_together_are_charged_once_each(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("threads-pool", THREADS, 1000) == OK
    assert actor.info()[0] == CAP - CONTEXT
    assert actor.do("alloc", 0, CAP - CONTEXT) == OK
    assert actor.do("async", 1, MIB) == OUT_OF_MEMORY


def test_refused_allocations_of_other_threads_leave_no_charge(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, PIECE) == OK
    assert actor.do("threads-pool", THREADS, 300) in (OK, OUT_OF_MEMORY)  # one too many
    assert actor.do("sync") == OK
    assert actor.info()[0] == CAP - CONTEXT - PIECE


@pytest.mark.parametrize("way", ["dlsym", "procaddress-stream"])
def test_a_plain_allocation_may_be_freed_in_a_stream(world: World, way: str) -> None:
    actor = world.actor(way).start()
    assert actor.do("alloc", 0, 2 * PIECE) == OK
    assert actor.do("alloc", 1, 1000) == OK
    assert actor.info()[0] < CAP - CONTEXT - 2 * PIECE
    for thing in (0, 1):
        assert actor.do("free-async", thing) == OK
    assert actor.do("free-async", 0) != OK  # it is gone
    assert actor.do("sync") == OK
    assert actor.info()[0] == CAP - CONTEXT
    assert actor.do("alloc", 0, CAP - CONTEXT) == OK


MANY = f"""
import ctypes, sys
from ctypes import byref, c_uint64, c_void_p
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from contract.cuda.binding import Driver, Location, PoolProperties
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.primary())
for _ in range(120):
    pool, pointer = c_void_p(), c_uint64()
    cu.cuMemPoolCreate(byref(pool), byref(PoolProperties(1, 0, Location(1, 0))))
    cu.cuMemAllocFromPoolAsync(byref(pointer), 32 << 20, pool, 1)
    cu.cuMemFreeAsync(pointer, 1)
    cu.cuStreamSynchronize(1)
print(cu.free_bytes())
"""


def test_of_very_many_pools_each_gives_back_what_it_let_go_of(world: World) -> None:
    ran = world.python(MANY)
    assert (ran.stdout, ran.stderr) == (f"{CAP - CONTEXT_MIB * MIB}\n", "")
