"""Containers that share a fake card, for the tests of the compute side: judged by the card's own timeline."""

import json
import os
import struct
import subprocess
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from children import rest_of
from vc_egpu_node.isolation import abi

NATIVE: Final = Path(__file__).resolve().parents[3] / "device-plugin" / "native"
BUILD: Final = Path(os.environ.get("VC_EGPU_NATIVE_BUILD") or NATIVE / "build")
UUIDS: Final = tuple(f"GPU-0000000{i}-5555-6666-7777-888888888888" for i in range(2))
GIB: Final = 1 << 30
SECOND_NS: Final = 1_000_000_000
MS: Final = 1_000_000
EVER: Final = 1 << 63
UNSET, LOW, HIGH = 0, 1, 2
FREE, HARD, SOFT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Box:
    """A container: its share of each of its cards (indices into the machine's)."""

    name: str
    policy: int = FREE
    cores: int = 100
    weight: int = 0
    share_class: int = UNSET
    cards: tuple[int, ...] = (0,)
    in_flight_us: int = 500
    floor_percent: int = 5
    floor_after_ms: int = 60_000
    lease_ms: int = 500
    hang_ms: int = 30_000
    suspended: bool = False
    unheld: bool = False
    """No higher class holds its launches."""
    pod: str = ""
    """Containers of one pod name it; empty: it is the only one of its pod."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the timeline says that a process took of a card."""

    busy_ns: int
    busiest_second_ns: int
    longest_ns: int
    units: int
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class Running:
    """A program in a container, waiting for the start."""

    process: subprocess.Popen[str]
    box: Box

    def begin(self) -> None:
        """Lets it go."""
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self, timeout_s: float = 60) -> dict[str, Any]:
        """What it says at its end."""
        code, out, errors = rest_of(self.process, timeout_s)
        assert code == 0, f"{self.box.name}: {code} {errors}"
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer


