"""A node without Kubernetes: the agent's own code makes the pages, process groups stand for containers.

On a real GPU, or with ``VC_EGPU_GPU_ON_FAKE=1`` on the fake driver: then figures mean nothing but that the
code runs. Nothing of the card's settings is changed.
"""

import atexit
import ctypes
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from children import rest_of
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.pages import ACTIVITY, USAGE, SharedPages
from vc_egpu_node.vendors.base import CardReading, NodeReading
from vc_egpu_node.vendors.nvidia.preload import install
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = Path(os.environ.get("VC_EGPU_NATIVE_BUILD") or ROOT / "device-plugin" / "native" / "build")
ON_FAKE: Final = os.environ.get("VC_EGPU_GPU_ON_FAKE") == "1"
MIB: Final = 1 << 20
MS: Final = 1_000_000
SECOND: Final = 1000 * MS
FAKE_MIB: Final = 65_536
READY_S: Final = 100.0
"""The longest that a program takes until it is ready: PyTorch from a cold disk."""
_CONTEXT_MIB: Final[dict[str, int]] = {}
Rows = np.ndarray[Any, np.dtype[np.int64]]
"""Launched, began and ended in ns of CLOCK_MONOTONIC, one row for each kernel, by its beginning."""


def why_not() -> str:
    """Why nothing can be measured here; empty: it can."""
    if ON_FAKE:
        return ""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA GPU: there is no libcuda.so.1"
    if code := cuda.cuInit(0):
        return f"no NVIDIA GPU: cuInit returned {code}"
    vendor = NvidiaReadings()
    try:
        reading = vendor.scan()
    finally:
        vendor.close()
    try:
        chosen(reading)
    except LookupError as error:
        return f"no NVIDIA GPU: {reading.problem or error}"
    return ""


def chosen(reading: NodeReading) -> CardReading:
    """The card that is measured on: the first that CUDA_VISIBLE_DEVICES names (NVML knows nothing of that),
    else the first; raises ``LookupError`` where there is none for us."""
    wanted = "" if ON_FAKE else os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    for card in reading.cards:
        named = card.index == int(wanted) if wanted.isdecimal() else card.uuid.startswith(wanted)
        if named and "slice" in card.abilities:
            raise LookupError(f"MIG mode is on: {card.product} {card.uuid} cannot be shared")
        if named:
            return card
    raise LookupError(f"CUDA_VISIBLE_DEVICES={wanted}: NVML lists {[card.uuid for card in reading.cards]}")


def machine() -> list[str]:
    """Sentences about card, driver and who else is there. Never raises."""
    vendor = NvidiaReadings()
    try:
        if ON_FAKE:
            fake_card()
        reading = vendor.scan()
        cuda = reading.versions.get("cuda") or "unknown"
        told = [f"driver {reading.driver_version or 'unknown'} (CUDA {cuda})"]
        told += [reading.problem] if reading.problem else []
        for card in reading.cards:
            sample, others = vendor.sample(card.uuid), vendor.processes(card.uuid)
            told.append(
                f"card {card.index}: {card.product}, {card.uuid}, {card.memory_mib} MiB, "
                f"{sample.memory_used_mib} used, {sample.memory_reserved_mib} reserved, "
                f"{sample.sm_clock_mhz} MHz, compute {card.attributes.get('compute_capability', 'unknown')}, "
                f"MIG {'on' if 'slice' in card.abilities else 'off'}, "
                f"processes (pid, MiB) {[(one.pid, one.memory_mib) for one in others]}"
            )
    except (OSError, LookupError) as error:
        told = [f"nothing to be told of this machine's cards: {error}"]
    finally:
        vendor.close()
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs: wake-ups come late on a busy machine"
    return [*told, load]


def ready(process: "subprocess.Popen[str]") -> None:
    """Waits for a program's first line; one that never says it is ended."""
    late = threading.Timer(READY_S, os.killpg, (process.pid, signal.SIGKILL))
    late.start()
    try:
        assert process.stdout
        line = process.stdout.readline()
    finally:
        late.cancel()
    if line != "ready\n":
        with_end = f"ended with {process.wait(10)}" if not line else "goes on"
        errors = process.stderr.read() if process.stderr and not line else ""
        raise AssertionError(f"{process.args!r}: said {line!r} and {with_end}: {errors}")


