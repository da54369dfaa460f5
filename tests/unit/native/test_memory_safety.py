"""When files are missing, cut short or full of nonsense: no program dies of it, and no cap is lifted."""

import random
import resource
import struct
import subprocess
import time
from pathlib import Path

import pytest
from unit.native.memory_worlds import (
    CAP,
    CONTEXT_MIB,
    MIB,
    OK,
    OUT_OF_MEMORY,
    SANITIZED,
    SHARED_AT,
    SLOT_BYTES,
    SLOTS_AT,
    USAGE_BYTES,
    UUIDS,
    Share,
    World,
    charged,
    damaged_pages,
)
from vc_egpu_node.isolation.pages import USAGE, SharedPages

CONTEXT = CONTEXT_MIB * MIB


@pytest.mark.parametrize("what", damaged_pages(CAP))
def test_a_page_damaged_later_changes_nothing(world: World, what: str) -> None:
    actor = world.actor().start()
    assert actor.info() == (CAP - CONTEXT, CAP)
    world.control.write_bytes(damaged_pages(CAP)[what])
    assert actor.info() == (CAP - CONTEXT, CAP)
    assert actor.do("alloc", 0, CAP) == OUT_OF_MEMORY
    assert actor.do("alloc", 0, CAP - CONTEXT) == OK
    world.control.unlink()
    assert actor.info() == (0, CAP)
    world.limit([Share(UUIDS[0], 2 * CAP)])
    assert actor.info() == (CAP, 2 * CAP)
    assert actor.close().count("last good limits") == 1


def test_without_a_usage_page_each_process_is_still_capped(world: World) -> None:
    world.usage.parent.rmdir()
    actor = world.actor().start()
    assert actor.info() == (CAP - CONTEXT, CAP)
    assert actor.do("alloc", 0, CAP) == OUT_OF_MEMORY
    assert actor.do("alloc", 0, CAP - CONTEXT) == OK
    assert "counted for each process by itself" in actor.close()


