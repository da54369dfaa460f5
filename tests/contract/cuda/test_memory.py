"""Memory: what each way of taking it costs, and when it comes back."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import pytest
from contract.cuda.binding import (
    GRANULE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    AccessDescription,
    AllocationNode,
    AllocationProperties,
    Array3DShape,
    ArrayShape,
    CudaError,
    Driver,
    Location,
    PoolProperties,
)

MIB = 1 << 20
DEVICE = Location(1, 0)


def test_free_falls_in_granules(driver: Driver) -> None:
    before = driver.free_bytes()
    first = driver.allocate(1)
    assert before - driver.free_bytes() in (0, GRANULE)  # 0: out of a granule that the context holds already
    large = driver.allocate(5 * MIB)
    used = before - driver.free_bytes()
    assert used % GRANULE == 0
    assert used in (6 * MIB, 8 * MIB)
    driver.cuMemFree_v2(large)
    driver.cuMemFree_v2(first)
    assert driver.free_bytes() in (before, before - GRANULE)


def test_too_much_is_out_of_memory_and_nothing_else(driver: Driver) -> None:
    before = driver.free_bytes()
    for size in (driver.total_bytes(), driver.total_bytes() * 4, 1 << 62):
        with pytest.raises(CudaError) as error:
            driver.allocate(size)
        assert error.value.code == OUT_OF_MEMORY
    assert driver.free_bytes() == before


def test_bad_arguments_change_nothing(driver: Driver) -> None:
    pointer = c_uint64()
    assert driver.code("cuMemAlloc_v2", byref(pointer), 0) == INVALID_VALUE
    block = driver.allocate(MIB)
    assert driver.code("cuMemFree_v2", block + 512) == INVALID_VALUE
    driver.cuMemFree_v2(block)
    assert driver.code("cuMemFree_v2", block) == INVALID_VALUE
    assert driver.code("cuMemFree_v2", 0) == 0


def test_content_is_kept(driver: Driver) -> None:
    block = driver.allocate(4 * MIB)
    driver.cuMemsetD32_v2(block, 0x01020304, MIB)
    word = c_uint()
    driver.cuMemcpyDtoH_v2(ctypes.addressof(word), block + 4 * MIB - 4, 4)
    assert word.value == 0x01020304
    data = (ctypes.c_ubyte * 256)(*range(256))
    driver.cuMemcpyHtoD_v2(block + 4096, ctypes.addressof(data), 256)
    driver.cuMemcpyDtoD_v2(block, block + 4096, 256)
    back = (ctypes.c_ubyte * 256)()
    driver.cuMemcpyDtoH_v2(ctypes.addressof(back), block, 256)
    assert bytes(back) == bytes(data)


def test_copies_in_a_batch(driver: Driver) -> None:
    if not hasattr(driver.library, "cuMemcpyBatchAsync"):
        pytest.skip("a driver from before CUDA 12.8")
    block, stream = driver.allocate(4096), driver.stream()
    driver.cuMemsetD8_v2(block, 3, 1024)
    driver.cuMemsetD8_v2(block + 1024, 0, 3072)
    driver.cuCtxSynchronize()
    to, source = (c_uint64 * 2)(block + 1024, block + 2048), (c_uint64 * 2)(block, block)
    sizes, failed, how = (c_size_t * 2)(512, 256), c_size_t(), (c_int * 8)(1, 0, 0, 0, 0, 0)
    which = (c_size_t * 1)(0)
    driver.cuMemcpyBatchAsync(to, source, sizes, 2, how, which, 1, byref(failed), stream)
    driver.cuStreamSynchronize(stream)
    back = (ctypes.c_ubyte * 4096)()
    driver.cuMemcpyDtoH_v2(ctypes.addressof(back), block, 4096)
    expected = [3] * 1024 + [3] * 512 + [0] * 512 + [3] * 256 + [0] * 1792
    assert list(back) == expected


def test_pitched_rows(driver: Driver) -> None:
    pointer, pitch = c_uint64(), c_size_t()
    before = driver.free_bytes()
    driver.cuMemAllocPitch_v2(byref(pointer), byref(pitch), 10_001, 1000, 4)
    assert pitch.value >= 10_001
    assert pitch.value % 512 == 0
    assert before - driver.free_bytes() >= pitch.value * 1000
    driver.cuMemFree_v2(pointer)
    assert driver.free_bytes() == before


def test_arrays_take_device_memory(driver: Driver) -> None:
    before = driver.free_bytes()
    flat, deep, pyramid = c_void_p(), c_void_p(), c_void_p()
    driver.cuArrayCreate_v2(byref(flat), byref(ArrayShape(2048, 2048, 0x20, 1)))
    assert before - driver.free_bytes() >= 16 * MIB
    driver.cuArray3DCreate_v2(byref(deep), byref(Array3DShape(256, 256, 64, 0x20, 1, 0)))
    assert before - driver.free_bytes() >= 32 * MIB
    driver.cuMipmappedArrayCreate(byref(pyramid), byref(Array3DShape(1024, 1024, 0, 0x20, 1, 0)), 4)
    assert before - driver.free_bytes() >= 37 * MIB
    driver.cuArrayDestroy(flat)
    driver.cuArrayDestroy(deep)
    driver.cuMipmappedArrayDestroy(pyramid)
    assert before - driver.free_bytes() <= 4 * MIB


def test_pointer_says_what_it_is(driver: Driver) -> None:
    block = driver.allocate(3 * MIB)
    managed, pinned = c_uint64(), c_void_p()
    driver.cuMemAllocManaged(byref(managed), MIB, 1)
    driver.cuMemHostAlloc(byref(pinned), MIB, 0)
    kind, is_managed, ordinal, start = c_uint(), c_uint(), c_int(-7), c_uint64()
    for pointer, expected, expected_managed in (
        (block + 5, 2, 0),
        (managed.value, 2, 1),
        (pinned.value, 1, 0),
    ):
        driver.cuPointerGetAttribute(byref(kind), 2, pointer)
        driver.cuPointerGetAttribute(byref(is_managed), 8, pointer)
        driver.cuPointerGetAttribute(byref(ordinal), 9, pointer)
        assert (kind.value, is_managed.value & 1, ordinal.value) == (expected, expected_managed, 0)
    driver.cuPointerGetAttribute(byref(start), 11, block + MIB)
    assert start.value == block
    assert driver.code("cuPointerGetAttribute", byref(kind), 2, 0x1234) == INVALID_VALUE
    driver.cuMemFree_v2(managed)
    driver.cuMemFreeHost(pinned)


def _map(driver: Driver, size: int) -> tuple[c_uint64, c_uint64]:
    handle, address = c_uint64(), c_uint64()
    driver.cuMemCreate(byref(handle), size, byref(AllocationProperties(1, 0, DEVICE)), 0)
    driver.cuMemAddressReserve(byref(address), size, 0, 0, 0)
    driver.cuMemMap(address, size, 0, handle, 0)
    driver.cuMemSetAccess(address, size, byref(AccessDescription(DEVICE, 3)), 1)
    return handle, address


def test_mapped_memory_lives_until_handle_and_mapping_are_gone(driver: Driver) -> None:
    before = driver.free_bytes()
    size = 64 * MIB
    handle, address = _map(driver, size)
    assert before - driver.free_bytes() == size
    driver.cuMemsetD8_v2(address, 7, 4096)
    driver.cuMemRelease(handle)
    assert before - driver.free_bytes() == size
    again = c_uint64()
    driver.cuMemRetainAllocationHandle(byref(again), address.value)
    driver.cuMemUnmap(address, size)
    assert before - driver.free_bytes() == size
    driver.cuMemRelease(again)
    assert driver.free_bytes() == before
    driver.cuMemAddressFree(address, size)


def test_physical_memory_comes_in_granules(driver: Driver) -> None:
    granule = c_size_t()
    properties = AllocationProperties(1, 0, DEVICE)
    driver.cuMemGetAllocationGranularity(byref(granule), byref(properties), 0)
    assert granule.value == GRANULE
    handle = c_uint64()
    assert driver.code("cuMemCreate", byref(handle), GRANULE + 512, byref(properties), 0) == INVALID_VALUE
    assert (
        driver.code("cuMemCreate", byref(handle), driver.total_bytes() * 2, byref(properties), 0)
        == OUT_OF_MEMORY
    )


def test_pool_keeps_what_it_took_until_trimmed(driver: Driver) -> None:
    pool, pointer, value = c_void_p(), c_uint64(), c_uint64(1 << 60)
    driver.cuMemPoolCreate(byref(pool), byref(PoolProperties(1, 0, DEVICE)))
    driver.cuMemPoolSetAttribute(pool, 4, byref(value))
    before = driver.free_bytes()
    stream = driver.stream()
    driver.cuMemAllocFromPoolAsync(byref(pointer), 100 * MIB, pool, stream)
    driver.cuStreamSynchronize(stream)
    taken = before - driver.free_bytes()
    assert taken >= 100 * MIB
    driver.cuMemPoolGetAttribute(pool, 5, byref(value))
    assert value.value == taken
    driver.cuMemFreeAsync(pointer, stream)
    driver.cuStreamSynchronize(stream)
    assert before - driver.free_bytes() == taken
    driver.cuMemPoolTrimTo(pool, 0)
    assert driver.free_bytes() == before
    driver.cuMemPoolDestroy(pool)


def test_pool_without_threshold_gives_back_when_the_stream_is_waited_for(driver: Driver) -> None:
    pool, pointer = c_void_p(), c_uint64()
    driver.cuMemPoolCreate(byref(pool), byref(PoolProperties(1, 0, DEVICE)))
    stream = driver.stream()
    before = driver.free_bytes()
    driver.cuMemAllocFromPoolAsync(byref(pointer), 64 * MIB, pool, stream)
    driver.cuMemFreeAsync(pointer, stream)
    driver.cuStreamSynchronize(stream)
    assert driver.free_bytes() == before
    driver.cuMemPoolDestroy(pool)


def test_graph_memory_is_taken_by_the_launch(driver: Driver) -> None:
    graph, node, end, exec_ = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    driver.cuGraphCreate(byref(graph), 0)
    wanted = AllocationNode(pool=PoolProperties(1, 0, DEVICE), bytes=48 * MIB)
    driver.cuGraphAddMemAllocNode(byref(node), graph, None, 0, byref(wanted))
    assert wanted.pointer
    driver.cuGraphAddMemFreeNode(byref(end), graph, byref(node), 1, wanted.pointer)
    driver.cuGraphInstantiateWithFlags(byref(exec_), graph, 0)
    driver.cuDeviceGraphMemTrim(0)
    before, reserved, stream = driver.free_bytes(), c_uint64(), driver.stream()
    driver.cuGraphLaunch(exec_, stream)
    driver.cuStreamSynchronize(stream)
    driver.cuDeviceGetGraphMemAttribute(0, 2, byref(reserved))
    assert reserved.value >= 48 * MIB
    driver.cuGraphExecDestroy(exec_)
    driver.cuGraphDestroy(graph)
    driver.cuDeviceGraphMemTrim(0)
    assert driver.free_bytes() >= before - 64 * MIB


def test_a_context_costs_memory_and_gives_it_back(driver: Driver) -> None:
    before = driver.free_bytes()
    context = c_void_p()
    driver.cuCtxCreate_v2(byref(context), 0, 0)
    assert driver.free_bytes() < before - MIB
    driver.allocate(32 * MIB)
    driver.cuCtxDestroy_v2(context)
    assert abs(driver.free_bytes() - before) <= 8 * MIB


CAPTURED: dict[str, Callable[[Driver], int]] = {
    "cuMemAlloc_v2": lambda d: d.code("cuMemAlloc_v2", byref(c_uint64()), MIB),
    "cuMemAllocManaged": lambda d: d.code("cuMemAllocManaged", byref(c_uint64()), MIB, 1),
    "cuCtxSynchronize": lambda d: d.code("cuCtxSynchronize"),
}


@pytest.mark.parametrize("name", sorted(CAPTURED))
def test_what_waits_spoils_a_capture(driver: Driver, name: str) -> None:
    stream, graph = driver.stream(), c_void_p()
    driver.cuStreamBeginCapture_v2(stream, 0)
    assert CAPTURED[name](driver) == 900
    assert driver.code("cuStreamEndCapture", stream, byref(graph)) == 901
    assert graph.value is None
