"""What several files about a node begin with."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.node.built import ELF
from unit.node.suspend_stage import Stage
from unit.node.wall_stage import Wall
from vc_egpu_node.vendors.nvidia.preload import LIBRARY_NAME

NATIVE = Path(__file__).resolve().parents[3] / "device-plugin" / "native"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A built library."""
    (tmp_path / "built").mkdir()
    path = tmp_path / "built" / LIBRARY_NAME
    path.write_bytes(ELF + b"one")
    return path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A suspender that is turned by hand."""
    return Stage(tmp_path / "suspensions")


@pytest.fixture
def wall(tmp_path: Path) -> Wall:
    """A second wall that looks when it is told to."""
    return Wall(tmp_path)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Compiles a C program and gives its path; with the compiler that the native parts are built with."""
    folder = tmp_path_factory.mktemp("c")
    found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    zig = NATIVE / "build" / "zig" / "bin" / "python"
    compiler = [found] if found else [str(zig), "-m", "ziglang", "cc"]

    def build(text: str) -> str:
        source = folder / f"{abs(hash(text))}.c"
        source.write_text(text)
        target = source.with_suffix("")
        flags = ["-std=c17", "-O1", "-Wall", "-Werror", f"-I{NATIVE}"]
        subprocess.run([*compiler, *flags, "-o", target, source], check=True)
        return str(target)

    return build
