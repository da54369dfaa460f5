"""Pages that containers write: made, emptied, put right, let go; and leases on them."""

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from unit.kept import open_below
from unit.node.granted import grant, page_of
from vc_egpu_node.isolation.pages import ACTIVITY, KINDS, USAGE, ControlFile, KeptOpen, SharedPages


def test_shared_pages_are_made_emptied_and_let_go(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path / "run")
    pages.clear("a")
    for kind in KINDS:
        status = pages.path(kind, "a").stat()
        assert (status.st_size, status.st_mode & 0o777) == (kind.size, 0o666)
        pages.path(kind, "a").write_bytes(b"x" * (kind.size + 5))
    inode = pages.path(ACTIVITY, "a").stat().st_ino
    pages.clear("a")
    assert pages.path(ACTIVITY, "a").stat().st_ino == inode
    assert pages.read(USAGE, "a") == bytes(USAGE.size)
    pages.release("a")
    assert not any(pages.path(kind, "a").exists() for kind in KINDS)


def test_a_page_that_goes_while_it_is_put_right_is_not_kept(tmp_path: Path) -> None:
    """Else a descriptor and the page's memory would stay until the agent ends, on a node of short pods."""
    path = tmp_path / "usage"
    path.touch()
    kept = KeptOpen()
    opened = os.open(path, os.O_RDWR)
    path.unlink()
    kept.drop(path)
    kept.keep(path, opened)
    os.close(opened)
    assert open_below(path) == []


def test_what_a_container_did_to_its_pages_is_put_right(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path / "run")
    for name in ("a", "b"):
        pages.clear(name)
    pages.path(USAGE, "b").write_bytes(b"q" * USAGE.size)
    assert pages.mend("a") == ()
    pages.path(USAGE, "a").write_bytes(b"")
    with pages.path(ACTIVITY, "a").open("r+b") as file:
        file.truncate(1 << 30)
    assert pages.read(USAGE, "a") == b""  # it is there, and was cut
    assert pages.read(ACTIVITY, "a") == bytes(ACTIVITY.size)
    faults = pages.mend("a")
    assert [(fault.page, fault.text.split(" and ")[0]) for fault in faults] == [
        ("usage", "its usage page had 0 bytes"),
        ("activity", f"its activity page had {1 << 30} bytes"),
    ]
    assert pages.mend("a") == ()
    pages.path(USAGE, "a").unlink()
    assert "usage page is gone" in pages.mend("a")[0].text
    pages.path(USAGE, "a").mkdir()
    assert "cannot be opened" in pages.mend("a")[0].text
    assert pages.read(USAGE, "a") is None
    pages.path(ACTIVITY, "a").unlink()
    os.mkfifo(pages.path(ACTIVITY, "a"))
    assert "no file" in pages.mend("a")[1].text
    (tmp_path / "secret").write_text("s")
    pages.path(ACTIVITY, "a").unlink()
    pages.path(ACTIVITY, "a").symlink_to(tmp_path / "secret")
    assert pages.read(ACTIVITY, "a") is None
    assert "cannot be opened" in pages.mend("a")[1].text
    assert pages.read(USAGE, "b") == b"q" * USAGE.size


def test_pages_may_be_emptied_while_they_are_read(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path / "run")
    pages.clear("a")
    done = threading.Event()

    def cut() -> None:
        while not done.is_set():
            os.truncate(pages.path(USAGE, "a"), 0)
            pages.mend("a")

    thread = threading.Thread(target=cut)
    thread.start()
    read = [pages.read(USAGE, "a") for _ in range(500)]
    done.set()
    thread.join()
    assert {len(one) for one in read if one is not None} <= {0, USAGE.size}
    assert None not in read


@contextmanager
def not_overruling() -> Iterator[None]:
    """As the agent is on a node: it owns its folders, and may do no more than any owner."""
    os.seteuid(12345)
    try:
        yield
    finally:
        os.seteuid(0)


def given_away(pages: SharedPages, mode: int) -> None:
    """By root in the container: chown and chmod, as some do to all of /run when they start."""
    for kind in KINDS:
        os.chown(pages.path(kind, "a"), 0, 0)
        pages.path(kind, "a").chmod(mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="plays two users")
@pytest.mark.parametrize("mode", [0o666, 0o644, 0])
def test_a_page_that_its_container_gave_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.chdir(tmp_path)  # above it there are folders of root alone
    pages = SharedPages(Path("run"))
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 12345, 12345)
    with not_overruling():
        pages.clear("a")
    given_away(pages, mode)
    os.truncate(pages.path(USAGE, "a"), 1 << 30)
    with not_overruling():
        assert pages.mend("a")[0].page == "usage"
        assert pages.path(USAGE, "a").stat().st_size == USAGE.size
        assert pages.read(USAGE, "a") == bytes(USAGE.size)
        after = SharedPages(Path("run"))  # the next agent has none of them open
        assert after.read(USAGE, "a") == (b"" if mode == 0 else bytes(USAGE.size))
        after.clear("a")  # and the container starts again
        status = after.path(USAGE, "a").stat()
        assert (status.st_size, status.st_mode & 0o777) == (USAGE.size, 0o666)
        assert after.mend("a") == ()


# --- leases: whoever opens a file on which somebody holds one waits until it is broken ---------------

LEASE_BREAK_S = float(Path("/proc/sys/fs/lease-break-time").read_text())
LEASES = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
kinds = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK}
file = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.fcntl(file, fcntl.F_SETLEASE, kinds[sys.argv[2]])
    print("held", flush=True)
except BlockingIOError:
    print("refused", flush=True)
sys.stdin.read()
"""


@contextmanager
def lease(path: Path, kind: str) -> Iterator[str]:
    """Somebody who wants one: whether he has it."""
    command = [sys.executable, "-c", LEASES, str(path), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_nobody_gets_a_lease_on_pages(tmp_path: Path, kind: str) -> None:
    pages = SharedPages(tmp_path / "run")
    pages.clear("a")
    for path in (pages.path(USAGE, "a"), pages.path(ACTIVITY, "a")):
        with lease(path, kind) as got:
            assert got == "refused"
    pages.release("a")
    left = tmp_path / "left"
    left.write_bytes(b"")
    with lease(left, kind) as got:  # else this test tells nothing
        assert got == "held"


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_lease_that_was_there_first_keeps_nobody_waiting(tmp_path: Path, kind: str) -> None:
    """As after a restart of the agent. It ends, and is not got again."""
    SharedPages(tmp_path / "run").clear("a")
    file = ControlFile(tmp_path / "control")
    one = page_of([grant("a", ("GPU-0", 1000, 20))], "a")
    other = dataclasses.replace(one, suspended=True)
    file.put(one)
    pages = SharedPages(tmp_path / "run")
    done: list[object] = []

    def work() -> None:
        done.append(pages.mend("a"))
        done.append(pages.read(ACTIVITY, "a"))
        with suppress(BlockingIOError):
            file.put(other)
        done.append(file.read())
        done.append(file.says(b""))

    with lease(pages.path(ACTIVITY, "a"), kind) as first, lease(file.path, kind) as second:
        assert (first, second) == ("held", "held")
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(LEASE_BREAK_S / 2)
        assert len(done) == 4
        assert "cannot be opened" in str(done[0])
    assert pages.mend("a") == ()
    with lease(pages.path(ACTIVITY, "a"), kind) as got:
        assert got == "refused"
