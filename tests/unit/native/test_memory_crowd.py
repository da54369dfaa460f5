"""Many programs of one container begin at the same time, as workers of a server or of a data loader do."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native.memory_worlds import (
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

PROGRAMS = 200 if os.environ.get("VC_EGPU_LONG") == "1" else 24
CONTEXT = 8 * MIB
EACH = CONTEXT + 2 * MIB


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, [Share(UUIDS[0], PROGRAMS * EACH, context_bytes=CONTEXT)])
    yield world
    world.close()


def _actor(world: World) -> Actor:
    return world.actor(FAKE_CUDA_CONTEXT_MIB="6")  # and 2 at its first launch


def _all(actors: list[Actor], *words: object) -> list[int]:
    """Everybody does this at the same time; what became of it."""
    for actor in actors:
        actor.tell(*words)
    return [int(actor.hear()[0]) for actor in actors]


def test_all_find_their_place_and_none_too_many(world: World) -> None:
    watcher = world.watcher()
    actors = [_actor(world) for _ in range(PROGRAMS)]
    for words in (("init",), ("primary", 0, 0), ("alloc", 0, 2 * MIB)):
        assert _all(actors, *words) == [OK] * PROGRAMS
    assert charged(world) == PROGRAMS * EACH
    assert used(watcher) <= PROGRAMS * EACH
    assert _all(actors, "alloc", 1, 1) == [OUT_OF_MEMORY] * PROGRAMS
    late = _actor(world)
    assert late.do("init") == OK
    assert late.do("primary", 0, 0) == OUT_OF_MEMORY
    half = PROGRAMS // 2
    for actor in actors[:half]:
        actor.process.kill()  # all before anybody is waited for
    for actor in actors[:half]:
        actor.process.wait(60)
    assert late.do("primary", 0, 0) == OK
    assert late.info()[0] == half * EACH - CONTEXT
    for actor in actors[half:]:
        actor.close()
    assert late.info()[0] == PROGRAMS * EACH - CONTEXT
    late.close()
    assert used(watcher) == 0
