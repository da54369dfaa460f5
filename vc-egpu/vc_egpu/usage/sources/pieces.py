"""The store: hourly rows of hours that were read already, one file of Parquet for each piece.

A report that is killed goes on with the first hour that no file covers. A file is written whole under another
name and then renamed, so that each file that is there is complete. The store is a folder of both tables.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from vc_egpu.usage.table.columns import QUEUE, USAGE, TableShape
from vc_egpu.usage.table.database import Database
from vc_egpu.usage.table.window import index_of, moment_of

HOURS_OF_A_PIECE: Final = 6
_HOURS_OF_A_DAY: Final = 24
_ABOUT: Final = "source.json"
_SCHEMA: Final = 1


class StoreError(Exception):
    """The store cannot be used; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with the hours that were read from one Prometheus."""

    folder: Path

    def claim(self, source: str) -> None:
        """Make the folder the store of this source; one that holds another source's hours is refused."""
        mine = {"schema": _SCHEMA, "source": source}
        about = self.folder / _ABOUT
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not about.exists():
                _write(about, json.dumps(mine))
                return
            found = json.loads(about.read_text())
        except (OSError, ValueError) as error:
            raise StoreError(f"the store {self.folder} cannot be used: {error}") from None
        if found != mine:
            raise StoreError(
                f"the store {self.folder} holds hours of {found.get('source', 'another source')}, "
                f"not of {source}: name another folder with --store"
            )

    def missing(self, hours: range) -> Iterator[range]:
        """Spans of hours that no file covers, each within one piece, in their order."""
        there = self._covered(hours)
        start: int | None = None
        for hour in range(hours.start, hours.stop + 1):
            ends = hour == hours.stop or hour in there or hour % HOURS_OF_A_PIECE == 0
            if start is not None and ends:
                yield range(start, hour)
                start = None
            if start is None and hour < hours.stop and hour not in there:
                start = hour

    def put(self, database: Database, hours: range, usage: Sequence[Any], queues: Sequence[Any]) -> None:
        """Keep the rows of these hours. The file of usage is the last: it says that the piece is there."""
        try:
            self._put(database, QUEUE, hours, queues)
            self._put(database, USAGE, hours, usage)
        except OSError as error:
            raise StoreError(f"the store {self.folder} cannot be written: {error}") from None

    def forget(self, hours: range) -> None:
        """Remove what covers these hours, so that they are read again."""
        for span, path in self._files(USAGE):
            if span.start < hours.stop and hours.start < span.stop:
                path.unlink(missing_ok=True)

    def _put(self, database: Database, shape: TableShape, hours: range, rows: Sequence[Any]) -> None:
        day = moment_of(hours.start)
        folder = self.folder / shape.name / f"dt={day:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        first = hours.start % _HOURS_OF_A_DAY
        path = folder / f"hours-{first:02}-{first + len(hours):02}.parquet"
        part = path.with_suffix(f".{os.getpid()}.part")
        database.fill("piece", shape.columns, rows)
        database.write_parquet("SELECT * FROM piece", part)
        part.replace(path)

    def _covered(self, hours: range) -> set[int]:
        return {hour for span, _ in self._files(USAGE) for hour in span if hour in hours}

    def _files(self, shape: TableShape) -> Iterator[tuple[range, Path]]:
        for path in sorted((self.folder / shape.name).glob("dt=*/hours-*-*.parquet")):
            span = _span(path)
            if span is not None:
                yield span, path


def _span(path: Path) -> range | None:
    """The hours since 1970 that a file covers, by its name; None if it is not one of ours."""
    _, first, last = path.stem.split("-")
    try:
        day = datetime.strptime(path.parent.name, "dt=%Y-%m-%d").replace(tzinfo=UTC)
        return range(index_of(day) + int(first), index_of(day) + int(last))
    except ValueError:
        return None


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)
