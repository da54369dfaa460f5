"""The file of an operator's table, read again when it changes. The last good table stays in force.

A ConfigMap that is mounted changes by a link that is set to another folder: the file is another one then. So
what a file is known by is its inode, its time and its size.
"""

import logging
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, Generic, TypeVar

MOST_BYTES: Final = 1 << 20
"""A ConfigMap is no larger."""

logger = logging.getLogger(__name__)
Table = TypeVar("Table")


class TooLargeError(ValueError):
    """The file is larger than any ConfigMap."""


class Look(Enum):
    """What a look at the file came to."""

    SAME = "same"
    """Nothing changed, or nothing that makes another table."""
    NEWS = "news"
    """Another table is in force now."""
    BROKEN = "broken"
    """The file as it is cannot be used; :attr:`TableFile.problem` says why."""


class TableFile(Generic[Table]):
    """The last good table of a file. One thread looks; others may read what it found."""

    def __init__(
        self,
        file: Path,
        read: Callable[[Path], Table],
        first: Table,
        *,
        called: str,
        sized: Callable[[Table], str] = lambda _: "read",
    ) -> None:
        """``read`` raises OSError or ValueError. ``first``: in force until the first look. ``called`` and
        ``sized`` are words for the log."""
        self._file = file
        self._read = read
        self._called = called
        self._sized = sized
        self._seen: tuple[int, int, int, int] | None = None
        self.table = first
        self.problem = ""
        """Why the file as it stands cannot be used; empty: it can, or there is none and need not be."""

    def look(self) -> Look:
        """Read the file if it has changed since the last look, or could not be opened then."""
        seen = _mark(self._file)
        if seen is not None and seen == self._seen:
            return Look.BROKEN if self.problem else Look.SAME
        self._seen = seen
        try:
            table = self._read(self._file)
        except (OSError, ValueError) as error:
            problem = " ".join(str(error).split())
            if problem != self.problem:
                logger.warning("%s %s: %s; the last good one stays", self._called, self._file, problem)
            self.problem = problem
            if isinstance(error, OSError):
                self._seen = None
            return Look.BROKEN
        if self.problem:
            logger.info("%s %s: can be read again", self._called, self._file)
        self.problem = ""
        if table == self.table:
            return Look.SAME
        self.table = table
        logger.info("%s %s: %s", self._called, self._file, self._sized(table))
        return Look.NEWS


def _mark(file: Path) -> tuple[int, int, int, int] | None:
    """What the file is known by; None: there is none, or it cannot be asked."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def text_of(file: Path) -> str:
    """The file's text. Raises OSError, :class:`TooLargeError`, or ValueError for what is no UTF-8."""
    with file.open("rb") as opened:
        raw = opened.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise TooLargeError(f"has more than {MOST_BYTES} bytes")
    return raw.decode("utf-8")
