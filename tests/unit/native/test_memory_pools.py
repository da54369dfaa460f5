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
