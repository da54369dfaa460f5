"""containerd's folder with images in it, prepared once: nodes start from links to its files.

An import unpacks some ten thousand files into each node, and all go with the cluster. Besides the work
itself, ext4 without a journal looks at each inode that was removed in the last minutes when it makes another:
clusters that come and go one after the other each made the next one's import slower.

Only what is never written again is shared, which is blobs and committed snapshots; containerd's own databases
are copied.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from localcluster import room, toolchain
from localcluster.api import wait_until
from localcluster.ctr import import_archive
from localcluster.errors import LocalClusterError
from localcluster.packages import util_linux
from localcluster.procs import ManagedProcess, answers
from localcluster.render import importing_config
from localcluster.state import locked, state_root
from localcluster.toolchain import Say

_UNFINISHED: Final = "unfinished"
_SHARED: Final = (
    "io.containerd.content.v1.content/blobs",
    "io.containerd.snapshotter.v1.overlayfs/snapshots",
)
_KEPT_OTHERS: Final = 2
"""Prepared folders are half a GiB each."""


def prepared(archives: Sequence[Path], version: str, environment: dict[str, str], say: Say) -> Path:
    """Folder with these archives imported by containerd ``version`` ("": the usual one).

    It lies beside the clusters and not in the cache, which may be on an overlay or on another disk.
    """
    containerd = toolchain.program("containerd", runtime=version)
    # Names of archives carry their digest, and the folder of a program its version.
    recipe = f"{containerd.parent} {sorted(archive.name for archive in archives)}"
    folder = state_root() / ".containerd" / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    with locked(folder.parent / "lock"):
        if folder.is_dir():
            folder.touch()  # in use: it stays
            return folder
        shutil.rmtree(folder.parent / _UNFINISHED, ignore_errors=True)
        names = ", ".join(archive.name.rpartition("-")[0] for archive in archives)
        say(f"unpacking {names}: once, for all nodes")
        _import(folder.parent / _UNFINISHED, archives, version, environment)
        (folder.parent / _UNFINISHED).rename(folder)
        others = (path for path in folder.parent.iterdir() if path.is_dir() and path != folder)
        for path in room.unused(others, _KEPT_OTHERS, time.time()):
            shutil.rmtree(path, ignore_errors=True)  # what nodes have links to stays theirs
    return folder


def fill(target: Path, source: Path) -> None:
    """Make ``target``, the containerd folder of a node that never ran, like the prepared ``source``."""
    target.mkdir(parents=True, exist_ok=True)
    _copy(["--archive"], [path for path in source.iterdir() if not _leads_to_shared(path, source)], target)
    for shared in _SHARED:
        plugin = source / Path(shared).parent
        into = target / plugin.name
        into.mkdir(exist_ok=True)
        shutil.copystat(plugin, into)
        _copy(["--archive"], [path for path in plugin.iterdir() if path.name != Path(shared).name], into)
        if not _linked(source / shared, into):
            _copy(["--archive"], [source / shared], into)


def _leads_to_shared(path: Path, source: Path) -> bool:
    return any((source / shared).is_relative_to(path) for shared in _SHARED)


def _linked(folder: Path, into: Path) -> bool:
    """False on a file system without links."""
    try:
        _copy(["--archive", "--link"], [folder], into)
    except LocalClusterError:
        shutil.rmtree(into / folder.name, ignore_errors=True)
        return False
    return True


def _copy(flags: Sequence[str], paths: Sequence[Path], into: Path) -> None:
    if not paths:
        return
    command = ["cp", *flags, "--", *map(str, paths), str(into)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LocalClusterError(f"copying images into a node failed: {result.stderr.strip()[-800:]}")


def _import(root: Path, archives: Sequence[Path], version: str, environment: dict[str, str]) -> None:
    """Run a containerd with mounts of its own for as long as it takes; it ends with us, however we end."""
    # Not beside the clusters, where the path may be too long for a socket's.
    with tempfile.TemporaryDirectory(prefix="vc-egpu-images-") as short:
        work = Path(short)
        config, socket = work / "containerd.toml", work / "containerd.sock"
        config.write_text(importing_config(root, work, socket, version=version))
        guard = [util_linux("setpriv"), "--pdeathsig", "KILL", util_linux("unshare"), "--mount"]
        process = ManagedProcess("containerd", work / "pid", work / "log")
        containerd, ctr = (str(toolchain.program(name, runtime=version)) for name in ("containerd", "ctr"))
        process.launch([*guard, "--", containerd, "--config", str(config)], environment)

        def alive() -> None:
            if not process.alive():
                raise LocalClusterError(f"containerd, which unpacks images, has ended:\n{process.log_tail()}")

        try:
            wait_until("containerd answering", lambda: answers(socket), 30, alive)
            for archive in archives:
                import_archive([ctr, "--address", str(socket)], archive, environment)
        finally:
            process.stop()
