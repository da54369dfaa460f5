"""What our processes cost while they live: memory, threads, open files."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster import RealNode
from outcomes.disturb import processes_of

ROLES: Final = ("admission", "jobs", "webhook", "node-agent")
_RSS: Final = re.compile(r"VmRSS:\s+(\d+) kB")
_THREADS: Final = re.compile(r"Threads:\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Size:
    """One process."""

    role: str
    node: str
    pid: int
    rss_mib: float
    threads: int
    files: int

    def __str__(self) -> str:
        of = f"{self.role}@{self.node}:{self.pid}"
        return f"{of} {self.rss_mib:.0f} MiB {self.threads} threads {self.files} files"


def sizes(node: RealNode) -> list[Size]:
    """Those of one node."""
    found = []
    for role in ROLES:
        for pid in processes_of(node, "/usr/local/bin/vc-egpu", role).pids:
            with contextlib.suppress(OSError, AttributeError):
                found.append(_size(role, node.name, pid))
    return found


def _size(role: str, node: str, pid: int) -> Size:
    folder = Path("/proc") / str(pid)
    status = (folder / "status").read_text()
    rss, threads = _RSS.search(status), _THREADS.search(status)
    assert rss is not None and threads is not None, f"{folder} has no memory: it has ended"
    files = len(list((folder / "fd").iterdir()))
    return Size(role, node, pid, int(rss[1]) / 1024, int(threads[1]), files)
