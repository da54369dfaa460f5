"""CDI specs: one file per container, written before the container is created, removed once it is gone.

A file also is the agent's record of what it let in: the grant stands in the device's annotations, so that a
restarted agent knows what its containers hold, and a rebooted node (whose folder is empty) holds nothing.
"""

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from vc_egpu.volcano import names
from vc_egpu.volcano.annotations import CardShare

from vc_egpu_node.admission import HeldShare, ShareClass
from vc_egpu_node.state import write_atomically
from vc_egpu_node.toolkit import Edits

log = logging.getLogger(__name__)

CDI_VERSION: Final = "0.6.0"
"""The first with annotations; every runtime with CDI in the kubelet's sense reads it."""
FILE_PREFIX: Final = names.CDI_KIND.replace("/", "-") + "-"
GRANT_ANNOTATION: Final = f"{names.DOMAIN}/grant"
GRANT_VERSION: Final = 1
LIMITS_FOLDER: Final = "/etc/egpu"
"""In the container: read-only, holds ``limits.json``."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container was let in with. Never changes for the life of the container."""

    name: str
    """CDI device name."""
    resource: str
    ids: tuple[str, ...]
    """Slots of that resource."""
    pod_uid: str
    namespace: str
    pod: str
    container: str
    plan_id: str
    epoch: int
    share_class: ShareClass
    core_policy: str
    native: bool
    shares: tuple[CardShare, ...]
    granted_at_s: float
    """Unix time."""

    @property
    def held(self) -> tuple[HeldShare, ...]:
        """The shares as the room check sees them."""
        return tuple(
            HeldShare(
                pod_uid=self.pod_uid,
                container=self.container,
                uuid=share.uuid,
                memory_mib=share.memory_mib,
                cores_percent=share.cores,
                share_class=self.share_class,
                native=self.native,
                epoch=self.epoch,
            )
            for share in self.shares
        )

    @property
    def cards_json(self) -> str:
        """This container's entry of the cards annotation."""
        shares = [share.model_dump(by_alias=True) for share in self.shares]
        return json.dumps(shares, separators=(",", ":"))


def qualified(name: str) -> str:
    """``<vendor>/<class>=<name>``, as the kubelet passes it to the runtime."""
    return f"{names.CDI_KIND}={name}"


def spec_of(grant: Grant, toolkit: Edits, limits_folder: Path) -> dict[str, Any]:
    """The CDI document: exactly this container's cards, and nothing that would open another one."""
    own_env = [f"{names.ENV_CARDS}={grant.cards_json}", "NVIDIA_VISIBLE_DEVICES=void"]
    overruled = {entry.split("=", 1)[0] for entry in own_env}
    edits = toolkit.merged()
    edits["env"] = [e for e in edits.get("env", ()) if e.split("=", 1)[0] not in overruled] + own_env
    edits["mounts"] = [
        *edits.get("mounts", ()),
        {
            "hostPath": str(limits_folder),
            "containerPath": LIMITS_FOLDER,
            "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
        },
    ]
    record = {"version": GRANT_VERSION, **asdict(grant)}
    record["shares"] = [share.model_dump(by_alias=True) for share in grant.shares]
    return {
        "cdiVersion": max(CDI_VERSION, toolkit.cdi_version, key=_version_key),
        "kind": names.CDI_KIND,
        "devices": [
            {
                "name": grant.name,
                "annotations": {GRANT_ANNOTATION: json.dumps(record, separators=(",", ":"))},
                "containerEdits": edits,
            }
        ],
    }


def limits_of(grant: Grant, cards: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document that a container reads about itself; ``cards`` adds index, model and product by UUID."""
    return {
        "version": 1,
        "namespace": grant.namespace,
        "pod": grant.pod,
        "podUid": grant.pod_uid,
        "container": grant.container,
        "planId": grant.plan_id,
        "class": grant.share_class,
        "corePolicy": grant.core_policy,
        "native": grant.native,
        "cards": [{**share.model_dump(by_alias=True), **cards.get(share.uuid, {})} for share in grant.shares],
    }


class GrantFolder:
    """The CDI specs of this node's containers, and the grants in them. Thread-safe."""

    def __init__(self, cdi_dir: Path, limits_dir: Path) -> None:
        self._cdi_dir = cdi_dir
        self._limits_dir = limits_dir
        self._lock = threading.Lock()
        self._grants: dict[str, Grant] = {}
        cdi_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        limits_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        for path in sorted(cdi_dir.glob(f"{FILE_PREFIX}*.json")):
            grant = read_grant(path)
            if grant is not None:
                self._grants[grant.name] = grant
        for leftover in cdi_dir.glob(f".{FILE_PREFIX}*.tmp"):
            leftover.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Where the spec of that device is."""
        return self._cdi_dir / f"{FILE_PREFIX}{name}.json"

    def get(self, name: str) -> Grant | None:
        """The grant behind a device name."""
        with self._lock:
            return self._grants.get(name)

    def all(self) -> list[Grant]:
        """All grants that are held."""
        with self._lock:
            return list(self._grants.values())

    def reserve(self, grant: Grant) -> None:
        """Count the grant as held, before anything is written."""
        with self._lock:
            self._grants[grant.name] = grant

    def write(self, grant: Grant, toolkit: Edits, cards: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the container's files; a spec that is there already and says the same is left alone (every
        change makes the runtime read all specs again). Raises ``OSError``."""
        folder = self._limits_dir / grant.name
        folder.mkdir(exist_ok=True, mode=0o755)
        _write_if_other(folder / "limits.json", json.dumps(limits_of(grant, cards), indent=1) + "\n")
        _write_if_other(self.path(grant.name), json.dumps(spec_of(grant, toolkit, folder)))

    def release(self, name: str) -> None:
        """The container is gone: its spec first, then its folder, then the grant."""
        self.path(name).unlink(missing_ok=True)
        folder = self._limits_dir / name
        if folder.is_dir():
            (folder / "limits.json").unlink(missing_ok=True)
            try:
                folder.rmdir()
            except OSError as error:
                log.warning("%s was not removed: %s", folder, error)
        with self._lock:
            self._grants.pop(name, None)


def read_grant(path: Path) -> Grant | None:
    """The grant in one of our CDI specs; None (and a log line) if it cannot be read."""
    try:
        device = json.loads(path.read_text(encoding="utf-8"))["devices"][0]
        record = json.loads(device["annotations"][GRANT_ANNOTATION])
        if record.pop("version") != GRANT_VERSION:
            raise ValueError("written by another version")
        record["shares"] = tuple(CardShare.model_validate(share) for share in record["shares"])
        record["ids"] = tuple(str(one) for one in record["ids"])
        grant = Grant(**record)
        if path.name != f"{FILE_PREFIX}{grant.name}.json":
            raise ValueError(f"names device {grant.name}")
        _ = grant.held  # validates the numbers
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        log.warning("%s is no spec of this agent: %s", path, error)
        return None
    return grant


def _write_if_other(path: Path, text: str) -> None:
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write_atomically(path, text)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