def test_a_usage_page_that_could_not_be_opened_at_first_is_used_later(world: World) -> None:
    """A program that had no descriptor left just then: it would have a cap of its own as long as it runs."""
    actor = world.actor()
    assert actor.do("init") == OK
    assert actor.ask("total", 0) == ["0", str(CAP)]
    before = resource.prlimit(actor.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(actor.process.pid, resource.RLIMIT_NOFILE, (0, before[1]))
    assert actor.do("primary", 0, 0) == OK
    resource.prlimit(actor.process.pid, resource.RLIMIT_NOFILE, before)
    assert actor.do("alloc", 0, 100 * MIB) == OK
    assert charged(world) == CONTEXT + 100 * MIB
    other = world.actor().start()
    assert other.info()[0] == CAP - 2 * CONTEXT - 100 * MIB
    assert actor.info()[0] == CAP - 2 * CONTEXT - 100 * MIB


def test_a_usage_page_that_is_no_file_is_not_used(world: World) -> None:
    world.usage.symlink_to("/dev/full")
    actor = world.actor().start()
    assert actor.do("alloc", 0, CAP) == OUT_OF_MEMORY
    assert "counted for each process by itself" in actor.close()


def test_a_usage_page_cut_short_or_taken_away_heals(world: World) -> None:
    first, second = world.actor().start(), world.actor().start()
    assert first.do("alloc", 0, 100 * MIB) == OK
    for damage in (lambda: world.usage.write_bytes(b""), world.usage.unlink):
        damage()
        assert first.do("alloc", 1, MIB) == OK
        assert first.do("free", 1) == OK
        assert second.do("alloc", 1, CAP - 2 * CONTEXT - 100 * MIB + 1) == OUT_OF_MEMORY
        assert second.info()[0] == CAP - 2 * CONTEXT - 100 * MIB
    assert first.do("free", 0) == OK
    assert second.info()[0] == CAP - 2 * CONTEXT


@pytest.mark.parametrize("damage", ["emptied", "gone", "shared entries zeroed", "no shared entry counts"])
def test_memory_passed_on_counts_whatever_becomes_of_the_page(world: World, damage: str) -> None:
    maker, taker = world.actor().start(), world.actor().start()
    free = maker.info()[0]
    assert maker.do("alloc", 0, 64 * MIB) == OK
    assert maker.do("create", 1, 32 * MIB) == OK
    assert maker.ask("export", 1)[0] == str(OK)
    code, handle = maker.ask("ipc", 0)
    assert int(code) == OK
    assert taker.do("ipc-open", 0, handle) == OK
    left = free - 96 * MIB
    assert taker.info()[0] == maker.info()[0] == left
    if damage == "emptied":
        world.usage.write_bytes(b"")
    elif damage == "gone":
        world.usage.unlink()
    else:
        with world.usage.open("r+b") as file:
            file.seek(28 if damage.startswith("no") else SHARED_AT)
            file.write(bytes(4 if damage.startswith("no") else USAGE_BYTES - SHARED_AT))
    taker.info()  # each says again what it has when it next comes by
    assert maker.do("alloc", 2, left + 1) == OUT_OF_MEMORY
    assert maker.info()[0] == left
    assert taker.info()[0] == left
    assert maker.do("alloc", 2, left) == OK
    for actor, words in ((maker, "free 2"), (maker, "free 0"), (maker, "release 1"), (taker, "ipc-close 0")):
        assert actor.do(*words.split()) == OK
    assert maker.info()[0] == taker.info()[0] == free
    assert charged(world) == 2 * CONTEXT


def test_a_page_out_of_reach_counts_on(world: World) -> None:
    """As after a chroot, or with another file system mounted over it."""
    first, second = world.actor().start(), world.actor().start()
    assert first.do("alloc", 0, 100 * MIB) == OK
    folder = world.usage.parent
    folder.rename(folder.with_name("away"))
    left = CAP - 2 * CONTEXT - 100 * MIB
    assert first.do("alloc", 1, left + 1) == OUT_OF_MEMORY
    assert first.info()[0] == left
    assert second.info()[0] == left
    assert second.do("alloc", 0, left + 1) == OUT_OF_MEMORY
    assert second.do("alloc", 0, left) == OK
    folder.with_name("away").rename(folder)
    third = world.actor()
    assert third.do("init") == OK
    assert third.do("primary", 0, 0) == OUT_OF_MEMORY
    assert first.do("free", 0) == OK
    assert first.info()[0] == second.info()[0] == 100 * MIB


def test_nonsense_in_the_usage_page_never_kills_and_never_lifts_the_own_cap(world: World) -> None:
    chance = random.Random(1)
    actor = world.actor().start()
    for _ in range(60):
        page = bytearray(world.usage.read_bytes())
        for _ in range(chance.randrange(1, 2000)):
            at = chance.choice([chance.randrange(USAGE_BYTES), chance.randrange(SLOTS_AT + 8 * SLOT_BYTES)])
            page[at] = chance.choice([0, 0xFF, chance.randrange(256)])
        with world.usage.open("r+b") as file:
            file.write(page)
        for command in ("alloc 0 1000000", "create 0 2097152", "async 1 100000", "graph 0 100000 0"):
            if actor.do(*command.split()) == OK:
                assert actor.do(*UNDO[command.split()[0]].split()) == OK
        assert actor.do("sync") == OK
        assert actor.do("graph-trim", 0, 0) == OK
        assert actor.do("alloc", 0, CAP) == OUT_OF_MEMORY
        assert actor.do("alloc", 0, CAP - CONTEXT + 1) == OUT_OF_MEMORY
    world.usage.unlink()
    assert actor.info()[0] == CAP - CONTEXT


UNDO = {"alloc": "free 0", "create": "release 0", "async": "free-async 1", "graph": "graph-destroy 0"}


def test_a_lock_whose_holder_died_or_never_was_stops_nobody(world: World) -> None:
    actor = world.actor().start()
    for holder in (1 << 21, 0xDEADBEEFDEADBEEF, 1):
        with world.usage.open("r+b") as file:
            file.seek(16)
            file.write(struct.pack("<Q", holder))
        assert actor.do("alloc", 0, MIB) == OK
        assert actor.do("free", 0) == OK


def test_what_a_start_before_left_goes_once_the_agent_says_that_it_is_over(world: World) -> None:
    """The kubelet may start a container again without asking the agent, which empties its page else. Who left
    slots there lived in a PID namespace that is gone: from inside that cannot be told."""
    first = world.actor().start()
    assert first.do("alloc", 0, 300 * MIB) == OK
    first.kill()
    with world.usage.open("r+b") as file:
        file.seek(SLOTS_AT + 8)
        file.write(struct.pack("<Q", 4026530000))
    second = world.actor().start()
    assert second.do("alloc", 0, 300 * MIB) == OUT_OF_MEMORY
    pages = SharedPages(world.root / "pages")
    pages.path(USAGE, "g").hardlink_to(world.usage)
    pages.give_up("g", [0])
    assert second.do("alloc", 0, 300 * MIB) == OK
    assert second.info()[0] == CAP - CONTEXT - 300 * MIB


@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_a_forked_child_leaves_its_parents_charge_alone(world: World, end: int) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, 100 * MIB) == OK
    assert actor.do("fork", 0, end) == OK
    left = CAP - CONTEXT - 100 * MIB
    assert actor.info()[0] == left
    assert world.actor().start().info()[0] == left - CONTEXT


