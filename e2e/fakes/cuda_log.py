"""Reads the log of the fake CUDA driver (``device-plugin/native/fake/cuda``): what ran on which card, when.

Shares and latencies are judged from it, never from what the isolation library says about itself::

    log = CudaLog(state.with_suffix(".state.cuda"))
    begin = log.now_ns()
    ...                                              # programs run, each with its FAKE_CUDA_LABEL
    units = log.units(since_ns=begin)
    share = busy_ns([u for u in units if u.label == "a"], begin, end) / (end - begin)

Times are nanoseconds of CLOCK_MONOTONIC. The log holds the last million stretches: read it often enough.
"""

import mmap
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MAGIC = 0x4143554445534143
VERSION = 1
HEAD = struct.Struct("<QII7Q")
RECORD = struct.Struct("<4Q3I2H2IQ")
BIRTH = struct.Struct("<IIQ48s")
BIRTHS = 4096

KERNEL, GRAPH, MEMSET, COPY_DEVICE, COPY_HOST, MEET = 1, 2, 3, 4, 5, 6
GPU_TIME = frozenset({KERNEL, GRAPH, MEMSET, COPY_DEVICE, MEET})
"""Kinds that take the card's time; copies over the bus have an engine of their own."""

FIRST, LAST, CANCELLED = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a unit ran without a break."""

    seq: int
    """Of the unit, in order of arrival over all cards."""
    enqueued_ns: int
    start_ns: int
    end_ns: int
    process: int
    """Serial number of the process in this file: never used twice."""
    pid: int
    """In the process's own namespace."""
    label: str
    """FAKE_CUDA_LABEL of the process, or its name."""
    context: int
    stream: int
    card: int
    kind: int
    flags: int


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit from its first stretch to its last."""

    seq: int
    enqueued_ns: int
    start_ns: int
    end_ns: int
    ran_ns: int
    label: str
    pid: int
    context: int
    stream: int
    card: int
    kind: int
    finished: bool


def has_begun(path: Path) -> bool:
    """Whether a program has made the state file and filled in its head; the magic number comes last."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD.size)
    except FileNotFoundError:
        return False
    return len(head) == HEAD.size and HEAD.unpack(head)[0] == MAGIC


class CudaLog:
    """The fake driver's state file, open for reading. Programs may write it meanwhile."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version, _, *offsets = HEAD.unpack_from(self._map, 0)
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"{path} is no state of the fake CUDA driver, version {VERSION}")
        _, self._log, self._log_count, self._head, self._birth, self._cards, self._card_bytes = offsets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._map.close()

    @staticmethod
    def now_ns() -> int:
        """The clock of the log."""
        return time.monotonic_ns()

    def cards(self) -> list[str]:
        """UUIDs, by the number that records give as card."""
        count = struct.unpack_from("<I", self._map, 12)[0]
        return [self._text(self._cards + i * self._card_bytes, 48) for i in range(count)]

    def stretches(self, since_ns: int = 0) -> Iterator[Stretch]:
        """Those that ended after `since_ns`, by their end; what was overwritten is left out."""
        head = struct.unpack_from("<Q", self._map, self._head)[0]
        labels: dict[int, str] = {}
        found: list[Stretch] = []
        for index in range(head, max(0, head - self._log_count), -1):
            record = RECORD.unpack_from(self._map, self._log + index % self._log_count * RECORD.size)
            seq, enqueued, start, end, serial, context, stream, card, kind, flags, pid, seen = record
            if seen != index:
                continue
            if end < since_ns:
                break
            if serial not in labels:
                labels[serial] = self._label(serial)
            who = (serial, pid, labels[serial], context, stream)
            found.append(Stretch(seq, enqueued, start, end, *who, card, kind, flags))
        return reversed(found)

    def units(self, since_ns: int = 0) -> list[Unit]:
        """Units of which at least a stretch ended after `since_ns`, by their first start."""
        parts: dict[int, list[Stretch]] = {}
        for stretch in self.stretches(since_ns):
            parts.setdefault(stretch.seq, []).append(stretch)
        units = [_unit(stretches) for stretches in parts.values()]
        return sorted(units, key=lambda unit: unit.start_ns)

    def _label(self, serial: int) -> str:
        at = self._birth + serial % BIRTHS * BIRTH.size
        known, _, _, label = BIRTH.unpack_from(self._map, at)
        return label.split(b"\0", 1)[0].decode(errors="replace") if known == serial else ""

    def _text(self, at: int, length: int) -> str:
        return bytes(self._map[at : at + length]).split(b"\0", 1)[0].decode(errors="replace")


def _unit(stretches: list[Stretch]) -> Unit:
    first, last = stretches[0], stretches[-1]
    return Unit(
        seq=first.seq,
        enqueued_ns=first.enqueued_ns,
        start_ns=first.start_ns,
        end_ns=last.end_ns,
        ran_ns=sum(s.end_ns - s.start_ns for s in stretches),
        label=first.label,
        pid=first.pid,
        context=first.context,
        stream=first.stream,
        card=first.card,
        kind=first.kind,
        finished=bool(last.flags & LAST),
    )


def busy_ns(stretches: Iterable[Stretch], begin_ns: int, end_ns: int) -> int:
    """Length of the union of the stretches within the window, of kinds that take the card's time.

    One card's stretches at a time: those of several cards would be laid over each other.
    """
    total, until = 0, begin_ns
    spans = sorted((s.start_ns, s.end_ns) for s in stretches if s.kind in GPU_TIME)
    for start, end in spans:
        left, right = max(start, until), min(end, end_ns)
        if right > left:
            total += right - left
            until = right
    return total
