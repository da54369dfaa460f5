"""Capture and graphs: what becomes a node, what spoils a capture, what a launch does."""

import ctypes
import threading
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from contract.cuda.binding import (
    CAPTURE_IMPLICIT,
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    Driver,
)

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
MS = 1_000_000


def _end(driver: Driver, stream: int | None) -> tuple[int, int | None]:
    graph = c_void_p()
    return driver.code("cuStreamEndCapture", stream, byref(graph)), graph.value


def _node_count(driver: Driver, graph: int | None) -> int:
    count = c_size_t()
    driver.cuGraphGetNodes(graph, None, byref(count))
    return count.value


def _instantiate(driver: Driver, graph: int | None) -> int | None:
    executable = c_void_p()
    driver.cuGraphInstantiateWithFlags(byref(executable), graph, 0)
    return executable.value


def test_captured_work_runs_when_the_graph_is_launched(driver: Driver) -> None:
    add, stream, word = driver.kernel("egpu_add"), driver.stream(), driver.allocate(8)
    driver.cuMemsetD8_v2(word, 0, 8)
    driver.cuCtxSynchronize()
    driver.cuStreamBeginCapture_v2(stream, GLOBAL)
    for _ in range(3):
        driver.launch(add, stream, 1000, word, 2)
    code, graph = _end(driver, stream)
    assert code == 0
    assert _node_count(driver, graph) == 3
    assert driver.read_word(word) == 0
    executable = _instantiate(driver, graph)
    for _ in range(4):
        driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert driver.read_word(word) == 24
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)


def test_a_graph_takes_the_time_of_its_nodes(driver: Driver) -> None:
    spin, stream = driver.kernel("egpu_spin"), driver.stream()
    driver.cuStreamBeginCapture_v2(stream, GLOBAL)
    for _ in range(10):
        driver.launch(spin, stream, MS)
    _, graph = _end(driver, stream)
    executable, begin, end = _instantiate(driver, graph), driver.event(), driver.event()
    release = driver.hold(stream)
    driver.cuGraphLaunch(executable, stream)
    driver.cuEventRecord(begin, stream)
    driver.cuGraphLaunch(executable, stream)
    driver.cuEventRecord(end, stream)
    release()
    driver.cuEventSynchronize(end)
    assert 7.5 <= driver.elapsed_ms(begin, end) <= 15


def test_waiting_for_a_captured_stream_is_refused(driver: Driver) -> None:
    stream = driver.stream()
    for call in ("cuStreamSynchronize", "cuStreamQuery"):
        driver.cuStreamBeginCapture_v2(stream, RELAXED)
        assert driver.code(call, stream) == CAPTURE_UNSUPPORTED
        assert _end(driver, stream)[0] in (0, CAPTURE_INVALIDATED)


