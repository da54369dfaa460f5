"""The library's part in a container's life: pages seeded before the start and kept current, and the mounts
of both.

Without a library there is none of this: then containers get cards and nothing that limits them.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.files import read_promptly, write_atomically
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import read_usage
from vc_egpu_node.isolation.ceilings import Ceilings
from vc_egpu_node.isolation.control import (
    MIB,
    CardFacts,
    Control,
    Timings,
    controls,
    encode,
    neighbours,
    shared,
)
from vc_egpu_node.isolation.driver_limits import DriverLimits
from vc_egpu_node.isolation.limits_door import SOCKET_NAME
from vc_egpu_node.isolation.pages import ACTIVITY, USAGE, ControlFile, Fault, KeptOpen, SharedPages
from vc_egpu_node.isolation.unseen_memory import NOTHING, Beyond
from vc_egpu_node.vendors.base import Library

log = logging.getLogger(__name__)

CONTROL_NAME: Final = "control"
SEED_NAME: Final = "seed"
"""In a container's folder: what binds the container a second time, for programs that cannot read the page."""
VERSIONS_NAME: Final = "library-versions"
"""In a container's folder: digests of the library that it was ever started with, one per line."""
LIMITER: Final = "egpu-limits"
"""The hook that asks at the door, see :mod:`.limits_door`."""
PRELOAD_NAME: Final = "ld.so.preload"
"""In a container's folder: its image's preload file with our line, where the hook makes it."""
_WRITABLE: Final = ("rw", "nosuid", "nodev", "noexec", "bind")
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "noexec", "bind")