@functools.cache
def fake_card() -> Path:
    """A card of the fake driver, for this process as well: its NVML keeps the first one that it sees."""
    folder = Path(tempfile.mkdtemp(prefix="egpu-card-", dir=_memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    lines = ["driver=580.65.06", "cuda=13000", "card=GPU-00000000-5555-6666-7777-888888888888"]
    lines += ["name=NVIDIA H20", f"memory_mib={FAKE_MIB}", "reserved_mib=0", "pci=00000000:01:00.0"]
    path = folder / "cards"
    path.write_text("\n".join([*lines, "minor=0", "cores=9984", "cc=9.0"]) + "\n")
    os.environ["FAKE_NVML_STATE"] = str(path)
    ctypes.CDLL(str(BUILD / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    return path


def _memory() -> Path | None:
    folder = Path("/dev/shm")
    return folder if folder.is_dir() else None


@dataclass(slots=True)
class Running:
    """A program of a container that waits for a line before it begins."""

    process: subprocess.Popen[str]
    stamps: Path | None

    def begin(self) -> None:
        """Lets it go."""
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self, timeout_s: float) -> dict[str, Any]:
        """What it says at its end."""
        code, out, errors = rest_of(self.process, timeout_s)
        assert code == 0, (self.process.args, code, out, errors)
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer

    def end(self) -> None:
        """Ends its process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()


@dataclass(slots=True)
class Node:
    """One card of this machine, and containers that share it."""

    root: Path = field(init=False)
    vendor: NvidiaReadings = field(init=False)
    card: CardReading = field(init=False)
    driver: str = field(init=False)
    isolation: Isolation = field(init=False)
    context_mib: int = field(init=False)
    """What one process's context takes."""
    grants: dict[str, Grant] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    _folder: tempfile.TemporaryDirectory[str] = field(init=False)
    _timings: Timings = field(default_factory=Timings)

    def __post_init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=_memory())
        self.root = Path(self._folder.name)
        if ON_FAKE:
            fake_card()
        self.vendor = NvidiaReadings()
        reading = self.vendor.scan()
        assert reading.cards, reading.problem
        self.card, self.driver = chosen(reading), reading.driver_version
        library = install(BUILD / "libvgpu-egpu.so", self.root / "versions")
        self.isolation = Isolation(
            library,
            self.root / "containers",
            SharedPages(self.root / "pages"),
            pci_bus_ids=lambda: {self.card.uuid: self.card.pci_bus_id},
            timings=lambda: self._timings,
        )
        self.context_mib = self._context_cost()

    def _context_cost(self) -> int:
        """Nobody else uses the card: what one idle program adds. Measured once."""
        if self.card.uuid in _CONTEXT_MIB:
            return _CONTEXT_MIB[self.card.uuid]
        before = self.used_mib()
        program = self.start(None, "measure", "train", "--seconds", 0)
        cost = self.used_mib() - before
        program.end()
        self.settle(before + 8)
        return _CONTEXT_MIB.setdefault(self.card.uuid, max(1, cost))

    # --- containers ------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        memory_mib: int,
        cores: int = 0,
        *,
        share_class: str = "unset",
        core_policy: str = "hard",
        physical_mib: int | None = None,
    ) -> None:
        """A container with a share of the card; its pages are there when this returns."""
        share = CardShare(uuid=self.card.uuid, memory_mib=memory_mib, cores=cores, physical_mib=physical_mib)
        grant = Grant(
            name=name, resource="volcano.sh/vgpu-gpu", ids=("s1",), pod_uid=f"uid-{name}", namespace="gpu",
            pod=name, container="main", plan_id="1-1", epoch=1, share_class=share_class,  # type: ignore[arg-type]
            core_policy=core_policy, native=False, shares=(share,), granted_at_s=time.time(),
        )  # fmt: skip
        (self.root / "containers" / name).mkdir(parents=True)
        self.grants[name] = grant
        self.isolation.prepare(grant, self.grants.values)
        self.isolation.learnt(name, self.card.uuid, self.context_mib * MIB)
        self.isolation.refresh(self.grants.values())
        inside = self.root / "inside" / name
        (inside / "run/egpu").mkdir(parents=True)
        (inside / "etc").mkdir()
        (inside / "etc/egpu").symlink_to(self.root / "containers" / name)
        for kind in (USAGE, ACTIVITY):  # the library follows no links here: the files themselves
            os.link(self.isolation.pages.path(kind, name), inside / "run/egpu" / kind.name)
        os.link(self.isolation.seed(name).path, inside / "run/egpu/seed")
        (inside / "run/egpu/peers").symlink_to(self.isolation.pages.folder(ACTIVITY))

    def change(self, name: str, **share: Any) -> None:
        """Other limits for a container that runs."""
        before = self.grants[name]
        self.grants[name] = replace(before, shares=(before.shares[0].model_copy(update=share),))
        self.isolation.refresh(self.grants.values())

    def environment(self, name: str | None) -> dict[str, str]:
        """What a program runs with; without a name: beside all containers, limited by nothing."""
        foreign = ("FAKE_", "EGPU_", "LD_PRELOAD")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        if ON_FAKE:
            kept |= {"FAKE_NVML_STATE": str(fake_card()), "FAKE_CUDA_MODE": "slices"}
            kept["LD_LIBRARY_PATH"] = str(BUILD)
        else:
            kept["CUDA_VISIBLE_DEVICES"] = self.card.uuid
        if name is not None:
            kept["LD_PRELOAD"] = str(BUILD / "libvgpu-egpu.so")
            kept["EGPU_TEST_ROOT"] = str(self.root / "inside" / name)
        return kept

    # --- programs --------------------------------------------------------------------------------

    def start(
        self, name: str | None, program: str, *words: object, stamps: bool = False, limited: bool = True
    ) -> Running:
        """A program of ``native/programs`` in a container; ``limited`` False: without the library."""
        command = [str(BUILD / "programs" / program), *map(str, words)]
        file = None
        if stamps and not ON_FAKE:
            file = self.root / f"stamps-{len(self.running)}"
            command += ["--stamps", str(file)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment(name if limited else None), start_new_session=True,
        )  # fmt: skip
        one = Running(process, file)
        self.running.append(one)
        ready(process)
        return one

    def together(self, programs: Iterable[Running], timeout_s: float = 90) -> list[dict[str, Any]]:
        """Begins them all and waits for their ends."""
        programs = list(programs)
        for one in programs:
            one.begin()
        return [one.result(timeout_s) for one in programs]

    def rows(self, program: Running, said: dict[str, Any]) -> Rows:
        """When each of its kernels was launched and ran: as the card's clock says, or the fake card's log."""
        if program.stamps is not None:
            rows = np.fromfile(program.stamps, np.int64).reshape(-1, 3)
        else:
            words = [BUILD / "time-judge", f"{fake_card()}.cuda", said["from_ns"], said["to_ns"], "all"]
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
            table = np.array([line.split() for line in done.stdout.splitlines()], np.int64).reshape(-1, 4)
            rows = table[table[:, 0] == said["pid"]][:, 1:]
        return rows[np.argsort(rows[:, 1], kind="stable")]

    def charged_ns(self, name: str) -> int:
        """What the library has booked for that container so far."""
        page = self.isolation.pages.read(ACTIVITY, name)
        assert page is not None
        return int(abi.ActivityPage.from_buffer_copy(page).cards[0].busy_ns)

    # --- the card ----------------------------------------------------------------------------------

    def used_mib(self) -> int:
        """Memory in use on the card, by whomever."""
        used = self.vendor.sample(self.card.uuid).memory_used_mib
        assert used is not None
        return used

    def free_mib(self) -> int:
        """Memory that nobody uses."""
        free = self.vendor.sample(self.card.uuid).memory_free_mib
        assert free is not None
        return free

    def settle(self, used_mib: int, timeout_s: float = 30.0) -> int:
        """Waits until no more than that is in use, as ended programs leave; what is, at last."""
        until = time.monotonic() + timeout_s
        while self.used_mib() > used_mib and time.monotonic() < until:
            time.sleep(0.05)
        return self.used_mib()

    def close(self) -> None:
        """Ends what runs, and removes the pages."""
        for one in self.running:
            one.end()
        self.vendor.close()
        self._folder.cleanup()


def busy_ns(rows: Rows, begin: int, end: int) -> int:
    """Of that span, what these kernels had of the card: where one ran beside another, once."""
    starts = np.clip(rows[:, 1], begin, end)
    ends = np.maximum.accumulate(np.clip(rows[:, 2], begin, end)) if len(rows) else rows[:, 2]
    before = np.concatenate([[begin], ends[:-1]]) if len(rows) else starts
    return int(np.clip(ends - np.maximum(starts, before), 0, None).sum())
