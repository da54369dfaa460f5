"""Memory limits that the card's own driver holds for containers: set before a program starts, kept current,
cleared.

The library counts and limits as well. The driver also holds what goes past the library: root in the
container, static programs, and memory that no call tells of.

A file in the container's folder says which control group was limited, and to what. It is written before the
driver is called. So an agent that was killed at any point finds its limits again. A group that is gone has no
limit any more."""

import json
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.cgroups import GroupError
from vc_egpu_node.files import read_promptly, write_atomically
from vc_egpu_node.vendors.base import MemoryLimits
from vc_egpu_node.vendors.slices import SliceError

log = logging.getLogger(__name__)

RECORD_NAME: Final = "driver-limits.json"
"""In a container's folder."""
ABSENT: Final = "absent"


class Groups(Protocol):
    """Control groups of the host: :class:`vc_egpu_node.containers.cgroups.ContainerGroups`."""

    def trouble(self) -> str:
        """Why the driver can limit none of them; empty: it can."""

    def of_process(self, pid: int, pod_uid: str) -> Path:
        """The folder of the container of that pod whose process it is. Raises :class:`GroupError`."""

    def own(self) -> Path | None:
        """That of the agent's own container; None: it is in none."""


@dataclass(frozen=True, slots=True)
class Record:
    """What was set, or was about to be, for one container."""

    group: str
    inode: int
    """With the folder's name it is one group and no later one."""
    mib: Mapping[str, int]
    """By card UUID."""

    @property
    def folder(self) -> Path | None:
        """None: the group is gone, and its limits with it."""
        try:
            return Path(self.group) if Path(self.group).stat().st_ino == self.inode else None
        except OSError:
            return None


def wanted(grant: Grant) -> dict[str, int]:
    """MiB by card UUID: what may lie on the card."""
    return {share.uuid: share.most_on_card_mib for share in grant.shares}


class DriverLimits:
    """Limits of all containers of the node. Thread-safe."""

    def __init__(self, limits: MemoryLimits, folder: Path, groups: Groups) -> None:
        """``folder`` holds a folder per container."""
        self._limits = limits
        self._folder = folder
        self._groups = groups
        self._lock = threading.Lock()
        self._behind: dict[str, str] = {}
        self._refused = ""
        self._tried = False

    # --- what the node can ------------------------------------------------------------------------

    def trouble(self, cards: Collection[str]) -> str:
        """Why no container is limited by the driver here; empty: they are, or that is not known yet.
        ``cards``: UUIDs of those whose driver has the functions. The driver is asked once, on this agent's
        own control group."""
        with self._lock:
            found = self._groups.trouble()
            if not found and not self._tried and cards:
                self._tried = True
                self._try(min(cards))
            return found or self._refused

    def _try(self, uuid: str) -> None:
        own = self._groups.own()
        if own is None:
            return
        try:
            self._limits.clear(uuid, own)
        except SliceError as error:
            self._note_refusal(error)

    def _note_refusal(self, error: SliceError) -> None:
        """What is so for all containers. A driver that was only late may answer the next time."""
        if error.why in {"not-permitted", "not-supported"} and not self._refused:
            hint = "; components/driver-root gives the right" if error.why == "not-permitted" else ""
            self._refused = f"the driver does not set memory limits for this agent: {error}{hint}"
            log.warning("%s", self._refused)

    # --- one container ----------------------------------------------------------------------------

    def started(self, grant: Grant | None, pid: int) -> str:
        """The runtime is about to start the program of that process: why it may not; empty: it is limited."""
        if grant is None or grant.backend != "driver":
            return "the node agent knows of no such container"
        try:
            folder = self._groups.of_process(pid, grant.pod_uid)
            record = Record(str(folder), folder.stat().st_ino, wanted(grant))
            with self._lock:
                self._write(grant.name, record)
                self._set(grant.name, record, folder)
        except (GroupError, OSError, SliceError) as error:
            return str(error)
        return ""

    def change(self, grant: Grant) -> None:
        """Other limits while it runs. What the driver does not do now is tried again by :meth:`settle`."""
        if grant.backend != "driver":
            return
        with self._lock:
            record = self._read(grant.name)
            folder = record.folder if record is not None else None
            if record is None or folder is None:
                self._behind.pop(grant.name, None)
                return
            now = Record(record.group, record.inode, wanted(grant))
            try:
                self._write(grant.name, now)
                self._set(grant.name, now, folder)
            except (OSError, SliceError) as error:
                of = f"{grant.namespace}/{grant.pod}/{grant.container}"
                text = f"the driver's limit of {of} was not changed: {error}"
                if self._behind.get(grant.name) != text:
                    log.warning("%s", text)
                self._behind[grant.name] = text

    def behind(self, name: str) -> str:
        """Why the driver holds it to other limits than were granted; empty: it does not."""
        with self._lock:
            return self._behind.get(name, "")

    def settle(self, grants: Iterable[Grant]) -> None:
        """Try again what was not done."""
        with self._lock:
            names = set(self._behind)
        for grant in grants if names else ():
            if grant.name in names:
                self.change(grant)

    def release(self, name: str) -> None:
        """The container is gone: a group that is still there is limited no more."""
        with self._lock:
            self._behind.pop(name, None)
            record = self._read(name)
            if record is not None:
                self._clear(record)
                (self._folder / name / RECORD_NAME).unlink(missing_ok=True)

    def recover(self, grants: Iterable[Grant]) -> None:
        """After an earlier agent: what it was about to set is set, and what nobody has is cleared."""
        known = {grant.name: grant for grant in grants}
        for path in sorted(self._folder.glob(f"*/{RECORD_NAME}")):
            grant = known.get(path.parent.name)
            if grant is not None and grant.backend == "driver":
                self.change(grant)
            else:
                self.release(path.parent.name)

    # --- inside the lock --------------------------------------------------------------------------

    def _set(self, name: str, record: Record, folder: Path) -> None:
        for uuid, mib in record.mib.items():
            try:
                self._limits.limit(uuid, folder, mib)
            except SliceError as error:
                self._note_refusal(error)
                raise
        self._behind.pop(name, None)

    def _clear(self, record: Record) -> None:
        for uuid in record.mib:
            folder = record.folder
            if folder is None:
                return
            try:
                self._limits.clear(uuid, folder)
            except SliceError as error:
                if error.why != ABSENT:  # it ended meanwhile
                    log.warning("the limit of %s on card %s stays: %s", record.group, uuid, error)

    def _write(self, name: str, record: Record) -> None:
        write_atomically(self._folder / name / RECORD_NAME, json.dumps(asdict(record)))

    def _read(self, name: str) -> Record | None:
        try:
            found = json.loads(read_promptly(self._folder / name / RECORD_NAME))
            mib = {str(uuid): int(size) for uuid, size in found["mib"].items()}
            return Record(str(found["group"]), int(found["inode"]), mib)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("which limits %s has is not known: %s", name, error)
            return None
