"""How drivers come into programs, and programs that are none of the library's business."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native.memory_worlds import BUILD, CAP, LIBRARY, NATIVE, OK, OUT_OF_MEMORY, World
from unit.native.time_building import compiler

ZIG = NATIVE / "build" / "zig" / "bin" / "python"
LONG = pytest.mark.skipif(os.environ.get("VC_EGPU_LONG") != "1", reason="fetches packages: make test-long")

PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int init(unsigned);
typedef int total(unsigned long *, int);
#ifdef LINKED
init cuInit;
total cuDeviceTotalMem_v2;
#endif
int main(int count, char **values)
{
    init *start = NULL;
    total *ask = NULL;
    unsigned long bytes = 0;
#ifdef LINKED
    start = cuInit;
    ask = cuDeviceTotalMem_v2;
#else
    void *driver = dlopen(values[2], RTLD_NOW | (strchr(values[1], 'g') ? RTLD_GLOBAL : 0));
    if (!driver) return puts(dlerror()), 1;
    const char *version = count > 3 ? values[3] : NULL;
    void *where = strchr(values[1], 'g') ? RTLD_DEFAULT : driver;
    const char *names[] = {"cuInit", "cuDeviceTotalMem_v2"};
    *(void **)&start = version ? dlvsym(where, names[0], version) : dlsym(where, names[0]);
    *(void **)&ask = version ? dlvsym(where, names[1], version) : dlsym(where, names[1]);
#endif
    (void)count, (void)values;
    int code = start ? start(0) : -1;
    int then = ask ? ask(&bytes, 0) : -1;
    printf("%d %d %lu\\n", code, then, bytes);
    return 0;
}
"""


def _built(
    folder: Path, source: str, *flags: str | Path, name: str = "program", cc: str | None = None
) -> Path:
    (folder / f"{name}.c").write_text(source)
    out = folder / name
    command = [*(cc or compiler()).split(), "-o", out, folder / f"{name}.c", *flags]
    subprocess.run(command, check=True, timeout=280)
    return out


def _said(world: World, *command: str | Path, **environment: str) -> list[int]:
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env=world.environment(**environment)
    )
    assert run.stderr == ""
    return [int(word) for word in run.stdout.split()]


def _driver(folder: Path) -> Path:
    """A copy of the driver in a folder that nobody looks into by himself."""
    folder.mkdir(parents=True)
    return Path(shutil.copy(BUILD / "libcuda.so.1", folder))


@pytest.mark.parametrize("tags", ["--disable-new-dtags", "--enable-new-dtags"])
def test_a_driver_found_by_the_programs_own_path_is_limited(world: World, tmp_path: Path, tags: str) -> None:
    """RPATH and RUNPATH."""
    driver = _driver(tmp_path / "own")
    path = f"-Wl,{tags},-rpath,{driver.parent}"
    program = _built(tmp_path, PROGRAM, "-DLINKED", driver, path, "-ldl")
    assert _said(world, program, LD_LIBRARY_PATH="") == [OK, OK, CAP]


def test_of_two_drivers_the_one_that_the_program_took_is_limited(world: World, tmp_path: Path) -> None:
    """Packages of CUDA bring a newer driver, which comes before the machine's own in the search path."""
    newer = _driver(tmp_path / "cuda" / "compat")
    newer.rename(newer.with_name("libcuda.so.575.57.08"))
    newer.symlink_to("libcuda.so.575.57.08")
    linked = _built(tmp_path, PROGRAM, "-DLINKED", newer, "-ldl", name="linked")
    opens = _built(tmp_path, PROGRAM, "-ldl", name="opens")
    path = f"{newer.parent}:{BUILD}"
    assert _said(world, linked, LD_LIBRARY_PATH=path) == [OK, OK, CAP]
    assert _said(world, opens, "l", "libcuda.so.1", LD_LIBRARY_PATH=path) == [OK, OK, CAP]
    assert _said(world, opens, "l", str(newer), LD_LIBRARY_PATH=path) == [OK, OK, CAP]
    assert _said(world, opens, "l", str(newer.resolve()), LD_LIBRARY_PATH="") == [OK, OK, CAP]


def test_both_of_two_drivers_in_one_program_are_limited(world: World, tmp_path: Path) -> None:
    """Linked against one and handed another by its full name: each answers with our functions."""
    other = _driver(tmp_path / "other")
    source = PROGRAM.replace("int main(", "init cuInit; int main(").replace(
        "start(0)", "cuInit(0) | start(0)"
    )
    program = _built(tmp_path, source, BUILD / "libcuda.so.1", "-ldl")
    assert _said(world, program, "l", str(other)) == [OK, OK, CAP]


