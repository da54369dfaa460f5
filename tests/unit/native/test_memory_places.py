"""Memory on a card by every name that a place there has: the card, a part of it, managed memory of pools."""

from pathlib import Path

import pytest
from unit.native.memory_worlds import World

TESTS = Path(__file__).parents[2]
BEGIN = """
import ctypes
from ctypes import byref, c_int, c_uint64, c_void_p
from contract.cuda.binding import AllocationProperties, Driver, Location, PoolProperties

DEVICE, HOST, PART = 1, 2, 6
PINNED, MANAGED = 1, 2
MIB = 1 << 20
cuda = Driver(ctypes.CDLL("libcuda.so.1"))
cuda.cuInit(0)
cuda.cuCtxSetCurrent(cuda.primary())
stream, pointer, pool, handle = cuda.stream(), c_uint64(), c_void_p(), c_uint64()
"""


def _said(world: World, code: str) -> list[int]:
    done = world.python(BEGIN + code, PYTHONPATH=str(TESTS))
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("place", ["DEVICE, 0", "PART, 0"])
def test_physical_memory(world: World, place: str) -> None:
    code = f"""
how = AllocationProperties(PINNED, 0, Location({place}))
for mib in (400, 400):
    print(cuda.code("cuMemCreate", byref(handle), mib * MIB, byref(how), 0))
"""
    assert _said(world, code) == [0, 2]


@pytest.mark.parametrize(
    "kind",
    [
        "PINNED, 0, Location(DEVICE, 0)",
        "PINNED, 0, Location(PART, 0)",
        "MANAGED, 0, Location(DEVICE, 0)",
        "MANAGED, 0, Location(HOST, 0)",
        "MANAGED, 0, Location(0, 0)",
    ],
)
def test_pools(world: World, kind: str) -> None:
    code = f"""
cuda.cuMemPoolCreate(byref(pool), byref(PoolProperties({kind})))
for mib in (300, 300):
    print(cuda.code("cuMemAllocFromPoolAsync", byref(pointer), mib * MIB, pool, stream))
"""
    assert _said(world, code) == [0, 2]


@pytest.mark.parametrize(
    ("kind", "place"), [("PINNED", "DEVICE, 0"), ("PINNED", "PART, 0"), ("MANAGED", "DEVICE, 0")]
)
def test_pools_that_are_there_without_being_made(world: World, kind: str, place: str) -> None:
    code = f"""
cuda.cuMemGetDefaultMemPool(byref(pool), byref(Location({place})), {kind})
for mib in (300, 300):
    print(cuda.code("cuMemAllocFromPoolAsync", byref(pointer), mib * MIB, pool, stream))
"""
    assert _said(world, code) == [0, 2]


def test_the_hosts_memory_is_nobodys_share(world: World) -> None:
    code = """
place = (PINNED, 0, Location(HOST, 0))
before = cuda.free_bytes()
cuda.cuMemPoolCreate(byref(pool), byref(PoolProperties(*place)))
for mib in (300, 300):
    print(cuda.code("cuMemAllocFromPoolAsync", byref(pointer), mib * MIB, pool, stream))
    print(cuda.code("cuMemCreate", byref(handle), mib * MIB, byref(AllocationProperties(*place)), 0))
print(before - cuda.free_bytes())
"""
    assert _said(world, code) == [0, 0, 0, 0, 0]
