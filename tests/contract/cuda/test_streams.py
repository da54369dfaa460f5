"""Streams, events, launches: order, times, and who waits for whom."""

import ctypes
import time
from ctypes import CFUNCTYPE, byref, c_uint, c_uint64, c_void_p

import pytest
from contract.cuda.binding import (
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    CudaError,
    Driver,
    LaunchConfiguration,
)

MS = 1_000_000
NOISE = 0.25  # a kernel's length is what it was asked for, give or take


def test_a_launch_returns_before_its_kernel_ends(driver: Driver) -> None:
    spin, stream = driver.kernel("egpu_spin"), driver.stream()
    driver.launch(spin, stream, 1000)
    driver.cuStreamSynchronize(stream)
    release = driver.hold(stream)
    driver.launch(spin, stream, 50 * MS)
    assert driver.code("cuStreamQuery", stream) == NOT_READY
    begin = time.monotonic()
    release()
    driver.cuStreamSynchronize(stream)
    took = time.monotonic() - begin
    assert driver.code("cuStreamQuery", stream) == 0
    assert took >= 0.050 * (1 - NOISE)


def test_events_measure_the_time_between_them(driver: Driver) -> None:
    spin, stream = driver.kernel("egpu_spin"), driver.stream()
    driver.launch(spin, stream, 1000)
    begin, end = driver.event(), driver.event()
    release = driver.hold(stream)
    driver.cuEventRecord(begin, stream)
    for _ in range(10):
        driver.launch(spin, stream, 2 * MS)
    driver.cuEventRecord(end, stream)
    assert driver.code("cuEventQuery", end) == NOT_READY
    release()
    driver.cuEventSynchronize(end)
    assert 20 * (1 - NOISE) <= driver.elapsed_ms(begin, end) <= 20 * (1 + NOISE) + 5


def test_events_without_times_and_records(driver: Driver) -> None:
    stream, plain, bare = driver.stream(), driver.event(), driver.event(2)
    assert driver.code("cuEventQuery", plain) == 0  # never recorded: nothing to wait for
    with pytest.raises(CudaError) as error:
        driver.elapsed_ms(plain, plain)
    assert error.value.code == INVALID_HANDLE
    driver.cuEventRecord(bare, stream)
    driver.cuEventRecord(plain, stream)
    driver.cuEventSynchronize(plain)
    with pytest.raises(CudaError) as error:
        driver.elapsed_ms(bare, plain)
    assert error.value.code == INVALID_HANDLE


def test_an_event_belongs_to_its_context(driver: Driver) -> None:
    event, other = driver.event(), c_void_p()
    driver.cuCtxCreate_v2(byref(other), 0, 0)
    foreign = driver.stream()
    assert driver.code("cuEventRecord", event, foreign) == INVALID_HANDLE
    driver.cuCtxDestroy_v2(other)


def test_a_stream_waits_for_the_event_of_another(driver: Driver) -> None:
    spin, add = driver.kernel("egpu_spin"), driver.kernel("egpu_add")
    first, second, event = driver.stream(), driver.stream(), driver.event(2)
    word = driver.allocate(8)
    driver.cuMemsetD8_v2(word, 0, 8)
    driver.cuCtxSynchronize()
    release = driver.hold(first)
    driver.launch(spin, first, MS)
    driver.cuEventRecord(event, first)
    driver.cuStreamWaitEvent(second, event, 0)
    driver.launch(add, second, 1000, word, 5)
    assert driver.code("cuStreamQuery", second) == NOT_READY
    release()
    driver.cuStreamSynchronize(second)
    assert driver.code("cuEventQuery", event) == 0
    assert driver.read_word(word) == 5


def test_the_default_stream_waits_for_blocking_streams_only(driver: Driver) -> None:
    spin = driver.kernel("egpu_spin")
    blocking, free = driver.stream(0), driver.stream(1)
    driver.launch(spin, blocking, 1000)
    driver.cuCtxSynchronize()
    driver.launch(spin, free, 60 * MS)
    driver.launch(spin, None, 1000)
    driver.launch(spin, blocking, 20 * MS)
    driver.launch(spin, None, 1000)
    end = driver.event(2)
    driver.cuEventRecord(end, None)
    driver.cuEventSynchronize(end)
    assert driver.code("cuStreamQuery", blocking) == 0
    driver.cuCtxSynchronize()
    assert driver.code("cuStreamQuery", free) == 0