def _versioned(folder: Path) -> Path:
    """The fake driver with a version on each of its names."""
    (folder / "versions").write_text("CUDA_12 { cu*; };\n")
    fake = NATIVE / "fake"
    flags = [
        "-shared",
        "-fPIC",
        "-std=c17",
        "-fvisibility=hidden",
        f"-I{NATIVE / 'include'}",
        "-Wl,-Bsymbolic",
    ]
    flags += ["-Wl,-soname,libcuda.so.1", f"-Wl,--version-script={folder / 'versions'}"]
    sources = [*sorted((fake / "cuda").glob("*.c")), fake / "state.c"]
    out = folder / "libcuda.so.1"
    subprocess.run([*compiler().split(), *flags, "-o", out, *sources, "-lpthread"], check=True, timeout=120)
    return out


def test_dlvsym_gives_our_functions_under_the_versions_that_the_driver_has(
    world: World, tmp_path: Path
) -> None:
    """NVIDIA's has none, and then there is nothing to be found by one."""
    opens = _built(tmp_path, PROGRAM, "-ldl", name="opens")
    versioned = _versioned(tmp_path)
    nothing = [-1, -1, 0]
    for where in ("l", "g"):
        assert _said(world, opens, where, str(versioned), LD_LIBRARY_PATH="") == [OK, OK, CAP]
        assert _said(world, opens, where, str(versioned), "CUDA_12", LD_LIBRARY_PATH="") == [OK, OK, CAP]
        assert _said(world, opens, where, str(versioned), "CUDA_13", LD_LIBRARY_PATH="") == nothing
        assert _said(world, opens, where, "libcuda.so.1") == [OK, OK, CAP]
        assert _said(world, opens, where, "libcuda.so.1", "CUDA_12") == nothing


# --- programs without anything of ours in them, under /etc/ld.so.preload ------------------------------

HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'
MAPS = (
    "#include <stdio.h>\n#include <string.h>\nint main(void) { char line[4096]; int found = 0;"
    'FILE *f = fopen("/proc/self/maps", "r"); while (fgets(line, sizeof line, f))'
    ' found |= strstr(line, "libvgpu-egpu") != 0; puts(found ? "there" : "not there"); return 0; }\n'
)


@pytest.fixture
def preloaded(tmp_path: Path) -> Iterator["Preloaded"]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("needs a mount namespace of its own, so root")
    yield Preloaded(tmp_path)


class Preloaded:
    """Programs that see an ``/etc/ld.so.preload`` as a container's: one line, for programs of every kind."""

    def __init__(self, root: Path) -> None:
        self.etc = root / "etc"
        self.folder = root / "egpu"
        shutil.copytree("/etc", self.etc, symlinks=True, ignore=shutil.ignore_patterns("ssl", "alternatives"))
        (self.etc / "ld.so.preload").write_text(f"{self.folder}/$LIB/libvgpu-egpu.so\n")
        for name in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
            self.give(name, Path(LIBRARY))

    def give(self, name: str, file: Path) -> None:
        """Puts it where the dynamic linker looks whose ``$LIB`` that is."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, self.folder / name / "libvgpu-egpu.so")

    def run(self, *command: str | Path) -> tuple[str, str]:
        """What it said, and what it said on stderr."""
        inside = ["sh", "-c", 'mount --bind "$0" /etc && exec "$@"', self.etc, *command]
        run = subprocess.run(["unshare", "-m", *inside], capture_output=True, text=True, check=True)
        return run.stdout.strip(), run.stderr


def test_a_dynamic_program_has_the_library_in_it_and_does_not_notice(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    assert preloaded.run(_built(tmp_path, MAPS)) == ("there", "")


def test_a_static_program_runs_as_ever(preloaded: Preloaded, tmp_path: Path) -> None:
    """It has no dynamic linker: the second wall's business, should it use a card."""
    if "ziglang" in compiler():
        pytest.skip("this compiler makes no static programs with glibc")
    assert preloaded.run(_built(tmp_path, MAPS, "-static")) == ("not there", "")


