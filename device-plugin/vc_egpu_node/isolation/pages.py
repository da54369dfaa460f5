"""The pages' files: seeded before a container starts, changed in place while it runs.

There are two kinds. A *control* page belongs to the agent: containers only read it, and see every change as
a whole by its sequence lock. Containers write *usage* and *activity* pages. The agent makes them with their
full size, reads them as hostile input, and repairs size and mode. It never maps them: a container that cuts
one short cannot hurt the agent.

Root in a container owns its pages. So it can take a lease on one that no other process has open. Then each
process that opens the page waits, 45 s by the kernel's default. So the agent opens nothing that containers
can see in a way that waits. It keeps pages open as long as they are there, so that no other process waits
either.
"""

import ctypes
import logging
import mmap
import os
import stat
import struct
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from vc_egpu_node.files import read_promptly, write_bytes_atomically
from vc_egpu_node.isolation import abi, control

log = logging.getLogger(__name__)

SHARED_MODE: Final = 0o666
"""Any user in the container may run programs on its cards."""
_ZERO_CHUNK: Final = 1 << 20
_BLOCK_BYTES: Final = 512
"""Unit of ``st_blocks``, on every file system."""


@dataclass(frozen=True, slots=True)
class SharedKind:
    """A kind of page that containers write."""

    name: str
    size: int


USAGE: Final = SharedKind("usage", abi.USAGE_BYTES)
ACTIVITY: Final = SharedKind("activity", abi.ACTIVITY_BYTES)
KINDS: Final = (USAGE, ACTIVITY)


class Fault(NamedTuple):
    """What was wrong with one page of a container."""

    page: str
    """Which: there are few, where a container has any number of sentences."""
    text: str
    """For people."""


class KeptOpen:
    """Files that are kept open for writing, so that no process gets a lease on them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: dict[Path, int] = {}
        weakref.finalize(self, _close_all, self._descriptors)

    def keep(self, path: Path, opened: int | None = None) -> None:
        """Keep the file open that is there now; ``opened``: a descriptor of it, for writing. Raises
        ``OSError``, ``BlockingIOError`` where a lease was there first: then that lease ends, and a later call
        gets it."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags) if opened is None else os.dup(opened)
        with self._lock:
            before = self._descriptors.get(path)
            if before is not None and os.path.sameopenfile(before, descriptor):
                before = descriptor
            else:
                self._descriptors[path] = descriptor
        if before is not None:
            os.close(before)
        if not path.exists():  # its container is gone since, and no caller will drop it again
            self.drop(path)

    def another(self, path: Path) -> int | None:
        """One more descriptor of the file that is kept; None: none is."""
        with self._lock:
            kept = self._descriptors.get(path)
            return None if kept is None else os.dup(kept)

    def drop(self, path: Path) -> None:
        """No longer. After the file was removed, where it is: it may be about to be kept."""
        with self._lock:
            descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)


