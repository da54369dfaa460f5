"""Programs that start where their limits cannot be read: the seed is in force, or nothing is given."""

import contextlib
import os
import select
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
    control_page,
    damaged_pages,
)
from unit.native.time_worlds import HARD, HIGH, LOW, Box, Machine

CONTEXT = CONTEXT_MIB * MIB
SECOND = 1_000_000_000
UNKNOWN = "limits of this container are not known"
SEEDED = "limits that this container was started with"


def _spoil(path: Path, content: bytes | None) -> None:
    """None: it is not there at all."""
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


def _capped(actor: Actor, cap: int) -> None:
    assert actor.info() == (cap - CONTEXT, cap)
    assert actor.do("alloc", 0, cap) == OUT_OF_MEMORY
    assert actor.do("alloc", 0, cap - CONTEXT) == OK
    assert actor.do("free", 0) == OK


BAD = damaged_pages(CAP) | {"not there": None}


@pytest.mark.parametrize("what", BAD)
def test_neither_page_nor_seed_gives_no_memory_and_one_line_about_it(world: World, what: str) -> None:
    _spoil(world.control, BAD[what])
    actor = world.actor()
    assert actor.do("init") == OK
    assert actor.do("primary", 0, 0) == OUT_OF_MEMORY
    assert actor.do("context", 1, 0) == OUT_OF_MEMORY
    assert actor.do("alloc", 0, MIB) != OK
    errors = actor.close()
    assert actor.process.returncode == 0
    assert errors.count(UNKNOWN) == 1
    assert errors.count("\n") == 1


@pytest.mark.parametrize("reader", ["gone", "stuck"])
def test_a_line_that_nobody_reads_neither_ends_nor_stops_the_program(world: World, reader: str) -> None:
    world.control.unlink()
    actor = world.actor()
    assert actor.do("init") == OK
    if reader == "gone":
        assert actor.process.stderr
        actor.process.stderr.close()
    else:
        pipe = os.open(f"/proc/{actor.process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while os.write(pipe, bytes(4096)):
                pass
        os.close(pipe)
    actor.tell("primary", 0, 0)
    assert actor.process.stdout
    assert select.select([actor.process.stdout], [], [], 20)[0]
    assert actor.hear() == [str(OUT_OF_MEMORY)]


@pytest.mark.parametrize("what", BAD)
def test_the_seed_is_in_force_where_the_page_cannot_be_read(world: World, what: str) -> None:
    world.seed.write_bytes(world.control.read_bytes())
    _spoil(world.control, BAD[what])
    actor = world.actor().start()
    _capped(actor, CAP)
    errors = actor.close()
    assert errors.count(SEEDED) == 1
    assert errors.count("\n") == 1


@pytest.mark.parametrize("what", [one for one in BAD if one != "being written"])
def test_a_damaged_seed_does_not_matter_beside_a_good_page(world: World, what: str) -> None:
    _spoil(world.seed, BAD[what])
    actor = world.actor().start()
    _capped(actor, CAP)
    assert actor.close() == ""


@pytest.mark.parametrize("what", BAD)
def test_a_page_and_a_seed_that_are_both_damaged_give_nothing_until_one_is_good_again(
    world: World, what: str
) -> None:
    _spoil(world.control, BAD[what])
    _spoil(world.seed, BAD[what])
    actor = world.actor()
    assert actor.do("init") == OK
    assert actor.do("primary", 0, 0) == OUT_OF_MEMORY
    world.seed.write_bytes(control_page([Share(UUIDS[0], CAP)], sequence=6))
    assert actor.do("primary", 0, 0) == OK
    _capped(actor, CAP)
    world.seed.write_bytes(
        control_page([Share(UUIDS[0], CAP - 64 * MIB)], sequence=8)
    )  # lowered while it is used
    _capped(actor, CAP - 64 * MIB)
    world.control.write_bytes(control_page([Share(UUIDS[0], 2 * CAP)], sequence=6))
    _capped(actor, 2 * CAP)
    world.control.unlink()
    _capped(actor, 2 * CAP)  # the last good page, not the seed
    assert UNKNOWN in actor.close()


def test_a_forked_child_keeps_the_limits_that_its_parent_knew(world: World) -> None:
    actor = world.actor().start()
    world.control.unlink()
    assert actor.do("fork", 0, 0) == OK
    _capped(actor, CAP)


def test_the_seeds_share_of_time_is_kept(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    page = machine.root / "a/etc/egpu/control"
    page.rename(machine.root / "a/run/egpu/seed")
    (said,) = machine.together([machine.start("a", "run", 1.5, 1000, 1_000_000)])
    used = machine.used(0, 1 << 63)[said["pid"], 0]
    assert used.busiest_second_ns <= 0.42 * SECOND + 1_200_000


def test_the_seeds_class_waits_for_a_higher_one(machine: Machine) -> None:
    lease_ms = 20_000
    machine.add(
        Box("high", share_class=HIGH, lease_ms=lease_ms), Box("low", share_class=LOW, lease_ms=lease_ms)
    )
    (machine.root / "low/etc/egpu/control").rename(machine.root / "low/run/egpu/seed")
    high = machine.start("high", "run", 1, 1000, 1_000_000)
    low = machine.start("low", "run", 1.5, 100, 200_000)
    machine.together([high, low])
    assert machine.percent_beside(low, high) < 5


def test_without_pages_a_program_starts_no_work(machine: Machine) -> None:
    machine.add(Box("a", HARD, 40))
    for path in (machine.root / "a").rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(AssertionError, match=r"cuCtxCreate_v2.*: 2"):
        machine.start("a", "run", 0.3, 10, 1_000_000)
    assert machine.used(0, 1 << 63) == {}
