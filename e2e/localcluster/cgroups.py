"""One control group per node, in every hierarchy, so that kubelets do not clean away each other's pods."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.patience import stretched

MOUNT = Path("/sys/fs/cgroup")
PARENT = "vc-egpu"
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def is_v2() -> bool:
    """Whether the unified hierarchy is the only one."""
    return (MOUNT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Roots of all hierarchies that a kubelet may look into."""
    if is_v2():
        return [MOUNT]
    if not MOUNT.is_dir():  # as in some sandboxes: clusters without real nodes run there
        return []
    return sorted(path for path in MOUNT.iterdir() if path.is_dir() and not path.is_symlink())


def create(group: str) -> None:
    """Make ``/vc-egpu/<group>`` everywhere; cpuset is filled in, or nothing could run there."""
    for root in hierarchies():
        folder = root
        for part in (PARENT, *Path(group).parts):
            if is_v2():
                _enable_controllers(folder)
            folder = folder / part
            _make(folder)
            if (folder / "cpuset.cpus").exists() and not is_v2():
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (folder / name).write_text((folder.parent / name).read_text())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise LocalClusterError(
            f"control group {folder} cannot be made ({error.strerror}): real nodes need a {MOUNT} to write "
            "to, which a container has that is privileged"
        ) from error


def _enable_controllers(folder: Path) -> None:
    there = (folder / "cgroup.controllers").read_text().split()
    for controller in _V2_CONTROLLERS:
        if controller in there:
            with contextlib.suppress(
                OSError
            ):  # a controller in use by version 1, or busy: kubelet will say so
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(group: str, timeout_s: float = 20) -> None:
    """Remove ``/vc-egpu/<group>`` and all below it; waits until its processes have left."""
    deadline = time.monotonic() + stretched(timeout_s)
    for root in hierarchies():
        top = root / PARENT / group
        for folder in _leaf_first(top):
            while True:
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise LocalClusterError(
                            f"control group {folder} cannot be removed: {error.strerror}"
                        ) from error
                    time.sleep(0.02)
        with contextlib.suppress(OSError):  # another cluster is still there
            (root / PARENT).rmdir()


def leftovers() -> set[str]:
    """Names of the groups directly below ``/vc-egpu``."""
    return {path.name for root in hierarchies() for path in (root / PARENT).glob("*") if path.is_dir()}


def _leaf_first(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for child in folder.iterdir():
        if child.is_dir():
            yield from _leaf_first(child)
    yield folder
