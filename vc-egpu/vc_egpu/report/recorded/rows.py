"""The rows of a record. Each is a line of JSON; a line that cannot be read says nothing about the others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from vc_egpu.core.model.cluster import Instant, PodShape, QueueName, ShareClass, Snapshot
from vc_egpu.report import values_codec

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Begun:
    """A file begins, or another leader goes on with it: how all stood then. Numbers of shapes begin again."""

    version: int
    at: Instant
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class ShapeSeen:
    """What pods ask for that name this number after it."""

    number: int
    shape: PodShape


@dataclass(frozen=True, slots=True)
class GangSeen:
    """A gang of which pods come."""

    gang: str
    queue: QueueName
    share_class: ShareClass
    least: int
    single: bool
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PodCame:
    """A pod waits."""

    at: Instant
    pod: str
    gang: str
    task: str
    index: int
    shape: int


@dataclass(frozen=True, slots=True)
class PodRuns:
    """A pod has its place."""

    at: Instant
    pod: str


@dataclass(frozen=True, slots=True)
class PodOver:
    """A pod ended, or went."""

    at: Instant
    pod: str
    succeeded: bool


Row = Begun | ShapeSeen | GangSeen | PodCame | PodRuns | PodOver


class RecordError(ValueError):
    """A line, or a whole record, means nothing to this version."""


def aside(path: Path) -> Path:
    """Where a record's file goes when it is full."""
    return path.with_name(f"{path.name}.1")


def encode(row: Row) -> bytes:
    """The line, with its end."""
    document: Any = values_codec.encode(row, Row)
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def decode(line: bytes) -> Row:
    """The row in a line. Raises :class:`RecordError`."""
    try:
        row: Row = values_codec.decode(orjson.loads(line), Row)
    except (ValueError, RecursionError) as error:
        raise RecordError(str(error)[:200]) from error
    if isinstance(row, Begun) and row.version != VERSION:
        raise RecordError(f"it has version {row.version}; this program reads version {VERSION}")
    return row
