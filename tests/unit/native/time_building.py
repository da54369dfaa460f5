"""Builds the C programs of the compute side's tests with the machine's compiler."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[3] / "device-plugin" / "native"
STRICT = ("-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1")


def compiler() -> str:
    """The machine's C compiler, or the one that the Makefile gets where there is none."""
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found:
        return found
    ours = NATIVE / "build" / "zig" / "bin" / "python"
    assert ours.exists(), "no C compiler: run `make native` first, which gets one"
    return f"{ours} -m ziglang cc"


@functools.cache
def compiled(name: str, *sources: str, sanitize: str = "") -> Path:
    """The program built from ``sources`` (under ``native/``) with these sanitizers, once per session."""
    folder = Path(tempfile.mkdtemp(prefix="egpu-native-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    out = folder / name
    flags = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"] if sanitize else []
    command = [*compiler().split(), *STRICT, *flags, "-o", str(out), *(str(NATIVE / one) for one in sources)]
    subprocess.run(command, check=True)
    return out
