"""The file of a record: private, bounded, and followed by one that came before it.

All of it runs on a thread of its own; the loop hands over snapshots, which never change.
"""

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from vc_egpu.admission.recording.changes import Changes
from vc_egpu.core.model.cluster import Instant, Snapshot
from vc_egpu.report.recorded.rows import Row, aside, encode

LOOK_S: Final = 1.0
"""What comes and ends within it is not told apart."""
AGAIN_S: Final = 60.0
"""A file that could not be written is begun again after so long."""
MIB: Final = 1 << 20
_PRIVATE: Final = 0o600

logger = logging.getLogger(__name__)


class Log:
    """Writes one file, ``path``, of ``most_mib`` at most; when it is full it goes aside, and the one that was
    aside goes for ever."""

    def __init__(self, path: Path, most_mib: int) -> None:
        self._path = path
        self._most_bytes = most_mib * MIB
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="record")
        self._under_way: Future[None] | None = None
        self._next_at = 0.0
        # What follows is the thread's own.
        self._changes = Changes()
        self._file: int | None = None
        self._written = 0
        self._before: Snapshot | None = None
        self._again_at = 0.0

    def turn(self, snapshot: Callable[[], Snapshot], clock: float, now: Instant) -> None:
        """Tell what happened since the last time, if it is time to; at no cost while that is under way."""
        if clock < self._next_at or not self.rests():
            return
        self._next_at = clock + LOOK_S
        self._under_way = self._thread.submit(self._tell, snapshot(), clock, now)

    def rests(self) -> bool:
        """Whether nothing is under way."""
        return self._under_way is None or self._under_way.done()

    def stop(self) -> None:
        """The leadership is over; what is under way is still written."""
        self._thread.shutdown(wait=True)
        self._close()

    def _tell(self, now: Snapshot, clock: float, at: Instant) -> None:
        if clock < self._again_at:
            return
        try:
            if self._before is None or self._written > self._most_bytes:
                self._close()
                self._open()
                self._write(self._changes.begin(now, at))
            else:
                self._write(self._changes.between(self._before, now, at))
            self._before = now
            return
        except OSError as error:
            logger.error("nothing is recorded for a minute: %s", error)
        except Exception:
            logger.exception("a fault of ours; the record begins again in a minute")
        self._close()
        self._before, self._again_at = None, clock + AGAIN_S

    def _open(self) -> None:
        """Go on with the file that is there, or begin one where it is full. An earlier leader may have been
        cut off within a line."""
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path, flags, _PRIVATE)
        os.fchmod(self._file, _PRIVATE)
        self._written = os.lseek(self._file, 0, os.SEEK_END)
        if self._written > self._most_bytes:
            self._close()
            self._path.replace(aside(self._path))
            self._open()
        elif self._written and os.pread(self._file, 1, self._written - 1) != b"\n":
            self._put(b"\n")

    def _write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._put(encode(row))

    def _put(self, line: bytes) -> None:
        if self._file is None:
            raise OSError("the record is closed")
        while line:
            count = os.write(self._file, line)
            self._written += count
            line = line[count:]

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
