"""From a first failure on, a node takes nothing until as much can be written as one container needs."""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.disk import AGAIN_S, TRIAL, Disk

FULL = OSError(errno.ENOSPC, "No space left on device")
NEEDED = 64 * 1024


class Clock:
    """Time that stands until it is told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += AGAIN_S
        return self.now_s


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may grow beyond that."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_is_written_while_nothing_has_failed(folder: Path) -> None:
    folder.rmdir()
    assert Disk({folder: NEEDED}).problem() == ""


def test_it_is_over_once_all_that_a_container_needs_fits_again(folder: Path) -> None:
    heard: list[str] = []
    disk = Disk({folder: NEEDED}, on_failure=lambda: heard.append("woken"), clock=Clock())
    disk.failed(FULL)
    disk.failed(FULL)
    assert heard == ["woken"]
    with room_for(NEEDED - 1):
        assert disk.problem() == f"what containers need cannot be written: {folder}: File too large"
        assert list(folder.iterdir()) == []
    assert disk.problem() == ""
    assert list(folder.iterdir()) == []
    disk.failed(FULL)
    assert len(heard) == 2


def test_every_folder_counts(folder: Path, tmp_path: Path) -> None:
    disk = Disk({folder: NEEDED, tmp_path / "pages": NEEDED}, clock=Clock())
    disk.failed(OSError(errno.EROFS, "Read-only file system"))
    assert f"{tmp_path / 'pages'}: No such file" in disk.problem()
    (tmp_path / "pages").mkdir()
    assert disk.problem() == ""


def test_what_one_container_did_to_its_files_closes_no_node(folder: Path) -> None:
    folder.rmdir()
    disk = Disk({folder: NEEDED}, clock=Clock())
    disk.failed(BlockingIOError(errno.EAGAIN, "a lease of its own"))
    assert disk.problem() == ""


def test_a_trial_that_an_agent_died_in_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / TRIAL).touch()
    GrantFolder(tmp_path, tmp_path / "containers")
    assert not (tmp_path / TRIAL).exists()
