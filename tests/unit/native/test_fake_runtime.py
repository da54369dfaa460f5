"""The CUDA runtime that stands under PyTorch on the fake driver, called as a program calls NVIDIA's."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .memory_worlds import BUILD, CONTEXT_MIB, MIB, NATIVE, UUIDS, Share, World

CAP_MIB: Final = 512
RUNTIME: Final = BUILD / "runtime" / "libcudart.so.13"

PROGRAM: Final = f"""
import ctypes, json, os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
rt = ctypes.CDLL("libcudart.so.13")
said, free, total = {{}}, c_size_t(), c_size_t()

def free_mib():
    assert rt.cudaMemGetInfo(byref(free), byref(total)) == 0
    return free.value >> 20

class Dim(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]

count, one, two, more = c_int(), c_void_p(), c_void_p(), c_void_p()
said["count"] = [rt.cudaGetDeviceCount(byref(count)), count.value]
said["free"] = [free_mib(), total.value >> 20]
said["exact"] = rt.cudaMalloc(byref(one), c_size_t(free_mib() << 20))
said["past"] = [rt.cudaMalloc(byref(two), c_size_t(2 << 20)), rt.cudaGetLastError(), rt.cudaGetLastError()]
said["freed"] = [rt.cudaFree(one), free_mib()]
stream, event, graph, ready = c_void_p(), c_void_p(), c_void_p(), c_void_p()
assert rt.cudaStreamCreateWithFlags(byref(stream), 1) == 0
said["async"] = [rt.cudaMallocAsync(byref(one), c_size_t(100 << 20), stream),
                 rt.cudaMallocAsync(byref(more), c_size_t({CAP_MIB} << 20), stream),
                 rt.cudaFreeAsync(one, stream)]
said["managed"] = [rt.cudaMallocManaged(byref(one), c_size_t(100 << 20), 1), rt.cudaFree(one)]

# A kernel as compilers register it: a wrapper around an image, an address of the host, a name.
text = open({str(NATIVE / "programs" / "kernels.ptx")!r}, "rb").read() + b"\\0"
host = ctypes.create_string_buffer(1)
register = getattr(rt, "__cudaRegisterFatBinary")
register.restype = c_void_p
image = c_void_p(register(text))
getattr(rt, "__cudaRegisterFunction")(image, host, None, b"egpu_add", -1, None, None, None, None, None)
assert rt.cudaMalloc(byref(one), c_size_t(8)) == 0 and rt.cudaMemset(one, 0, c_size_t(8)) == 0
values = [c_uint64(1000), c_uint64(one.value), c_uint64(7)]
arguments = (c_void_p * 3)(*[ctypes.addressof(value) for value in values])
launch = lambda: rt.cudaLaunchKernel(host, Dim(1, 1, 1), Dim(1, 1, 1), arguments, c_size_t(0), stream)
assert launch() == 0
assert rt.cudaStreamBeginCapture(stream, 0) == 0 and launch() == 0
assert rt.cudaStreamEndCapture(stream, byref(graph)) == 0
assert rt.cudaGraphInstantiate(byref(ready), graph, c_uint64(0)) == 0
assert rt.cudaGraphLaunch(ready, stream) == 0 and rt.cudaGraphLaunch(ready, stream) == 0
assert rt.cudaEventCreateWithFlags(byref(event), 2) == 0 and rt.cudaEventRecord(event, stream) == 0
assert rt.cudaEventSynchronize(event) == 0
seen = c_uint64()
assert rt.cudaMemcpy(byref(seen), one, c_size_t(8), 2) == 0
said["sum"] = seen.value

reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, str(rt.cudaMalloc(byref(two), c_size_t(8))).encode())
    os._exit(0)
os.wait()
said["forked"] = int(os.read(reader, 16))
print(json.dumps(said))
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, [Share(UUIDS[0], CAP_MIB * MIB)])
    yield world
    world.close()


def test_a_program_of_the_runtime_in_its_share(world: World) -> None:
    paths = os.pathsep.join((str(RUNTIME.parent), str(BUILD)))
    ran = world.python(PROGRAM, LD_LIBRARY_PATH=paths, FAKE_CUDA_VISIBLE="0")
    assert ran.returncode == 0, ran.stderr
    room = CAP_MIB - CONTEXT_MIB
    assert json.loads(ran.stdout) == {
        "count": [0, 1],
        "free": [room, CAP_MIB],
        "exact": 0,
        "past": [2, 2, 0],
        "freed": [0, room],
        "async": [0, 2, 0],
        "managed": [0, 0],
        "sum": 21,
        "forked": 3,
    }
