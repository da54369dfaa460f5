"""Where a cluster keeps its files, and which address block is whose."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localcluster.errors import LocalClusterError
from localcluster.procs import ManagedProcess, ProcessIdentity
from localcluster.spec import ClusterSpec, check_name

Phase = Literal["starting", "up", "stopping"]
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")
_HIDDEN = (Path("/run"), Path("/var/run"), Path("/proc"))
_RECORD = "cluster.json"
MARK = "vc-egpu-cluster"
"""An empty file that tells the folder of a cluster, or what is left of one, from any other. It goes last."""
LONGEST_SOCKET = 100  # sun_path holds 108 bytes
ETCD_SOCKET = "etcd.sock"
KUBELET_SOCKET = "kubelet/pod-resources/kubelet.sock"
"""The deepest one in a node's folder."""


def state_root() -> Path:
    """Folder of all clusters of this user."""
    default = Path.home() / ".local" / "state" / "vc-egpu"
    return Path(os.environ.get("VC_EGPU_STATE") or default).resolve()


def cache_root() -> Path:
    """Folder of what is built once."""
    default = Path.home() / ".cache" / "vc-egpu"
    return Path(os.environ.get("VC_EGPU_CACHE") or default).resolve()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on ``path``; it falls with the process whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """What is known of a cluster without asking it. ``block`` is the second byte of its 10.x.0.0/16."""

    spec: ClusterSpec
    block: int | None
    ports: dict[str, int]
    phase: Phase
    owner: ProcessIdentity | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``from_json`` reads back."""
        owner = self.owner
        return {
            "version": 1,
            "spec": self.spec.to_json(),
            "block": self.block,
            "ports": self.ports,
            "phase": self.phase,
            "owner": {"pid": owner.pid, "start_ticks": owner.start_ticks, "boot_id": owner.boot_id}
            if owner
            else None,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> ClusterRecord:
        """Read what ``to_json`` wrote."""
        owner = raw.get("owner")
        return cls(
            spec=ClusterSpec.from_json(raw["spec"]),
            block=raw["block"],
            ports=dict(raw["ports"]),
            phase=raw["phase"],
            owner=ProcessIdentity(**owner) if owner else None,
        )


@dataclass(frozen=True, slots=True)
class StateDir:
    """The files of one cluster."""

    path: Path

    @classmethod
    def of(cls, name: str) -> StateDir:
        """State folder of the cluster ``name``; it need not exist. What is no name is refused."""
        check_name(name)
        return cls(state_root() / name)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.path.name

    @property
    def holds_cluster(self) -> bool:
        """Whether there is one, or what is left of one. VC_EGPU_STATE may name a folder with others in it."""
        with contextlib.suppress(PermissionError):  # another user's
            return (self.path / MARK).is_file() or _is_record(self.path / _RECORD)
        return False

    @property
    def unique_id(self) -> str:
        """Name that no cluster of another user or state root has: for control groups."""
        return f"{self.name}-{hashlib.sha256(str(self.path).encode()).hexdigest()[:8]}"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.path / "pki"

    @property
    def config(self) -> Path:
        """Rendered configuration and kubeconfigs of the components."""
        return self.path / "config"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.path / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """JSON lines of the API server's audit log."""
        return self.path / "audit.log"

    @property
    def pids(self) -> Path:
        """Pid files."""
        return self.path / "pids"

    @property
    def lock_file(self) -> Path:
        """Held while the cluster is started or stopped."""
        return self.path.parent / f".{self.name}.lock"

    def node_dir(self, node: str) -> Path:
        """The files of one real node."""
        return self.path / "nodes" / node

    def process(self, name: str) -> ManagedProcess:
        """The managed process ``name`` (``kubelet@node-0`` and the like)."""
        return ManagedProcess(name, self.pids / f"{name}.json", self.path / "log" / f"{name}.log")

    def processes(self) -> list[ManagedProcess]:
        """All processes with a pid file, running or not."""
        return [self.process(path.stem) for path in sorted(self.pids.glob("*.json"))]

    def read(self) -> ClusterRecord | None:
        """The cluster's record; None where there is no such cluster. An error where it cannot be read, as one
        of another version may be."""
        try:
            raw = json.loads((self.path / _RECORD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LocalClusterError(f"{self.path}/{_RECORD} is damaged: {error}") from error
        try:
            return ClusterRecord.from_json(raw)
        except (KeyError, TypeError, AttributeError, ValueError, LocalClusterError) as error:
            raise LocalClusterError(f"{self.path}/{_RECORD} is of another version: {error!r}") from error

    def write(self, record: ClusterRecord) -> None:
        """Write the record, whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        (self.path / MARK).touch()
        fresh = self.path / f"{_RECORD}.tmp"
        fresh.write_text(json.dumps(record.to_json(), indent=1), encoding="utf-8")
        fresh.rename(self.path / _RECORD)

    def check_path(self, spec: ClusterSpec) -> None:
        """Refuse a folder whose name mount options cannot hold, or so deep that sockets cannot be named."""
        if not _PLAIN.fullmatch(str(self.path)):
            raise LocalClusterError(f"state folder {self.path}: only letters, digits and / . _ - can be used")
        if spec.real_nodes:
            for folder, variable in ((self.path, "VC_EGPU_STATE"), (cache_root(), "VC_EGPU_CACHE")):
                # Machines have a /run and a /proc of their own and would not see it.
                if any(folder.is_relative_to(hidden) for hidden in _HIDDEN):
                    raise LocalClusterError(
                        f"{folder} cannot be below /run: set {variable} to another folder"
                    )
            if file_system(self.path, Path("/proc/self/mountinfo").read_text()) == "overlay":
                raise LocalClusterError(
                    f"{self.path} is on an overlay, which cannot hold another one: "
                    "set VC_EGPU_STATE to a folder on ext4, xfs or tmpfs"
                )
        deepest = [self.node_dir(node) / KUBELET_SOCKET for node in spec.real_node_names[-1:]]
        for socket in deepest or [self.path / ETCD_SOCKET]:
            if len(str(socket)) > LONGEST_SOCKET:
                raise LocalClusterError(
                    f"{socket} has {len(str(socket))} characters, a socket may have {LONGEST_SOCKET}: "
                    "set VC_EGPU_STATE to a shorter folder"
                )


def _is_record(file: Path) -> bool:
    """Whether that is a record of ours: versions before the mark have nothing else."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and {"spec", "phase"} <= raw.keys()


def file_system(path: Path, mountinfo: str) -> str:
    """Type of the file system that ``path`` lies on, from the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        fields = line.split()
        point = fields[4]
        # A later mount covers an earlier one at the same place.
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind


def all_clusters() -> list[StateDir]:
    """State folders that exist, damaged ones included, and none of others' beside them."""
    root = state_root()
    if not root.is_dir():
        return []
    found = (StateDir(path) for path in sorted(root.iterdir()) if not path.name.startswith("."))
    return [state for state in found if state.holds_cluster]
