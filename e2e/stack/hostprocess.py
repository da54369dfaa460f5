"""One program beside the cluster that tests start, kill, freeze and start again."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.cluster import LocalCluster
from localcluster.procs import ManagedProcess

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class HostProcess:
    """A program with its arguments; ends with the cluster. Starting it again appends to the same log."""

    cluster: LocalCluster
    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    _running: ManagedProcess | None = None

    def start(self) -> None:
        """Start it; an error where it runs already."""
        self._running = self.cluster.run_process(self.name, self.argv, self.env)

    def stop(self, timeout_s: float = 15) -> None:
        """SIGTERM, then SIGKILL."""
        self._process.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()

    def restart(self) -> None:
        """Kill it without warning, and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        return self._running is not None and self._running.alive()

    @property
    def log_file(self) -> Path:
        """Its output, there once it was started."""
        return self.cluster.context.process(f"extra-{self.name}").log_file

    def log_tail(self, lines: int = 20) -> str:
        """The end of its output."""
        return self._process.log_tail(lines) if self._running else "(never started)"

    def cpu_s(self) -> float:
        """CPU seconds that it has used since it started, all threads; 0 while it does not run."""
        pid = self._running.pid if self._running else None
        return cpu_seconds(pid) if pid else 0.0

    @property
    def pid(self) -> int | None:
        """Of its main process; None while it was never started."""
        return self._running.pid if self._running else None

    @property
    def _process(self) -> ManagedProcess:
        if self._running is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._running


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, children that are still running excluded; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = text[text.rindex(")") + 1 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def rss_mib(pid: int) -> float:
    """Memory of a process that is not swapped out, in MiB; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
