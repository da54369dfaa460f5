"""Two that build into one folder, as test processes side by side do where a source has changed."""

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[3] / "device-plugin" / "native"
TARGET = "libnvidia-ml.so.1"
COMPILER = """#!/bin/sh
# Says when it begins and when it ends, and lasts until it may end.
echo begin >> {folder}/said
read word < {folder}/may-end
while [ "$1" != -o ]; do shift; done
echo built > "$2"
echo end >> {folder}/said
"""


class Builders:
    """``make`` with a compiler that lasts as long as the test wants, for one folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "build"
        self.said = folder / "said"
        self.said.touch()
        os.mkfifo(folder / "may-end")
        compiler = folder / "cc"
        compiler.write_text(COMPILER.format(folder=folder))
        compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
        self.running: list[subprocess.Popen[str]] = []

    def start(self) -> "subprocess.Popen[str]":
        # A test run by `make` inherits what that make has to say to those below it.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        command = ["make", "-s", "-C", str(NATIVE), f"OUT={self.out}", f"CC={self.folder}/cc"]
        process = subprocess.Popen(
            [*command, str(self.out / TARGET)],
            text=True, stderr=subprocess.PIPE, start_new_session=True, env=environment,
        )  # fmt: skip
        self.running.append(process)
        return process

    def words(self) -> list[str]:
        return self.said.read_text().split()

    def waiting(self) -> bool:
        """Whether somebody waits for a lock on a file of the results' folder."""
        ours = {str(path.stat().st_ino) for path in self.out.glob(".*")}
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any(words[1] == "->" and words[6].rpartition(":")[2] in ours for words in lines)

    def until(self, *, begun: int, or_waiting: bool = False) -> None:
        deadline = time.monotonic() + 60
        while self.words().count("begin") < begun and not (or_waiting and self.waiting()):
            assert time.monotonic() < deadline, f"said so far: {self.words()}"
            assert any(process.poll() is None for process in self.running), "all have ended"
            time.sleep(0.01)

    def let_one_end(self) -> None:
        (self.folder / "may-end").write_text("now\n")

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.communicate()


@pytest.fixture
def builders(tmp_path: Path) -> Iterator[Builders]:
    made = Builders(tmp_path)
    yield made
    made.close()


def test_the_second_waits_for_the_first_and_finds_it_done(builders: Builders) -> None:
    """They would write into one file, and what the first moves into place could be half of the second's."""
    first = builders.start()
    builders.until(begun=1)
    second = builders.start()
    builders.until(begun=2, or_waiting=True)
    assert builders.words() == ["begin"], "two compilers at one file"
    builders.let_one_end()
    assert (first.wait(60), second.wait(60)) == (0, 0)
    assert builders.words() == ["begin", "end"]
    assert (builders.out / TARGET).read_text() == "built\n"


def test_the_lock_falls_with_its_holder(builders: Builders) -> None:
    """Also where a test run is killed amid its build: nobody removes a file by hand."""
    first = builders.start()
    builders.until(begun=1)
    os.killpg(first.pid, 9)
    first.wait(60)
    second = builders.start()
    builders.until(begun=2)
    builders.let_one_end()
    assert second.wait(60) == 0
    assert (builders.out / TARGET).read_text() == "built\n"


def test_a_folder_that_the_user_calls_out_is_not_built_into(tmp_path: Path) -> None:
    """Android's shells set OUT; the library and the tests are looked for in a folder of ours."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    subprocess.run(["make", "-s", "-C", NATIVE], env=environment | {"OUT": str(tmp_path / "out")}, check=True)
    assert not (tmp_path / "out").exists()
