"""Files of the agent: written as a whole or not at all, and one agent per folder."""

import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import IO


class StateError(RuntimeError):
    """The state folder cannot be used."""


def read_promptly(path: Path) -> bytes:
    """A file that containers can see; ``BlockingIOError`` at once if a process holds a lease on it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_atomically(path: Path, text: str, *, flush: bool = False) -> None:
    """Put ``text`` at ``path`` as a whole or not at all; ``flush``: safe against power loss too."""
    write_bytes_atomically(path, text.encode("utf-8"), flush=flush)


def write_bytes_atomically(path: Path, data: bytes, *, flush: bool = False, mode: int | None = None) -> None:
    """The same with bytes; ``mode``: permissions whatever the process's mask is."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if flush:
            _flush_names(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _flush_names(folder: Path) -> None:
    """A file's new name lies in its folder: without this a power loss may take it back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(folder: Path, timeout_s: float) -> IO[str]:
    """Hold the folder for this process: two agents on one node (a rolling update) take turns.

    Raises :class:`StateError` if the other one does not end in time."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        file = (folder / "lock").open("w", encoding="utf-8")
    except OSError as error:
        raise StateError(f"{folder}: {error}") from error
    until = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                raise StateError(f"another agent holds {folder}") from None
            time.sleep(0.1)
        else:
            return file