def test_the_default_stream_cannot_be_captured_nor_used_beside_a_blocking_one(driver: Driver) -> None:
    spin, stream = driver.kernel("egpu_spin"), driver.stream(0)
    assert driver.code("cuStreamBeginCapture_v2", None, GLOBAL) == CAPTURE_UNSUPPORTED
    driver.cuStreamBeginCapture_v2(stream, RELAXED)
    word = c_uint64(1000)
    pointers = (c_void_p * 1)(ctypes.addressof(word))
    code = driver.code("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, None, pointers, None)
    assert code == CAPTURE_IMPLICIT
    assert _end(driver, stream)[0] == CAPTURE_INVALIDATED


def test_a_second_stream_joins_by_events(driver: Driver) -> None:
    spin, first, second = driver.kernel("egpu_spin"), driver.stream(), driver.stream()
    fork, join = driver.event(2), driver.event(2)
    driver.cuStreamBeginCapture_v2(first, GLOBAL)
    driver.launch(spin, first, 1000)
    driver.cuEventRecord(fork, first)
    driver.cuStreamWaitEvent(second, fork, 0)
    driver.launch(spin, second, 1000)
    status = c_int()
    driver.cuStreamIsCapturing(second, byref(status))
    assert status.value == 1
    assert _end(driver, second)[0] == CAPTURE_UNMATCHED
    driver.cuEventRecord(join, second)
    driver.cuStreamWaitEvent(first, join, 0)
    assert driver.code("cuEventQuery", join) in (CAPTURED_EVENT, CAPTURE_UNSUPPORTED)
    code, graph = _end(driver, first)
    assert code in (0, CAPTURE_INVALIDATED)
    driver.cuStreamIsCapturing(second, byref(status))
    assert status.value == 0
    if graph:
        assert _node_count(driver, graph) == 2


def test_a_stream_that_does_not_come_back_fails_the_capture(driver: Driver) -> None:
    spin, first, second, fork = driver.kernel("egpu_spin"), driver.stream(), driver.stream(), driver.event(2)
    driver.cuStreamBeginCapture_v2(first, GLOBAL)
    driver.launch(spin, first, 1000)
    driver.cuEventRecord(fork, first)
    driver.cuStreamWaitEvent(second, fork, 0)
    driver.launch(spin, second, 1000)
    assert _end(driver, first) == (CAPTURE_UNJOINED, None)


def test_an_event_from_outside_isolates(driver: Driver) -> None:
    stream, other, event = driver.stream(), driver.stream(), driver.event(2)
    driver.cuEventRecord(event, other)
    driver.cuStreamBeginCapture_v2(stream, GLOBAL)
    assert driver.code("cuStreamWaitEvent", stream, event, 0) == CAPTURE_ISOLATION
    assert _end(driver, stream)[0] == CAPTURE_INVALIDATED


def test_ending_what_never_began(driver: Driver) -> None:
    assert _end(driver, driver.stream())[0] == ILLEGAL_STATE


def test_modes_of_the_thread(driver: Driver) -> None:
    stream, mode, pointer = driver.stream(), c_int(RELAXED), c_uint64()
    driver.cuStreamBeginCapture_v2(stream, GLOBAL)
    driver.cuThreadExchangeStreamCaptureMode(byref(mode))
    assert mode.value == GLOBAL
    driver.cuMemAlloc_v2(byref(pointer), 4096)  # allowed, since the thread says it knows what it does
    mode.value = GLOBAL
    driver.cuThreadExchangeStreamCaptureMode(byref(mode))
    assert mode.value == RELAXED
    assert _end(driver, stream)[0] == 0


def test_allocations_in_a_capture_become_nodes(driver: Driver) -> None:
    stream, pointer, kind = driver.stream(), c_uint64(), c_int()
    driver.cuStreamBeginCapture_v2(stream, GLOBAL)
    driver.cuMemAllocAsync(byref(pointer), 1 << 20, stream)
    driver.cuMemFreeAsync(pointer, stream)
    code, graph = _end(driver, stream)
    assert code == 0
    nodes, count = (c_void_p * 2)(), c_size_t(2)
    driver.cuGraphGetNodes(graph, nodes, byref(count))
    kinds = []
    for node in nodes:
        driver.cuGraphNodeGetType(node, byref(kind))
        kinds.append(kind.value)
    assert kinds == [10, 11]
    executable = _instantiate(driver, graph)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)


def test_a_graph_by_hand_knows_its_edges(driver: Driver) -> None:
    graph, first, second = c_void_p(), c_void_p(), c_void_p()
    driver.cuGraphCreate(byref(graph), 0)
    driver.cuGraphAddEmptyNode(byref(first), graph, None, 0)
    driver.cuGraphAddEmptyNode(byref(second), graph, byref(first), 1)
    source, target, count = c_void_p(), c_void_p(), c_size_t(1)
    driver.cuGraphGetEdges(graph, byref(source), byref(target), byref(count))
    assert (source.value, target.value, count.value) == (first.value, second.value, 1)
    driver.cuGraphNodeGetDependentNodes(first, byref(target), byref(count))
    assert (target.value, count.value) == (second.value, 1)
    driver.cuGraphDestroy(graph)


def test_an_object_lives_as_long_as_a_graph_refers_to_it(driver: Driver) -> None:
    ended = threading.Event()
    destroy = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: ended.set())
    thing, graph = c_void_p(), c_void_p()
    driver.cuUserObjectCreate(byref(thing), None, ctypes.cast(destroy, c_void_p), 1, 1)
    driver.cuGraphCreate(byref(graph), 0)
    driver.cuGraphRetainUserObject(graph, thing, 1, 1)
    executable = _instantiate(driver, graph.value)
    driver.cuGraphDestroy(graph)
    assert not ended.is_set()
    driver.cuGraphExecDestroy(executable)
    assert ended.wait(30)
