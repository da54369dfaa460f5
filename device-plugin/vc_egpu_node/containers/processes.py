"""Which container a process on a card belongs to: host PID to cgroup to pod and container.

The agent looks and never probes. A process's cgroup file (version 1 or 2, either driver) and status file say
enough, also for processes that bypass the library.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.vendors.base import ProcessSample

_CONTAINER_ID: Final = re.compile(r"(?<!conmon-)[0-9a-f]{64}")
"""CRI-O's monitor of a container runs next to it, not in it."""
_POD: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?=[./\n]|$)"
)
AGAIN_S: Final = 30.0
"""A PID that the driver tells and no process has is looked for again after so long: what has died stays in
some drivers' lists."""
_KERNEL_THREAD: Final = 0x0020_0000
"""Among the flags in a stat file."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one container uses of one card."""

    namespace: str
    pod: str
    container: str
    uuid: str
    memory_mib: int
    sm_percent: int


@dataclass(frozen=True, slots=True)
class Host:
    """What the host knows of a process."""

    pid: int
    """On the host."""
    start_ticks: int
    """Since boot: with the PID it is one process and no later one."""
    container_id: str
    """64 hex digits; empty: in no container."""
    pod_uid: str
    """Empty: in no pod."""
    own_pid: int
    """In its own PID namespace."""


