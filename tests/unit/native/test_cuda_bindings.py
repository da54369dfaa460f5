"""NVIDIA's own Python bindings from PyPI work on the fake driver."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .fake_worlds import NATIVE, Machine, built

PROGRAM = """
import ctypes, pathlib
from cuda.bindings import driver as cuda

def got(result):
    assert result[0] == cuda.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) == 2 else result[1:]

got(cuda.cuInit(0))
device = got(cuda.cuDeviceGet(0))
got(cuda.cuCtxSetCurrent(got(cuda.cuDevicePrimaryCtxRetain(device))))
free, total = got(cuda.cuMemGetInfo())
module = got(cuda.cuModuleLoadData(pathlib.Path({ptx!r}).read_bytes()))
add = got(cuda.cuModuleGetFunction(module, b"egpu_add"))
stream, word = got(cuda.cuStreamCreate(1)), got(cuda.cuMemAlloc(8))
got(cuda.cuMemsetD8(word, 0, 8))
arguments = ((1000, int(word), 7), (ctypes.c_uint64,) * 3)
begin, end = got(cuda.cuEventCreate(0)), got(cuda.cuEventCreate(0))
got(cuda.cuEventRecord(begin, stream))
for _ in range(10):
    got(cuda.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
got(cuda.cuEventRecord(end, stream))
got(cuda.cuStreamSynchronize(stream))
assert got(cuda.cuEventElapsedTime(begin, end)) > 0.007
got(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
got(cuda.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
graph = got(cuda.cuGraphInstantiate(got(cuda.cuStreamEndCapture(stream)), 0))
got(cuda.cuGraphLaunch(graph, stream))
got(cuda.cuStreamSynchronize(stream))
seen = ctypes.c_uint64()
got(cuda.cuMemcpyDtoH(ctypes.addressof(seen), word, 8))
print(seen.value, free < total)
"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built()
    folder = tmp_path_factory.mktemp("bindings")
    install = ["install", "-q", "--only-binary", ":all:", "--target", str(folder), "cuda-bindings"]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=250)
    return folder


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


@pytest.mark.parametrize("version", ["12080", "13000", "13030"])
def test_a_program_of_cuda_bindings(machine: Machine, bindings: Path, version: str) -> None:
    machine.state.write_text(machine.state.read_text().replace("cuda=13000", f"cuda={version}"))
    code = PROGRAM.format(ptx=str(NATIVE / "programs" / "kernels.ptx"))
    environment = machine.environment(PYTHONPATH=str(bindings))
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.strip() == "77 True", ran.stderr
