"""How much memory the host and its pods have left, as the kernel tells."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu_node.containers.cgroups import PodCgroups

MIB: Final = 1 << 20
_NO_LIMIT: Final = 1 << 60
"""Version 1 says "none" by a number above all memory."""
_FILES: Final = (
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""(limit, use, what figures begin with that count all below) of cgroup versions 2 and 1."""
_FIRST: Final = ("inactive_file",)
"""What the kernel gives back first: more of it would slow down the container that it is taken from."""
_FILE_PAGES: Final = ("inactive_file", "active_file")
"""What it can give back at all, as it counts what the host has free."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A memory cgroup with a limit."""

    container_id: str
    """Empty: the pod's own, or one above it."""
    limit_mib: int
    used_mib: int
    above: str = ""
    """Name of a cgroup of several pods: the kubelet holds all together to what it does not reserve."""


def free_mib(proc_dir: Path) -> int:
    """What programs may take without swapping, by the kernel's estimate; 0: not to be known."""
    try:
        for line in (proc_dir / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) >> 10
    except (OSError, ValueError, IndexError):
        pass
    return 0


class MemoryLimits:
    """Memory limits of pods and containers, below a mount of the host's cgroup tree."""

    def __init__(self, root: Path) -> None:
        memory = root / "memory"
        self._root = memory if memory.is_dir() else root
        self._cgroups = PodCgroups(self._root)
        self._known: dict[str, Path] = {}

    def of_pod(self, uid: str, containers: frozenset[str]) -> tuple[Limited, ...]:
        """All limits that hold for the pod's processes; ``containers`` are ids of 64 hex digits."""
        folder = self._folder(uid)
        if folder is None:
            return ()
        return (*self._above(folder), *self._limits(folder, containers))

    @property
    def known(self) -> Mapping[str, Path]:
        """By UID: folders of pods that were found already."""
        return self._known

    def forget(self, living: frozenset[str]) -> None:
        """Pods that are gone."""
        self._known = {uid: path for uid, path in self._known.items() if uid in living}

    def _folder(self, uid: str) -> Path | None:
        known = self._known.get(uid)
        if known is None or not known.is_dir():
            known = self._cgroups.folder(uid)
            if known is not None:
                self._known[uid] = known
        return known

    def _above(self, folder: Path) -> Iterator[Limited]:
        for path in folder.parents:
            if path == self._root or self._root not in path.parents:
                return
            found = _limit(path, _FILE_PAGES)
            if found is not None:
                yield Limited("", *found, above=path.name)

    def _limits(self, folder: Path, containers: frozenset[str]) -> Iterator[Limited]:
        found = _limit(folder)
        if found is not None:
            yield Limited("", *found)
        try:
            below = sorted(path for path in folder.iterdir() if path.is_dir())
        except OSError:
            return
        for path in below:
            identity = next((one for one in containers if one in path.name), "")
            found = _limit(path) if identity else None
            if found is not None:
                yield Limited(identity, *found)


def _limit(folder: Path, spare_names: Collection[str] = _FIRST) -> tuple[int, int] | None:
    """(limit, use without these figures) in MiB; None: there is no limit."""
    for limit_name, use_name, total in _FILES:
        try:
            text = (folder / limit_name).read_text().strip()
            if not text.isdecimal() or int(text) >= _NO_LIMIT:
                return None
            used = int((folder / use_name).read_text())
            spare = _stat((folder / "memory.stat").read_text(), {f"{total}{name}" for name in spare_names})
            return int(text) // MIB, max(0, used - spare) // MIB
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
    return None


def _stat(text: str, names: Collection[str]) -> int:
    fields = (line.partition(" ") for line in text.splitlines())
    return sum(int(value) for key, _, value in fields if key in names and value.isdecimal())
