"""How the library comes into programs, and that it is not felt where it has nothing to do."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster import packages
from localcluster.errors import LocalClusterError
from symbols.rows import found_by_threads
from unit.native.memory_worlds import BUILD, CAP, LIBRARY, MIB, NATIVE, OK, World
from unit.native.time_building import compiler

LIB = NATIVE / "lib" / "base"


def _wraps(kind: str = r"EGPU_WRAP(?:_NVML)?") -> set[str]:
    rows = (LIB / "symbols_memory.def").read_text() + (LIB / "symbols_time.def").read_text()
    return set(re.findall(rf"^{kind}\((\w+)\)", rows, re.MULTILINE))


@pytest.fixture(scope="session")
def binutils() -> None:
    """Which a machine without a C compiler lacks."""
    try:
        packages.ensure(packages.READING_LIBRARIES, print)
    except LocalClusterError as error:
        pytest.skip(str(error))


def _names(library: Path | str, *flags: str) -> list[str]:
    done = subprocess.run(["nm", "-D", *flags, library], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("binutils")
def test_exports_are_exactly_what_is_wrapped() -> None:
    assert set(_names(LIBRARY, "--defined-only")) == _wraps() | {"dlsym", "dlvsym"}


@pytest.mark.usefixtures("binutils")
def test_needs_the_c_library_and_nothing_else() -> None:
    done = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True)
    assert set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)) == {"libc.so.6"}


@pytest.mark.parametrize("way", ["direct", "dlsym", "procaddress", "procaddress-stream"])
def test_each_wrapped_entry_point_is_found_by_every_way(world: World, way: str) -> None:
    found = set(world.actor(way).ask("wrapped"))
    expected = _wraps("EGPU_WRAP")
    if way == "procaddress":
        expected = {name for name in expected if not name.endswith(("_ptsz", "_ptds"))}
    if way == "procaddress-stream":  # a name that has a variant for streams of threads is that variant
        expected &= found_by_threads()
    assert found >= expected


def test_other_names_are_the_drivers_own(world: World) -> None:
    found = set(world.actor("dlsym").ask("wrapped"))
    assert not found - _wraps()


SILENT = "import os, ctypes; print(len(os.listdir('/proc/self/task')), os.path.exists(os.environ['USAGE']))"


def test_a_program_without_cuda_does_not_notice(world: World) -> None:
    world.control.write_bytes(b"nonsense")
    run = subprocess.run(
        [sys.executable, "-c", SILENT],
        capture_output=True,
        text=True,
        check=True,
        env=world.environment(USAGE=str(world.usage)),
    )
    assert (run.stdout, run.stderr) == ("1 False\n", "")


LOOKS = """
import ctypes, os
program = ctypes.CDLL(None)
print(*[hasattr(program, name) for name in ("cuInit", "nvmlInit_v2", "nvmlDeviceGetMemoryInfo")])
ctypes.CDLL("libcuda.so.1", mode=os.RTLD_GLOBAL | os.RTLD_NOW)
print(hasattr(ctypes.CDLL(None), "cuMemAlloc_v2"))
"""


def test_a_driver_that_is_not_there_is_not_found_either(world: World) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True, env=world.environment()
    )
    assert (run.stdout, run.stderr) == ("False False False\nTrue\n", "")


NEXT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int probe_here(void);
int probe_here(void) { return 1; }
void *next_open(void);
void *next_open(void) { return dlsym(RTLD_NEXT, "probe_here"); }
void *next_init(void);
void *next_init(void) { return dlsym(RTLD_NEXT, "cuInit"); }
void *default_local(void);
void *default_local(void) { return dlsym(RTLD_DEFAULT, "probe_here"); }
void *versioned(void);
void *versioned(void) { return dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); }
"""


def test_rtld_next_and_default_are_those_of_the_caller(world: World, tmp_path: Path) -> None:
    (tmp_path / "next.c").write_text(NEXT)
    shared = tmp_path / "next.so"
    subprocess.run([*compiler().split(), "-shared", "-fPIC", "-o", shared, tmp_path / "next.c"], check=True)
    program = (
        f"import ctypes, os; lib = ctypes.CDLL({str(shared)!r})\n"
        "for name in ('next_open', 'default_local', 'next_init', 'versioned'):\n"
        "    f = getattr(lib, name); f.restype = ctypes.c_void_p; print(bool(f()))\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=world.environment(preload=preload),
        ).stdout
        for preload in (LIBRARY, None)
    ]
    assert answers[0] == answers[1]  # a local library's own symbol is found by it, as without us


PRELOAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int cuInit(unsigned flags)
{
    int (*next)(unsigned) = dlsym(RTLD_NEXT, "cuInit");
    fprintf(stderr, "other preload\\n");
    return next ? next(flags) : -1;
}
"""


@pytest.mark.parametrize("first", [True, False])
def test_other_preloads_still_work(world: World, tmp_path: Path, *, first: bool) -> None:
    (tmp_path / "other.c").write_text(PRELOAD)
    other = tmp_path / "other.so"
    subprocess.run([*compiler().split(), "-shared", "-fPIC", "-o", other, tmp_path / "other.c"], check=True)
    order = f"{other}:{LIBRARY}" if first else f"{LIBRARY}:{other}"
    actor = world.actor("direct", LD_PRELOAD=order).start()
    assert actor.info()[1] == CAP
    assert actor.do("alloc", 0, 2 * CAP) != OK
    assert "other preload" in actor.close()


def test_a_driver_behind_an_absolute_path_is_wrapped(world: World, tmp_path: Path) -> None:
    hidden = tmp_path / "compat"
    hidden.mkdir()
    shutil.copy(BUILD / "libcuda.so.1", hidden / "libcuda.so.1")
    program = (
        "import ctypes\n"
        f"cuda = ctypes.CDLL({str(hidden / 'libcuda.so.1')!r})\n"
        "total = ctypes.c_size_t()\n"
        "print(cuda.cuInit(0), cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0), total.value)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=world.environment(LD_LIBRARY_PATH=""),
    )
    assert run.stdout.split() == ["0", "0", str(CAP)]


NVML = """
import ctypes, os, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
one = pynvml.nvmlDeviceGetMemoryInfo(device)
two = pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2)
print(one.total, one.free, one.used, two.total, two.free, two.used)
print(sorted((p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device)))
"""


def test_nvml_shows_the_containers_slice_and_processes(world: World) -> None:
    stranger = world.actor(preload=None).start()
    assert stranger.do("alloc", 0, 100 * MIB) == OK
    actor = world.actor().start()
    assert actor.do("alloc", 0, 64 * MIB) == OK
    context = world.shares[0].context_bytes
    run = subprocess.run(
        [sys.executable, "-c", NVML], capture_output=True, text=True, check=True, env=world.environment()
    )
    memory, processes = run.stdout.splitlines()
    left = CAP - 2 * context - 64 * MIB  # a program that reads this has its own context still before it
    assert list(map(int, memory.split())) == [CAP, left, CAP - left, CAP, left, context + 64 * MIB]
    assert processes == f"[({actor.process.pid}, {context + 64 * MIB})]"
    reader = world.actor().start()
    assert reader.do("alloc", 0, left) == OK


@pytest.mark.skipif(os.environ.get("VC_EGPU_LONG") != "1", reason="needs Zig: make test-long")
@pytest.mark.long
@pytest.mark.usefixtures("binutils")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_shipped_file_runs_on_glibc_2_17(machine: str) -> None:
    subprocess.run(["make", "-s", "-C", NATIVE, "native-release"], check=True, timeout=280)
    shipped = NATIVE / "build" / "release" / machine / "libvgpu-egpu.so"
    listing = subprocess.run(["objdump", "-T", shipped], capture_output=True, text=True, check=True).stdout
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", listing)}
    assert versions
    assert max(versions) <= (2, 17)
    assert "GLIBC_PRIVATE" not in listing
    assert set(_names(shipped, "--defined-only")) == _wraps() | {"dlsym", "dlvsym"}
    assert b"EGPU_TEST_ROOT" not in shipped.read_bytes()
    if machine == os.uname().machine:
        ctypes.CDLL(str(shipped))
    stub = subprocess.run(
        ["readelf", "-hd", shipped.with_name("libvgpu-egpu-32.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "ELF32" in stub
    assert "NEEDED" not in stub


HIDDEN = """
#include <string.h>
static int allocate(unsigned long long *to, unsigned long bytes) { *to = bytes; return 0; }
static int allocate_anew(unsigned how, unsigned long long *to) { *to = how; return 0; }
static int release(unsigned long long at) { return at != 0; }
int cuInit(unsigned flags) { return (int)flags; }
int cuMemAlloc_v2(unsigned long long *to, unsigned long bytes) { return allocate(to, bytes); }
int cuMemFree_v2(unsigned long long at) { return release(at); }
int cuGetProcAddress(const char *name, void **to, int version, unsigned long flags)
{
    (void)flags;
    *to = strcmp(name, "cuMemAlloc") == 0 ? version < 99000 ? (void *)allocate : (void *)allocate_anew
        : strcmp(name, "cuMemFree") == 0  ? (void *)release
                                          : (void *)cuInit;
    return 0;
}
"""

ASKS = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["DRIVER"])
class Where(ctypes.Structure):
    _fields_ = list(zip(("file", "base", "name", "at"), [ctypes.c_char_p, ctypes.c_void_p] * 2))
for name, version in ((b"cuMemAlloc", 12000), (b"cuOther", 12000), (b"cuInit", 12000), (b"cuMemFree", 99000),
                      (b"cuMemAlloc", -1), (b"cuMemAlloc", 99000)):
    found, where = ctypes.c_void_p(), Where()
    assert cuda.cuGetProcAddress(name, ctypes.byref(found), version, ctypes.c_uint64(0)) == 0
    ctypes.CDLL(None).dladdr(found, ctypes.byref(where))
    print(name.decode(), os.path.basename(where.file).decode(), (where.name or b"").decode())
"""


def test_an_answer_that_the_driver_does_not_export_is_known_by_its_name(world: World, tmp_path: Path) -> None:
    """Unless it is for programs of a later CUDA than the library knows, and another one than before: that may
    take other arguments."""
    (tmp_path / "hidden.c").write_text(HIDDEN)
    driver = tmp_path / "libcuda.so.1"
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    subprocess.run([*compiler().split(), *flags, "-o", driver, tmp_path / "hidden.c"], check=True)
    run = subprocess.run(
        [sys.executable, "-c", ASKS],
        capture_output=True,
        text=True,
        check=True,
        env=world.environment(DRIVER=str(driver)),
    )
    assert run.stdout.splitlines() == [
        "cuMemAlloc libvgpu-egpu.so cuMemAlloc_v2",
        "cuOther libcuda.so.1 cuInit",
        "cuInit libcuda.so.1 cuInit",
        "cuMemFree libvgpu-egpu.so cuMemFree_v2",
        "cuMemAlloc libvgpu-egpu.so cuMemAlloc_v2",
        "cuMemAlloc libcuda.so.1 ",
    ]
    assert "cuMemAlloc" in run.stderr