def test_a_process_of_another_pid_namespace_with_the_same_number_counts_by_itself(world: World) -> None:
    """As of two that ``unshare --pid --fork`` began in the same 10 ms, or without a /proc of theirs."""
    actor = world.actor()
    assert actor.do("init") == OK
    started = Path(f"/proc/{actor.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    page = bytearray(USAGE_BYTES)
    page[24:28] = struct.pack("<I", 1)
    owner = actor.process.pid | (int(started) & 0xFFFFFFFF) << 32
    page[SLOTS_AT : SLOTS_AT + 40] = struct.pack("<QQQQQ", owner, 12345, 1, 1, 100 * MIB)
    world.usage.write_bytes(page)
    assert actor.do("primary", 0, 0) == OK
    assert charged(world) == CONTEXT + 100 * MIB
    assert actor.info()[0] == CAP - CONTEXT - 100 * MIB
    assert actor.do("alloc", 0, MIB) == OK
    assert world.actor().start().info()[0] == CAP - 2 * CONTEXT - 102 * MIB


def test_each_process_of_a_pid_namespace_of_its_own_counts_while_it_lives(world: World) -> None:
    """With the /proc of all of them: none knows its start, and all have the number 1."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode != 0:
        pytest.skip("needs to make a PID namespace")
    alone = ("unshare", "--pid", "--fork")
    for _ in range(2):
        first, second = world.actor(inside=alone).start(), world.actor(inside=alone).start()
        assert first.do("alloc", 0, 100 * MIB) == second.do("alloc", 0, 100 * MIB) == OK
        assert first.info()[0] == second.info()[0] == CAP - 2 * CONTEXT - 200 * MIB
        first.close()
        second.close()


def test_a_process_that_becomes_another_program_is_charged_no_more(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("alloc", 0, 100 * MIB) == OK
    actor.tell("exec")
    name = Path(f"/proc/{actor.process.pid}/comm")
    end = time.monotonic() + 60
    while name.read_text() != "sleep\n":
        assert time.monotonic() < end
        time.sleep(0.01)
    other = world.actor().start()
    # Free memory is told at once, and may still count it. A charge that does not fit looks again.
    assert other.do("alloc", 0, 400 * MIB) == OK
    assert other.info()[0] == CAP - CONTEXT - 400 * MIB


def test_memory_passed_on_is_charged_once_and_as_long_as_anybody_holds_it(world: World) -> None:
    watcher, maker, taker = world.watcher(), world.actor().start(), world.actor().start()
    free = maker.info()[0]
    assert maker.do("alloc", 0, 64 * MIB) == OK
    code, handle = maker.ask("ipc", 0)
    assert int(code) == OK
    assert taker.do("ipc-open", 0, handle) == OK
    assert taker.info()[0] == free - 64 * MIB
    assert maker.do("create", 1, 64 * MIB) == OK
    code, file = maker.ask("export", 1)
    assert int(code) == OK
    assert taker.do("import", 1, maker.process.pid, file) == OK
    assert taker.do("map", 1, 64 * MIB) == OK
    assert taker.info()[0] == free - 128 * MIB
    maker.kill()
    really = 4096 * MIB - watcher.info()[0]
    assert really == 128 * MIB + CONTEXT - 2 * MIB  # the context has not grown yet
    assert taker.info()[0] == CAP - CONTEXT - 128 * MIB  # what the card still holds is still charged
    assert taker.do("ipc-close", 0) == OK
    assert taker.do("unmap", 1) == OK
    assert taker.do("release", 1) == OK
    assert taker.info()[0] == CAP - CONTEXT


@pytest.mark.skipif(SANITIZED is not None, reason="leaves the sanitizer's marks on its stack")
def test_a_thread_that_is_cancelled_leaves_no_lock_behind(world: World) -> None:
    """As those that watch how much is free. With a second process more is read while a lock is held."""
    world.actor().start()
    actor = world.actor().start()
    files = Path(f"/proc/{actor.process.pid}/fd")
    before = len(list(files.iterdir()))
    assert actor.do("threads-cancelled", 0, 200) == OK
    assert len(list(files.iterdir())) == before


def test_before_cuinit_the_driver_answers_itself(world: World) -> None:
    not_initialised = 3
    actor = world.actor()
    assert actor.do("context", 0, 0) == not_initialised
    assert actor.do("alloc", 0, MIB) in (not_initialised, 201)
    actor.start()
    assert actor.do("context", 1, 99) == 101  # no such device
    assert actor.do("alloc", 0, MIB) == OK


def test_a_full_file_system_kills_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, [Share(UUIDS[0], CAP)])
    folder = world.usage.parent
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=False)
    if mounted.returncode != 0:
        pytest.skip("needs to mount a small file system")
    try:
        actor = world.actor().start()
        assert actor.do("alloc", 0, CAP) == OUT_OF_MEMORY
        assert actor.do("alloc", 0, CAP - CONTEXT) == OK
        assert "counted for each process by itself" in actor.close()
    finally:
        world.close()
        subprocess.run(["umount", "-l", folder], check=False)
