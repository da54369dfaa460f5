"""DMA-BUFs: what other devices may reach is charged once, and no cap is lifted by passing it on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.native.memory_worlds import (
    CAP,
    CONTEXT_MIB,
    MIB,
    OK,
    OUT_OF_MEMORY,
    UUIDS,
    Actor,
    Share,
    World,
    charged,
    used,
)

FREE = CAP - CONTEXT_MIB * MIB
PIECE = 200 * MIB
INVALID = 1
WAYS = ("direct", "dlsym", "procaddress")
Take = Callable[[Actor], list[tuple[object, ...]]]
"""Takes a piece; what gives it back."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, [Share(UUIDS[0], CAP)])
    yield world
    world.close()


def dmabuf(actor: Actor, thing: int, size: int) -> str:
    """The number of the file."""
    code, file = actor.ask("dmabuf", thing, size)
    assert int(code) == OK
    return file


def linear(actor: Actor) -> list[tuple[object, ...]]:
    assert actor.do("alloc", 1, PIECE) == OK
    return [("free", 1)]


def by_handle(actor: Actor) -> list[tuple[object, ...]]:
    assert actor.do("create", 1, PIECE) == OK
    assert actor.do("map", 1, PIECE) == OK
    return [("unmap", 1), ("release", 1)]


@pytest.mark.parametrize("take", [linear, by_handle])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_charged_as_the_memory_that_it_is_of(world: World, way: str, take: Take) -> None:
    actor, watcher = world.actor(way).start(), world.watcher()
    empty = used(watcher)
    back = take(actor)
    files = [dmabuf(actor, 1, PIECE), dmabuf(actor, 1, 2 * MIB)]
    assert actor.info() == (FREE - PIECE, CAP)
    assert used(watcher) == empty + PIECE
    assert actor.do("alloc", 2, FREE - PIECE + 2 * MIB) == OUT_OF_MEMORY
    for file in files:
        assert actor.do("close", file) == OK
    assert actor.info() == (FREE - PIECE, CAP)
    for command in back:
        assert actor.do(*command) == OK
    assert actor.info() == (FREE, CAP)
    assert used(watcher) == empty
    assert charged(world) == CONTEXT_MIB * MIB


@pytest.mark.parametrize("take", [linear, by_handle])
def test_what_it_keeps_of_freed_memory_no_call_tells(world: World, take: Take) -> None:
    """When its last descriptor goes no library can see. The driver counts it: the agent tells the library,
    see ``tests/contract/node/test_unseen_memory.py``."""
    actor, watcher = world.actor().start(), world.watcher()
    empty = used(watcher)
    back = take(actor)
    first, second = dmabuf(actor, 1, PIECE), dmabuf(actor, 1, PIECE)
    for command in back:
        assert actor.do(*command) == OK
    assert actor.info() == (FREE, CAP)
    assert used(watcher) == empty + PIECE
    assert actor.do("close", first) == OK
    assert actor.info() == (FREE, CAP)
    assert used(watcher) == empty + PIECE
    assert actor.do("close", second) == OK
    assert actor.info() == (FREE, CAP)
    assert used(watcher) == empty


@pytest.mark.parametrize("take", [linear, by_handle])
def test_an_import_is_charged_for_as_long_as_it_is_kept(world: World, take: Take) -> None:
    """Whose memory it is nothing tells: it may be another container's."""
    actor, watcher = world.actor().start(), world.watcher()
    empty = used(watcher)
    back = take(actor)
    file = dmabuf(actor, 1, PIECE)
    assert actor.do("external", 2, PIECE, file) == OK
    assert actor.info() == (FREE - 2 * PIECE, CAP)
    assert actor.do("external", 3, PIECE, file) == OUT_OF_MEMORY
    for command in (*back, ("close", file)):
        assert actor.do(*command) == OK
    assert actor.info() == (FREE - PIECE, CAP)
    assert used(watcher) == empty + PIECE
    assert actor.do("external-destroy", 2) == OK
    assert actor.info() == (FREE, CAP)
    assert used(watcher) == empty


def test_a_range_that_is_none_changes_nothing(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 1, PIECE) == OK
    assert actor.do("dmabuf", 1, PIECE + 4096) == INVALID
    assert actor.do("dmabuf", 1, 100) == INVALID
    assert actor.do("dmabuf", 2, 4096) == INVALID
    assert actor.info() == (FREE - PIECE, CAP)
    assert actor.do("free", 1) == OK
    assert actor.info() == (FREE, CAP)
