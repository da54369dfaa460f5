"""NVIDIA's own CUDA runtime in a limited container: which entry points it asks for, and what it gets.

It does not work on the fake driver: once it has asked for everything it makes sure of NVIDIA's own driver.
"""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from symbols.rows import meant, wrapped

from .lookups import looked_up
from .memory_worlds import BUILD, LIBRARY, MIB, UUIDS, Share, World

WHEELS: Final = {"12": "nvidia-cuda-runtime-cu12", "13": "nvidia-cuda-runtime"}
SYMBOL_NOT_FOUND: Final = 500
UNPUBLISHED: Final = frozenset({"cuSubgridCreate", "cuSubgridWorkerGridCreate", "cuSubgridWorksetCreate"})
"""Asked for by runtimes of 13.3 and later, and named by no header: what they do is not known."""

STARTS: Final = """
import ctypes, sys
count = ctypes.c_int()
print(ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(count)))
"""

pytestmark = pytest.mark.long


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of the runtime, and how the driver answered."""

    name: str
    version: int
    flags: int
    found: bool
    by: str
    """The object that asked the driver."""

    @property
    def symbol(self) -> str:
        """What the name means for that version; empty: nothing that headers tell of."""
        return meant(self.name, self.version, per_thread=self.flags == 2)


@pytest.fixture(scope="module", params=sorted(WHEELS))
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    ask = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder), WHEELS[request.param]]
    subprocess.run([sys.executable, "-m", "pip", *ask], check=True, timeout=280)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder)
    return next(folder.rglob("libcudart.so.*"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "root", [Share(UUIDS[0], 1000 * MIB)])
    yield world
    world.close()


@pytest.fixture
def asked(runtime: Path, world: World) -> list[Asked]:
    log = world.root / "asked"
    run = subprocess.run(
        [sys.executable, "-c", STARTS, str(runtime)], env=world.environment(FAKE_CUDA_ASKED=str(log)),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert int(run.stdout) == SYMBOL_NOT_FOUND
    lines = [line.split(" ", 4) for line in log.read_text().splitlines()]
    found = [
        Asked(name, int(version), int(flags), code == "0", by) for name, version, flags, code, by in lines
    ]
    return [one for one in found if one.name != "-"]


def test_the_driver_hears_of_the_library_alone(asked: list[Asked]) -> None:
    assert len(asked) > 400
    assert {Path(one.by).name for one in asked} == {Path(LIBRARY).name}


def test_all_that_it_asks_for_is_known(asked: list[Asked]) -> None:
    assert {one.name for one in asked if not one.symbol} <= UNPUBLISHED
    assert {one.name for one in asked if not one.found} <= UNPUBLISHED


def test_what_is_limited_is_the_librarys_and_the_rest_the_drivers(asked: list[Asked], world: World) -> None:
    questions = [(one.name, one.version, one.flags) for one in asked if one.found]
    answers = looked_up(BUILD / "libcuda.so.1", questions, world.environment())
    limited = 0
    for one, (_, file, symbol) in zip((one for one in asked if one.found), answers, strict=True):
        ours = one.symbol in wrapped()
        assert (file == LIBRARY) == ours, one
        assert not ours or symbol == one.symbol, one
        limited += ours
    assert limited > 100
