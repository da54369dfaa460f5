"""Room on the disk that the machines of a cluster share with this one."""

from __future__ import annotations

import shutil
from pathlib import Path

from localcluster.errors import LocalClusterError

NODE_MIB = 700
"""What a real node unpacks and writes: our image and the images of the stories took 510."""
CONTROL_PLANE_MIB = 300
"""etcd with its log ahead of writes took 140."""


def shortage(free_mib: int, real_nodes: int, place: Path) -> str | None:
    """Why a cluster of so many real nodes cannot be kept below ``place``, in a sentence; None if it can."""
    wanted_mib = CONTROL_PLANE_MIB + real_nodes * NODE_MIB
    if free_mib >= wanted_mib:
        return None
    return (
        f"the disk of {place} has {free_mib} MiB left, and {real_nodes} real nodes want {wanted_mib}: "
        "free some, or name a folder on another disk in VC_EGPU_STATE"
    )


def ensure(real_nodes: int, place: Path) -> None:
    """Raises :class:`LocalClusterError` if the disk of ``place`` is too full for such a cluster."""
    existing = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    said = shortage(shutil.disk_usage(existing).free >> 20, real_nodes, place)
    if said:
        raise LocalClusterError(said)
