"""The rows of a record's files, the older file first."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vc_egpu.report.recorded.rows import RecordError, Row, aside, decode


@dataclass(slots=True)
class Unread:
    """What was left out."""

    lines: int = 0
    first: str = ""
    """The first of them, and why; empty: none was."""


def files_of(path: Path) -> list[Path]:
    """The record, and the part of it that went aside when the file was full."""
    before = aside(path)
    return [before, path] if before.exists() else [path]


def rows_of(path: Path, unread: Unread) -> Iterator[Row]:
    """The rows; lines that mean nothing are counted. Raises ``OSError``."""
    for file in files_of(path):
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield decode(line)
                except RecordError as error:
                    unread.lines += 1
                    unread.first = unread.first or f"{file}:{number}: {error}"
