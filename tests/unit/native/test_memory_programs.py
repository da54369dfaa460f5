"""Random programs of several processes that allocate in every way and are killed in between.

What is really in use on the card never exceeds the cap, nothing leaks, and nothing is left after the last
process.
"""

import os
import random
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from unit.native.memory_worlds import (
    CONTEXT_MIB,
    MIB,
    NATIVE,
    OK,
    OUT_OF_MEMORY,
    UUIDS,
    Actor,
    Share,
    World,
    charged,
    used,
)

PROGRAMS = 200 if os.environ.get("VC_EGPU_LONG") == "1" else 20
ROUNDS = 60
PROCESSES = 3
CAP = 384 * MIB
WAYS = ("direct", "dlsym", "procaddress", "procaddress-stream")

MAKES = {
    # what is made: the command, and what unmakes it
    "alloc": "free",
    "pitch": "free",
    "managed": "free",
    "array": "array-free",
    "mipmap": "mipmap-free",
    "async": "free-async",
    "from-pool": "free-async",
    "create": "release",
    "graph": "graph-destroy",
    "context": "context-destroy",
    "module": "module-unload",
    "library": "library-unload",
    "external": "external-destroy",
    "multicast": "release",
    # what another process passed on
    "ipc-open": "ipc-close",
    "import": "unmap-release",
}
PASSED_ON = ("ipc-open", "import")


