"""A process is its pid and its start time; nobody else's process is ever signalled."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from localcluster.errors import LocalClusterError
from localcluster.procs import MARKER, ManagedProcess, ProcessIdentity, Stat, marked, tail

# Says a word on standard output when its signal handlers stand, so that tests need not guess.
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(99)
"""

# Its first thread ends at once, another one holds the port: so it is for a while in a program that is killed.
_HEADLESS = """
import ctypes, platform, socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(99,)).start()
print(server.getsockname()[1], flush=True)
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""


_MANY_FILES = 4096


def _process(folder: Path, name: str = "p") -> ManagedProcess:
    return ManagedProcess(name, folder / f"{name}.json", folder / f"{name}.log")


def _environment(**extra: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **extra}


def _wait_for_output(process: ManagedProcess) -> None:
    identity = process.identity()
    while identity and identity.alive() and not process.log_file.read_text():
        os.sched_yield()


def test_command_names_with_brackets_do_not_confuse_the_start_time() -> None:
    tail_fields = " ".join(str(number) for number in range(1, 50))
    assert Stat.parse(f"42 (a) b) S {tail_fields}") == Stat("S", threads=17, start_ticks=19)


def test_the_end_of_a_process_is_seen_by_one_that_has_more_than_a_thousand_files_open(tmp_path: Path) -> None:
    process = _process(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < _MANY_FILES:
        pytest.skip("not so many files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _MANY_FILES), hard))
    with contextlib.ExitStack() as files:
        for _ in range(1100):
            files.enter_context(Path(os.devnull).open())
        process.launch([sys.executable, "-c", _STUBBORN], _environment())
        _wait_for_output(process)
        process.kill()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert process.pid is None


def test_a_process_ends_by_sigterm_and_its_pid_file_goes(tmp_path: Path) -> None:
    process = _process(tmp_path)
    pid = process.launch(["sleep", "99"], _environment())
    assert process.pid == pid
    assert os.getsid(pid) == pid, "it must survive the terminal of its starter"
    process.stop()
    assert process.pid is None
    assert not process.pid_file.exists()


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process = _process(tmp_path)
    process.launch([sys.executable, "-c", _STUBBORN], _environment())
    _wait_for_output(process)
    process.stop(timeout_s=0.2)
    assert not process.alive()


def test_a_frozen_process_is_stopped_too(tmp_path: Path) -> None:
    process = _process(tmp_path)
    process.launch(["sleep", "99"], _environment())
    process.signal(signal.SIGSTOP)
    process.stop()
    assert not process.alive()


def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    process = _process(tmp_path)
    process.launch([sys.executable, "-c", _HEADLESS], _environment())
    _wait_for_output(process)
    pid, port = process.pid, int(process.log_file.read_text())
    while pid and Stat.parse(Path(f"/proc/{pid}/stat").read_text()).state != "Z":
        os.sched_yield()
    assert process.alive()
    process.kill()
    assert not process.alive()
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("field", ["start_ticks", "boot_id"])
def test_a_pid_that_was_given_to_somebody_else_is_left_alone(tmp_path: Path, field: str) -> None:
    other = _process(tmp_path, "other")
    other.launch(["sleep", "99"], _environment())
    identity = other.identity()
    assert identity is not None
    changes: dict[str, Any] = {"boot_id": "another-boot", "start_ticks": identity.start_ticks + 1}
    wrong = replace(identity, **{field: changes[field]})
    assert not wrong.alive()
    assert not wrong.send(signal.SIGKILL)
    wrong.end(timeout_s=0.1)
    assert other.alive()
    other.stop()


def test_a_second_start_is_refused(tmp_path: Path) -> None:
    process = _process(tmp_path)
    process.launch(["sleep", "99"], _environment())
    with pytest.raises(LocalClusterError, match="already running"):
        process.launch(["sleep", "99"], _environment())
    process.stop()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="no-such-program"):
        _process(tmp_path).launch(["no-such-program"], _environment())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}'])
def test_a_damaged_pid_file_means_that_nothing_runs(tmp_path: Path, content: str) -> None:
    process = _process(tmp_path)
    process.pid_file.write_text(content)
    assert process.pid is None
    process.stop()


def test_processes_without_a_pid_file_are_found_by_their_mark(tmp_path: Path) -> None:
    process = _process(tmp_path)
    pid = process.launch(["sleep", "99"], _environment(**{MARKER: str(tmp_path)}))
    while not Path(f"/proc/{pid}/environ").read_bytes():
        os.sched_yield()  # it is there a moment after the program is
    process.pid_file.unlink()
    found = [identity for identity, path in marked() if path == tmp_path]
    assert [identity.pid for identity in found] == [pid]
    found[0].end(5)
    assert not found[0].alive()


def test_identity_of_a_process_that_is_gone_is_none() -> None:
    assert ProcessIdentity.of(2**22 + 1) is None


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {i}\n" for i in range(100)))
    assert tail(log, 2) == "line 98\nline 99"
    assert tail(tmp_path / "none", 2) == "(no log)"