@pytest.mark.parametrize(
    "symbol",
    ["cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"],
)
def test_every_launch_runs_its_kernel(driver: Driver, symbol: str) -> None:
    add, word = driver.kernel("egpu_add"), driver.allocate(8)
    driver.cuMemsetD8_v2(word, 0, 8)
    driver.cuCtxSynchronize()
    for stream in (driver.stream(), None):
        driver.launch(add, stream, 1000, word, 3, symbol=symbol)
        driver.cuCtxSynchronize()
    assert driver.read_word(word) == 6


@pytest.mark.parametrize("symbol", ["cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"])
def test_a_launch_by_configuration(driver: Driver, symbol: str) -> None:
    add, word = driver.kernel("egpu_add"), driver.allocate(8)
    driver.cuMemsetD8_v2(word, 0, 8)
    driver.cuCtxSynchronize()
    words = [c_uint64(value) for value in (1000, word, 4)]
    pointers = (c_void_p * 3)(*[ctypes.addressof(w) for w in words])
    how = LaunchConfiguration(grid=(1, 1, 1), block=(1, 1, 1), stream=driver.stream())
    getattr(driver, symbol)(byref(how), add, pointers, None)
    driver.cuCtxSynchronize()
    assert driver.read_word(word) == 4


def test_arguments_as_one_buffer(driver: Driver) -> None:
    add, word, stream = driver.kernel("egpu_add"), driver.allocate(8), driver.stream()
    driver.cuMemsetD8_v2(word, 0, 8)
    driver.cuCtxSynchronize()
    buffer, size = (c_uint64 * 3)(1000, word, 9), c_uint64(24)
    extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    driver.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, None, extra)
    driver.cuStreamSynchronize(stream)
    assert driver.read_word(word) == 9


def test_bad_launches_are_refused(driver: Driver) -> None:
    spin, stream = driver.kernel("egpu_spin"), driver.stream()
    word = c_uint64(1000)
    pointers = (c_void_p * 1)(ctypes.addressof(word))
    assert driver.code("cuLaunchKernel", spin, 0, 1, 1, 1, 1, 1, 0, stream, pointers, None) == INVALID_VALUE
    assert (
        driver.code("cuLaunchKernel", spin, 1, 1, 1, 2048, 1, 1, 0, stream, pointers, None) == INVALID_VALUE
    )


def test_kernels_of_two_streams_can_wait_for_each_other(driver: Driver) -> None:
    meet, left, right = driver.kernel("egpu_meet"), driver.stream(), driver.stream()
    words = driver.allocate(4 * 64)
    driver.cuMemsetD8_v2(words, 0, 4 * 64)
    driver.cuCtxSynchronize()
    for i in range(64):
        driver.launch(meet, left, 5000, words + 4 * i, 2)
        driver.launch(meet, right, 5000, words + 4 * i, 2)
    driver.cuCtxSynchronize()


def test_host_functions_run_in_turn(driver: Driver) -> None:
    spin, stream, seen = driver.kernel("egpu_spin"), driver.stream(), list[int]()

    note = CFUNCTYPE(None, c_void_p)(seen.append)
    release = driver.hold(stream)
    driver.launch(spin, stream, MS)
    for i in range(1, 4):
        driver.cuLaunchHostFunc(stream, ctypes.cast(note, c_void_p), i)
    assert seen == []
    release()
    driver.cuStreamSynchronize(stream)
    assert seen == [1, 2, 3]


def test_a_stream_waits_for_a_value(driver: Driver) -> None:
    spin, waiter, writer, word = (
        driver.kernel("egpu_spin"),
        driver.stream(),
        driver.stream(),
        driver.allocate(8),
    )
    driver.cuMemsetD8_v2(word, 0, 8)
    driver.cuCtxSynchronize()
    driver.cuStreamWaitValue32_v2(waiter, word, 3, 0)
    driver.launch(spin, waiter, 1000)
    assert driver.code("cuStreamQuery", waiter) == NOT_READY
    driver.cuStreamWriteValue32_v2(writer, word, 3, 0)
    driver.cuStreamSynchronize(waiter)


def test_streams_have_priorities_flags_and_identities(driver: Driver) -> None:
    low, high, value, number = c_void_p(), c_void_p(), ctypes.c_int(), c_uint64()
    driver.cuStreamCreateWithPriority(byref(low), 1, 0)
    driver.cuStreamCreateWithPriority(byref(high), 1, -100)
    driver.cuStreamGetPriority(high, byref(value))
    assert value.value < 0
    flags = c_uint()
    driver.cuStreamGetFlags(low, byref(flags))
    assert flags.value == 1
    ids = set()
    for stream in (low, high):
        driver.cuStreamGetId(stream, byref(number))
        ids.add(number.value)
    assert len(ids) == 2
    driver.cuStreamDestroy_v2(low)
    driver.cuStreamDestroy_v2(high)
