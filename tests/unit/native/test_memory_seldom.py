"""Entry points that programs of today seldom call are limited all the same."""

from pathlib import Path

import pytest
from unit.native.memory_worlds import CAP, CONTEXT_MIB, MIB, OK, OUT_OF_MEMORY, World

CONTEXT = CONTEXT_MIB * MIB
WAYS = ("direct", "dlsym")
NOT_SUPPORTED = 801
"""The fake driver leaves some out; what is limited is refused before it is asked."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("make", "bytes_", "unmake"),
    [
        ("cuCtxCreate 1", CONTEXT, "cuCtxDestroy 1"),
        ("cuCtxCreate_v3 1", CONTEXT, "context-destroy 1"),
        ("cuCtxCreate_v4 1", CONTEXT, "cuCtxDestroy 1"),
        ("cuArrayCreate_v2 1 16384", 64 * MIB, "array-free 1"),
        ("cuArrayCreate 1 16384", 64 * MIB, "array-free 1"),
        ("cuArray3DCreate 1 16384", 64 * MIB, "array-free 1"),
        ("cuGraphInstantiate 1 67108864", 64 * MIB, "graph-destroy 1"),
        ("cuGraphInstantiate_v2 1 67108864", 64 * MIB, "graph-destroy 1"),
        ("cuGraphInstantiateWithParams 1 67108864", 64 * MIB, "graph-destroy 1"),
    ],
)
def test_charged_and_given_back(world: World, way: str, make: str, bytes_: int, unmake: str) -> None:
    actor = world.actor(way).start()
    free = actor.info()[0]
    code = actor.do(*make.split())
    assert code in (OK, NOT_SUPPORTED)
    assert actor.info()[0] == (free - bytes_ if code == OK else free)
    if code == OK:
        assert actor.do(*unmake.split()) == OK
        assert actor.do("primary", 0, 0) == OK
    assert actor.info()[0] == free
    assert actor.do("alloc", 2, free) == OK
    assert actor.do(*make.split()) == OUT_OF_MEMORY
    assert actor.info()[0] == 0


@pytest.mark.parametrize("way", WAYS)
def test_views_and_allocations_from_before_cuda_3_2(world: World, way: str) -> None:
    actor = world.actor(way).start()
    free = actor.info()[0]
    assert actor.ask("cuMemGetInfo", 0) == ["0", str(free), str(CAP)]
    assert actor.ask("cuDeviceTotalMem", 0) == ["0", str(CAP)]
    assert actor.do("cuMemAlloc", 0, CAP) == OUT_OF_MEMORY
    assert actor.do("cuMemAllocPitch", 0, CAP // 1024) == OUT_OF_MEMORY
    assert actor.info()[0] == free


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["Release", "Release_v2", "Reset", "Reset_v2"])
def test_the_end_of_the_primary_context_ends_what_is_in_it(world: World, way: str, end: str) -> None:
    actor, other = world.actor(way).start(), world.actor().start()
    free = other.info()[0]
    assert actor.do("alloc", 1, 100 * MIB) == OK
    assert actor.do("alloc", 2, 1000) == OK
    assert actor.do("array", 3, 4096, 4096) == OK
    assert other.info()[0] < free
    assert actor.do(f"cuDevicePrimaryCtx{end}", 0) == OK
    assert other.info()[0] == free + CONTEXT


@pytest.mark.parametrize("way", WAYS)
def test_a_context_that_is_attached_to_ends_with_its_last_user(world: World, way: str) -> None:
    actor = world.actor(way).start()
    free = actor.info()[0]
    assert actor.do("context", 1, 0) == OK
    attached = actor.do("cuCtxAttach", 1)
    assert attached in (OK, NOT_SUPPORTED)
    assert actor.info()[0] == free - CONTEXT
    if attached == OK:
        assert actor.do("cuCtxDetach", 1) == OK
        assert actor.info()[0] == free - CONTEXT
    assert actor.do("cuCtxDetach", 1) in (OK, NOT_SUPPORTED)
    assert actor.do("context-destroy", 1) in (OK, 201, 709)
    assert actor.do("primary", 0, 0) == OK
    assert actor.info()[0] == free


@pytest.mark.parametrize("way", WAYS)
def test_ipc_as_before_cuda_11(world: World, way: str) -> None:
    maker, taker = world.actor(way).start(), world.actor(way).start()
    assert maker.do("alloc", 0, 64 * MIB) == OK
    left = maker.info()[0]
    code, handle = maker.ask("ipc", 0)
    assert int(code) == OK
    assert taker.do("cuIpcOpenMemHandle", 0, handle) == OK
    assert taker.info()[0] == left
    assert maker.do("free", 0) == OK
    assert taker.info()[0] == left
    assert taker.do("ipc-close", 0) == OK
    assert taker.info()[0] == left + 64 * MIB


NESTED = f"""
import ctypes, sys
from ctypes import byref, c_void_p
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from contract.cuda.binding import AllocationNode, Driver, Location, PoolProperties
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.primary())
free, graph, node, made = cu.free_bytes(), c_void_p(), c_void_p(), c_void_p()
wanted = AllocationNode(pool=PoolProperties(1, 0, Location(1, 0)), bytes=64 << 20)
cu.cuGraphCreate(byref(graph), 0)
cu.cuGraphAddMemAllocNode(byref(node), graph, None, 0, byref(wanted))
for _ in range(int(sys.argv[1])):
    outer = c_void_p()
    cu.cuGraphCreate(byref(outer), 0)
    cu.cuGraphAddChildGraphNode(byref(node), outer, None, 0, graph)
    graph = outer
print(cu.code("cuGraphInstantiateWithFlags", byref(made), graph, 0), free - cu.free_bytes())
"""


@pytest.mark.parametrize("depth", [0, 7, 12, 63])
def test_memory_of_graphs_is_charged_however_deep_they_lie_in_each_other(world: World, depth: int) -> None:
    assert world.python(NESTED, str(depth)).stdout.split() == [str(OK), str(64 * MIB)]


def test_a_graph_that_lies_too_deep_to_be_looked_at_is_not_made(world: World) -> None:
    assert world.python(NESTED, "64").stdout.split() == [str(OUT_OF_MEMORY), "0"]