@pytest.fixture(scope="module")
def zig() -> str:
    """A C compiler for other machines and other C libraries, from PyPI."""
    subprocess.run(["make", "-s", "-C", NATIVE, "build/zig/.done"], check=True, timeout=280)
    return f"{ZIG} -m ziglang cc"


def _package(folder: Path, name: str) -> Path:
    """That Debian package, unpacked."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip("needs Debian's package tools")
    fetched = subprocess.run(
        ["apt-get", "download", name], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    if fetched.returncode:
        pytest.skip(f"cannot be fetched here: {name}: {fetched.stderr.strip()[-200:]}")
    subprocess.run(["dpkg", "-x", next(folder.glob(f"{name}_*.deb")), folder / name], check=True)
    return folder / name


needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="for x86-64")


@LONG
@pytest.mark.long
@needs_x86
@pytest.mark.parametrize("target", ["x86_64-linux-musl", "x86-linux-musl"])
def test_static_programs_of_other_c_libraries_run_as_ever(
    preloaded: Preloaded, tmp_path: Path, zig: str, target: str
) -> None:
    program = _built(tmp_path, HELLO, "-target", target, "-static", cc=zig)
    assert preloaded.run(program) == ("hello", "")


@LONG
@pytest.mark.long
@needs_x86
def test_a_musl_program_runs_as_ever(preloaded: Preloaded, tmp_path: Path, zig: str) -> None:
    linker = _package(tmp_path, "musl") / "lib" / "ld-musl-x86_64.so.1"
    program = _built(tmp_path, MAPS, "-target", "x86_64-linux-musl", "-dynamic", cc=zig)
    assert preloaded.run(linker, program) == ("not there", "")


@LONG
@pytest.mark.long
@needs_x86
def test_a_32_bit_program_gets_an_empty_file_of_its_own(
    preloaded: Preloaded, tmp_path: Path, zig: str
) -> None:
    libraries = _package(tmp_path, "libc6-i386") / "lib32"
    program = _built(tmp_path, MAPS, "-target", "x86-linux-gnu.2.17", cc=zig)
    command = (libraries / "ld-linux.so.2", "--library-path", libraries, program)
    _, complaint = preloaded.run(*command)
    assert "cannot be preloaded" in complaint  # what it is good for
    subprocess.run(["make", "-s", "-C", NATIVE, "native-release"], check=True, timeout=280)
    preloaded.give("lib32", NATIVE / "build" / "release" / "x86_64" / "libvgpu-egpu-32.so")
    assert preloaded.run(*command) == ("there", "")


@LONG
@pytest.mark.long
@needs_x86
@pytest.mark.parametrize("way", ["dlsym", "procaddress", "direct"])
def test_on_arm_a_program_is_limited_in_every_way(world: World, tmp_path: Path, zig: str, way: str) -> None:
    """The shipped kind of library, driver and program for arm64, in an emulator."""
    emulator = _package(tmp_path, "qemu-user-static") / "usr" / "bin" / "qemu-aarch64-static"
    system = _package(tmp_path, "libc6-arm64-cross") / "usr" / "aarch64-linux-gnu"
    out = tmp_path / "arm"
    target = f"{zig} -target aarch64-linux-gnu.2.36"
    names = ("libcuda.so.1", "libvgpu-egpu.so", "memory-actor", "memory-actor-direct")
    goals = [str(out / name) for name in names]
    subprocess.run(
        ["make", "-s", "-C", NATIVE, f"OUT={out}", f"CC={target}", *goals], check=True, timeout=280
    )
    inside = {"LD_PRELOAD": str(out / "libvgpu-egpu.so"), "LD_LIBRARY_PATH": f"{out}:/lib"}
    kept = world.environment(preload=None, LD_LIBRARY_PATH="")
    given = [word for name, value in inside.items() for word in ("-E", f"{name}={value}")]
    program = out / ("memory-actor-direct" if way == "direct" else "memory-actor")
    commands = ["init", "primary 0 0", "info", "total 0 0", f"alloc 0 {CAP}", "alloc 0 1000000", "info"]
    run = subprocess.run(
        [emulator, "-L", system, *given, program, way],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env=kept,
    )
    assert run.returncode == 0, run.stderr
    answers = [line.split() for line in run.stdout.splitlines()]
    assert [int(answer[0]) for answer in answers] == [OK, OK, OK, OK, OUT_OF_MEMORY, OK, OK]
    assert answers[2][2] == answers[3][1] == str(CAP)
    assert int(answers[6][1]) < int(answers[2][1])
