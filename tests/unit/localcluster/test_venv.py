"""The virtual environment of a clone, on machines where Python, or a part of it, is not there yet."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "e2e" / "venv.sh"
PYTHON = """#!/bin/sh
case "$*" in
*sys.version_info*) exit {old} ;;
-V) echo Python 3.9.2 ;;
*ensurepip*) test -e {folder}/has-venv ;;
"-m venv --clear "*) mkdir -p "$4/bin" && echo made >> {folder}/said ;;
*) echo "python3 $*" >> {folder}/said; exit 1 ;;
esac
"""
APT = """#!/bin/sh
echo "apt-get $*" >> {folder}/said
case "$*" in *install*) cp {folder}/python3 {folder}/bin/python3; touch {folder}/has-venv ;; esac
"""


@dataclass
class Fresh:
    """A machine with nothing but a shell, and what of Debian a test gives it."""

    folder: Path
    user: int = 0

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        self._program("bin/id", f"#!/bin/sh\necho {self.user}\n")
        for name in ("sh", "mkdir", "cp", "touch"):
            (self.folder / "bin" / name).symlink_to(Path("/bin") / name)
        self._program("python3", PYTHON.format(folder=self.folder, old=0))

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def with_apt(self) -> Fresh:
        self._program("bin/apt-get", APT.format(folder=self.folder))
        return self

    def with_python(self, *, old: bool = False, venv: bool = False) -> Fresh:
        self._program("bin/python3", PYTHON.format(folder=self.folder, old=int(old)))
        if venv:
            (self.folder / "has-venv").touch()
        return self

    def run(self, python: str = "python3") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, python, self.folder / "venv"],
            env={"PATH": str(self.folder / "bin")}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    @property
    def said(self) -> list[str]:
        file = self.folder / "said"
        return file.read_text().splitlines() if file.exists() else []


def test_where_there_is_all_nothing_is_installed(tmp_path: Path) -> None:
    machine = Fresh(tmp_path).with_apt().with_python(venv=True)
    assert machine.run().returncode == 0
    assert machine.said == ["made"]


@pytest.mark.parametrize("python_is_there", [False, True])
def test_on_debian_root_gets_what_is_missing(tmp_path: Path, python_is_there: bool) -> None:
    """A minimal Debian has no Python, and Debian's Python has no venv until its package is there."""
    machine = Fresh(tmp_path).with_apt()
    if python_is_there:
        machine.with_python()
    run = machine.run()
    assert run.returncode == 0, run.stderr
    update, install, made = machine.said
    assert update.startswith("apt-get ")
    assert install.endswith("python3 python3-venv")
    assert made == "made"


def test_another_user_is_told_what_to_install(tmp_path: Path) -> None:
    machine = Fresh(tmp_path, user=1000).with_apt()
    run = machine.run()
    assert (run.returncode, machine.said) == (1, [])
    assert "install python3 python3-venv" in run.stderr
    run = machine.with_python().run()
    assert run.returncode == 1
    assert "python3 has no venv: install python3-venv" in run.stderr
    assert machine.said == []


def test_a_python_that_was_named_is_not_looked_for_in_packages(tmp_path: Path) -> None:
    machine = Fresh(tmp_path).with_apt()
    run = machine.run("python3.12")
    assert (run.returncode, machine.said) == (1, [])
    assert "python3.12 not found" in run.stderr


def test_a_python_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    run = Fresh(tmp_path).with_python(old=True, venv=True).run()
    assert run.returncode == 1
    assert "python3 is Python 3.9.2, and 3.11 or newer is needed" in run.stderr


def test_a_half_made_environment_is_made_anew_and_a_whole_one_stays(tmp_path: Path) -> None:
    """Where Debian's venv was missing at first, a folder without pip stands there."""
    folder = tmp_path / "with a blank"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run([SCRIPT, sys.executable, folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "--version"], check=True, capture_output=True)
    mine = folder / "mine"
    mine.touch()
    subprocess.run([SCRIPT, sys.executable, folder], check=True)
    assert mine.exists()


