"""The training loop of train.c in Python, with nothing but the standard library, for small images.

    python train.py --steps 0 --kernels 20 --ns 1000000 --memory-mib 0 --every 100

Prints "ready", "step N" every so many steps, "done N" at the end. Exit status 3: out of memory.
"""

import argparse
import ctypes
import sys
from ctypes import byref, c_size_t, c_ubyte, c_uint64, c_void_p
from pathlib import Path

OUT_OF_MEMORY = 2


class Driver:
    """The calls that the loop needs; one that fails ends the program."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            say(f"error {code} from {name}")
            sys.exit(3 if code == OUT_OF_MEMORY else 1)


def say(line: str) -> None:
    """A line that readers get at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Training:
    """A stream of steps, each `kernels` launches long; the counter lies in device memory."""

    def __init__(self, driver: Driver, kernels: int, length_ns: int, memory_mib: int) -> None:
        self._driver, self._kernels = driver, kernels
        context, module = c_void_p(), c_void_p()
        driver("cuInit", 0)
        driver("cuDevicePrimaryCtxRetain", byref(context), 0)
        driver("cuCtxSetCurrent", context)
        image = Path(__file__).with_name("kernels.ptx").read_bytes() + b"\0"
        driver("cuModuleLoadData", byref(module), image)
        self._spin, self._add, self._stream = c_void_p(), c_void_p(), c_void_p()
        driver("cuModuleGetFunction", byref(self._spin), module, b"egpu_spin")
        driver("cuModuleGetFunction", byref(self._add), module, b"egpu_add")
        driver("cuStreamCreate", byref(self._stream), 1)
        self._counter, weights = c_uint64(), c_uint64()
        driver("cuMemAlloc_v2", byref(self._counter), c_size_t(8))
        driver("cuMemsetD8_v2", self._counter, c_ubyte(0), c_size_t(8))
        if memory_mib:
            driver("cuMemAlloc_v2", byref(weights), c_size_t(memory_mib << 20))
        self._words = [c_uint64(length_ns), self._counter, c_uint64(1)]
        self._arguments = (c_void_p * 3)(*[ctypes.addressof(word) for word in self._words])

    def step(self) -> None:
        """Launches and waits."""
        for number in range(self._kernels):
            kernel = self._add if number == self._kernels - 1 else self._spin
            shape = (1, 1, 1, 1, 1, 1, 0)
            self._driver("cuLaunchKernel", kernel, *shape, self._stream, self._arguments, None)
        self._driver("cuStreamSynchronize", self._stream)

    def counted(self) -> int:
        """What the card says how many steps were made."""
        word = c_uint64()
        self._driver("cuMemcpyDtoH_v2", byref(word), self._counter, c_size_t(8))
        return word.value


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("steps", 0),
        ("kernels", 20),
        ("ns", 1_000_000),
        ("memory-mib", 0),
        ("every", 100),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    training = Training(Driver(), asked.kernels, asked.ns, asked.memory_mib)
    say("ready")
    made = 0
    while not asked.steps or made < asked.steps:
        training.step()
        made += 1
        if made % asked.every == 0:
            say(f"step {training.counted()}")
    say(f"done {training.counted()}")


if __name__ == "__main__":
    main()
