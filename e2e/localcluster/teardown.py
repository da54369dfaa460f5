"""Taking a cluster away, in whatever condition it is: up, half started, crashed, or from before a reboot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from localcluster import cgroups, net
from localcluster.context import Context
from localcluster.controlplane import STOP_ORDER, SWITCH
from localcluster.errors import LocalClusterError
from localcluster.patience import stretched
from localcluster.procs import ProcessIdentity, boot_id, marked
from localcluster.state import MARK, ClusterRecord, StateDir, all_clusters, locked, state_root
from localcluster.toolchain import Say


def remove(state: StateDir, say: Say) -> None:
    """End all processes of a cluster, leaf first, and remove its files. The caller holds the lock.

    Pods and their node go first (the kernel ends them with the machine's first process), then extra
    processes, control plane, etcd, network. Whatever carries the cluster's mark and has no pid file, since
    the Python that started it was killed in between, goes last.
    """
    if not state.path.exists():
        return
    if not state.holds_cluster and any(state.path.iterdir()):
        raise LocalClusterError(
            f"{state.path} is no cluster's folder, and stays as it is: take another name, or move it away"
        )
    record = record_of(state)
    if record:
        with contextlib.suppress(OSError):  # a disk that is full is no reason to go on
            state.write(dataclasses.replace(record, phase="stopping", owner=ProcessIdentity.of(os.getpid())))
    names = {process.name: process for process in state.processes()}
    if any(process.alive() for process in names.values()):
        with contextlib.suppress(OSError):  # what is to end ends, whether or not somebody hears of it
            say(f"stopping {state.name}")
    for name in [name for name in names if name.startswith("machine@")]:
        names[name].kill()
    for name in [name for name in names if "@" in name and not name.startswith("machine@")]:
        names[name].kill()
    for name in [name for name in names if name.startswith("extra-")]:
        names[name].stop(5)
    for name in STOP_ORDER:
        if name in names:
            names[name].stop(5)
    if SWITCH in names:
        names[SWITCH].kill()
    _kill_marked(lambda path: path == state.path)
    cgroups.remove(state.unique_id)
    if record and record.block is not None:
        addresses = net.Addresses(record.block)
        if net.interface_owner(addresses) == str(state.path):
            net.remove_interface(addresses)
    _remove_files(state.path)


def _remove_files(folder: Path) -> None:
    """By what stays to the last it is known whose the rest is, where this is cut off."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
    (folder / MARK).unlink(missing_ok=True)
    folder.rmdir()


def _kill_marked(wanted: Callable[[Path], bool]) -> bool:
    found = False
    for identity, path in marked():
        if wanted(path):
            found = True
            identity.send(signal.SIGKILL)
            identity.wait_gone(stretched(10))
    return found


def record_of(state: StateDir) -> ClusterRecord | None:
    """The cluster's record where it can be read."""
    try:
        return state.read()
    except LocalClusterError:
        return None  # damaged: what can be found without it is ended all the same


def is_leftover(state: StateDir) -> bool:
    """Whether nobody can want this any more: whoever started or stopped it, or wanted it for himself alone,
    has ended, or the machine was started anew."""
    record = record_of(state)
    if record is None:  # damaged, or another version's, which may well run
        return not any(process.alive() for process in state.processes())
    wanted = record.owner.alive() if record.owner else record.phase == "up"
    if not wanted or record.phase != "up":
        return not wanted
    identities = [identity for process in state.processes() if (identity := process.identity())]
    return not any(identity.boot_id == boot_id() and identity.alive() for identity in identities)


def collect(say: Say) -> list[str]:
    """Remove all leftovers of this user's clusters; returns their names."""
    removed = []
    for state in all_clusters():
        with locked(state.lock_file):
            if state.holds_cluster and is_leftover(state):
                say(f"removing what is left of {state.name}")
                remove(state, say)
                removed.append(state.name)
    return removed + _collect_strays(say)


def _collect_strays(say: Say) -> list[str]:
    """End what belongs to clusters of this state root whose files somebody has deleted."""
    removed = []

    def stray(path: Path) -> bool:
        return path.parent == state_root() and not path.exists()

    if _kill_marked(stray):
        say("ended processes of clusters whose state folders are gone")
        removed.append("stray processes")
    for group in cgroups.leftovers():
        state = StateDir(state_root() / group.rpartition("-")[0])
        if state.unique_id == group and not state.path.exists():
            say(f"removing control group {group}")
            cgroups.remove(group)
            removed.append(f"control group {group}")
    return removed


def context_of(state: StateDir) -> Context | None:
    """Context of a cluster with a readable record."""
    record = record_of(state)
    return Context(state, record) if record else None
