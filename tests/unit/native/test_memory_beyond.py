"""What the control page says of memory that the library does not count: whose, and how long it counts."""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from unit.native.memory_worlds import (
    CAP,
    CONTEXT_MIB,
    MIB,
    OK,
    OUT_OF_MEMORY,
    PAGE_BYTES,
    UUIDS,
    Actor,
    Share,
    World,
    control_page,
)

FREE = CAP - CONTEXT_MIB * MIB
MOST = 128
TAIL_BYTES = 16 * 8 + 8 + MOST * 16


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, [Share(UUIDS[0], CAP), Share(UUIDS[1], CAP)])
    yield world
    world.close()


def tell(
    world: World,
    entries: Iterable[tuple[int, int, int]] = (),
    *,
    always: Iterable[int] = (),
    count: int | None = None,
) -> None:
    """Writes the page anew, of minor version 1: (owner, card, bytes) and bytes by card."""
    sequence = struct.unpack_from("<Q", world.control.read_bytes(), 16)[0] + 2
    page = bytearray(control_page(world.shares, sequence=sequence))
    struct.pack_into("<II", page, 8, 1, PAGE_BYTES + TAIL_BYTES)
    listed = list(entries)
    by_card = (list(always) + [0] * 16)[:16]
    tail = struct.pack("<16QII", *by_card, len(listed) if count is None else count, 0)
    tail += b"".join(struct.pack("<QQ", owner, size | card) for owner, card, size in listed)
    with world.control.open("r+b") as file:
        file.write(bytes(page) + tail.ljust(TAIL_BYTES, b"\0"))


def owner(actor: Actor) -> int:
    """As the library names it in the usage page."""
    pid = actor.process.pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[19]) & 0xFFFFFFFF) << 32 | pid


def test_it_counts_for_all_of_the_container_and_only_on_its_card(world: World) -> None:
    first, second = world.actor().start(), world.actor().start()
    elsewhere = world.actor().start(1)
    assert first.info() == second.info() == (FREE - CONTEXT_MIB * MIB, CAP)
    tell(world, [(owner(first), 0, 100 * MIB), (owner(second), 0, 20 * MIB), (owner(first), 1, 8 * MIB)])
    left = FREE - (CONTEXT_MIB + 120) * MIB
    assert first.info() == second.info() == (left, CAP)
    assert elsewhere.info() == (FREE - 8 * MIB, CAP)
    assert second.do("alloc", 1, left + 2 * MIB) == OUT_OF_MEMORY
    assert second.do("alloc", 1, left) == OK
    tell(world)
    assert first.info() == (120 * MIB, CAP)


def test_it_ends_with_its_process_and_what_has_no_slot_stays(world: World) -> None:
    first, second = world.actor().start(), world.actor().start()
    tell(world, [(owner(first), 0, 100 * MIB), (77 << 32 | 999_999, 0, 50 * MIB)], always=[30 * MIB])
    assert second.info()[0] == FREE - (CONTEXT_MIB + 130) * MIB  # who has no slot is dead
    first.kill()
    assert second.info()[0] == FREE - 30 * MIB
    tell(world, always=[0, 30 * MIB])
    assert second.info()[0] == FREE


def test_more_than_the_grant_hurts_nothing_that_is_there(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 1, 200 * MIB) == OK
    tell(world, [(owner(actor), 0, 1 << 50)], always=[(1 << 64) - 4096])
    assert actor.info() == (0, CAP)
    assert actor.do("alloc", 2, 2 * MIB) == OUT_OF_MEMORY
    assert actor.do("free", 1) == OK
    tell(world)
    assert actor.info() == (FREE, CAP)


def test_more_entries_than_a_page_holds_are_a_damaged_page(world: World) -> None:
    actor = world.actor().start()
    tell(world, always=[100 * MIB])
    assert actor.info()[0] == FREE - 100 * MIB
    tell(world, count=MOST + 1)
    assert actor.info()[0] == FREE - 100 * MIB  # the last good one
    assert "the last good limits stay in force" in actor.close()


def test_a_page_of_the_version_before_says_nothing_of_it(world: World) -> None:
    actor = world.actor().start()
    tell(world, always=[100 * MIB])
    assert actor.info()[0] == FREE - 100 * MIB
    world.limit(world.shares)
    assert actor.info()[0] == FREE