class Isolation:
    """The pages of all containers of the node. Thread-safe."""

    def __init__(
        self,
        library: Library,
        folder: Path,
        pages: SharedPages,
        *,
        pci_bus_ids: Callable[[], Mapping[str, str]],
        timings: Callable[[], Timings],
        driver: DriverLimits | None = None,
    ) -> None:
        """``folder`` holds a folder per container; ``pci_bus_ids`` is by card UUID. ``driver``: what cards'
        drivers hold themselves, None where they hold nothing."""
        self.library = library
        self.driver = driver
        self.pages = pages
        self._folder = folder
        self._pci_bus_ids = pci_bus_ids
        self._timings = timings
        self._lock = threading.Lock()
        self._kept = KeptOpen()
        self._ceilings = Ceilings(folder)
        self._said: dict[str, Control] = {}
        self._written: dict[Path, tuple[Control, bytes]] = {}
        self._facts: dict[tuple[str, str], CardFacts] = {}
        self._borrowed: set[tuple[str, str]] = set()
        """What a context costs there was seen in other containers only."""
        self._beyond: dict[str, Beyond] = {}
        self._measured: dict[tuple[str, int], int] = {}
        self._paged: set[str] = set()
        self._closed: set[str] = set()
        self._let_go: frozenset[str] = frozenset()
        self.begins_closed: Callable[[Grant], bool] = lambda _grant: False
        """Whether a container that is let in waits with its launches until its gate is opened."""
        for path in folder.glob(f"*/{CONTROL_NAME}"):
            name = path.parent.name
            self._paged.add(name)
            page = self.file(name).read()
            if page is not None:
                self._closed |= {name} if page.suspended else set()
                self._beyond[name] = page.beyond
                self._facts |= {
                    (name, limit.uuid): CardFacts(limit.pci_bus_id, limit.context_bytes)
                    for limit in page.limits
                }

    def file(self, name: str) -> ControlFile:
        """One container's control page."""
        return ControlFile(self._folder / name / CONTROL_NAME)

    def seed(self, name: str) -> ControlFile:
        """What a program goes by that starts while the control page cannot be read."""
        return ControlFile(self._folder / name / SEED_NAME)

    @property
    def paged(self) -> frozenset[str]:
        """Containers that have pages."""
        with self._lock:
            return frozenset(self._paged)

    @property
    def closed(self) -> frozenset[str]:
        """Containers whose launches wait: what they had on their cards may lie on the host."""
        with self._lock:
            return frozenset(self._closed)

    def prepare(self, grant: Grant, grants: Callable[[], Iterable[Grant]]) -> dict[str, Any]:
        """Everything in place before the container starts, its neighbours told; the edits it needs on top.
        Raises ``OSError`` and :class:`vc_egpu_node.isolation.control.ControlError`."""
        if not shared(grant):
            return {}
        with self._lock:
            if not self.library.whole:
                log.error(
                    "%s is not whole any more: put right before %s starts", self.library.folder, grant.name
                )
                self.library = self.library.again()
            new = grant.name not in self._paged
            self._paged.add(grant.name)
            if new and self.begins_closed(grant):
                self._closed.add(grant.name)
            try:
                everyone = [*(one for one in grants() if one.name != grant.name), grant]
                self.pages.clear(grant.name)
                self._beyond.pop(grant.name, None)
                self._note_version(grant.name)
                page = self._pages_of(everyone, [grant.name])[grant.name]
                self._put(grant.name, page)
                self._write(page, self.seed(grant.name))
                self._update(everyone, neighbours(everyone, [grant]) - {grant.name})
            except (OSError, ValueError):
                if new:
                    self._paged.discard(grant.name)
                    self._closed.discard(grant.name)
                raise
        return self._edits(grant)

    def record(self, grant: Grant) -> dict[str, Any]:
        """The edits of a container that runs already, for its record; nothing is touched."""
        return self._edits(grant) if grant.name in self.paged else {}

    def refresh(self, grants: Iterable[Grant], changed: Iterable[Grant] | None = None) -> None:
        """Bring the pages up to date: all, or those that these grants' coming, going or changing touches."""
        with self._lock:
            everyone = list(grants)
            names = neighbours(everyone, changed) if changed is not None else {one.name for one in everyone}
            self._update(everyone, names)

    def release(self, grant: Grant, grants: Callable[[], Iterable[Grant]]) -> None:
        """The container is gone: its neighbours no longer look at it, then its pages go."""
        with self._lock:
            self._drop(grant.name)
            everyone = [one for one in grants() if one.name != grant.name]
            self._update(everyone, neighbours(everyone, [grant]))
        self._ceilings.drop(grant.name)
        self.pages.release(grant.name)
        if self.driver is not None:
            self.driver.release(grant.name)

    def forget(self, name: str) -> None:
        """Drop what an earlier agent left of a container that has no owner."""
        if self.driver is not None:
            self.driver.release(name)
        with self._lock:
            self._drop(name)
        self.pages.release(name)

    def gate(self, own: Iterable[Grant], grants: Iterable[Grant], *, closed: bool) -> None:
        """Let the launches of these containers wait, or go on; ``grants``: all of the node."""
        with self._lock:
            names = {grant.name for grant in own}
            self._closed = self._closed | names if closed else self._closed - names
            self._update(list(grants), names)

    def let_go(self, leaving: Iterable[Grant], grants: Callable[[], Iterable[Grant]]) -> None:
        """Hold no launch of these containers, and of no others for that reason; ``grants``: all of the
        node."""
        with self._lock:
            names = frozenset(grant.name for grant in leaving) & self._paged
            changed, self._let_go = names ^ self._let_go, names
            if changed:
                self._update(list(grants()), changed)

    def tell_measured(self, figures: Mapping[str, Mapping[int, int]], at_ns: int) -> None:
        """Add device time in ns, by container and index of its card, as the driver counted it up to then."""
        with self._lock:
            for name, by_card in figures.items():
                for card, more_ns in by_card.items() if name in self._paged else ():
                    self._measured[name, card] = self._measured.get((name, card), 0) + more_ns
                    self.pages.tell_measured(name, card, self._measured[name, card], at_ns)

    def learnt(self, name: str, uuid: str, context_bytes: int) -> None:
        """What one process's context costs on that card, as seen in that container."""
        with self._lock:
            if name in self._paged:
                known = self._facts.get((name, uuid), CardFacts())
                self._facts[(name, uuid)] = replace(known, context_bytes=context_bytes)
                self._borrowed.discard((name, uuid))

    def context_bytes(self, name: str, uuid: str) -> int:
        """What a context is taken to cost; 0: nothing is known yet."""
        with self._lock:
            return self._facts.get((name, uuid), CardFacts()).context_bytes

    def knows_context(self, name: str, uuid: str) -> bool:
        """Whether that was seen in the container itself."""
        with self._lock:
            known = self._facts.get((name, uuid), CardFacts()).context_bytes
            return known > 0 and (name, uuid) not in self._borrowed

    def beyond(self, name: str) -> Beyond:
        """What its page says of memory that the library does not count."""
        with self._lock:
            return self._beyond.get(name, NOTHING)

    def tell_beyond(self, figures: Mapping[str, Beyond], grants: Iterable[Grant]) -> None:
        """Say other figures, by container; ``grants``: all of the node."""
        with self._lock:
            changed = {
                name
                for name, beyond in figures.items()
                if name in self._paged and beyond != self._beyond.get(name, NOTHING)
            }
            self._beyond |= {name: figures[name] for name in changed}
            if changed:
                self._update(list(grants), changed)

    def charged_mib(self, grant: Grant) -> dict[str, int]:
        """By card UUID, MiB that the container has by its own page and by what the library does not count.
        Nothing where its page says nothing."""
        usage = read_usage(self.pages.read(USAGE, grant.name), len(grant.shares))
        if usage is None:
            return {}
        beyond = self.beyond(grant.name)
        sums = (
            usage.charged_bytes(card) + usage.managed_bytes(card) + beyond.on(card)
            for card in range(len(grant.shares))
        )
        return {share.uuid: -(-size // MIB) for share, size in zip(grant.shares, sums, strict=True)}

    # --- what a lowered container may still use ---------------------------------------------------

    def lower(self, before: Grant, after: Grant) -> None:
        """Memory was lowered while the container runs: what it had is not held against it."""
        old = {share.uuid: share.memory_mib for share in before.shares}
        kept = self.ceilings(before.name)
        for share in after.shares:
            ceiling = max(old.get(share.uuid, 0), kept.get(share.uuid, 0))
            if ceiling > share.memory_mib:
                kept[share.uuid] = ceiling
        if kept:
            self.keep_ceilings(before.name, kept)

    def ceilings(self, name: str) -> dict[str, int]:
        """Card UUID to MiB, where it is above what is granted now."""
        return self._ceilings.of(name)

    def keep_ceilings(self, name: str, ceilings: Mapping[str, int]) -> None:
        """These from now on, or nothing where the container is gone."""
        self._ceilings.keep(name, ceilings)

    # --- versions --------------------------------------------------------------------------------

    def drop_unused_versions(self) -> None:
        """Remove versions of the library that no container was started with; none where that is not known."""
        used = {self.library.digest}
        for path in self._folder.glob(f"*/{VERSIONS_NAME}"):
            try:
                used |= set(read_promptly(path).decode().split())
            except (OSError, UnicodeDecodeError) as error:
                log.warning("which versions of the library are used is not known: %s: %s", path, error)
                return
        self.library.drop_others(used)

    def _note_version(self, name: str) -> None:
        path = self._folder / name / VERSIONS_NAME
        known = read_promptly(path).decode().split() if path.exists() else []
        if self.library.digest not in known:
            write_atomically(path, "\n".join([*known, self.library.digest]) + "\n", flush=True)

    # --- inside the lock ---------------------------------------------------------------------------

    def _drop(self, name: str) -> None:
        self._paged.discard(name)
        self._closed.discard(name)
        self._beyond.pop(name, None)
        self._measured = {key: value for key, value in self._measured.items() if key[0] != name}
        self._said.pop(name, None)
        for file in (self.file(name), self.seed(name)):
            self._written.pop(file.path, None)
            self._kept.drop(file.path)
        self._facts = {key: value for key, value in self._facts.items() if key[0] != name}
        self._borrowed = {key for key in self._borrowed if key[0] != name}

    def _pages_of(self, everyone: list[Grant], names: Iterable[str]) -> dict[str, Control]:
        buses = self._pci_bus_ids()
        known = {one.name: one for one in everyone}
        wanted = list(names)
        for name in wanted:
            for share in known[name].shares:
                self._facts[(name, share.uuid)] = self._fact(name, share.uuid, buses)
        return controls(
            everyone,
            wanted,
            paged=frozenset(self._paged),
            facts=self._facts,
            timings=self._timings(),
            suspended=frozenset(self._closed),
            let_go=self._let_go,
            beyond=self._beyond,
        )

    def _fact(self, name: str, uuid: str, buses: Mapping[str, str]) -> CardFacts:
        """A card that is not seen now keeps what its page says. A new container begins with the least that a
        context was seen to cost in another one."""
        known = self._facts.get((name, uuid))
        if known is None:
            seen = [
                fact.context_bytes
                for key, fact in self._facts.items()
                if key[1] == uuid and fact.context_bytes and key not in self._borrowed
            ]
            known = CardFacts("", min(seen, default=0))
            self._borrowed |= {(name, uuid)} if seen else set()
        return replace(known, pci_bus_id=buses.get(uuid, known.pci_bus_id)[: abi.PCI_BYTES - 1])

    def _update(self, everyone: list[Grant], names: Iterable[str]) -> None:
        """Pages that exist only; one that cannot be written is tried again at the next change."""
        wanted = [name for name in names if name in self._paged and name in {one.name for one in everyone}]
        for name, page in self._pages_of(everyone, wanted).items():
            try:
                self._put(name, page)
            except OSError as error:
                log.warning("the control page of %s was not changed: %s", name, error)

    def _put(self, name: str, page: Control) -> None:
        before = self._said.get(name)
        if before == page:
            return
        self._said.pop(name, None)
        files = [self.file(name)]
        if (before is None or _binds(before) != _binds(page)) and self.seed(name).path.exists():
            files.append(self.seed(name))
        self._write(page, *files)
        self._said[name] = page

    def _write(self, page: Control, *files: ControlFile) -> None:
        encoded = encode(page, sequence=0, generation=0)
        # First noted: what cannot be written now is put right at the next look.
        self._written |= {file.path: (page, encoded) for file in files}
        for file in files:
            file.put(page)
            self._kept.keep(file.path)

    def mend(self, name: str) -> tuple[Fault, ...]:
        """Put right what was done to a container's pages; what was wrong."""
        self._ceilings.mend(name)
        faults = self.pages.mend(name)
        with self._lock:
            for file in (self.file(name), self.seed(name)) if name in self._paged else ():
                which = file.path.name
                page, wanted = self._written.get(file.path, (None, b""))
                try:
                    if file.path.exists():
                        self._kept.keep(file.path)
                    if page is None or file.says(wanted):
                        continue
                    self._write(page, file)
                    text = f"its {which} page did not say what was written: it does again"
                    faults += (Fault(which, text),)
                except OSError as error:
                    text = f"its {which} page cannot be put right: {error.strerror}"
                    faults += (Fault(which, text),)
        return faults

    def _edits(self, grant: Grant) -> dict[str, Any]:
        name = grant.name
        pages, seed = self.pages, self.seed(name).path
        # A mount of its own: it lives on where the folder is cleared. Older agents let in without one.
        seeds = [_mount(seed, abi.SEED_PATH, _READ_ONLY)] if seed.exists() else []
        return {
            "mounts": [
                *self.library.mounts(),
                *seeds,
                _mount(pages.path(USAGE, name), abi.USAGE_PATH, _WRITABLE),
                _mount(pages.path(ACTIVITY, name), abi.ACTIVITY_PATH, _WRITABLE),
                _mount(pages.folder(ACTIVITY), abi.PEERS_FOLDER, _READ_ONLY),
            ],
            "hooks": [*self.library.hooks(self._folder / name / PRELOAD_NAME), *self._limiting(grant)],
        }

    def _limiting(self, grant: Grant) -> list[dict[str, Any]]:
        """The hook that has the driver limit it. Raises ``OSError`` where it is not there: it would start
        without."""
        if grant.backend != "driver":
            return []
        if self.library.limiter is None:
            raise OSError(f"{LIMITER} is not next to the library: the driver's limit cannot be set")
        arguments = [LIMITER, grant.name, str(self.pages.root / SOCKET_NAME)]
        return [{"hookName": "createRuntime", "path": str(self.library.limiter), "args": arguments}]


def _binds(page: Control) -> tuple[object, ...]:
    """What of a page programs must not go past; who the neighbours are changes too often to keep twice."""
    return (page.own_class, page.suspended, page.host_memory_mib, page.limits)


def _mount(source: Path, target: str, options: Iterable[str]) -> dict[str, Any]:
    return {"hostPath": str(source), "containerPath": target, "options": list(options)}