def _close_all(descriptors: dict[Path, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)


class ControlFile:
    """One control page. Not thread-safe: its owner serialises writers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fence = threading.Lock()

    def read(self) -> control.Control | None:
        """What it says now; None if there is none or it is damaged."""
        try:
            return control.decode(read_promptly(self.path))
        except OSError:
            return None

    def says(self, page: bytes) -> bool:
        """Whether it says what ``page`` (as encoded) does, whole; whatever its lock counts."""
        head, body = slice(0, abi.SEQUENCE_OFFSET), slice(abi.BODY_OFFSET, None)
        try:
            data = read_promptly(self.path)
        except OSError:
            return False
        even = len(data) > abi.SEQUENCE_OFFSET and data[abi.SEQUENCE_OFFSET] % 2 == 0
        return even and len(data) == len(page) and data[head] == page[head] and data[body] == page[body]

    def put(self, page: control.Control) -> bool:
        """Make it say this, in place where it exists; whether anything changed. Raises ``OSError``."""
        try:
            before = self.path.stat()
        except FileNotFoundError:
            write_bytes_atomically(self.path, control.encode(page, sequence=0, generation=1), mode=0o644)
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r+b") as file:
            if before.st_size > abi.CONTROL_BYTES:
                file.truncate(abi.CONTROL_BYTES)
            if min(before.st_size, before.st_blocks * _BLOCK_BYTES) < abi.CONTROL_BYTES:
                # An older agent's page, or cut: a full disk is an error here, and would be a SIGBUS below.
                os.posix_fallocate(file.fileno(), 0, abi.CONTROL_BYTES)
            with mmap.mmap(file.fileno(), abi.CONTROL_BYTES) as view:
                return self._change(view, page)

    def _change(self, view: mmap.mmap, page: control.Control) -> bool:
        sequence = ctypes.c_uint64.from_buffer(view, abi.SEQUENCE_OFFSET)
        generation = ctypes.c_uint64.from_buffer(view, abi.SEQUENCE_OFFSET + 8)
        try:
            before, count = sequence.value, generation.value
            wanted = control.encode(page, sequence=0, generation=0)
            head, body = slice(0, abi.SEQUENCE_OFFSET), slice(abi.BODY_OFFSET, abi.CONTROL_BYTES)
            if before % 2 == 0 and view[body] == wanted[body] and view[head] == wanted[head]:
                return False
            odd = before | 1  # odd already: a writer died in the middle
            sequence.value = odd  # one aligned store: struct would write byte by byte
            self._order()
            generation.value = (count + 1) % (1 << 64)
            view[head], view[body] = wanted[head], wanted[body]
            self._order()
            sequence.value = (odd + 1) % (1 << 64)
            return True
        finally:
            del sequence, generation  # or the map cannot be closed

    def _order(self) -> None:
        """Stores before come before stores after, on every processor: a release, then an acquire."""
        self._fence.acquire()
        self._fence.release()
        self._fence.acquire()
        self._fence.release()


class SharedPages:
    """The node's folder of pages that containers write: ``usage/<name>`` and ``activity/<name>``."""

    def __init__(self, folder: Path) -> None:
        """Raises ``OSError``."""
        self.root = folder
        self._kept = KeptOpen()
        for kind in KINDS:
            self.folder(kind).mkdir(parents=True, exist_ok=True, mode=0o755)

    def folder(self, kind: SharedKind) -> Path:
        """Where the pages of one kind are."""
        return self.root / kind.name

    def path(self, kind: SharedKind, name: str) -> Path:
        """One container's page."""
        return self.folder(kind) / name

    def clear(self, name: str) -> None:
        """Both pages there, of their size, and empty: a container is about to start. In place, since
        neighbours may have the activity page open. Raises ``OSError``."""
        for kind in KINDS:
            try:
                self._clear(kind, name)
            except PermissionError:  # its last start gave it away, with mode and all: it has another one
                self._release(kind, name)
                self._clear(kind, name)

    def _clear(self, kind: SharedKind, name: str) -> None:
        descriptor = self._open(kind, name, os.O_RDWR | os.O_CREAT)
        try:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != SHARED_MODE:
                os.fchmod(descriptor, SHARED_MODE)
            _zero(descriptor, kind.size)
            self._kept.keep(self.path(kind, name), descriptor)
        finally:
            os.close(descriptor)

    def _open(self, kind: SharedKind, name: str, flags: int) -> int:
        """Open a page, also one that its container gave away, as long as it is kept open. Root in a
        container may have changed owner and mode, and the agent's root may not overrule that. Raises
        ``OSError``."""
        path = self.path(kind, name)
        try:
            return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except PermissionError:
            kept = self._kept.another(path)
            if kept is None:
                raise
            return kept

    def mend(self, name: str) -> tuple[Fault, ...]:
        """Put size and mode right where a container changed them; what was wrong.
        What a page says is not looked at."""
        return tuple(Fault(kind.name, text) for kind in KINDS if (text := self._mend(kind, name)))

    def _mend(self, kind: SharedKind, name: str) -> str:
        try:
            descriptor = self._open(kind, name, os.O_RDWR)
        except FileNotFoundError:
            return f"its {kind.name} page is gone: it counts again when the container is started again"
        except OSError as error:
            return f"its {kind.name} page cannot be opened: {error.strerror}"
        text = ""
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return f"its {kind.name} page is no file"
            self._kept.keep(self.path(kind, name), descriptor)
            if status.st_size != kind.size:  # first: it may not be allowed to do the other
                os.ftruncate(descriptor, kind.size)
                text = f"its {kind.name} page had {status.st_size} bytes and has {kind.size} again"
            if stat.S_IMODE(status.st_mode) != SHARED_MODE:
                os.fchmod(descriptor, SHARED_MODE)
        except OSError as error:
            return f"its {kind.name} page cannot be put right: {error.strerror}"
        finally:
            os.close(descriptor)
        return text

    def read(self, kind: SharedKind, name: str) -> bytes | None:
        """One page's bytes, exactly its size, by reading and not mapping. Empty: its container cut it or
        keeps it from being read. None: it cannot be had for another reason."""
        try:
            descriptor = self._open(kind, name, os.O_RDONLY)
        except BlockingIOError:  # by a lease
            return b""
        except PermissionError:
            return b"" if _was_given_away(self.path(kind, name)) else None
        except OSError:
            return None
        try:
            data = os.pread(descriptor, kind.size, 0)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return data if len(data) == kind.size else b""

    def give_up(self, name: str, places: Iterable[int]) -> None:
        """These slots of a usage page are of the dead: whatever PID namespace they were of, the library may
        see so itself, and empty them. All else in the page is its own. They stay where nothing can be
        written."""
        with suppress(OSError):
            descriptor = self._open(USAGE, name, os.O_RDWR)
            try:
                for place in places:
                    os.pwrite(descriptor, bytes(8), abi.namespace_at(place))
            finally:
                os.close(descriptor)

    def tell_measured(self, name: str, card: int, measured_ns: int, at_ns: int) -> None:
        """What the driver counted of the container on its card, and when. A page that cannot be written keeps
        what it says."""
        with suppress(OSError):
            descriptor = self._open(ACTIVITY, name, os.O_RDWR)
            try:
                if os.fstat(descriptor).st_size >= ACTIVITY.size:
                    os.pwrite(descriptor, struct.pack("<QQ", measured_ns, at_ns), abi.measured_at(card))
            finally:
                os.close(descriptor)

    def release(self, name: str) -> None:
        """The container is gone."""
        for kind in KINDS:
            self._release(kind, name)

    def _release(self, kind: SharedKind, name: str) -> None:
        self.path(kind, name).unlink(missing_ok=True)
        self._kept.drop(self.path(kind, name))


def _was_given_away(path: Path) -> bool:
    """Whether owner or mode are others than the agent gave it: root in the container alone changes these. A
    rule of the host's that keeps the agent out is no container's offence."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid != os.geteuid() or status.st_mode & 0o600 != 0o600


def _zero(descriptor: int, size: int) -> None:
    """Exactly ``size`` zero bytes, all of them allocated: a full file system is met now, not by a program."""
    if os.fstat(descriptor).st_size > size:
        os.ftruncate(descriptor, size)
    offset = 0
    while offset < size:
        offset += os.pwrite(descriptor, bytes(min(_ZERO_CHUNK, size - offset)), offset)
