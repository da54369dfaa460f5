"""Whether a pod's containers are gone: its cgroup is removed only after they are.

The API object alone does not tell: a pod deleted with force vanishes from it while its processes still run.
Both drivers' names are known: ``.../pod<uid>`` and ``...-pod<uid with _>.slice``.
"""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

MAX_DEPTH: Final = 6
_POD: Final = re.compile(
    r"(?:.*-)?pod(?:[0-9a-f]{32}|[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?:\.slice)?"
)
"""Static pods have a UID without dashes. ``podruntime.slice`` and ``podman`` are no pods."""
_V1_CONTROLLERS: Final = ("memory", "pids", "cpu", "cpuset")


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
