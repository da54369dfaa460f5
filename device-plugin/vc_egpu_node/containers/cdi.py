"""CDI specs: one file per container, written before the container is created, removed once it is gone.

A file is also the agent's record of what it let in: the grant stands in the device's annotations. So a
restarted agent knows what its containers hold. After a reboot the folder is empty, and the node holds
nothing.
"""

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import CardShare

from vc_egpu_node.containers.admission import HeldShare, ShareClass
from vc_egpu_node.files import read_promptly, write_atomically
from vc_egpu_node.vendors.base import Edits
from vc_egpu_node.vendors.registry import HIDE
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import SliceError

log = logging.getLogger(__name__)

CDI_VERSION: Final = "0.6.0"
"""The first with annotations; every runtime with CDI in the kubelet's sense reads it."""
FILE_PREFIX: Final = names.CDI_KIND.replace("/", "-") + "-"
GRANT_ANNOTATION: Final = f"{names.DOMAIN}/grant"
GANG_ANNOTATION: Final = f"{GRANT_ANNOTATION}-pods"
ALONE_ANNOTATION: Final = f"{GRANT_ANNOTATION}-without-library"
COMPUTE_ANNOTATION: Final = f"{GRANT_ANNOTATION}-compute"
BACKEND_ANNOTATION: Final = f"{GRANT_ANNOTATION}-backend"
GRANT_VERSION: Final = 1
LIMITS_FOLDER: Final = "/etc/egpu"
"""In the container: read-only, holds ``limits.json``."""


Described = Mapping[str, Mapping[str, Any]]
"""By card UUID: index, model and product, as the container may know them."""


class ControlError(ValueError):
    """A grant cannot be put on a page; the text names what and the limit."""


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
    gang_pods: int = 1
    """Pods that run at once with this one."""
    without_library: bool = False
    """Its cards are of a vendor for which there is no library of ours: it has them whole, or a slice."""
    backend: str = "library"
    """What keeps its shares to their memory: ``library``, ``driver`` or ``none``. With ``driver`` the library
    is there, too. It stays as its node had it when the container was let in."""
    compute: str = "library"
    """What shares its time, likewise: ``library``, ``mps`` or ``timeslice``."""

    @property
    def unheld(self) -> bool:
        """Whether no higher class holds its launches. Another pod of the gang may wait for one of them, and
        would spin on its own card next to high. The driver's time slice decides there."""
        return self.share_class == "low" and self.gang_pods > 1

    @property
    def swap(self) -> bool:
        """Whether it has its cards in turns with others."""
        return any(share.swap for share in self.shares)

    @property
    def sliced(self) -> bool:
        """Whether it has slices of fixed size, which the card keeps apart without the library."""
        return any(share.slice for share in self.shares)

    @property
    def limited(self) -> bool:
        """Whether the isolation library holds it to its shares."""
        return self.of_shares and self.backend != "none"

    @property
    def of_shares(self) -> bool:
        """Whether it has shares of any size, which others may have of the same cards."""
        return not self.native and not self.sliced and not self.without_library

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
                physical_mib=share.physical_mib,
                swap=bool(share.swap),
            )
            for share in self.shares
        )

    @property
    def cards_json(self) -> str:
        """This container's entry of the cards annotation."""
        shares = [_plain(share) for share in self.shares]
        return json.dumps(shares, separators=(",", ":"))


def _plain(share: CardShare) -> dict[str, Any]:
    return share.model_dump(by_alias=True, exclude_none=True)


def qualified(name: str) -> str:
    """``<vendor>/<class>=<name>``, as the kubelet passes it to the runtime."""
    return f"{names.CDI_KIND}={name}"


class Isolates(Protocol):
    """What makes grants hold inside the container: :class:`vc_egpu_node.isolation.lifecycle.Isolation`."""

    def prepare(self, grant: Grant, grants: Callable[[], Iterable[Grant]]) -> dict[str, Any]:
        """Everything in place before the container starts; edits (mounts, hooks) on top."""

    def record(self, grant: Grant) -> dict[str, Any]:
        """The edits of a container that runs, for its record; nothing is touched."""

    def release(self, grant: Grant, grants: Callable[[], Iterable[Grant]]) -> None:
        """The container is gone."""

    def forget(self, name: str) -> None:
        """The same for a container without an owner: an earlier agent left it."""


class Serves(Protocol):
    """What gives containers an MPS server: :class:`vc_egpu_node.mps.room.MpsRoom`."""

    def prepare(self, grant: Grant) -> dict[str, Any]:
        """Have its card served before the container starts; edits on top."""

    def record(self, grant: Grant) -> dict[str, Any]:
        """The edits of a container that runs, for its record."""