class ContainerOfProcess:
    """Looks PIDs up in the host's process tree."""

    def __init__(self, proc_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc_dir = proc_dir
        self._clock = clock
        self._nobodys: dict[int, float] = {}
        """PIDs that no process had, and when that was looked for."""

    def shares_namespace(self) -> bool:
        """Whether this process is in the PID namespace of the tree that it reads.

        A driver tells a program of no process outside of its own namespace.
        """
        own, there = (start_ticks(_text(proc / "1" / "stat")) for proc in (Path("/proc"), self._proc_dir))
        return own is not None and own == there

    def container_id(self, pid: int) -> str | None:
        """64 hex digits, or None for a process that is in no container (or is gone)."""
        return place(self._read(pid, "cgroup"))[1] or None

    def host(self, pid: int) -> Host | None:
        """All that is known of one process; None: it is gone."""
        start = start_ticks(self._read(pid, "stat"))
        if start is None:
            return None
        pod_uid, container_id = place(self._read(pid, "cgroup"))
        return Host(pid, start, container_id, pod_uid, own_pid(self._read(pid, "status")) or pid)

    def hosts(self, pids: Iterable[int], *, inner: bool = True) -> dict[int, Host]:
        """Map PIDs as the driver told them to processes. Some drivers tell the PID of the process's own
        namespace (``inner``: this one may). Then a PID that no possible user of a card has on the host means
        the one process of a pod which has it inside. A program of the host on a card is itself: no container
        answers for it. It causes no walk over the process tree, and a PID that no process had causes one
        only now and then."""
        found: dict[int, Host] = {}
        lost: set[int] = set()
        for pid in set(pids):
            host = self.host(pid)
            if host is not None:
                found[pid] = host
            if host is None or (not host.pod_uid and is_kernels(self._read(pid, "stat"))):
                lost.add(pid)
        if not inner:
            return found
        now_s = self._clock()
        self._nobodys = {pid: at for pid, at in self._nobodys.items() if pid in lost and now_s - at < AGAIN_S}
        if lost - self._nobodys.keys():
            matches: dict[int, list[Host]] = {}
            for host in self.of_pods():
                if host.own_pid in lost and host.own_pid != host.pid:
                    matches.setdefault(host.own_pid, []).append(host)
            found |= {pid: hosts[0] for pid, hosts in matches.items() if len(hosts) == 1}
            self._nobodys |= dict.fromkeys(lost - matches.keys() - self._nobodys.keys(), now_s)
        return found

    def in_pod(self, pod_uid: str) -> list[Host]:
        """All processes of one pod."""
        return [host for host in self.of_pods() if host.pod_uid == pod_uid]

    def living(self) -> list[Host]:
        """All processes of pods but those that have ended and only wait for their parents to ask."""
        return [host for host in self.of_pods() if self.lives(host.pid, host.start_ticks)]

    def mounted(self, container_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """By container: where something is mounted in it. Those of which no process tells are left out."""
        found: dict[str, frozenset[str]] = {}
        for host in self.of_pods():
            if host.container_id in container_ids:
                points = _mount_points(self._read(host.pid, "mountinfo"))
                if points:
                    found[host.container_id] = found.get(host.container_id, frozenset()) | points
        return found

    def lives(self, pid: int, start: int) -> bool:
        """Whether that very process runs."""
        stat = self._read(pid, "stat")
        return start_ticks(stat) == start and not is_over(stat)

    def kill(self, pid: int, start: int) -> str:
        """SIGKILL for that very process, not for a later one of its number; why it was not done, or
        nothing."""
        elsewhere = "the agent is not in the host's PID namespace"
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return elsewhere if start_ticks(self._read(pid, "stat")) == start else ""
        except OSError as error:
            return str(error.strerror)
        try:
            if start_ticks(_text(Path("/proc") / str(pid) / "stat")) != start:
                return elsewhere if start_ticks(self._read(pid, "stat")) == start else ""
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return ""
        except OSError as error:
            return str(error.strerror)
        finally:
            os.close(descriptor)
        return ""

    def of_pods(self) -> Iterator[Host]:
        """All processes of pods; the whole process tree is read for it."""
        for entry in self._proc_dir.iterdir():
            if entry.name.isdecimal() and place(self._read(int(entry.name), "cgroup"))[0]:
                host = self.host(int(entry.name))
                if host is not None:
                    yield host

    def _read(self, pid: int, name: str) -> str:
        return _text(self._proc_dir / str(pid) / name)

    def uses(
        self, processes: Mapping[str, Iterable[ProcessSample]], pods: Iterable[PodView]
    ) -> tuple[Use, ...]:
        """Memory and compute by container and card; processes outside of this node's pods are left out."""
        owners = {identity: (pod, name) for pod in pods for identity, name in pod.containers.items()}
        sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
        for uuid, samples in processes.items():
            for sample in samples:
                identity = self.container_id(sample.pid)
                if identity is None or identity not in owners:
                    continue
                pod, name = owners[identity]
                key = (pod.namespace, pod.name, name, uuid)
                memory_mib, percent = sums.get(key, (0, 0))
                sums[key] = (memory_mib + sample.memory_mib, percent + sample.sm_percent)
        return tuple(Use(*key, *value) for key, value in sorted(sums.items()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def place(cgroup: str) -> tuple[str, str]:
    """(pod UID, container id) of a cgroup file. What runs inside a container's own containers is the outer
    one's."""
    for line in cgroup.splitlines():
        pod = _POD.search(line)
        if pod is not None:
            inside = _CONTAINER_ID.search(line, pod.end())
            return pod[1].replace("_", "-"), inside[0] if inside else ""
    found = _CONTAINER_ID.findall(cgroup)
    return "", found[-1] if found else ""


def start_ticks(stat: str) -> int | None:
    """The start time in a stat file. The command's name may hold anything, so it is skipped from its end."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else None


def is_kernels(stat: str) -> bool:
    """Whether a stat file is that of a thread of the kernel's own."""
    fields = stat.rpartition(")")[2].split()
    return len(fields) > 6 and fields[6].isdecimal() and bool(int(fields[6]) & _KERNEL_THREAD)


def is_over(stat: str) -> bool:
    """Whether a stat file is that of a process which has ended, with all of its threads."""
    fields = stat.rpartition(")")[2].split()
    return len(fields) > 17 and fields[0] in ("Z", "X") and fields[17] in ("0", "1")


def _mount_points(mountinfo: str) -> frozenset[str]:
    lines = (line.split() for line in mountinfo.splitlines())
    return frozenset(fields[4] for fields in lines if len(fields) > 4)


def own_pid(status: str) -> int | None:
    """The PID in the process's innermost namespace, from a status file."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            last = line.split()[-1]
            return int(last) if last.isdecimal() else None
    return None
