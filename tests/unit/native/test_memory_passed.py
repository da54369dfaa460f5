"""Allocations from pools that one process passes to another: charged once, as long as anybody holds them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native.memory_worlds import CAP, CONTEXT_MIB, GRANULE, MIB, OK, World, used

CONTEXT = CONTEXT_MIB * MIB
PIECE = 64 * MIB
TESTS = Path(__file__).resolve().parents[2]

PROGRAM = f"""
import ctypes, os, sys
from ctypes import byref, c_int, c_uint64, c_void_p
sys.path.insert(0, {str(TESTS)!r})
from contract.cuda.binding import Driver, Location, PoolProperties
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.primary())
pool, pointer, data = c_void_p(), c_uint64(), (ctypes.c_char * 64)()

def make(size):
    number = c_int()
    cu.cuMemPoolCreate(byref(pool), byref(PoolProperties(1, 1, Location(1, 0))))
    cu.cuMemAllocFromPoolAsync(byref(pointer), int(size), pool, 1)
    cu.cuMemPoolExportToShareableHandle(byref(number), pool, 1, 0)
    cu.cuMemPoolExportPointer(data, pointer)
    return number.value, data.raw.hex()

def take(pid, number, text):
    data.raw = bytes.fromhex(text)
    file = os.open(f"/proc/{{pid}}/fd/{{number}}", os.O_RDWR)
    cu.cuMemPoolImportFromShareableHandle(byref(pool), file, 1, 0)
    cu.cuMemPoolImportPointer(byref(pointer), pool, data)
    return (cu.code("cuMemAllocFromPoolAsync", byref(c_uint64()), 1 << 20, pool, 1),)

def free():
    cu.cuMemFreeAsync(pointer, 1)
    cu.cuStreamSynchronize(1)
    return ()

def free_plainly():
    cu.cuMemFree_v2(pointer)
    return ()

def info():
    return (cu.free_bytes(),)

def listed():
    import pynvml
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    return sorted(one.usedGpuMemory >> 20 for one in pynvml.nvmlDeviceGetComputeRunningProcesses(card))

for line in sys.stdin:
    name, *words = line.split()
    print(*globals()[name](*words), "done", flush=True)
"""


class Program:
    """One of the container's, told what to do line by line."""

    def __init__(self, world: World, preload: bool = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=world.environment() if preload else world.environment(preload=None),
        )

    def ask(self, *words: object) -> list[str]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        *answer, done = self.process.stdout.readline().split()
        assert done == "done"
        return answer

    def free(self) -> int:
        return int(self.ask("info")[0])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


@pytest.fixture
def both(world: World) -> Iterator[tuple[Program, Program]]:
    maker, taker = Program(world), Program(world)
    for program in (maker, taker):
        program.free()  # both have their contexts
    yield maker, taker
    for program in (maker, taker):
        if program.process.poll() is None:
            program.end()


LEFT = CAP - 2 * CONTEXT


def test_charged_once_while_both_hold_it(world: World, both: tuple[Program, Program]) -> None:
    maker, taker = both
    assert (maker.free(), taker.free()) == (LEFT, LEFT)
    handle = maker.ask("make", PIECE)
    assert taker.free() == LEFT - PIECE
    assert taker.ask("take", maker.process.pid, *handle) == ["1"]  # an imported pool gives nothing itself
    assert (maker.free(), taker.free()) == (LEFT - PIECE, LEFT - PIECE)
    taker.ask("free")
    assert taker.free() == LEFT - PIECE
    maker.ask("free")
    assert (maker.free(), taker.free()) == (LEFT, LEFT)


@pytest.mark.parametrize("way", ["free", "free_plainly"])
def test_charged_on_where_its_maker_is_gone(world: World, both: tuple[Program, Program], way: str) -> None:
    maker, taker = both
    watcher = world.watcher()
    empty = used(watcher)
    handle = maker.ask("make", PIECE)
    taker.ask("take", maker.process.pid, *handle)
    maker.end()
    assert used(watcher) == empty // 2 + PIECE  # its context went with it
    assert taker.free() == CAP - CONTEXT - PIECE
    third = Program(world)
    try:
        assert third.free() == CAP - 2 * CONTEXT - PIECE
        taker.ask(way)
        assert third.free() == CAP - 2 * CONTEXT
    finally:
        third.end()
    assert taker.free() == CAP - CONTEXT


