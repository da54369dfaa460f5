"""Containers in virtual time: the library's whole compute side on simulated cards, with no real clock.

The same programs, seed and lateness give the same run on any machine, however busy. See
``device-plugin/native/tests/virtual``.
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from unit.native.time_worlds import BUILD, NATIVE, UUIDS, Box, Machine

MS: Final = 1_000_000
SECOND: Final = 1000 * MS
EPOCH_NS: Final = 1_000_000_000_000
"""When the world begins."""
STRETCH: Final = np.dtype(
    [("process", "i4"), ("card", "i4"), ("enqueued", "i8"), ("start", "i8"), ("end", "i8")]
)
WAIT: Final = np.dtype([("process", "i8"), ("begin", "i8"), ("end", "i8")])
CALLS: Final = np.dtype([("process", "i8"), ("at", "i8"), ("calls", "i8")])


def build() -> tuple[Path, Path]:
    """World and library, built at need; test processes side by side do it once."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "virtual.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", NATIVE, f"OUT={BUILD}", "virtual"], check=True, timeout=280)
    return BUILD / "virtual-time", BUILD / "virtual-process.so"


def _union_ns(begins: np.ndarray[Any, Any], ends: np.ndarray[Any, Any], begin: int, end: int) -> int:
    """Of that span, what the stretches cover together."""
    order = np.argsort(begins, kind="stable")
    begins = np.clip(begins[order], begin, end)
    ends = np.maximum.accumulate(np.clip(ends[order], begin, end))
    before = np.concatenate([begins[:1], ends[:-1]])
    return int(np.clip(ends - np.maximum(begins, before), 0, None).sum())


@dataclass(frozen=True, slots=True)
class Program:
    """One process of a container, and when it begins and ends."""

    box: str
    words: tuple[object, ...]
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened. Times are in ns since the world began."""

    stretches: np.ndarray[Any, np.dtype[np.void]]
    waits: np.ndarray[Any, np.dtype[np.void]]
    says: Sequence[dict[str, Any]]
    boxes: Sequence[str]
    """The container of each process."""
    calls: np.ndarray[Any, np.dtype[np.void]]
    """Launches of kernels that called the system: when, how often."""

    def of(self, box: str) -> np.ndarray[Any, np.dtype[np.void]]:
        """The container's stretches of time on the card."""
        mine = [number for number, name in enumerate(self.boxes) if name == box]
        return self.stretches[np.isin(self.stretches["process"], mine)]

    def called(self, box: str, from_ms: float, to_ms: float) -> np.ndarray[Any, np.dtype[np.void]]:
        """The container's launches of kernels in that span that called the system."""
        mine = [number for number, name in enumerate(self.boxes) if name == box]
        rows = self.calls[np.isin(self.calls["process"], mine)]
        return rows[(rows["at"] >= from_ms * MS) & (rows["at"] < to_ms * MS)]

    def busy_ns(self, box: str, from_ms: float, to_ms: float) -> int:
        """Of that span, what the container had of the card: streams side by side have it once."""
        rows = self.of(box)
        return _union_ns(rows["start"], rows["end"], int(from_ms * MS), int(to_ms * MS)) if len(rows) else 0

    def share(self, box: str, from_ms: float, to_ms: float) -> float:
        """The same in percent."""
        return 100 * self.busy_ns(box, from_ms, to_ms) / ((to_ms - from_ms) * MS)

    def wanted_ns(self, box: str, from_ms: float, to_ms: float) -> int:
        """Of that span, when a launch of the container stood at the gate, or work of it was queued."""
        mine = [number for number, name in enumerate(self.boxes) if name == box]
        rows, waits = self.of(box), self.waits[np.isin(self.waits["process"], mine)]
        begins = np.concatenate([rows["enqueued"], waits["begin"]])
        ends = np.concatenate([rows["end"], waits["end"]])
        return _union_ns(begins, ends, int(from_ms * MS), int(to_ms * MS))

    def off(self, box: str, cores: int, from_ms: int, to_ms: int) -> float:
        """Points above a hard share, or below it.

        What is missing counts only against the time in which a launch stood at our gate or work of the
        container ran: not while all of it was queued in the driver behind others', nor while there was none.
        """
        points = self.share(box, from_ms, to_ms) - cores
        if points >= 0:
            return points
        mine = [number for number, name in enumerate(self.boxes) if name == box]
        rows, waits = self.of(box), self.waits[np.isin(self.waits["process"], mine)]
        begins = np.concatenate([rows["start"], waits["begin"]])
        spent = _union_ns(begins, np.concatenate([rows["end"], waits["end"]]), from_ms * MS, to_ms * MS)
        return min(0.0, 100 * self.busy_ns(box, from_ms, to_ms) / max(spent, 1) - cores)

    def busiest_second_ns(self, box: str) -> int:
        """The most that any second holds, tried from each start on."""
        rows = np.sort(self.of(box), order="start")
        if not len(rows):
            return 0
        ends = np.maximum.accumulate(rows["end"])  # streams side by side have it once
        starts = np.maximum(rows["start"], np.concatenate([rows["start"][:1], ends[:-1]]))
        sums = np.concatenate([[0], np.cumsum(np.clip(ends - starts, 0, None))])
        window = starts + SECOND
        last = np.searchsorted(starts, window)  # those that begin within it, the last cut off
        over = np.clip(ends[last - 1] - window, 0, None)
        return int((sums[last] - sums[:-1] - over).max())

    def longest_ns(self, box: str) -> int:
        """Its longest unit, whatever ran in the midst of it left out."""
        rows = self.of(box)
        _, unit = np.unique(rows[["process", "enqueued"]], return_inverse=True)
        return int(np.bincount(unit, (rows["end"] - rows["start"])).max()) if len(rows) else 0


