"""Cards, contexts and look-up."""

import ctypes
from ctypes import byref, c_char, c_int, c_uint, c_uint64, c_void_p

import pytest
from contract.cuda.binding import (
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    Driver,
    signatures,
)


def test_a_card_is_found_again_by_its_bus_id(driver: Driver) -> None:
    count, device, found = c_int(), c_int(), c_int()
    driver.cuDeviceGetCount(byref(count))
    assert count.value >= 1
    text = (c_char * 64)()
    for ordinal in range(count.value):
        driver.cuDeviceGet(byref(device), ordinal)
        driver.cuDeviceGetPCIBusId(text, 64, device)
        driver.cuDeviceGetByPCIBusId(byref(found), text)
        assert found.value == device.value
    assert driver.code("cuDeviceGet", byref(device), count.value) == 101
    assert driver.code("cuDeviceGet", byref(device), -1) == 101


def test_names_uuids_and_attributes(driver: Driver) -> None:
    name, uuid, value = (c_char * 128)(), (ctypes.c_ubyte * 16)(), c_int()
    driver.cuDeviceGetName(name, 128, 0)
    assert name.value
    driver.cuDeviceGetUuid_v2(uuid, 0)
    assert any(uuid)
    for attribute, least in ((16, 1), (75, 3), (10, 32), (83, 0), (102, 0), (115, 0)):
        driver.cuDeviceGetAttribute(byref(value), attribute, 0)
        assert value.value >= least


def test_what_is_free_is_at_most_the_total(driver: Driver) -> None:
    total = c_uint64()
    driver.cuDeviceTotalMem_v2(byref(total), 0)
    assert 0 < driver.free_bytes() < total.value
    assert driver.total_bytes() == total.value


def test_the_primary_context_lives_while_it_is_retained(driver: Driver) -> None:
    flags, active = c_uint(), c_int()
    driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active))
    assert active.value == 1
    assert driver.primary() == driver.primary()
    for _ in range(3):
        driver.cuDevicePrimaryCtxRelease_v2(0)
    driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active))
    assert active.value == 0
    assert driver.code("cuDevicePrimaryCtxRelease_v2", 0) == INVALID_CONTEXT


def test_contexts_are_a_stack(driver: Driver) -> None:
    primary, mine, popped, now = driver.primary(), c_void_p(), c_void_p(), c_void_p()
    driver.cuCtxCreate_v2(byref(mine), 0, 0)
    driver.cuCtxGetCurrent(byref(now))
    assert now.value == mine.value
    driver.cuCtxPopCurrent_v2(byref(popped))
    assert popped.value == mine.value
    driver.cuCtxGetCurrent(byref(now))
    assert now.value == primary
    driver.cuCtxPushCurrent_v2(mine)
    driver.cuCtxDestroy_v2(mine)
    driver.cuCtxGetCurrent(byref(now))
    assert now.value == primary


def test_without_a_context_nothing_is_allocated(driver: Driver) -> None:
    pointer = c_uint64()
    driver.cuCtxSetCurrent(None)
    assert driver.code("cuMemAlloc_v2", byref(pointer), 4096) == INVALID_CONTEXT


def test_a_destroyed_context_is_said_to_be(driver: Driver) -> None:
    context, flags = c_void_p(), c_uint()
    driver.cuCtxCreate_v2(byref(context), 0, 0)
    driver.cuCtxPushCurrent_v2(context)
    driver.cuCtxDestroy_v2(context)
    assert driver.code("cuCtxGetFlags", byref(flags)) in (CONTEXT_IS_DESTROYED, INVALID_CONTEXT)


# --- look-up ---------------------------------------------------------------------------------------
def _find(driver: Driver, name: str, version: int, flags: int = 0) -> tuple[int | None, int]:
    pointer, status = c_void_p(), c_int(-1)
    driver.cuGetProcAddress_v2(name.encode(), byref(pointer), version, flags, byref(status))
    return pointer.value, status.value


def _address(driver: Driver, symbol: str) -> int | None:
    return ctypes.cast(getattr(driver.library, symbol), c_void_p).value


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuLaunchKernel", 12000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 12000, 1, "cuLaunchKernel"),
        ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"),
        ("cuStreamBeginCapture", 12000, 0, "cuStreamBeginCapture_v2"),
        ("cuMemGetInfo", 12000, 2, "cuMemGetInfo_v2"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
        ("cuDevicePrimaryCtxRelease", 12000, 0, "cuDevicePrimaryCtxRelease_v2"),
    ],
)
def test_look_up_gives_the_entry_point_of_the_version(
    driver: Driver, name: str, version: int, flags: int, symbol: str
) -> None:
    assert _find(driver, name, version, flags) == (_address(driver, symbol), 0)


def test_look_up_of_what_is_not_there(driver: Driver) -> None:
    assert _find(driver, "cuNothingOfTheKind", 12000) == (None, 1)
    assert _find(driver, "cuMemAllocAsync", 11010) == (None, 2)


def test_every_entry_point_is_exported(driver: Driver) -> None:
    version = c_int()
    driver.cuDriverGetVersion(byref(version))
    missing = [
        symbol
        for symbol, (since, _) in signatures().items()
        if since <= version.value and not hasattr(driver.library, symbol)
    ]
    assert missing == []