@pytest.mark.parametrize(
    "target", ["demo", "up", "test", "test-e2e", "test-long", "e2e-oldest", "bench-agent"]
)
def test_who_may_not_start_nodes_hears_it_before_anything_is_built(tmp_path: Path, target: str) -> None:
    machine = Fresh(tmp_path, user=1000)
    make = shutil.which("make")
    assert make is not None
    run = subprocess.run(
        [make, "-C", SCRIPT.parents[1], f"VENV={tmp_path}/venv", "PYTHON=none", "WORKERS=1", target],
        env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert "error: real nodes need root" in run.stderr
    assert (machine.said, (tmp_path / "venv").exists()) == ([], False)


VENV_PYTHON = """#!/bin/sh
echo "${{PYTHONPATH-none}} $PIP_USER ${{PIP_TARGET-none}} $*" >> {folder}/said
"""
MAKING_PYTHON = """#!/bin/sh
case "$*" in "-m venv --clear "*)
    mkdir -p "$4/bin"; cp {folder}/python "$4/bin/python"; echo made >> {folder}/said ;;
esac
"""


def _of_no_make() -> dict[str, str]:
    """A test that is run by `make` inherits what that one has to say to those below it."""
    return {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}


@dataclass
class Clone:
    """`make venv` with a folder of its own, and Pythons that only say how they are called."""

    folder: Path

    def __post_init__(self) -> None:
        for name, text in (("python", VENV_PYTHON), ("making", MAKING_PYTHON)):
            (self.folder / name).write_text(text.format(folder=self.folder))
            (self.folder / name).chmod(0o755)

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    def make(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", "-C", SCRIPT.parents[1], f"VENV={self.venv}", f"PYTHON={self.folder}/making", "venv"],
            env=_of_no_make() | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def made(self, **environment: str) -> list[str]:
        """What its Pythons said of a call, which went well."""
        (self.folder / "said").unlink(missing_ok=True)
        with self.make(**environment) as run:
            output, _ = run.communicate()
        assert run.returncode == 0, output
        return self.said

    @property
    def said(self) -> list[str]:
        file = self.folder / "said"
        return file.read_text().splitlines() if file.exists() else []


def test_what_the_user_set_for_other_projects_is_not_heard(tmp_path: Path) -> None:
    """pip left out what lay in a PYTHONPATH, and refused, or put elsewhere, the rest."""
    made, *calls = Clone(tmp_path).made(PYTHONPATH="/ros/site-packages", PIP_USER="1", PIP_TARGET="/x")
    assert made == "made"
    assert len(calls) >= 3
    assert all(call.startswith("none 0 none ") for call in calls), calls


@pytest.mark.parametrize("change", ["nothing", "another Python", "no Python", "another folder"])
def test_packages_are_those_of_this_python_and_of_this_clone(tmp_path: Path, change: str) -> None:
    """The machine's Python is the next one now; the clone was moved, or copied."""
    clone = Clone(tmp_path)
    assert clone.made()[0] == "made"
    python, done = clone.venv / "bin" / "python", clone.venv / ".done"
    if change in ("another Python", "no Python"):
        python.unlink()
    if change == "another Python":
        python.symlink_to(tmp_path / "python")
    if change == "another folder":
        done.write_text(done.read_text().replace(str(SCRIPT.parents[1]), "/elsewhere"))
    assert clone.made()[:1] == ([] if change == "nothing" else ["made"])
    assert clone.made() == []


def test_two_that_make_the_same_environment_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """The second one emptied it while the first one filled it."""
    clone = Clone(tmp_path)
    with (tmp_path / "venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        inode = f":{os.fstat(lock.fileno()).st_ino} "
        with clone.make() as second:
            while second.poll() is None and not any(
                "->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()
            ):
                os.sched_yield()
            assert second.poll() is None, "it did not wait"
            clone.venv.mkdir()
            (clone.venv / ".done").touch()  # what the first one has made
            fcntl.flock(lock, fcntl.LOCK_UN)
            second.communicate()
    assert (second.returncode, clone.said) == (0, [])


@pytest.mark.parametrize("home", [None, "", "/srv/somebody"])
def test_a_home_that_is_not_set_is_the_users(home: str | None) -> None:
    """Go builds nothing without it."""
    environment = {key: value for key, value in _of_no_make().items() if key != "HOME"}
    if home is not None:
        environment["HOME"] = home
    say = "where: ; @echo $$HOME"
    run = subprocess.run(
        ["make", "-s", "-C", SCRIPT.parents[1], f"--eval={say}", "where"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.strip() == (home or pwd.getpwuid(os.getuid()).pw_dir)
