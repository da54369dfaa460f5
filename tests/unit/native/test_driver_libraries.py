"""A limited program before NVIDIA's own driver libraries: it gets the answers that it gets without the
library, and the library's functions where those limit.

Without a card that is as far as a real driver goes. ``VC_EGPU_DRIVER_LIBRARIES`` names folders that hold some
(contract/cuda/libraries.py); the fake one is always among them.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from contract.cuda.libraries import DRIVERS, name_of
from symbols.rows import LEFT_OUT, rows, wrapped

from .lookups import looked_up
from .memory_worlds import BUILD, LIBRARY, MIB, UUIDS, Share, World

CALLS: Final = """
import ctypes, json, os, signal, sys
driver, ready, answers = ctypes.CDLL(sys.argv[1]), os.pipe(), {}
if sys.argv[2] == "initialised":
    answers["cuInit"] = driver.cuInit(0)
for symbol, types in json.load(sys.stdin):
    function = getattr(driver, symbol, None)
    if not function:
        continue
    child = os.fork()
    if not child:
        signal.alarm(20)
        real = {"float": ctypes.c_float, "double": ctypes.c_double}
        code = function(*[real.get(kind, ctypes.c_uint64)(0) for kind in types])
        os.write(ready[1], b"%20d" % code)
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    answers[symbol] = f"signal {os.WTERMSIG(ended)}" if ended else int(os.read(ready[0], 20))
json.dump(answers, sys.stdout)
"""


@pytest.fixture(params=[None, *DRIVERS], ids=lambda path: name_of(path) if path else "fake")
def driver(request: pytest.FixtureRequest) -> Path:
    return request.param or BUILD / "libcuda.so.1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "root", [Share(UUIDS[0], 1000 * MIB)])
    yield world
    world.close()


def _environment(world: World, driver: Path, preload: str | None) -> dict[str, str]:
    return world.environment(preload=preload, LD_LIBRARY_PATH=str(driver.parent))


def _called(world: World, driver: Path, when: str, told: Any, *, preload: str | None) -> Any:
    run = subprocess.run(
        [sys.executable, "-c", CALLS, str(driver), when], input=json.dumps(told),
        env=_environment(world, driver, preload),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


def test_every_question_is_answered_as_without_the_library(driver: Path, world: World) -> None:
    names = sorted({row.base for row in rows().values()} | {"cuNothingOfTheKind", "cuMemAlloc_v2"})
    versions = sorted({row.since for row in rows().values()} | {-1, 1000, 6050, 99000})
    asked = [(name, version, flags) for name in names for version in versions for flags in (0, 1, 2, 3, 4)]
    without = looked_up(driver, asked, _environment(world, driver, None))
    limited = looked_up(driver, asked, _environment(world, driver, LIBRARY))
    wrong, ours = [], 0
    for question, plain, answer in zip(asked, without, limited, strict=True):
        code, _, symbol = plain
        ours += symbol in wrapped()
        if answer != ([code, LIBRARY, symbol] if symbol in wrapped() else plain):
            wrong.append((question, plain, answer))
    assert wrong == []
    assert ours > 10_000


@pytest.mark.parametrize("when", ["uninitialised", "initialised"])
def test_a_call_that_comes_too_early_is_answered_by_the_driver(driver: Path, world: World, when: str) -> None:
    """All arguments are zero. ``initialised``: cuInit was called; where there is no card it failed."""
    told = [(name, row.arguments) for name, row in sorted(rows().items()) if name not in LEFT_OUT]
    without = _called(world, driver, when, told, preload=None)
    limited = _called(world, driver, when, told, preload=LIBRARY)
    assert len(without) > 500
    assert limited == without
