"""A program that works when it is told to, and idles otherwise: in the environment that its test gives it.

``start MIB``, ``work STEPS``, ``copy`` (to the card), ``alloc MIB``, ``free``: one command a line, and one
line of answer. The steps are counted in device memory, so the count tells whether that came back whole.
"""

import ctypes
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parents[3] / "device-plugin" / "native" / "programs"


class Told:
    """The program, as its test sees it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )

    def tell(self, *words: object) -> None:
        """A command, whose answer may be long in coming."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def hear(self) -> str:
        """Its next answer."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate(timeout=30)


def main() -> None:
    """The program itself."""
    sys.path.insert(0, str(PROGRAMS))
    train: Any = importlib.import_module("train")
    driver, say = train.Driver(), train.say
    training: Any = None
    kept: list[ctypes.c_uint64] = []
    for line in sys.stdin:
        word, *numbers = line.split()
        if training is None:
            training = train.Training(driver, 3, 100_000, int(numbers[0]))
            say("ready")
        elif word == "work":
            for _ in range(int(numbers[0])):
                training.step()
            say(f"counted {training.counted()}")
        elif word == "copy":
            driver("cuMemcpyHtoD_v2", kept[0], ctypes.byref(ctypes.c_uint64(7)), ctypes.c_size_t(8))
            say("copied")
        elif word == "alloc":
            kept.append(ctypes.c_uint64())
            driver("cuMemAlloc_v2", ctypes.byref(kept[-1]), ctypes.c_size_t(int(numbers[0]) << 20))
            say("allocated")
        elif word == "free":
            driver("cuMemFree_v2", kept.pop())
            say("freed")


if __name__ == "__main__":
    main()