def _union(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time, as stretches that neither overlap nor touch, in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


@dataclass(slots=True)
class Machine:
    """One node: cards whose timeline all programs share, containers with pages of their own."""

    root: Path
    mode: str = "fifo"
    boxes: dict[str, Box] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    """What the agent has told of each box, in ns."""

    def __post_init__(self) -> None:
        self.peers.mkdir(parents=True)
        lines = ["driver=570.124.06", "cuda=13000"]
        for index, uuid in enumerate(UUIDS):
            lines += [f"card={uuid}", "name=NVIDIA H20", "memory_mib=65536", "reserved_mib=0"]
            lines += [f"pci=00000000:{index + 1:02X}:00.0", f"minor={index}", "cores=9984", "cc=9.0"]
        (self.root / "cards").write_text("\n".join(lines) + "\n")

    @property
    def peers(self) -> Path:
        """All activity pages."""
        return self.root / "peers"

    @property
    def state(self) -> Path:
        """The cards' timeline."""
        return self.root / "cards.cuda"

    def add(self, *boxes: Box) -> None:
        """Makes the pages of containers, and writes all control pages anew."""
        for box in boxes:
            self.boxes[box.name] = box
            inside = self.root / box.name
            for folder in ("etc/egpu", "run/egpu"):
                (inside / folder).mkdir(parents=True)
            page = self.peers / box.name
            page.write_bytes(bytes(abi.ACTIVITY_BYTES))
            os.link(page, inside / "run/egpu/activity")
            (inside / "run/egpu/peers").symlink_to(self.peers)
        self._write_all()

    def change(self, name: str, **fields: Any) -> None:
        """Changes a container's limits in place."""
        self.boxes[name] = replace(self.boxes[name], **fields)
        self._write_all()

    def remove(self, *names: str) -> None:
        """They are gone: no control page names them any more."""
        for name in names:
            del self.boxes[name]
            (self.peers / name).unlink()
        self._write_all()

    def _write_all(self) -> None:
        for box in self.boxes.values():
            path = self.root / box.name / "etc/egpu/control"
            before = abi.ControlPage.from_buffer_copy(path.read_bytes()) if path.exists() else None
            page = self.control_page(box)
            page.sequence = before.sequence + 2 if before else 2
            page.generation = page.sequence // 2
            with path.open("r+b" if before else "wb") as file:
                if before:
                    os.pwrite(file.fileno(), (before.sequence + 1).to_bytes(8, "little"), abi.SEQUENCE_OFFSET)
                    os.pwrite(file.fileno(), bytes(page)[24:], 24)
                    os.pwrite(file.fileno(), int(page.sequence).to_bytes(8, "little"), abi.SEQUENCE_OFFSET)
                else:
                    file.write(bytes(page))

    def control_page(self, box: Box) -> abi.ControlPage:
        """The control page of a container, as the agent writes it; its sequence is left out."""
        page = abi.ControlPage(
            magic=abi.CONTROL_MAGIC,
            abi_major=1,
            abi_minor=0,
            bytes=abi.CONTROL_BYTES,
            name=box.name.encode(),
            own_class=box.share_class,
            suspended=int(box.suspended),
            unheld=int(box.unheld),
            card_count=len(box.cards),
            hysteresis_us=500,
            lease_ms=box.lease_ms,
            hang_ms=box.hang_ms,
            in_flight_us=box.in_flight_us,
            low_floor_percent=box.floor_percent,
            low_floor_after_ms=box.floor_after_ms,
        )
        on = {card for other in self.boxes.values() if other.share_class == HIGH for card in other.cards}
        for index, card in enumerate(box.cards):
            slot = page.cards[index]
            slot.uuid = UUIDS[card].encode()
            slot.pci_bus_id = f"00000000:{card + 1:02X}:00.0".encode()
            slot.memory_bytes = slot.physical_bytes = 8 * GIB
            slot.cores_percent, slot.core_policy, slot.weight = box.cores, box.policy, box.weight
            slot.flags = abi.CARD_HIGH_HERE if card in on else 0
        boxes = self.boxes.values()
        own, mates = set(box.cards), [one for one in boxes if box.pod and one.pod == box.pod]
        of_pod = own.union(*(one.cards for one in mates))
        others = [
            one
            for one in boxes
            if one.name != box.name and set(one.cards) & (own if one in mates else of_pod)
        ]
        page.peer_count = len(others)
        for at, other in enumerate(others):
            peer = page.peers[at]
            peer.name, peer.peer_class = other.name.encode(), other.share_class
            for index, card in enumerate(box.cards):
                if card in other.cards:
                    peer.cards |= 1 << index
                    peer.peer_card_of[index] = other.cards.index(card)
            peer.pod_cards = sum(1 << index for index, card in enumerate(other.cards) if card in of_pod)
        return page

    def start(
        self,
        box: str,
        *words: object,
        preload: bool = True,
        program: Path = BUILD / "time-actor",
        environment: Mapping[str, str] | None = None,
        **more: str,
    ) -> Running:
        """A program of tests/time_actor.c in a container, ready to begin."""
        foreign = ("FAKE_", "EGPU_", "LD_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        ours = {
            "EGPU_TEST_ROOT": str(self.root / box),
            "FAKE_NVML_STATE": str(self.root / "cards"),
            "FAKE_CUDA_MODE": self.mode,
            "LD_LIBRARY_PATH": str(BUILD),
        }
        if preload:
            ours["LD_PRELOAD"] = str(BUILD / "libvgpu-egpu.so")
        process = subprocess.Popen(
            [program, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept | ours | dict(environment or {}) | more,
        )
        running = Running(process, self.boxes[box])
        self.running.append(running)
        assert process.stdout
        line = process.stdout.readline()
        assert line == "ready\n", f"{box}: {line!r} {process.stderr.read() if process.stderr else ''}"
        return running

    def used(self, from_ns: int, to_ns: int) -> Mapping[tuple[int, int], Used]:
        """By pid and card, from the timeline."""
        words: list[str | Path] = [BUILD / "time-judge", self.state, str(from_ns), str(to_ns)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        rows = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
        return {(row[0], row[1]): Used(*row[2:]) for row in rows}

    def stretches(self, from_ns: int, to_ns: int, card: int = 0) -> list[tuple[int, int, int, int]]:
        """Of that card, as they ran: pid, enqueued, start and end in ns."""
        words: list[str | Path] = [BUILD / "time-judge", self.state, str(from_ns), str(to_ns), str(card)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in map(str.split, done.stdout.splitlines())]

    def share(self, pid: int, from_ns: int, to_ns: int) -> float:
        """Percent of the first card's time that the process had then."""
        used = self.used(from_ns, to_ns).get((pid, 0))
        return 100 * used.busy_ns / (to_ns - from_ns) if used else 0.0

    def at_work(self, program: Running, card: int = 0) -> list[tuple[int, int]]:
        """From when to when it had work on that card: enqueued, not ended."""
        rows = self.stretches(0, EVER, card)
        return _union((enqueued, end) for pid, enqueued, _, end in rows if pid == program.process.pid)

    def percent_beside(self, low: Running, high: Running) -> float:
        """What `low` launched on the first card while `high` had work there, of the time of that work.

        Not the first 300 ms of each piece of it: whoever hears of it has to be given a processor first.
        """
        late_ns = 300 * MS
        busy = [(begin + late_ns, end) for begin, end in self.at_work(high) if end - begin > late_ns]
        assert busy, "high was never at work for so long"
        rows = (row for row in self.stretches(0, EVER) if row[0] == low.process.pid)
        taken = sum(end - start for _, at, start, end in rows if any(a < at < b for a, b in busy))
        return 100 * taken / max(1, sum(end - begin for begin, end in busy))

    def busiest_second_ns(self, *pids: int) -> int:
        """The most that these processes took of the first card in any second, together."""
        ran = _union((start, end) for pid, _, start, end in self.stretches(0, EVER) if pid in pids)
        starts = [start for start, _ in ran]
        before = list(accumulate((end - start for start, end in ran), initial=0))
        most = 0
        for at, start in enumerate(starts):
            last = bisect_left(starts, start + SECOND_NS)
            beyond = max(0, ran[last - 1][1] - start - SECOND_NS)
            most = max(most, before[last] - before[at] - beyond)
        return most

    def wait_for_units(self, program: Running, since_ns: int = 0, units: int = 1) -> None:
        """Until it has run so many units on the first card since then, however slow the machine is."""
        self._wait(program, lambda: self._units(program, since_ns) >= units)

    def wait_for_share(self, program: Running, below: float) -> None:
        """Until a second of the time from now on in which it ran took less than so many percent."""
        began = time.monotonic_ns()

        def reached() -> bool:
            now = time.monotonic_ns()
            share = self.share(program.process.pid, now - SECOND_NS, now)
            return now - began > SECOND_NS and 0 < share < below

        self._wait(program, reached)

    def _units(self, program: Running, since_ns: int) -> int:
        used = self.used(since_ns, EVER).get((program.process.pid, 0))
        return used.units if used else 0

    def _wait(self, program: Running, until: Callable[[], bool], timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not until():
            assert program.process.poll() is None, f"{program.box.name} ended: {program.process.returncode}"
            assert time.monotonic() < deadline, f"{program.box.name}: {self.used(0, EVER)}"
            time.sleep(0.05)

    def agent(self, seconds: float, step_s: float = 0.5) -> None:
        """Does what a node agent does: tells each page what the driver counted, in whole percents.

        A program that has no processor logs late what ran meanwhile: a second back it is counted again.
        """
        before_ns = time.monotonic_ns()
        known = self._busy_ns(before_ns - SECOND_NS, before_ns)
        until_ns = before_ns + int(seconds * SECOND_NS)
        while before_ns < until_ns:
            time.sleep(step_s)
            now_ns = time.monotonic_ns()
            busy = self._busy_ns(before_ns - SECOND_NS, now_ns)
            for name in self.boxes:
                percent = 100 * (busy[name] - known.get(name, 0)) / (now_ns - before_ns)
                counted = self.counted.get(name, 0) + round(percent) * (now_ns - before_ns) // 100
                self.counted[name] = counted
                with (self.peers / name).open("r+b", buffering=0) as page:
                    os.pwrite(page.fileno(), struct.pack("<QQ", counted, now_ns), abi.measured_at(0))
            known, before_ns = self._busy_ns(now_ns - SECOND_NS, now_ns), now_ns

    def _busy_ns(self, from_ns: int, to_ns: int) -> dict[str, int]:
        """By box, what its programs took of the first card."""
        found = dict.fromkeys(self.boxes, 0)
        used = self.used(from_ns, to_ns)
        for one in self.running:
            took = used.get((one.process.pid, 0))
            found[one.box.name] = found.get(one.box.name, 0) + (took.busy_ns if took else 0)
        return found

    def together(self, programs: Iterable[Running], timeout_s: float = 60) -> list[dict[str, Any]]:
        """Begins them all and waits for their ends."""
        programs = list(programs)
        for one in programs:
            one.begin()
        return [one.result(timeout_s) for one in programs]

    def close(self) -> None:
        """Ends what still runs."""
        for one in self.running:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait(30)
            for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
                if pipe:
                    pipe.close()