def test_nvml_shows_it_with_one_of_them(world: World, both: tuple[Program, Program]) -> None:
    """As a driver does; what PyTorch says where it runs out of memory is taken from there."""
    maker, taker = both
    handle = maker.ask("make", PIECE)
    taker.ask("take", maker.process.pid, *handle)
    both_mib = [str(CONTEXT_MIB), str(CONTEXT_MIB + PIECE // MIB)]
    assert maker.ask("listed") == taker.ask("listed") == both_mib
    maker.end()
    assert taker.free() == CAP - CONTEXT - PIECE
    assert taker.ask("listed") == both_mib[1:]


def test_a_maker_that_frees_first_leaves_it_to_the_other(world: World, both: tuple[Program, Program]) -> None:
    maker, taker = both
    handle = maker.ask("make", PIECE - 1000)
    taker.ask("take", maker.process.pid, *handle)
    maker.ask("free")
    assert LEFT - PIECE - GRANULE <= taker.free() <= LEFT - PIECE
    taker.ask("free")
    assert (maker.free(), taker.free()) == (LEFT, LEFT)


def test_neither_leaves_a_charge_behind(world: World, both: tuple[Program, Program]) -> None:
    maker, taker = both
    handle = maker.ask("make", PIECE)
    taker.ask("take", maker.process.pid, *handle)
    taker.end()
    assert maker.free() == CAP - CONTEXT - PIECE
    maker.ask("free")
    assert maker.free() == CAP - CONTEXT
    maker.ask("make", PIECE)
    maker.end()
    last = world.actor().start()
    assert last.info()[0] == CAP - CONTEXT


def test_passed_on_by_one_thread_while_another_maps_it(world: World) -> None:
    actor = world.actor().start()
    assert actor.do("threads-pass-on", 0, 2000) == OK


BESIDE = f"""
import ctypes, os, sys, threading
from ctypes import byref, c_uint64
sys.path.insert(0, {str(TESTS)!r})
from contract.cuda.binding import Driver, Handle64
from unit.native.memory_worlds import SHARED_AT, SHARED_BYTES
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.cuInit(0)
context = cu.primary()
cu.cuCtxSetCurrent(context)
one, other = (Handle64.from_buffer_copy(bytes.fromhex(text)) for text in sys.argv[1:3])
ended = False

def open_and_close():
    cu.cuCtxSetCurrent(context)
    while not ended:
        at = c_uint64()
        cu.cuIpcOpenMemHandle_v2(byref(at), one, 1)
        cu.cuIpcCloseMemHandle(at)

def holders():
    return sum(map(int.bit_count, os.pread(file, SHARED_BYTES, SHARED_AT)[16:]))

file, lost = os.open(sys.argv[3], os.O_RDONLY), 0
threads = [threading.Thread(target=open_and_close) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(100):
    at = c_uint64()
    cu.cuIpcOpenMemHandle_v2(byref(at), other, 1)
    lost += holders() != 2
    cu.cuIpcCloseMemHandle(at)
ended = True
for thread in threads:
    thread.join()
print(lost)
"""


def test_opened_where_another_thread_just_closed_is_held(world: World) -> None:
    """Its maker may let go of it, and it stays on the card."""
    maker = world.actor().start()
    assert maker.do("alloc", 0, PIECE) == maker.do("alloc", 1, PIECE) == OK
    mine, others = (maker.ask("ipc", thing)[1] for thing in (0, 1))
    ran = world.python(BESIDE, others, mine, world.usage, FAKE_CUDA_END_US="1000")
    assert (ran.stdout, ran.stderr) == ("0\n", "")
