"""NVIDIA's own Python bindings from PyPI work on the fake driver."""

import subprocess
import sys
from pathlib import Path

import pytest
from unit.native.fake_worlds import NATIVE, Machine, built

from .memory_worlds import CONTEXT_MIB, MIB, UUIDS, Share, World

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

CORE = """
import pathlib
from cuda.bindings import driver as cuda
from cuda.core import Device, DeviceMemoryResource, LaunchConfig, ObjectCode, VirtualMemoryResource, launch

def free_mib():
    return cuda.cuMemGetInfo()[1] >> 20

def refused(memory, mib, **where):
    try:
        memory.allocate(mib << 20, **where)
    except Exception as error:
        return "OUT_OF_MEMORY" in str(error)
    return False

device = Device(0)
device.set_current()
stream, said = device.create_stream(), [free_mib()]
pool, virtual = DeviceMemoryResource(device), VirtualMemoryResource(device)
kernel = ObjectCode.from_ptx(pathlib.Path({ptx!r}).read_bytes()).get_kernel("egpu_add")
word = pool.allocate(8, stream=stream)
first = pool.allocate(200 << 20, stream=stream)
said += [refused(pool, 2000, stream=stream), refused(virtual, 2000)]
second = virtual.allocate(300 << 20)
stream.sync()
said += [free_mib() <= said[0] - 500, refused(virtual, 600), refused(pool, 600, stream=stream)]
graph = device.create_graph_builder()
graph.begin_building()
launch(graph, LaunchConfig(grid=1, block=1), kernel, 1000, word.handle, 7)
ready = graph.end_building().complete()
for _ in range(11):
    ready.launch(stream)
first.close(stream)
stream.sync()
# The pool keeps what was freed until somebody needs it.
print(*said, not refused(virtual, 600))
"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built()
    folder = tmp_path_factory.mktemp("bindings")
    install = [
        "install",
        "-q",
        "--only-binary",
        ":all:",
        "--target",
        str(folder),
        "cuda-bindings",
        "cuda-core",
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=250)
    return folder


@pytest.mark.parametrize("version", ["12080", "13000", "13030"])
def test_a_program_of_cuda_bindings(fake: Machine, bindings: Path, version: str) -> None:
    fake.state.write_text(fake.state.read_text().replace("cuda=13000", f"cuda={version}"))
    code = PROGRAM.format(ptx=str(NATIVE / "programs" / "kernels.ptx"))
    environment = fake.environment(PYTHONPATH=str(bindings))
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.strip() == "77 True", ran.stderr


def test_a_program_of_cuda_core_in_its_share(tmp_path: Path, bindings: Path) -> None:
    """Pools, virtual memory and graphs, as NVIDIA's Python uses them; all of it counts against the cap."""
    world = World(tmp_path / "root", [Share(UUIDS[0], 1000 * MIB)])
    code = CORE.format(ptx=str(NATIVE / "programs" / "kernels.ptx"))
    ran = world.python(code, PYTHONPATH=str(bindings), FAKE_CUDA_VISIBLE="0")
    world.close()
    assert ran.stdout.split() == [str(1000 - CONTEXT_MIB), *["True"] * 6], (ran.stdout, ran.stderr)