def _both(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    """Edits of both, lists joined."""
    return {key: [*one.get(key, ()), *two.get(key, ())] for key in (*one, *(two.keys() - one.keys()))}


def spec_of(
    grant: Grant, cards: Edits, limits_folder: Path, isolation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The CDI document: exactly this container's cards, and nothing that would open another one."""
    own_env = [f"{names.ENV_CARDS}={grant.cards_json}", *(f"{k}={v}" for k, v in HIDE.items())]
    overruled = {entry.split("=", 1)[0] for entry in own_env}
    edits = cards.merged()
    edits["env"] = [e for e in edits.get("env", ()) if e.split("=", 1)[0] not in overruled] + own_env
    edits["mounts"] = [
        *edits.get("mounts", ()),
        {
            "hostPath": str(limits_folder),
            "containerPath": LIMITS_FOLDER,
            "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
        },
    ]
    for key, entries in (isolation or {}).items():
        if entries:
            edits[key] = [*edits.get(key, ()), *entries]
    record = {"version": GRANT_VERSION, **asdict(grant)}
    record["shares"] = [_plain(share) for share in grant.shares]
    pods = str(record.pop("gang_pods"))  # annotations of their own: older agents read the record whole
    alone, backend = record.pop("without_library"), record.pop("backend")
    compute = record.pop("compute")
    return {
        "cdiVersion": max(CDI_VERSION, cards.cdi_version, key=_version_key),
        "kind": names.CDI_KIND,
        "devices": [
            {
                "name": grant.name,
                "annotations": {
                    GRANT_ANNOTATION: json.dumps(record, separators=(",", ":")),
                    GANG_ANNOTATION: pods,
                    **({ALONE_ANNOTATION: "true"} if alone else {}),
                    **({BACKEND_ANNOTATION: backend} if backend != "library" else {}),
                    **({COMPUTE_ANNOTATION: compute} if compute != "library" else {}),
                },
                "containerEdits": edits,
            }
        ],
    }


def limits_of(grant: Grant, described: Described) -> dict[str, Any]:
    """The document that a container reads about itself."""
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
        "cards": [{**_plain(share), **described.get(share.uuid, {})} for share in grant.shares],
    }


class GrantFolder:
    """The CDI specs of this node's containers, and the grants in them. Thread-safe."""

    def __init__(
        self,
        cdi_dir: Path,
        limits_dir: Path,
        isolation: Isolates | None = None,
        slices: SliceBook | None = None,
        servers: Serves | None = None,
    ) -> None:
        self._cdi_dir = cdi_dir
        self._slices = slices
        self._servers = servers
        self._limits_dir = limits_dir
        self._isolation = isolation
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

    def write(self, grant: Grant, cards: Edits, described: Described) -> None:
        """Write the files of a container that is about to start. A spec that says the same already is left
        alone: every change makes the runtime read all specs again. Raises ``OSError`` and, where the library
        cannot be told of the grant, :class:`ControlError`."""
        folder = self._folder(grant)
        library = self._library(grant)
        isolation = library.prepare(grant, self.all) if library is not None else {}
        served = self._servers.prepare(grant) if self._servers is not None else {}
        isolation = _both(isolation, served)
        self._put(grant, folder, spec_of(grant, cards, folder, isolation), described)

    def record(self, grant: Grant, cards: Edits, described: Described) -> None:
        """Write the files of a container that runs. Raises ``OSError``."""
        folder = self._folder(grant)
        library = self._library(grant)
        isolation = library.record(grant) if library is not None else {}
        served = self._servers.record(grant) if self._servers is not None else {}
        isolation = _both(isolation, served)
        self._put(grant, folder, spec_of(grant, cards, folder, isolation), described)

    def _library(self, grant: Grant) -> Isolates | None:
        return None if grant.sliced or grant.without_library or grant.backend == "none" else self._isolation

    def _folder(self, grant: Grant) -> Path:
        folder = self._limits_dir / grant.name
        folder.mkdir(exist_ok=True, mode=0o755)
        return folder

    def _put(self, grant: Grant, folder: Path, spec: Mapping[str, Any], described: Described) -> None:
        _write_if_other(folder / "limits.json", json.dumps(limits_of(grant, described), indent=1) + "\n")
        _write_if_other(self.path(grant.name), json.dumps(spec))

    def leftovers(self) -> dict[str, str]:
        """Folders of containers that have neither grant nor spec, by name: UID of the pod, empty where none
        was noted yet. Raises ``OSError``."""
        found = {}
        for folder in self._limits_dir.iterdir():
            if self.get(folder.name) is None and not self.path(folder.name).exists():
                try:
                    found[folder.name] = str(json.loads(read_promptly(folder / "limits.json"))["podUid"])
                except FileNotFoundError:
                    found[folder.name] = ""
                except (OSError, ValueError, KeyError, TypeError) as error:
                    log.debug("whose %s is cannot be read: %s", folder, error)
        return found

    def release(self, name: str) -> None:
        """The container is gone: its spec first, then its slices, its folder and the grant. Raises
        ``OSError`` where the driver keeps a slice."""
        self.path(name).unlink(missing_ok=True)
        grant = self.get(name)
        try:
            if self._slices is not None:
                self._slices.release(name)
        except SliceError as error:
            raise OSError(f"its slice stays on the card: {error}") from error
        if self._isolation is not None and grant is not None:
            self._isolation.release(grant, self.all)
        elif self._isolation is not None:
            self._isolation.forget(name)
        try:
            shutil.rmtree(self._limits_dir / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s was not removed: %s", self._limits_dir / name, error)
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
        record["gang_pods"] = int(device["annotations"].get(GANG_ANNOTATION, 1))
        record["without_library"] = ALONE_ANNOTATION in device["annotations"]
        record["backend"] = str(device["annotations"].get(BACKEND_ANNOTATION, "library"))
        record["compute"] = str(device["annotations"].get(COMPUTE_ANNOTATION, "library"))
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
        if read_promptly(path) == text.encode():
            return
    except OSError:
        pass
    write_atomically(path, text)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
