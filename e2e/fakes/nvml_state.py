"""Steers the fake NVML library (``device-plugin/native/fake``): cards come, go, fall ill and recover.

The file's format stands in ``device-plugin/native/fake/state.h``::

    node = FakeNode(path, [FakeCard.h20(1), FakeCard.h20(2)])
    node.write()                      # a program started with FAKE_NVML_STATE=path sees two cards
    node.cards[0].fail_with_xid(79)
    node.write()                      # ... and now an error event of the first
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

DRIVER_NOT_LOADED = 9


@dataclass
class FakeInstance:
    """One MIG instance with one compute instance; numbers as NVML gives them. ``ci`` -1: it has none."""

    uuid: str
    gi: int
    profile: int
    """0 is 1g, 9 is 1g of double memory, 1 is 2g, 2 is 3g, 3 is 4g, 4 is 7g."""
    start: int
    memory_mib: int
    ci: int = 0

    def line(self) -> str:
        """Its line in the file."""
        numbers = (self.gi, self.ci, self.profile, self.start, self.memory_mib)
        return f"instance={':'.join(str(number) for number in numbers)}:{self.uuid}"


@dataclass
class FakeCard:
    """One card; every field is what NVML will say."""

    uuid: str
    name: str = "NVIDIA H20"
    memory_mib: int = 98304
    memory_bytes: int | None = None
    """Instead of ``memory_mib``, for absurd values."""
    pci: str = ""
    minor: int | None = None
    used_mib: int = 0
    util: int = 0
    mem_util: int = 0
    power_mw: int = 75_000
    temp_c: int = 30
    cores: int = 9984
    """CUDA cores: 78 multiprocessors of 128."""
    cc: str = "9.0"
    ecc: int = 0
    remap_pending: int = 0
    remap_failure: int = 0
    recovery_action: int = 0
    mig: int = 0
    mig_slices: int = 0
    """Memory slices that MIG cuts it into: 8 or 4; 0: it cannot be cut."""
    instances: list[FakeInstance] = field(default_factory=list)
    make_error: int = 0
    """What making an instance answers; the next two: making its compute instance, and destroying one."""
    make_ci_error: int = 0
    destroy_error: int = 0
    make_hang_s: int = 0
    made_mib: int = 0
    """Memory of instances that are made; 0: their part of the card."""
    compute_mode: int = 0
    fabric: str = ""
    """State and status of its NVLink fabric, such as "2:0" (in progress); empty: it has none."""
    error: int = 0
    xids: list[int] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    """Bus ids of the peers, or ``switch``; one entry per link."""
    link_version: int = 0
    """As NVML counts versions of NVLink; 0: it does not tell."""
    socket: int = 0
    """The processor that it hangs on."""
    processes: list[tuple[int, int, int]] = field(default_factory=list)
    """(host PID, MiB, SM percent)."""
    kinds: dict[int, str] = field(default_factory=dict)
    """By PID: "G" for one that draws, "CG" for one that computes too."""
    homes: dict[int, int] = field(default_factory=dict)
    """By PID: the number of the MIG instance that it runs on."""

    @classmethod
    def h20(cls, number: int, node: int = 1) -> Self:
        """The ``number``-th H20 of the ``node``-th node, with a UUID that shows both."""
        return cls(
            uuid=f"GPU-{node:08d}-0000-4000-8000-{number:012d}",
            pci=f"00000000:{0x10 + number:02X}:00.0",
            minor=number - 1,
        )

    def fail_with_xid(self, code: int) -> None:
        """The driver tells of error ``code`` once, after the next write."""
        self.xids.append(code)

    def recover(self) -> None:
        """Nothing is wrong any more (past XIDs stay told)."""
        self.error = self.remap_pending = self.remap_failure = self.recovery_action = 0

    def lines(self) -> list[str]:
        """The card's part of the file."""
        numbers = {
            key: getattr(self, key)
            for key in (
                "used_mib",
                "util",
                "mem_util",
                "power_mw",
                "temp_c",
                "cores",
                "ecc",
                "remap_pending",
                "remap_failure",
                "recovery_action",
                "mig",
                "mig_slices",
                "make_error",
                "make_ci_error",
                "make_hang_s",
                "made_mib",
                "destroy_error",
                "compute_mode",
                "link_version",
                "socket",
                "error",
            )
        }
        memory = f"memory_mib={self.memory_mib}"
        if self.memory_bytes is not None:
            memory = f"memory_bytes={self.memory_bytes}"
        return [
            f"card={self.uuid}",
            f"name={self.name}",
            memory,
            *([f"pci={self.pci}"] if self.pci else []),
            *([f"minor={self.minor}"] if self.minor is not None else []),
            f"cc={self.cc}",
            *(f"{key}={value}" for key, value in numbers.items()),
            *([f"fabric={self.fabric}"] if self.fabric else []),
            *(f"xid={number}:{code}" for number, code in enumerate(self.xids, start=1)),
            *(one.line() for one in self.instances),
            *(f"link={peer}" for peer in self.links),
            *(
                f"process={pid}:{mib}:{percent}:{self.kinds.get(pid, 'C')}"
                + (f":{self.homes[pid]}" if pid in self.homes else "")
                for pid, mib, percent in self.processes
            ),
        ]


class FakeNode:
    """The file behind one node's fake NVML."""

    def __init__(self, path: Path, cards: Sequence[FakeCard] = (), driver: str = "570.124.06") -> None:
        self.path = path
        self.cards = list(cards)
        self.driver = driver
        self.error = 0

    @classmethod
    def of_h20(cls, path: Path, count: int, node: int = 1) -> Self:
        """A node with ``count`` H20 cards."""
        return cls(path, [FakeCard.h20(number, node) for number in range(1, count + 1)])

    def take_in(self) -> None:
        """Know the MIG instances that programs made or destroyed since."""
        for card in self.cards:
            card.instances = []
        cards = {card.uuid: card for card in self.cards}
        here: FakeCard | None = None
        for line in self.path.read_text().splitlines():
            key, _, value = line.partition("=")
            if key == "card":
                here = cards.get(value)
            elif key == "instance" and here is not None:
                gi, ci, profile, start, mib, uuid = value.split(":", 5)
                here.instances.append(
                    FakeInstance(uuid, int(gi), int(profile), int(start), int(mib), int(ci))
                )

    def write(self) -> None:
        """Put the present values into the file, at once as a whole."""
        head = [f"driver={self.driver}", "cuda=12080", *([f"error={self.error}"] if self.error else [])]
        text = "\n".join([*head, *(line for card in self.cards for line in card.lines())]) + "\n"
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(text)
        os.replace(temporary, self.path)  # noqa: PTH105 - the rename is what the library watches for
