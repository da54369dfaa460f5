"""What must outlive the process: which CDI device name was promised for which slots.

One small file per Allocate answer, written and flushed before the answer leaves. A name holds for the life
of its container and is never used again. So no other container can pick up a stale CDI spec.
"""

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu_node.files import StateError, write_atomically

log = logging.getLogger(__name__)

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Allocation:
    """One promise to the kubelet."""

    name: str
    """CDI device name, without vendor and class."""
    resource: str
    ids: frozenset[str]
    """Slots of that resource."""
    number: int
    """Grows with every promise: of two for the same slots the later one is in force."""
    made_at_s: float
    """Unix time."""


def new_name(resource: str, ids: Collection[str]) -> str:
    """A device name that tells the slots (a digest) and was never given before (a nonce)."""
    digest = hashlib.sha256(",".join([resource, *sorted(ids)]).encode()).hexdigest()[:12]
    return f"{digest}-{secrets.token_hex(8)}"


class AllocationStore:
    """All promises that are in force. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._by_name: dict[str, Allocation] = {}
        self._latest: dict[tuple[str, frozenset[str]], Allocation] = {}
        self._next = 1
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StateError(f"{folder}: {error}") from error
        for path in sorted(folder.glob("*.json")):
            allocation = _read(path)
            if allocation is not None:
                self._keep(allocation)
        for leftover in folder.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)

    def promise(self, resource: str, ids: Collection[str]) -> Allocation:
        """A new name for these slots, durable when this returns. Raises ``OSError``."""
        with self._lock:
            number = self._next
            self._next += 1
        allocation = Allocation(new_name(resource, ids), resource, frozenset(ids), number, time.time())
        self._write(allocation)
        return allocation

    def adopt(self, name: str, resource: str, ids: Collection[str], made_at_s: float) -> None:
        """A promise known from a container's own files, its record here being lost. Raises ``OSError``."""
        with self._lock:
            if name in self._by_name:
                return
            number = self._next
            self._next += 1
        self._write(Allocation(name, resource, frozenset(ids), number, made_at_s))

    def _write(self, allocation: Allocation) -> None:
        document = {
            "version": VERSION,
            "name": allocation.name,
            "resource": allocation.resource,
            "ids": sorted(allocation.ids),
            "number": allocation.number,
            "madeAt": allocation.made_at_s,
        }
        write_atomically(self._folder / f"{allocation.name}.json", json.dumps(document), flush=True)
        with self._lock:
            self._keep(allocation)

    def in_force(self, resource: str, ids: Collection[str]) -> Allocation | None:
        """The latest promise for exactly these slots."""
        with self._lock:
            return self._latest.get((resource, frozenset(ids)))

    def forget(self, name: str) -> None:
        """The container is gone: free its slots and forget the name."""
        with self._lock:
            allocation = self._by_name.pop(name, None)
            if allocation is None:
                return
            key = (allocation.resource, allocation.ids)
            if self._latest.get(key) == allocation:
                del self._latest[key]
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def all(self) -> list[Allocation]:
        """Every promise in force or superseded, but not forgotten."""
        with self._lock:
            return list(self._by_name.values())

    def tells_of(self, name: str) -> bool:
        """Whether there is such a promise, or a file of it that cannot be read (another version's)."""
        with self._lock:
            if name in self._by_name:
                return True
        return any((self._folder / f"{name}{suffix}").exists() for suffix in (".json", ".broken"))

    def ids_in_use(self, resource: str) -> frozenset[str]:
        """Slots that some container holds or may hold."""
        with self._lock:
            held = (one.ids for one in self._by_name.values() if one.resource == resource)
            return frozenset[str]().union(*held)

    def _keep(self, allocation: Allocation) -> None:
        self._by_name[allocation.name] = allocation
        key = (allocation.resource, allocation.ids)
        before = self._latest.get(key)
        if before is None or before.number < allocation.number:
            self._latest[key] = allocation
        self._next = max(self._next, allocation.number + 1)


def _read(path: Path) -> Allocation | None:
    """One file. A broken one is set aside: its container fails closed, and an operator can look."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            log.error("%s has version %r, this agent reads %d", path, document["version"], VERSION)
            return None
        return Allocation(
            name=str(document["name"]),
            resource=str(document["resource"]),
            ids=frozenset(str(one) for one in document["ids"]),
            number=int(document["number"]),
            made_at_s=float(document["madeAt"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.exception("%s is broken and set aside", path, exc_info=error)
        path.replace(path.with_suffix(".broken"))
        return None
