"""Device nodes, groups and driver files of the host as parts of container edits. Shared by the vendors that
have no CDI spec of their own on the node."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.vendors.base import EditsError

VERSION: Final = "0.7.0"
"""The first version of CDI with additional groups."""


def nodes(names: Iterable[str]) -> list[dict[str, Any]]:
    """Entries for device nodes below ``/dev``."""
    return [{"path": f"/dev/{name}"} for name in names]


def missing(dev: Path, names: Iterable[str]) -> str:
    """The first of the device nodes that is not there; empty: all are."""
    return next((f"/dev/{name}" for name in names if not (dev / name).exists()), "")


def groups(dev: Path, names: Iterable[str]) -> list[int]:
    """Groups that may open these nodes. A container has them in addition, so it is never privileged. Root's
    group is left out: it would open more than the nodes."""
    found = set()
    for name in names:
        try:
            found.add((dev / name).stat().st_gid)
        except OSError as error:
            raise EditsError(f"/dev/{name}: {error.strerror}") from error
    return sorted(found - {0})


def read_only(root: Path, places: Iterable[str]) -> list[dict[str, Any]]:
    """Mounts of those files and folders that are there, at the same place. ``root``: where the agent sees the
    host's root."""
    options = ["ro", "rbind", "nosuid", "nodev"]
    return [
        {"hostPath": place, "containerPath": place, "options": options}
        for place in places
        if (root / place.lstrip("/")).exists()
    ]