class Program:
    """One process: what it holds, and what it does next."""

    def __init__(
        self, actor: Actor, chance: random.Random, folder: Path, without: Collection[str] = ()
    ) -> None:
        self.actor = actor
        self.makes = [way for way in sorted(MAKES) if way not in PASSED_ON and way not in without]
        self.folder = folder
        self.chance = chance
        self.held: dict[int, str] = {}
        self.sizes: dict[int, int] = {}
        self.next_thing = 1
        self.opened: set[tuple[int, int]] = set()

    def step(self) -> None:
        """Sends one random command; `settle` takes the answer."""
        if self.held and self.chance.random() < 0.45:
            thing = self.chance.choice(sorted(self.held))
            self.command: tuple[object, ...] = (MAKES[self.held[thing]], thing)
            self.becomes: tuple[int, str] | None = None
            del self.held[thing]
        else:
            way = self.chance.choice(self.makes)
            thing, self.next_thing = self.next_thing, self.next_thing + 1
            size = self.chance.choice([1, 700, 300_000, 1_500_000, 2 * MIB, 20_000_000, 90_000_000])
            self.command = self._make(way, thing, size)
            self.becomes = (thing, way)
        self.actor.tell(*self.command)

    def _make(self, way: str, thing: int, size: int) -> tuple[object, ...]:
        granules = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        self.sizes[thing] = granules
        arguments: dict[str, tuple[object, ...]] = {
            "pitch": (1024, size // 1024 + 1),
            "array": (1024, size // 4096 + 1),
            "mipmap": (1024, size // 4096 + 1),
            "from-pool": (size, 0),
            "create": (granules,),
            "graph": (size, self.chance.randrange(2)),
            "context": (0,),
            "module": (self._image(size),),
            "library": (self._image(size),),
            "multicast": (granules,),
        }
        return way, thing, *arguments.get(way, (size,))

    def _image(self, size: int) -> Path:
        """A text that declares an array of that size."""
        path = self.folder / f"image-{size}"
        if not path.exists():
            head = ".version 7.0\n.target sm_70\n.address_size 64\n"  # what any card compiles for itself
            path.write_text(f"{head}.global .align 16 .b8 table[{size}];\n.visible .entry f() {{ ret; }}\n")
        return path

    def settle(self) -> None:
        """Takes the answer: past the cap is CUDA_ERROR_OUT_OF_MEMORY, and nothing else."""
        code = int(self.actor.hear()[0])
        assert code in (OK, OUT_OF_MEMORY), (self.command, code)
        if code == OK and self.becomes:
            self.held[self.becomes[0]] = self.becomes[1]
        elif not self.becomes:
            assert code == OK, self.command
        if self.command[0] == "context" and code == OK:
            # A context that is made is current: go on in the primary one.
            assert self.actor.do("primary", 0, 0) == OK
        if self.command[0] == "context-destroy":
            assert self.actor.do("primary", 0, 0) == OK

    def pass_on(self, taker: "Program") -> None:
        """Gives another process something of this one's: that is no further memory."""
        things = [thing for thing, way in sorted(self.held.items()) if way in ("alloc", "create")]
        if not things:
            return
        thing = self.chance.choice(things)
        pid = self.actor.process.pid
        if (pid, thing) in taker.opened:
            return
        taker.opened.add((pid, thing))
        number, taker.next_thing = taker.next_thing, taker.next_thing + 1
        if self.held[thing] == "alloc":
            code, handle = self.actor.ask("ipc", thing)
            assert int(code) == OK
            assert taker.actor.do("ipc-open", number, handle) == OK
            taker.held[number] = "ipc-open"
            return
        code, file = self.actor.ask("export", thing)
        assert int(code) == OK
        assert taker.actor.do("import", number, pid, file) == OK
        assert taker.actor.do("map", number, self.sizes[thing]) == OK
        taker.held[number] = "import"

    def free_all(self) -> None:
        """Frees what it holds."""
        for thing, way in sorted(self.held.items()):
            assert self.actor.do(MAKES[way], thing) == OK
        assert self.actor.do("sync") == OK
        assert self.actor.do("graph-trim", 0, 0) == OK
        self.held.clear()


def _start(world: World, chance: random.Random) -> Program | None:
    actor = world.actor(chance.choice(WAYS))
    assert actor.do("init") == OK
    code = actor.do("primary", 0, 0)
    assert code in (OK, OUT_OF_MEMORY)
    if code == OUT_OF_MEMORY:
        actor.close()
        return None
    assert actor.do("pool", 0) == OK
    return Program(actor, chance, world.root)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_the_sum_never_exceeds_the_cap(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(tmp_path, [Share(UUIDS[0], CAP)])
    try:
        watcher = world.watcher()
        assert watcher.do("watch", 0) == OK
        programs: list[Program] = []
        for _ in range(ROUNDS):
            while len(programs) < PROCESSES:
                started = _start(world, chance)
                if started is None:
                    break
                programs.append(started)
            for program in programs:
                program.step()
            if chance.random() < 0.1 and programs:
                programs.pop(chance.randrange(len(programs))).actor.kill()  # in the middle of a call
            for program in programs:
                program.settle()
            if len(programs) > 1 and chance.random() < 0.3:
                maker, taker = chance.sample(programs, 2)
                maker.pass_on(taker)
            assert used(watcher) <= CAP
        assert int(watcher.ask("peak")[1]) <= CAP
        if programs:
            programs[0].free_all()
            for program in programs[1:]:
                program.actor.kill()
            last = programs[0].actor
            free, total = last.info()
            assert (free, total) == (CAP - world.shares[0].context_bytes, CAP)
            assert charged(world) == world.shares[0].context_bytes
            last.kill()
        fresh = world.actor().start()
        assert fresh.info()[0] == CAP - world.shares[0].context_bytes
        fresh.kill()
        assert used(watcher) == 0
    finally:
        world.close()


def test_threads_of_one_process(tmp_path: Path) -> None:
    world = World(tmp_path, [Share(UUIDS[0], CAP)])
    try:
        first, second = world.actor().start(), world.actor().start()
        for actor in (first, second):
            actor.tell("threads", 4, 50)
        for actor in (first, second):
            assert int(actor.hear()[0]) == OK
        assert first.do("sync") == OK
        assert second.do("sync") == OK
        assert first.info()[0] == CAP - 2 * world.shares[0].context_bytes
    finally:
        world.close()


def test_threads_that_share_a_new_piece_charge_it_once(tmp_path: Path) -> None:
    world = World(tmp_path, [Share(UUIDS[0], CAP)])
    try:
        actor = world.actor().start()
        assert actor.do("threads-small", 8, 3000) == OK
        assert charged(world) == world.shares[0].context_bytes
        assert actor.info()[0] == CAP - world.shares[0].context_bytes
    finally:
        world.close()


def test_threads_that_make_contexts_where_others_end_theirs(tmp_path: Path) -> None:
    world = World(tmp_path, [Share(UUIDS[0], 2 * CAP)])
    try:
        actor = world.actor(FAKE_CUDA_HANDLES_AGAIN="1")
        assert actor.do("init") == OK
        assert actor.do("threads-contexts", 8, 400) == OK
        assert charged(world) == 8 * (CONTEXT_MIB + 4) * MIB
    finally:
        world.close()


def test_threads_that_begin_together_take_one_context(tmp_path: Path) -> None:
    context = CONTEXT_MIB * MIB
    world = World(tmp_path, [Share(UUIDS[0], context + MIB)])
    try:
        actor = world.actor()
        assert actor.do("init") == OK
        assert actor.do("threads-primary", 8, 300) == OK
        assert charged(world) == 0
        assert actor.start().info() == (0, context + MIB)
        assert charged(world) == context
    finally:
        world.close()


@pytest.mark.skipif(os.environ.get("VC_EGPU_LONG") != "1", reason="builds with sanitizers: make test-long")
@pytest.mark.long
@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_sanitizers_find_nothing(sanitizer: str) -> None:
    subprocess.run(["make", "-s", "-C", NATIVE, f"native-{sanitizer}"], check=True)
    environment = os.environ | {
        "VC_EGPU_NATIVE_ACTOR": str(NATIVE / "build" / f"memory-actor-{sanitizer}"),
        "ASAN_OPTIONS": "detect_leaks=0,exitcode=77",
        "TSAN_OPTIONS": "exitcode=77,halt_on_error=1",
        "VC_EGPU_LONG": "0",
    }
    here = Path(__file__).parent
    files = [
        here / name for name in ("test_memory_ways.py", "test_memory_safety.py", "test_memory_programs.py")
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:]
