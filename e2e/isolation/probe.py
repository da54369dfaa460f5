"""Runs inside test containers: a CUDA program of the driver API, in plain Python. Prints one JSON object.

``memory``: what it is told. ``fill MIB``, ``exact``: allocations. ``hold MIB``: keeps memory till it ends.
``pile MIB MIB ...``: so many blocks one after the other, what became of each, kept till it ends.
``nvml``: what NVML says of the granted card and its processes.
``train``: steps of one kernel, counted on standard output. ``serve``: requests of some kernels, each timed.
"""

import ctypes
import json
import os
import random
import sys
import time
from typing import Any

MIB = 1 << 20
PTX = (
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry egpu_spin(.param .u64 ns)\n{ ret; }\n\0"
)
_IS_MANAGED = 8
"""``CU_POINTER_ATTRIBUTE_IS_MANAGED``."""
Numbers = dict[str, Any]


class CudaError(RuntimeError):
    """A call failed."""


class Cuda:
    """One context on the first card."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        self.device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(self.device), 0)
        self.context = ctypes.c_void_p()
        self.check("cuCtxCreate_v2", ctypes.byref(self.context), 0, self.device)

    def call(self, name: str, *arguments: Any) -> int:
        """The result code."""
        return int(getattr(self.driver, name)(*arguments))

    def check(self, name: str, *arguments: Any) -> None:
        """Raises :class:`CudaError` unless the call succeeds."""
        code = self.call(name, *arguments)
        if code:
            raise CudaError(f"{name}: {code}")

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size_bytes: int) -> int:
        """The result code."""
        return self.block(size_bytes)["code"]

    def block(self, size_bytes: int) -> dict[str, int]:
        """The result code of an allocation, and whether the driver says that it is managed memory."""
        at, managed = ctypes.c_uint64(), ctypes.c_uint()
        code = self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size_bytes))
        if code == 0:
            self.check("cuPointerGetAttribute", ctypes.byref(managed), _IS_MANAGED, at)
        return {"code": code, "managed": managed.value}

    def spinner(self) -> "Spinner":
        """A kernel that runs for as long as it is told."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), PTX)
        self.check("cuModuleGetFunction", ctypes.byref(function), module, b"egpu_spin")
        return Spinner(self, function)


class Spinner:
    """Launches of ``egpu_spin`` on the default stream."""

    def __init__(self, cuda: Cuda, function: ctypes.c_void_p) -> None:
        self._cuda = cuda
        self._function = function

    def launch(self, length_ns: int) -> None:
        """Queue one kernel."""
        length = ctypes.c_uint64(length_ns)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
        self._cuda.check("cuLaunchKernel", self._function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None)

    def wait(self) -> None:
        """Until all of them have run."""
        self._cuda.check("cuCtxSynchronize")


def memory() -> Numbers:
    """What the driver says about memory, cards and this process's environment."""
    cuda = Cuda()
    free, total = cuda.memory()
    device_total, count = ctypes.c_size_t(), ctypes.c_int()
    cuda.check("cuDeviceTotalMem_v2", ctypes.byref(device_total), cuda.device)
    cuda.check("cuDeviceGetCount", ctypes.byref(count))
    return {
        "free": free, "total": total, "device_total": device_total.value, "cards": count.value,
        "uid": os.getuid(), "environment": dict(os.environ),
    }  # fmt: skip


def fill(size_mib: int) -> Numbers:
    """The code of one allocation."""
    return {"code": Cuda().allocate(size_mib * MIB)}


def exact() -> Numbers:
    """All that is free, then one granule more."""
    cuda = Cuda()
    free, _ = cuda.memory()
    codes = [cuda.allocate(free), cuda.allocate(2 * MIB)]
    return {"free": free, "codes": codes, "left": cuda.memory()[0]}


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_uint64),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def nvml() -> Numbers:
    """What nvidia-smi would show."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    uuid = json.loads(os.environ["EGPU_CARDS"])[0]["uuid"].encode()
    card, found, count = ctypes.c_void_p(), _Memory(), ctypes.c_uint(16)
    processes = (_Process * 16)()
    codes = [
        library.nvmlInit_v2(),
        library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(card)),
        library.nvmlDeviceGetMemoryInfo(card, ctypes.byref(found)),
        library.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), processes),
    ]
    used = [one.used for one in processes[: count.value]]
    return {"codes": codes, "total": found.total, "free": found.free, "used": found.used, "processes": used}


def say(**numbers: Any) -> None:
    """One line, at once."""
    print(json.dumps(numbers), flush=True)


def hold(size_mib: int) -> None:
    """Keep so much memory, or with 0 all that is free; says the code first."""
    cuda = Cuda()
    say(code=cuda.allocate(size_mib * MIB if size_mib else cuda.memory()[0]))
    while True:
        time.sleep(60)


def pile(sizes_mib: list[int]) -> None:
    """Keep blocks of these sizes; says first what became of each."""
    cuda = Cuda()
    say(blocks=[cuda.block(size_mib * MIB) for size_mib in sizes_mib])
    while True:
        time.sleep(60)


def train(kernel_us: int) -> None:
    """Steps without end; says how many every fifth of a second."""
    spinner = Cuda().spinner()
    steps, due = 0, 0.0
    while True:
        spinner.launch(kernel_us * 1000)
        spinner.wait()
        steps += 1
        now = time.monotonic()
        if now >= due:
            due = now + 0.2
            say(steps=steps, at=round(now, 4))


def serve(requests: int, kernels: int, kernel_us: int, per_s: float) -> None:
    """Requests at random times; says their latencies at the end."""
    spinner = Cuda().spinner()
    rng = random.Random(7)
    latencies_ms, due, began = [], time.monotonic(), time.monotonic()
    for _ in range(requests):
        due += rng.expovariate(per_s)
        time.sleep(max(0.0, due - time.monotonic()))
        for _ in range(kernels):
            spinner.launch(kernel_us * 1000)
        spinner.wait()
        latencies_ms.append(round((time.monotonic() - due) * 1000, 3))
    say(began=round(began, 4), ended=round(time.monotonic(), 4), latencies_ms=sorted(latencies_ms))


def main(arguments: list[str]) -> int:
    """0, or 1 with the error as JSON."""
    command, numbers = arguments[0], [float(text) for text in arguments[1:]]
    try:
        match command:
            case "memory":
                say(**memory())
            case "nvml":
                say(**nvml())
            case "exact":
                say(**exact())
            case "fill":
                say(**fill(int(numbers[0])))
            case "pile":
                pile([int(number) for number in numbers])
            case "hold":
                hold(int(numbers[0]))
            case "train":
                train(int(numbers[0]))
            case "serve":
                serve(int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3])
    except CudaError as error:
        say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
