"""Every way to a card's memory, one at a time: charged as the card is, refused past the cap, free then."""

from pathlib import Path

import pytest
from unit.native.memory_worlds import (
    CAP,
    CONTEXT_MIB,
    GRANULE,
    MIB,
    OK,
    OUT_OF_MEMORY,
    SPILL,
    UUIDS,
    Share,
    World,
    charged,
    used,
)

LAZY = 2 * MIB
PIECE = 32 * MIB
WAYS = ("direct", "dlsym", "procaddress", "procaddress-stream")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_free_can_be_had_in_one_piece_and_not_a_byte_more(world: World, way: str) -> None:
    actor = world.actor(way).start()
    free, total = actor.info()
    assert (free, total) == (CAP - CONTEXT_MIB * MIB, CAP)
    assert actor.ask("total", 0, 0) == ["0", str(CAP)]
    assert actor.do("alloc", 0, free + 1) == OUT_OF_MEMORY
    assert actor.do("alloc", 0, free) == OK
    assert actor.info() == (0, CAP)
    assert actor.do("alloc", 1, 1) == OUT_OF_MEMORY
    assert actor.do("free", 0) == OK
    assert actor.info() == (free, CAP)


ONE_BY_ONE = {
    # name: (make, unmake)
    "plain": (["alloc 0 100000000"], ["free 0"]),
    "small": (
        ["alloc 0 1000", "alloc 1 1000", "alloc 2 600000", "alloc 3 900000"],
        ["free 0", "free 1", "free 2", "free 3"],
    ),
    "pitched": (["pitch 0 1000 20000"], ["free 0"]),
    "array": (["array 0 4096 4096"], ["array-free 0"]),
    "mipmap": (["mipmap 0 2048 2048"], ["mipmap-free 0"]),
    "mipmap of layers": (["mipmap-layers 0 1024 16"], ["mipmap-free 0"]),
    "pool": (["pool 0", "from-pool 0 50000000 0", "sync"], ["free-async 0", "sync", "pool-destroy 0"]),
    "default pool": (["async 0 50000000", "sync"], ["free-async 0", "sync"]),
    "default pool, freed plainly": (["async 0 50000000"], ["free 0", "sync"]),
    "handle": (["create 0 67108864"], ["release 0"]),
    "mapping": (["create 0 67108864", "map 0 67108864", "release 0"], ["unmap 0"]),
    "retained": (
        ["create 0 67108864", "map 0 67108864", "release 0", "retain 0 1", "unmap 0"],
        ["release 1"],
    ),
    "graph": (["graph 0 67108864 1"], ["graph-destroy 0", "graph-trim 0 0"]),
    "second context": (["context 1 0", "alloc 0 5000000"], ["context-destroy 1"]),
    "heap of kernels": (["context 1 0", "limit 2 100000000"], ["context-destroy 1"]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_charged_as_the_card_is(world: World, name: str, way: str) -> None:
    watcher, actor = world.watcher(), world.actor(way).start()
    before, free = used(watcher), actor.info()[0]
    make, unmake = ONE_BY_ONE[name]
    for command in make:
        assert actor.do(*command.split()) == OK, command
    took = used(watcher) - before
    left = free - actor.info()[0]
    assert took > 0
    # Never less than the card gave. The first launch adds what the context was charged for from the start.
    assert took - LAZY <= left <= took + 2 * GRANULE
    for command in unmake:
        assert actor.do(*command.split()) == OK, command
    assert used(watcher) <= before + LAZY
    assert actor.info()[0] == free


PAST_THE_CAP = {
    "plain": "alloc 0 700000000",
    "pitched": "pitch 0 1000 700000",
    "managed": "managed 0 700000000",
    "array": "array 0 16384 16384",
    "mipmap": "mipmap 0 16384 16384",
    "default pool": "async 0 700000000",
    "handle": "create 0 700448768",
    "graph": "graph 0 700000000 1",
    "heap of kernels": "limit 2 700000000",
}


@pytest.mark.parametrize("way", WAYS)
def test_past_the_cap_is_out_of_memory_and_nothing_else(world: World, way: str) -> None:
    watcher, actor = world.watcher(), world.actor(way).start()
    before, free = used(watcher), actor.info()[0]
    for name, command in PAST_THE_CAP.items():
        assert actor.do(*command.split()) == OUT_OF_MEMORY, name
    assert actor.do("pool", 0) == OK
    assert actor.do("from-pool", 0, 700_000_000, 0) == OUT_OF_MEMORY
    assert used(watcher) == before
    assert actor.info()[0] == free


SIZES_OF_NO_CARD = (1 << 64) - 1, (1 << 64) - 4096, (1 << 64) - GRANULE, 1 << 63
TAKING = (
    "alloc 9 {}",
    "managed 9 {}",
    "create 9 {}",
    "async 9 {}",
    "pitch 9 1000 {}",
    "array 9 {} 4096",
    "limit 0 {}",
    "limit 2 {}",
)


@pytest.mark.parametrize("size", SIZES_OF_NO_CARD)
def test_a_size_that_no_sum_can_hold_changes_no_charge(world: World, size: int) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, 100 * MIB) == OK
    assert actor.do("managed", 1, 100 * MIB) == OK
    free = actor.info()[0]
    for command in TAKING:
        assert actor.do(*command.format(size).split()) != OK, command
        assert actor.info()[0] == free, command
    assert actor.do("alloc", 2, free + 1) == OUT_OF_MEMORY


def test_a_context_that_does_not_fit_is_refused(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, actor.info()[0]) == OK
    other = world.actor()
    assert other.do("init") == OK
    assert other.do("primary", 0, 0) == OUT_OF_MEMORY
    assert actor.do("free", 0) == OK
    assert other.do("primary", 0, 0) == OK


def test_a_pool_that_keeps_its_memory_gives_it_back_before_anything_fails(world: World) -> None:
    actor = world.actor().start()
    free = actor.info()[0]
    assert actor.do("pool", 0) == OK
    assert actor.do("pool-keep", 0, 1 << 40) == OK
    assert actor.do("from-pool", 0, free // PIECE * PIECE, 0) == OK
    assert actor.do("free-async", 0) == OK
    assert actor.do("sync") == OK
    assert actor.info()[0] == free % PIECE
    assert actor.do("from-pool", 0, free // 2, 0) == OK
    assert actor.do("free-async", 0) == OK
    assert actor.do("sync") == OK
    assert actor.do("pool-trim", 0, 0) == OK
    assert actor.info()[0] == free


def test_a_cap_lowered_below_use_harms_nothing_that_runs(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, 300 * MIB) == OK
    world.limit([Share(UUIDS[0], 128 * MIB)])
    assert actor.info() == (0, 128 * MIB)
    assert actor.do("alloc", 1, 1) == OUT_OF_MEMORY
    assert actor.do("free", 0) == OK
    assert actor.info() == ((128 - CONTEXT_MIB) * MIB, 128 * MIB)
    world.limit([Share(UUIDS[0], 2 * CAP)])
    assert actor.info()[1] == 2 * CAP


def test_each_card_has_its_own_cap_whatever_their_order(tmp_path: Path) -> None:
    world = World(tmp_path, [Share(UUIDS[2], 256 * MIB), Share(UUIDS[0], 128 * MIB)])
    try:
        env = {"CUDA_VISIBLE_DEVICES": f"{UUIDS[0]},{UUIDS[2]}"}
        first, second = world.actor(**env).start(0), world.actor(**env).start(1)
        assert first.info()[1] == 128 * MIB
        assert second.info()[1] == 256 * MIB
        assert first.do("alloc", 0, first.info()[0]) == OK
        assert second.do("alloc", 0, second.info()[0]) == OK
        third = world.actor()
        assert third.do("init") == OK
        assert third.do("primary", 0, 1) == OUT_OF_MEMORY  # a card that was not granted
    finally:
        world.close()


def test_what_does_not_fit_on_the_card_spills_within_the_host_budget(tmp_path: Path) -> None:
    share = Share(UUIDS[0], 1024 * MIB, physical_bytes=256 * MIB, flags=SPILL)
    world = World(tmp_path, [share], host_mib=512)
    try:
        watcher, actor = world.watcher(), world.actor().start()
        assert actor.info() == (512 * MIB, 1024 * MIB)
        assert actor.do("alloc", 0, 200 * MIB) == OK  # on the card
        on_card = used(watcher)
        assert actor.do("alloc", 1, 300 * MIB) == OK  # spilled
        assert used(watcher) == on_card
        assert actor.do("pitch", 2, 1024, 100 * 1024) == OK  # spilled, 100 MiB
        assert used(watcher) == on_card
        assert actor.do("alloc", 3, 200 * MIB) == OUT_OF_MEMORY  # the host's budget
        assert actor.do("create", 0, 64 * MIB) == OUT_OF_MEMORY  # stays within the share
        assert actor.do("async", 4, 64 * MIB) == OUT_OF_MEMORY
        assert actor.do("array", 0, 4096, 4096) == OUT_OF_MEMORY
        for thing in (0, 1, 2):
            assert actor.do("free", thing) == OK
        assert actor.info() == (512 * MIB, 1024 * MIB)
        assert "does not spill" in actor.close()
    finally:
        world.close()


def test_rows_have_their_pitch_where_the_card_itself_is_full(tmp_path: Path) -> None:
    """The share has room and the driver none, as beside others whose memory spills too."""
    world = World(tmp_path, [Share(UUIDS[0], 1024 * MIB, flags=SPILL)], host_mib=512)
    try:
        actor = world.actor(FAKE_CUDA_FAULTS=f"cuMemAllocPitch_v2:1:1:{OUT_OF_MEMORY}").start()
        free = actor.info()[0]
        assert actor.ask("pitch", 0, 1000, 4096) == [str(OK), "1024"]
        assert actor.ask("pitch", 1, 1000, 4096) == [str(OK), "1024"]
        assert actor.info()[0] == free - 8 * MIB
        assert actor.do("free", 0) == OK
        assert actor.do("free", 1) == OK
        assert actor.info()[0] == free
    finally:
        world.close()


def test_nothing_is_left_after_the_last_process(world: World) -> None:
    actors = [world.actor().start() for _ in range(3)]
    for actor in actors:
        assert actor.do("alloc", 0, 64 * MIB) == OK
    actors[0].kill()
    actors[1].close()
    assert actors[2].info()[0] == CAP - (64 + CONTEXT_MIB) * MIB
    assert charged(world) == (64 + CONTEXT_MIB) * MIB
    actors[2].kill()
    last = world.actor().start()
    assert last.info()[0] == CAP - CONTEXT_MIB * MIB
