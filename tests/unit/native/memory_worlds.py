"""A container for the tests of the memory side: its pages, a fake card, and programs in it."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).resolve().parents[3] / "device-plugin" / "native"
BUILD: Final = Path(os.environ.get("VC_EGPU_NATIVE_BUILD") or NATIVE / "build")
LIBRARY: Final = str(BUILD / "libvgpu-egpu.so")
SANITIZED: Final = os.environ.get("VC_EGPU_NATIVE_ACTOR")
"""Program and library as one, with a sanitizer: takes the place of limited programs where it is set."""
MIB: Final = 1 << 20
GRANULE: Final = 2 * MIB
UUIDS: Final = tuple(f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in range(4))
CONTEXT_MIB: Final = 32
"""What a context takes on the fake card, the part that grows with the first launch included."""

CARD_MIB: Final = 4096
CAP: Final = 512 * MIB
"""What a container may have of a card, where it does not matter to the test."""

OK: Final = 0
OUT_OF_MEMORY: Final = 2

MAGIC: Final = 0x55504745
HEAD_BYTES: Final = 176
CARD_BYTES: Final = 120
PAGE_BYTES: Final = HEAD_BYTES + 16 * CARD_BYTES + 128 * 144
SPILL: Final = 1

SLOTS_AT: Final = 128
SLOT_BYTES: Final = 288
SLOTS: Final = 1024
SHARED_AT: Final = SLOTS_AT + SLOTS * SLOT_BYTES
SHARED_BYTES: Final = 144
USAGE_BYTES: Final = SHARED_AT + 1024 * SHARED_BYTES


@dataclass(frozen=True, slots=True)
class Share:
    """One card of the container."""

    uuid: str
    memory_bytes: int
    physical_bytes: int | None = None
    context_bytes: int = CONTEXT_MIB * MIB
    flags: int = 0
    core_policy: int = 0


def control_page(shares: Iterable[Share], *, host_mib: int = 0, sequence: int = 2) -> bytes:
    """The bytes of a control page as the agent writes it."""
    cards = [
        struct.pack(
            "<48s32sQQQIIII",
            one.uuid.encode(),
            f"00000000:{index + 1:02X}:00.0".encode(),
            one.memory_bytes,
            one.memory_bytes if one.physical_bytes is None else one.physical_bytes,
            one.context_bytes,
            100,
            one.core_policy,
            100,
            one.flags,
        )
        for index, one in enumerate(shares)
    ]
    head = struct.pack("<IIIIQQ64s", MAGIC, 1, 0, PAGE_BYTES, sequence, sequence // 2, b"test")
    head += struct.pack("<11I", 0, 0, len(cards), 0, 2000, 100, 30000, 500, 5, 60000, host_mib)
    return (head.ljust(HEAD_BYTES, b"\0") + b"".join(cards)).ljust(PAGE_BYTES, b"\0")


def damaged_pages(cap: int) -> dict[str, bytes]:
    """What a control page may look like that must not be used."""
    good = control_page([Share(UUIDS[0], cap)])
    return {
        "empty": b"",
        "short": good[: PAGE_BYTES - 1],
        "zeros": bytes(PAGE_BYTES),
        "ones": b"\xff" * PAGE_BYTES,
        "another major version": good[:4] + struct.pack("<I", 2) + good[8:],
        "being written": good[:16] + struct.pack("<Q", 3) + good[24:],
        "too many cards": good[:104] + struct.pack("<I", 17) + good[108:],
        "no memory": control_page([Share(UUIDS[0], 0)]),
        "more on the card than there is": control_page([Share(UUIDS[0], cap, physical_bytes=cap + 1)]),
        "a name without an end": good[:176] + b"G" * 48 + good[224:],
    }


@dataclass(slots=True)
class Actor:
    """A program in the container that allocates as it is told; see tests/memory_actor.c."""

    process: subprocess.Popen[str]
    waiting: int = field(default=0)

    def tell(self, *words: object) -> None:
        """Sends a command; `hear` gives its answer."""
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        self.waiting += 1

    def hear(self) -> list[str]:
        """The next answer: the CUresult first."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait(60)}"
        self.waiting -= 1
        return line.split()

    def ask(self, *words: object) -> list[str]:
        """A command and its answer."""
        self.tell(*words)
        return self.hear()

    def do(self, *words: object) -> int:
        """A command and its CUresult."""
        return int(self.ask(*words)[0])

    def start(self, device: int = 0) -> "Actor":
        """Makes the primary context."""
        assert self.do("init") == OK
        assert self.do("primary", 0, device) == OK
        return self

    def info(self) -> tuple[int, int]:
        """Free and total bytes by cuMemGetInfo."""
        code, free, total = map(int, self.ask("info"))
        assert code == OK
        return free, total

    def kill(self) -> None:
        """As the kernel's OOM killer would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def close(self) -> str:
        """Ends it in good order; what it wrote on stderr."""
        _, errors = self.process.communicate(timeout=60)
        return errors


class World:
    """A container and its cards. `root` stands for its file system, where the library looks for the pages."""

    def __init__(self, root: Path, shares: Iterable[Share], *, host_mib: int = 0) -> None:
        self.root = root
        self.usage = root / "run/egpu/usage"
        self.control = root / "etc/egpu/control"
        self.seed = root / "run/egpu/seed"
        self.usage.parent.mkdir(parents=True)
        self.control.parent.mkdir(parents=True)
        self.actors: list[Actor] = []
        self.limit(shares, host_mib=host_mib)
        lines = ["driver=570.124.06", "cuda=13050"]
        for index, uuid in enumerate(UUIDS):
            lines += [f"card={uuid}", "name=NVIDIA H20", f"memory_mib={CARD_MIB}", "reserved_mib=0"]
            lines += [f"pci=00000000:{index + 1:02X}:00.0", f"minor={index}", "cores=9984", "cc=9.0"]
        (root / "cards").write_text("\n".join(lines) + "\n")

    def limit(self, shares: Iterable[Share], *, host_mib: int = 0) -> None:
        """Writes the control page, in place as the agent does."""
        self.shares = tuple(shares)
        before = self.control.read_bytes() if self.control.exists() else b""
        sequence = struct.unpack_from("<Q", before, 16)[0] + 2 if before else 2
        with self.control.open("r+b" if before else "wb") as file:
            file.write(control_page(self.shares, host_mib=host_mib, sequence=sequence))

    def environment(self, *, preload: str | None = LIBRARY, **more: str) -> dict[str, str]:
        """What a program in the container runs with."""
        ignored = ("FAKE_", "EGPU_", "LD_", "CUDA_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
        ours = {
            "EGPU_TEST_ROOT": str(self.root),
            "FAKE_NVML_STATE": str(self.root / "cards"),
            "FAKE_CUDA_CONTEXT_MIB": str(CONTEXT_MIB - 2),
            "FAKE_CUDA_LAZY_MIB": "2",
            "LD_LIBRARY_PATH": str(BUILD),
        }
        if preload:
            ours["LD_PRELOAD"] = preload
        return kept | ours | more

    def python(self, code: str, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """A program in Python, to its end; `more`: of its environment."""
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def actor(
        self, way: str = "dlsym", *, preload: str | None = LIBRARY, inside: Iterable[str] = (), **more: str
    ) -> Actor:
        """A program in the container (without `preload`: one that nobody limits), started by `inside`."""
        program = BUILD / ("memory-actor-direct" if way == "direct" else "memory-actor")
        if SANITIZED and preload:
            program, way, preload = Path(SANITIZED), "direct", None
        process = subprocess.Popen(
            [*inside, program, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=self.environment(preload=preload, **more),
        )
        self.actors.append(Actor(process))
        return self.actors[-1]

    def watcher(self, device: int = 0) -> Actor:
        """Sees what is really in use on the card, and takes nothing itself."""
        actor = self.actor(preload=None, FAKE_CUDA_CONTEXT_MIB="0", FAKE_CUDA_LAZY_MIB="0")
        return actor.start(device)

    def close(self) -> None:
        """Ends all programs."""
        for actor in self.actors:
            if actor.process.poll() is None:
                actor.kill()
            for pipe in (actor.process.stdin, actor.process.stdout, actor.process.stderr):
                if pipe:
                    pipe.close()


def used(watcher: Actor) -> int:
    """Bytes that are really in use on the watcher's card."""
    free, total = watcher.info()
    return total - free


def charged(world: World, card: int = 0) -> int:
    """What the usage page says is in use there, slots of dead owners included."""
    page = world.usage.read_bytes()
    sum_ = 0
    for slot in range(SLOTS):
        at = SLOTS_AT + slot * SLOT_BYTES
        if struct.unpack_from("<Q", page, at)[0]:
            sum_ += sum(struct.unpack_from("<QQ", page, at + 32 + 16 * card))
    for entry in range(1024):
        at = SHARED_AT + entry * SHARED_BYTES
        key, bytes_card = struct.unpack_from("<QQ", page, at)
        if key and bytes_card & 15 == card and any(page[at + 16 : at + SHARED_BYTES]):
            sum_ += bytes_card & ~0xFFF
    return sum_
