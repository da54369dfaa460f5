"""Room on the disk that the machines of a cluster share with this one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from localcluster.errors import LocalClusterError

NODE_MIB = 700
"""What a real node unpacks and writes: our image and those of the stories took 510 where links were not to be
had."""
CONTROL_PLANE_MIB = 300
"""etcd with its log ahead of writes took 140."""

BUILD_MIB = 8000
"""Modules, objects and programs of a build from nothing: 7543 on a fresh Debian 12."""


_IN_USE_S = 3600.0


def unused(paths: Iterable[Path], kept: int, now_s: float) -> list[Path]:
    """Of files or folders of the cache, which other checkouts share, those that may go.

    The ``kept`` used last stay, and what was used in the last hour: somebody may be about to read it.
    """
    used = sorted(((_used_s(path), path) for path in paths), reverse=True)
    return [path for used_s, path in used[kept:] if now_s - used_s > _IN_USE_S]


def _used_s(path: Path) -> float:
    """Whoever uses one touches it. Another process may have removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def build_shortage(left_mib: int, place: Path) -> str | None:
    """What to say before a build from nothing below ``place``; None if there is room."""
    if left_mib >= BUILD_MIB:
        return None
    return (
        f"the disk of {place} has {left_mib} MiB left, and a build from nothing wants {BUILD_MIB}: "
        "it may end in the middle (VC_EGPU_CACHE names a folder on another disk)"
    )


def free_mib(place: Path) -> int:
    """Room on the disk of ``place``, which need not exist yet."""
    existing = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free >> 20


def shortage(left_mib: int, real_nodes: int, place: Path) -> str | None:
    """Why a cluster of so many real nodes cannot be kept below ``place``, in a sentence; None if it can."""
    wanted_mib = CONTROL_PLANE_MIB + real_nodes * NODE_MIB
    if left_mib >= wanted_mib:
        return None
    return (
        f"the disk of {place} has {left_mib} MiB left, and {real_nodes} real nodes want {wanted_mib}: "
        "free some, or name a folder on another disk in VC_EGPU_STATE"
    )


def ensure(real_nodes: int, place: Path) -> None:
    """Raises :class:`LocalClusterError` if the disk of ``place`` is too full for such a cluster."""
    said = shortage(free_mib(place), real_nodes, place)
    if said:
        raise LocalClusterError(said)
