"""The fake CUDA driver: time on its cards, what death frees, who sees whom."""

import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from fakes.cuda_log import GPU_TIME, KERNEL, CudaLog, Stretch, busy_ns
from unit.native.fake_worlds import NATIVE, Machine, built

MS = 1_000_000
CONTEXT_MIB = 416 + 16


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    built()


def _by_label(log: CudaLog) -> list[list[Stretch]]:
    found: dict[str, list[Stretch]] = {}
    for one in log.stretches():
        found.setdefault(one.label, []).append(one)
    return list(found.values())


def _lines_until(process: subprocess.Popen[str], wanted: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().startswith(wanted):
            return line
    raise AssertionError(f"ended without {wanted!r}")


def test_lengths_are_off_by_a_noise_that_programs_cannot_know(fake: Machine) -> None:
    fake.start("a", "train", "--steps", "5", "--kernels", "40", "--ns", "100000").wait(60)
    lengths = [unit.ran_ns for unit in fake.log().units() if unit.kind == KERNEL]
    assert len(lengths) == 200
    assert all(80_000 <= length <= 120_000 for length in lengths)
    assert len(set(lengths)) > 100
    assert 95_000 < sum(lengths) / len(lengths) < 105_000


def test_in_fifo_mode_units_run_whole_and_in_the_order_of_arrival(fake: Machine) -> None:
    programs = [
        fake.start(name, "train", "--steps", "3", "--kernels", "10", "--ns", "1000000", FAKE_CUDA_MODE="fifo")
        for name in "ab"
    ]
    assert [program.wait(60) for program in programs] == [0, 0]
    units = [unit for unit in fake.log().units() if unit.kind in GPU_TIME]
    assert {unit.label for unit in units} == {"a", "b"}
    for before, after in pairwise(units):
        assert before.seq < after.seq
        assert before.end_ns <= after.start_ns
        assert before.ran_ns == before.end_ns - before.start_ns


def test_two_contexts_take_turns_of_two_milliseconds(fake: Machine) -> None:
    programs = [fake.start(name, "train", "--kernels", "400", "--ns", "20000000") for name in "ab"]
    log, begin, last, deadline = fake.log(), 0, 0, time.monotonic() + 60
    while not begin or last < begin + 900 * MS:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        seen = _by_label(log)
        if len(seen) == 2 and min(map(len, seen)) > 100:  # by then all their kernels wait in line
            begin = begin or max(rows[100].start_ns for rows in seen)
            last = max(rows[-1].end_ns for rows in seen)
    end = begin + 900 * MS
    for program in programs:
        program.kill()
    stretches = list(fake.log().stretches(since_ns=begin))
    longest = max(s.end_ns - s.start_ns for s in stretches if begin <= s.start_ns and s.end_ns <= end)
    assert longest <= 2 * MS
    for name in "ab":
        share = busy_ns([s for s in stretches if s.label == name], begin, end) / (end - begin)
        assert 0.48 < share < 0.52


def test_streams_overlap_where_the_mode_says_so(fake: Machine) -> None:
    code = """
context()
spin = driver.kernel("egpu_spin")
streams = [driver.stream() for _ in range(3)]
release = driver.hold(*streams)
for stream in streams: driver.launch(spin, stream, 20_000_000)
release()
driver.cuCtxSynchronize()
"""
    for mode, least, most in (("slices", 48, 75), ("overlap", 16, 25)):
        (fake.folder / "nvml.state.cuda").unlink(missing_ok=True)
        fake.python(code, FAKE_CUDA_MODE=mode)
        units = [unit for unit in fake.log().units() if unit.kind == KERNEL]
        took = max(u.end_ns for u in units) - min(u.start_ns for u in units)
        assert least * MS <= took <= most * MS, mode


def test_rendezvous_of_two_processes(fake: Machine) -> None:
    sides = [fake.start(name, "meet", "--rounds", "40", "--key", "7") for name in "ab"]
    assert [side.wait(30) for side in sides] == [0, 0]


def test_death_frees_memory_and_card(fake: Machine) -> None:
    doomed = fake.start("doomed", "train", "--ns", "5000000", "--memory-mib", "2000")
    other = fake.start("other", "train", "--ns", "1000000", "--memory-mib", "1000", "--every", "1")
    used, percent, processes = fake.nvml()
    assert processes == {doomed.pid: 2002 + CONTEXT_MIB, other.pid: 1002 + CONTEXT_MIB}
    assert used == 3004 + 2 * CONTEXT_MIB
    doomed.send_signal(signal.SIGKILL)
    doomed.wait(30)
    _lines_until(other, "step")
    used, percent, processes = fake.nvml()
    assert processes == {other.pid: 1002 + CONTEXT_MIB}
    log = fake.log()
    begin, ran = log.now_ns(), set[str]()
    while not ran:
        _lines_until(other, "step")
        ran = {s.label for s in log.stretches(since_ns=begin) if s.start_ns >= begin}
    assert ran == {"other"}
    other.kill()
    other.wait(30)
    assert fake.nvml()[0] == 0
    assert percent > 0


def test_a_forked_child_has_no_driver_and_takes_nothing_with_it(fake: Machine) -> None:
    out = fake.python("""
context()
block = driver.allocate(64 << 20)
before = driver.free_bytes()
child = os.fork()
if child == 0:
    os._exit(driver.code("cuMemFree_v2", block))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), driver.free_bytes() == before)
""")
    assert out == "3 True"


def test_memory_of_a_program_that_ends_well_is_there_again_at_once(fake: Machine) -> None:
    ended = fake.start("a", "allocate", "--style", "vllm")
    assert ended.wait(60) == 0
    assert fake.nvml()[0] == 0


@pytest.mark.parametrize("style", ["pytorch", "vllm", "jax"])
def test_allocators_get_what_the_driver_says_is_free(fake: Machine, style: str) -> None:
    program = fake.start("a", "allocate", "--style", style)
    assert '"code": 0' in fake.said[program.pid]


@pytest.mark.parametrize("how", ["dlsym", "proc", "direct"])
def test_programs_find_the_driver_in_every_way(fake: Machine, how: str) -> None:
    name = "train-direct" if how == "direct" else "train"
    program = fake.start("a", name, "--steps", "3", "--ns", "10000", "--graph", EGPU_LOOKUP=how)
    assert program.communicate(timeout=30)[0].split()[-1] == "3"


def test_exported_memory_outlives_its_process(fake: Machine) -> None:
    exporter = fake.start_python(
        "exporter",
        """
context()
handle = Handle64()
driver.cuIpcGetMemHandle(byref(handle), driver.allocate(256 << 20))
print(bytes(handle).hex(), flush=True)
sys.stdin.read()
""",
    )
    importer = fake.start_python(
        "importer",
        """
context()
handle = Handle64.from_buffer_copy(bytes.fromhex(os.environ["HANDLE"]))
pointer = c_uint64()
driver.cuIpcOpenMemHandle_v2(byref(pointer), handle, 1)
print("open", flush=True)
sys.stdin.readline()
driver.cuIpcCloseMemHandle(pointer)
print("closed", flush=True)
sys.stdin.read()
""",
        HANDLE=fake.said[exporter.pid],
    )
    both = fake.nvml()[0]
    exporter.kill()
    exporter.wait(30)
    assert both - fake.nvml()[0] == 416
    assert importer.stdin is not None
    importer.stdin.write("\n")
    importer.stdin.flush()
    _lines_until(importer, "closed")
    assert fake.nvml()[0] == 416


def test_handles_of_physical_memory_go_from_process_to_process(fake: Machine) -> None:
    out = fake.python("""
import socket, subprocess
if len(sys.argv) < 2:
    mine, theirs = socket.socketpair()
    context()
    before, handle, fd = driver.free_bytes(), c_uint64(), c_int()
    driver.cuMemCreate(byref(handle), 64 << 20, byref(AllocationProperties(1, 1, Location(1, 0))), 0)
    driver.cuMemExportToShareableHandle(byref(fd), handle, 1, 0)
    child = subprocess.Popen([sys.executable, "-c", sys.orig_argv[2], str(theirs.fileno())],
                             pass_fds=[theirs.fileno()], stdin=subprocess.PIPE)
    socket.send_fds(mine, [b"x"], [fd.value])
    assert mine.recv(1) == b"y"
    driver.cuMemRelease(handle)
    held = before - driver.free_bytes()
    child.communicate()
    print(held >> 20, (before - driver.free_bytes()) >> 20)
else:
    theirs = socket.socket(fileno=int(sys.argv[1]))
    fds = socket.recv_fds(theirs, 1, 1)[1]
    handle, address = c_uint64(), c_uint64()
    context()
    driver.cuMemImportFromShareableHandle(byref(handle), fds[0], 1)
    driver.cuMemAddressReserve(byref(address), 64 << 20, 0, 0, 0)
    driver.cuMemMap(address, 64 << 20, 0, handle, 0)
    theirs.send(b"y")
    sys.stdin.read()
""")
    assert out == f"{64 + 416} 0"


def test_events_are_shared_between_processes(fake: Machine) -> None:
    recorder = fake.start_python(
        "recorder",
        """
context()
event, handle, stream = driver.event(2 | 4), Handle64(), driver.stream()
driver.cuIpcGetEventHandle(byref(handle), event)
release = driver.hold(stream)
driver.launch(driver.kernel("egpu_spin"), stream, 1_000_000)
driver.cuEventRecord(event, stream)
print(bytes(handle).hex(), flush=True)
sys.stdin.readline()
release()
driver.cuCtxSynchronize()
sys.stdin.read()
""",
    )
    waiter = fake.start_python(
        "waiter",
        """
context()
handle, event = Handle64.from_buffer_copy(bytes.fromhex(os.environ["HANDLE"])), c_void_p()
driver.cuIpcOpenEventHandle(byref(event), handle)
print(driver.code("cuEventQuery", event), flush=True)
driver.cuEventSynchronize(event)
print("then", driver.code("cuEventQuery", event), flush=True)
sys.stdin.read()
""",
        HANDLE=fake.said[recorder.pid],
    )
    assert fake.said[waiter.pid] == "600"
    assert recorder.stdin is not None
    recorder.stdin.write("\n")
    recorder.stdin.flush()
    assert _lines_until(waiter, "then").split() == ["then", "0"]


def test_faults_come_when_they_are_asked_for(fake: Machine) -> None:
    out = fake.python(
        """
context()
print([driver.code("cuMemAlloc_v2", byref(c_uint64()), 4096) for _ in range(4)])
""",
        FAKE_CUDA_FAULTS="cuMemAlloc_v2:2:2:2,cuCtxCreate_v2:1:1:999",
    )
    assert out == "[0, 2, 2, 0]"


def test_visible_cards(tmp_path: Path) -> None:
    fake = Machine(tmp_path, cards=3)
    code = """
count, name = c_int(), (ctypes.c_char * 64)()
driver.cuDeviceGetCount(byref(count))
uuids = []
for device in range(count.value):
    uuid = (ctypes.c_ubyte * 16)()
    driver.cuDeviceGetUuid_v2(uuid, device)
    uuids.append(uuid[15])
print(uuids)
"""
    assert fake.python(code) == "[1, 2, 3]"
    assert fake.python(code, CUDA_VISIBLE_DEVICES="2,0") == "[3, 1]"
    assert fake.python(code, CUDA_VISIBLE_DEVICES=f"{Machine.uuid(2)}") == "[2]"
    assert fake.python(code, FAKE_CUDA_VISIBLE=f"{Machine.uuid(3)},{Machine.uuid(1)}") == "[3, 1]"
    assert fake.python(code, FAKE_CUDA_VISIBLE=Machine.uuid(3), CUDA_VISIBLE_DEVICES="0") == "[3]"


def test_managed_memory_is_not_the_cards_until_it_is_touched(fake: Machine) -> None:
    out = fake.python("""
context()
driver.allocate(4096)
before, managed = driver.free_bytes(), c_uint64()
driver.cuMemAllocManaged(byref(managed), 32 << 30, 1)   # twice the card
untouched = before - driver.free_bytes()
driver.cuMemsetD8_v2(managed, 0, 8 << 30)
touched = before - driver.free_bytes()
driver.allocate(10 << 30)                               # it makes room
driver.cuMemFree_v2(managed)
print(untouched >> 20, touched >> 20, (before - driver.free_bytes()) >> 20)
""")
    assert out == "0 8192 10240"


def test_the_state_survives_processes_killed_at_any_moment(fake: Machine) -> None:
    survivor = fake.start("survivor", "train", "--ns", "20000", "--every", "1")
    moments = random.Random(7)
    for _ in range(25):
        doomed = fake.start("doomed", "train", "--ns", "3000", "--kernels", "50")
        time.sleep(moments.random() * 0.02)  # at some moment of its work
        os.kill(doomed.pid, signal.SIGKILL)
        doomed.wait(30)
        _lines_until(survivor, "step")
    last = fake.start("last", "train", "--ns", "20000", "--steps", "2")
    assert last.wait(30) == 0
    survivor.kill()
    survivor.wait(30)
    assert fake.nvml()[0] == 0


@pytest.mark.long  # between two looks of the test the lock may be thought of as left behind only after 2 s
def test_who_only_looks_keeps_the_lock_though_it_stands_still(fake: Machine) -> None:
    survivor = fake.start("survivor", "train", "--ns", "20000", "--every", "1")
    _lines_until(survivor, "step")
    looker, waited_for, lock_at = 257, 1 << 31, 72  # of struct fc_shared
    path = fake.folder / "nvml.state.cuda"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as head:

        def word() -> int:
            return int(struct.unpack_from("<I", head, lock_at)[0])

        while word():
            pass
        struct.pack_into("<I", head, lock_at, looker)
        until_s = time.monotonic() + 0.3
        while time.monotonic() < until_s:
            assert word() & ~waited_for == looker, "nobody takes the lock from one that lives"
        struct.pack_into("<I", head, lock_at, 0)
    _lines_until(survivor, "step")
    survivor.kill()
    survivor.wait(30)


def test_the_training_loop_in_python(fake: Machine) -> None:
    command = [
        sys.executable,
        str(NATIVE / "programs" / "train.py"),
        "--steps",
        "3",
        "--ns",
        "20000",
        "--every",
        "1",
    ]
    ran = subprocess.run(
        command, env=fake.environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert ran.stdout.split("\n")[:-1] == ["ready", "step 1", "step 2", "step 3", "done 3"]


def test_a_state_file_of_another_build_is_left_alone(fake: Machine) -> None:
    foreign = fake.folder / "nvml.state.cuda"
    foreign.write_bytes(b"something else")
    program = fake.start("a", "train", "--steps", "1")
    assert fake.said[program.pid] == "error 304 from cu->cuInit(0)"
    assert foreign.read_bytes() == b"something else"
