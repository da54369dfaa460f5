"""Whether a pod's containers are gone: its cgroup is removed only after they are.

The API object alone does not tell: a pod deleted with force vanishes from it while its processes still run.
Both drivers' names are known: ``.../pod<uid>`` and ``...-pod<uid with _>.slice``.
"""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from vc_egpu_node.containers.processes import place

MAX_DEPTH: Final = 6
_POD: Final = re.compile(
    r"(?:.*-)?pod(?:[0-9a-f]{32}|[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?:\.slice)?"
)
"""Static pods have a UID without dashes. ``podruntime.slice`` and ``podman`` are no pods."""
_V1_CONTROLLERS: Final = ("memory", "pids", "cpu", "cpuset")


class GroupError(RuntimeError):
    """A process's control group cannot be told; the text says why."""


class PodCgroups:
    """Looks for pods' cgroups below a mount of the host's cgroup tree."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def living(self, uids: Collection[str]) -> frozenset[str] | None:
        """Those of the pods that have a cgroup. None: the tree shows no pod at all, so it tells nothing (it
        is not mounted, or the kubelet makes no cgroups for pods)."""
        base = self._base()
        if base is None:
            return None
        by_name = {name: uid for uid in uids for name in _names(uid)}
        found: set[str] = set()
        seen_any = False
        for path in _folders(base, MAX_DEPTH):
            if not _is_pod(path.name):
                continue
            seen_any = True
            uid = by_name.get(_own_name(path.name))
            if uid is not None:
                found.add(uid)
        return frozenset(found) if seen_any else None

    def folder(self, uid: str) -> Path | None:
        """One pod's cgroup."""
        base = self._base() or self._root
        return next((path for path in _folders(base, MAX_DEPTH) if _own_name(path.name) in _names(uid)), None)

    def by_systemd(self) -> bool:
        """Whether systemd makes the cgroups of pods; False also where the tree shows no pod."""
        base = self._base()
        return base is not None and any(
            _is_pod(path.name) and path.name.endswith(".slice") for path in _folders(base, MAX_DEPTH)
        )

    def _base(self) -> Path | None:
        if (self._root / "cgroup.controllers").exists():
            return self._root
        return next((self._root / one for one in _V1_CONTROLLERS if (self._root / one).is_dir()), None)


class ContainerGroups:
    """Control groups of containers, by their processes: see
    :class:`vc_egpu_node.isolation.driver_limits.Groups`."""

    def __init__(self, proc_dir: Path, root: Path) -> None:
        """``proc_dir``: the host's; ``root``: the host's tree of control groups, where this process sees
        it."""
        self._proc_dir = proc_dir
        self._root = root
        self._pods = PodCgroups(root)

    def trouble(self) -> str:
        """Why the driver can limit none of them; empty: it can."""
        if (self._root / "cgroup.controllers").exists():
            return ""
        return "control groups are of version 1, the driver needs version 2"

    def of_process(self, pid: int, pod_uid: str) -> Path:
        """The folder of the container of that pod whose process it is. Raises :class:`GroupError`.

        The path in the process's own file begins where this process is, so only its end counts.
        """
        try:
            text = (self._proc_dir / str(pid) / "cgroup").read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise GroupError(f"process {pid} of the container is not seen: {error}") from error
        pod, container = place(text)
        if pod != pod_uid or not container:
            raise GroupError(f"process {pid} is of no container of pod {pod_uid}")
        line = next((one for one in text.splitlines() if container in one), "")
        below = line[line.rindex(container) :].partition("/")[2]
        folder = self._pods.folder(pod_uid)
        found = next((one for one in _folders(folder, 2) if container in one.name), None) if folder else None
        if found is None:
            raise GroupError(f"container {container[:12]} has no control group below {self._root}")
        return found / below if below else found

    def own(self) -> Path | None:
        """That of this process's own container; None: it is in none that is seen."""
        me = str(os.getpid())
        for pod in _folders(self._root, MAX_DEPTH):
            for folder in _folders(pod, 2) if _is_pod(pod.name) else ():
                with suppress(OSError, ValueError):
                    if me in (folder / "cgroup.procs").read_text(encoding="utf-8").split():
                        return folder
        return None


def _names(uid: str) -> tuple[str, str]:
    return f"pod{uid}", f"pod{uid.replace('-', '_')}.slice"


def _own_name(name: str) -> str:
    return name[name.index("pod", name.rindex("-pod") + 1) :] if "-pod" in name else name


def _is_pod(name: str) -> bool:
    return _POD.fullmatch(name) is not None


def _folders(base: Path, depth: int) -> Iterator[Path]:
    """The folders below; pods' own inside is left out."""
    try:
        entries = list(os.scandir(base))
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            continue
        yield Path(entry.path)
        if depth > 1 and not _is_pod(entry.name):
            yield from _folders(Path(entry.path), depth - 1)
