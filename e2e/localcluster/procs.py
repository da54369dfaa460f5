"""Processes that outlive the Python that started them, told apart from others by pid *and* start time.

All state is on disk: a pid file per process, so that another Python can stop what this one started,
and a pid that was given to someone else after a reboot is never signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from localcluster.errors import LocalClusterError
from localcluster.patience import stretched

MARKER = "VC_EGPU_CLUSTER"
"""Environment variable that every process of a cluster carries; its value is the state folder."""

_POLL_S = 0.02


def boot_id() -> str:
    """Identity of the running boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Stat(NamedTuple):
    """What ``/proc/<pid>/stat`` says."""

    state: str
    """One letter, of the first thread."""
    threads: int
    start_ticks: int
    """Clock ticks since boot."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The command name may hold blanks and brackets, so the line is read from its last bracket on."""
        fields = text[text.rindex(")") + 1 :].split()
        return cls(fields[0], int(fields[17]), int(fields[19]))

    @property
    def ended(self) -> bool:
        """Whether all threads are gone: the first one may be a zombie while others still hold a port."""
        return self.state in "ZX" and self.threads <= 1


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, never a later one that got the same pid."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Identity of a running process; None where there is none."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            return cls(pid, Stat.parse(text).start_ticks, boot_id())
        except (OSError, ValueError):
            return None

    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        if self.boot_id != boot_id():
            return False
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        stat = Stat.parse(text)
        return stat.start_ticks == self.start_ticks and not stat.ended

    def send(self, signum: int) -> bool:
        """Signal this very process; False where it is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # Checked after the descriptor is held: from here on the pid cannot change hands.
            if not self.alive():
                return False
            signal.pidfd_send_signal(fd, signum)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until it has ended; False after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return not self.alive()
        try:
            ended = select.poll()  # select() takes no descriptor above 1023
            ended.register(fd, select.POLLIN)
            while self.alive():
                rest = deadline - time.monotonic()
                if rest <= 0:
                    return False
                ended.poll(rest * 1000)
        finally:
            os.close(fd)
        return True

    def end(self, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL after ``timeout_s``; returns when it is gone."""
        if not self.send(signal.SIGTERM):
            return
        self.send(signal.SIGCONT)
        if self.wait_gone(timeout_s):
            return
        self.send(signal.SIGKILL)
        if not self.wait_gone(stretched(30)):
            raise LocalClusterError(f"process {self.pid} does not end even on SIGKILL")


@dataclass(frozen=True, slots=True)
class Entered:
    """Namespaces of a running process that another one is started in (see nsenter(1))."""

    pid: int
    flags: tuple[str, ...] = ("-m", "-n", "-p", "-u")

    def argv(self, argv: Sequence[str]) -> list[str]:
        """``argv`` as seen from outside."""
        return ["nsenter", "-t", str(self.pid), *self.flags, "--", *argv]


@dataclass(frozen=True, slots=True)
class ManagedProcess:
    """A process with a log and a pid file, known by its name."""

    name: str
    pid_file: Path
    log_file: Path

    def identity(self) -> ProcessIdentity | None:
        """What the pid file says, running or not."""
        try:
            raw = json.loads(self.pid_file.read_text(encoding="ascii"))
            return ProcessIdentity(int(raw["pid"]), int(raw["start_ticks"]), str(raw["boot_id"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def pid(self) -> int | None:
        """Pid while it runs, else None."""
        identity = self.identity()
        return identity.pid if identity and identity.alive() else None

    def alive(self) -> bool:
        """Whether it runs."""
        return self.pid is not None

    def launch(self, argv: Sequence[str], env: Mapping[str, str], within: Entered | None = None) -> int:
        """Start it in a session of its own; returns the pid of the program itself.

        Inside other namespaces the program is a child of nsenter; nsenter is ended, so that the
        program belongs to the first process of its pid namespace and signals reach it directly.
        """
        if self.alive():
            raise LocalClusterError(f"{self.name} is already running as process {self.pid}")
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        whole = within.argv(argv) if within else list(argv)
        pid = spawn(whole, env, self.log_file)
        if within and "-p" in within.flags:
            helper, pid = pid, self._only_child(pid)
            os.kill(helper, signal.SIGKILL)
            os.waitpid(helper, 0)
        self.record(pid)
        return pid

    def record(self, pid: int) -> None:
        """Write the pid file of a process that somebody else started."""
        identity = ProcessIdentity.of(pid)
        if identity is None:
            raise LocalClusterError(f"{self.name} ended at once:\n{self.log_tail()}")
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.pid_file.with_suffix(".tmp")
        fresh.write_text(
            json.dumps(
                {"pid": identity.pid, "start_ticks": identity.start_ticks, "boot_id": identity.boot_id}
            ),
            encoding="ascii",
        )
        fresh.rename(self.pid_file)

    def _only_child(self, pid: int) -> int:
        child = first_child(pid, timeout_s=stretched(10))
        if child is None:
            raise LocalClusterError(f"{self.name} did not start:\n{self.log_tail()}")
        return child

    def stop(self, timeout_s: float = 15) -> None:
        """SIGTERM, then SIGKILL; nothing where it does not run."""
        identity = self.identity()
        if identity:
            identity.end(timeout_s)
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        identity = self.identity()
        if identity and identity.send(signal.SIGKILL) and not identity.wait_gone(stretched(30)):
            raise LocalClusterError(f"{self.name} (process {identity.pid}) survives SIGKILL")
        self.pid_file.unlink(missing_ok=True)

    def signal(self, signum: int) -> None:
        """Send one signal; an error where it does not run."""
        identity = self.identity()
        if identity is None or not identity.send(signum):
            raise LocalClusterError(f"{self.name} is not running")

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return tail(self.log_file, lines)


def spawn(argv: Sequence[str], env: Mapping[str, str], log_file: Path, keep_fds: Sequence[int] = ()) -> int:
    """Start a program in its own session with its output in ``log_file``; returns its pid."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log_file), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    actions += [(os.POSIX_SPAWN_DUP2, fd, 3 + i) for i, fd in enumerate(keep_fds)]
    try:
        return os.posix_spawnp(argv[0], list(argv), dict(env), file_actions=actions, setsid=True)
    except OSError as error:
        raise LocalClusterError(f"cannot start {argv[0]}: {error.strerror}") from error


def first_child(pid: int, timeout_s: float) -> int | None:
    """The first child of a process, waited for; None when the process ends without one."""
    deadline = time.monotonic() + timeout_s
    identity = ProcessIdentity.of(pid)
    while identity and identity.alive() and time.monotonic() < deadline:
        for child in _children(pid):
            return child
        time.sleep(_POLL_S / 10)
    return None


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        ]
    return []


def answers(path: Path) -> bool:
    """Whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def marked() -> Iterator[tuple[ProcessIdentity, Path]]:
    """Every process of this machine that was started for some cluster, with that cluster's state folder."""
    prefix = f"{MARKER}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        for variable in environment.split(b"\0"):
            identity = ProcessIdentity.of(int(entry.name)) if variable.startswith(prefix) else None
            if identity and identity.alive():
                yield identity, Path(os.fsdecode(variable[len(prefix) :]))


def tail(path: Path, lines: int) -> str:
    """Last lines of a text file, or a word that there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])
