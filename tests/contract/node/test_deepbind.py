"""Libraries that a program loads with ``RTLD_DEEPBIND``: what they link to goes before what is preloaded.

Programs that load so are limited in what they look up themselves. A library that is loaded so and calls the
driver goes round ours: the agent sees it, says so, and what it takes counts against the grant.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.node.test_library import Container, Node
from unit.native.memory_worlds import BUILD, MIB, OK, OUT_OF_MEMORY
from unit.native.time_building import NATIVE, compiler
from vc_egpu_node.wall.offences import Offence

PROGRAM = """
import ctypes, sys
path, mode, function = sys.argv[1], int(sys.argv[2]), sys.argv[3]
take = getattr(ctypes.CDLL(path, mode=mode), function)
for line in sys.stdin:
    print(take(ctypes.c_size_t(int(line))), flush=True)
"""
LOOK_UP = """
import ctypes, os, sys
cu = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert not cu.cuInit(0)
assert not cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cu.cuCtxSetCurrent(context)
for line in sys.stdin:
    print(cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(line))), flush=True)
"""
DEEP = os.RTLD_NOW | os.RTLD_DEEPBIND


@pytest.fixture
def node(fake_nvml: None, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from tests/deep.c, linked to the fake driver."""
    path = tmp_path_factory.mktemp("deep") / "libdeep.so"
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-o", str(path), str(NATIVE / "tests" / "deep.c")]
    subprocess.run([*compiler().split(), *flags, str(BUILD / "libcuda.so.1"), "-ldl"], check=True)
    return path


class Program:
    """Takes as much as it is told."""

    def __init__(self, container: Container, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env=container.environment(),
        )  # fmt: skip
        container.node.training.append(self.process)
        container.own(self.process.pid)

    def take(self, mib: int) -> int:
        """The code of one allocation."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{mib * MIB}\n")
        return int(self.process.stdout.readline())


@pytest.mark.parametrize("function", ["take_linked", "take_asked"])
def test_a_library_that_is_loaded_plainly_is_limited(node: Node, library: Path, function: str) -> None:
    program = Program(node.container(), PROGRAM, str(library), str(os.RTLD_NOW), function)
    assert [program.take(700), program.take(700)] == [OK, OUT_OF_MEMORY]
    assert [node.look() for _ in range(3)] == [[], [], []]


def test_a_driver_that_is_loaded_so_is_limited(node: Node) -> None:
    program = Program(node.container(), LOOK_UP)
    assert [program.take(700), program.take(700)] == [OK, OUT_OF_MEMORY]
    assert [node.look() for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("function", ["take_linked", "take_asked"])
def test_a_library_that_goes_round_ours_is_seen_and_counts(node: Node, library: Path, function: str) -> None:
    container = node.container()
    good = container.program()
    assert good.do("alloc", 1, 100 * MIB) == OK
    for _ in range(3):
        assert node.look() == []
    free = good.info()[0]
    program = Program(container, PROGRAM, str(library), str(DEEP), function)
    assert program.take(500) == OK
    node.look()
    assert node.look() == [Offence.UNREGISTERED]
    assert free - good.info()[0] >= 500 * MIB
    assert good.do("alloc", 2, 500 * MIB) == OUT_OF_MEMORY
    assert program.take(600) == OK
    node.look()
    assert node.look() == [Offence.OVER_GRANT, Offence.UNREGISTERED]
