"""The fake driver under the sanitizers of the machine's compiler: threads, addresses, undefined behaviour."""

import subprocess
from pathlib import Path

import pytest

from .fake_worlds import NATIVE, Machine

pytestmark = pytest.mark.long


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_four_threads_use_the_driver_at_once(tmp_path: Path, sanitizer: str) -> None:
    machine, program = Machine(tmp_path), tmp_path / "threads"
    sources = [
        NATIVE / "tests" / "fake_threads.c",
        NATIVE / "programs" / "program.c",
        NATIVE / "fake" / "state.c",
    ]
    sources += sorted((NATIVE / "fake" / "cuda").glob("*.c"))
    flags = ["-g", "-O1", f"-fsanitize={sanitizer}", "-std=c17", "-DDIRECT", f"-I{NATIVE / 'include'}"]
    command = ["cc", *flags, "-o", str(program), *map(str, sources), "-lpthread", "-ldl", "-lm"]
    subprocess.run(command, check=True, timeout=120, cwd=NATIVE)
    environment = machine.environment(ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="halt_on_error=1")
    ran = subprocess.run(
        [str(program)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == "called 120\n"