@dataclass(slots=True)
class World:
    """Containers, their programs, and what changes while they run."""

    root: Path
    mode: str = "fifo"
    seed: int = 1
    late_one_in: int = 500
    """Every so many wake-ups one comes late, by up to 300 us; 0: none does."""
    programs: list[Program] = field(default_factory=list)
    machine: Machine = field(init=False)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = Machine(self.root / "m")

    def add(self, *boxes: Box) -> None:
        """Containers."""
        self.machine.add(*boxes)

    def start(self, box: str, *words: object, from_ms: int = 0, to_ms: int = 10_000) -> None:
        """A program in one of them."""
        self.programs.append(Program(box, words, from_ms, to_ms))

    def change(self, at_ms: int, box: str, **fields: Any) -> None:
        """Limits of the container from then on."""
        changed = replace(self.machine.boxes[box], **fields)
        self.machine.boxes[box] = changed
        number = len(self.lines) + 2
        page = self.machine.control_page(changed)
        page.sequence, page.generation = 2 * number, number
        path = self.root / f"change-{number}"
        path.write_bytes(bytes(page))
        self.lines.append(f"change {at_ms} {self.machine.root / box / 'etc/egpu/control'} {path}")

    def write(self, at_ms: int, path: Path, content: bytes) -> None:
        """A file's bytes from then on."""
        source = self.root / f"write-{len(self.lines)}"
        source.write_bytes(content)
        self.lines.append(f"change {at_ms} {path} {source}")

    def run(self) -> Seen:
        """Everything, to the end of the last program."""
        program, library = build()
        lines = [f"card {uuid} 00000000:{index + 1:02X}:00.0" for index, uuid in enumerate(UUIDS)]
        lines += [f"mode {self.mode}", f"seed {self.seed}", f"late {self.late_one_in}", *self.lines]
        for one in self.programs:
            words = " ".join(str(word) for word in one.words)
            root = self.machine.root / one.box
            card = self.machine.boxes[one.box].cards[0]
            lines.append(f"program {root} {card} {one.from_ms} {one.to_ms} {words}")
        done = subprocess.run(
            [program, library, self.root],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            env={name: value for name, value in os.environ.items() if not name.startswith("LD_")},
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
        stretches = np.fromfile(self.root / "stretches", STRETCH)
        waits = np.fromfile(self.root / "waits", WAIT)
        for name in ("enqueued", "start", "end"):
            stretches[name] -= EPOCH_NS
        for name in ("begin", "end"):
            waits[name] -= EPOCH_NS
        calls = np.fromfile(self.root / "calls", CALLS)
        calls["at"] -= EPOCH_NS
        boxes = [one.box for one in self.programs]
        return Seen(stretches, waits, [json.loads(line) for line in done.stdout.splitlines()], boxes, calls)
