"""A vendor of cards as one bundle: readings, container edits, isolation or none, facts.

The rest of the agent speaks to a :class:`Vendor` and knows no vendor by name. Readings are raw values: an
adapter passes on what the library says, however odd, and :mod:`vc_egpu_node.cards.inventory` judges it. One
thread calls an adapter, so adapters need no locks.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from vc_egpu.core.environments.backends import Backend
from vc_egpu.core.layouts.table import Layout
from vc_egpu.core.topology.links import Near

from vc_egpu_node.vendors.slices import HeldSlice, Realised, Slicer

ComputeMode = Literal["", "others", "all"]
"""All may use the card; one program alone may, at a time (exclusive process); no program may (prohibited)."""


Ability = Literal[
    "share", "slice", "make", "stack", "pause", "spill", "processes", "utilisation", "limit",
]  # fmt: skip
"""What a card can do. It is shared by size, or cut into slices of fixed sizes now, or a slice is made on it
for each container. It holds high over low, stops programs, or lets memory spill to the host. It tells which
processes run on it, and how busy it is. Its driver can limit the memory of a control group."""
SHARED: Final[frozenset[Ability]] = frozenset(get_args(Ability)) - {
    "slice", "make", "limit",
}  # fmt: skip
"""Abilities of a card whose containers have the isolation library."""


@dataclass(frozen=True, slots=True)
class CardReading:
    """What a card is: facts that stay the same while the driver is loaded."""

    uuid: str
    index: int
    """Position in the vendor's list."""
    product: str
    memory_mib: int
    clock_mhz: int = 0
    pci_bus_id: str = ""
    closed_to: ComputeMode = ""
    """Which programs the card's own mode keeps out."""
    links: Mapping[str, int] = field(default_factory=dict)
    """Peer UUID to number of direct links."""
    switch_links: int = 0
    """Links that end at a switch, which all cards of the node share."""
    link_mb_s: int = 0
    """What one link carries each way, in MB/s; 0: that is not known."""
    near: Mapping[str, Near] = field(default_factory=dict)
    """Peer UUID to the way there over PCIe."""
    devices: tuple[str, ...] = ()
    """Names of its own device nodes below ``/dev``, the one that tools show first."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """By name, such as ``minor``, ``phy``, ``render``, ``card``, ``sm``. An absent one is not known."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Words by name, such as ``compute_capability``, ``chip``, ``board``."""
    group: int = -1
    """Cards of the same group are joined more closely than others; -1: it has none."""
    module: int = -1
    """Cards of the same module share a board; -1: it has none."""
    layout: Layout | None = None
    """Which slices it may hold together, and where, as its driver says; None: the driver does not say."""
    slices: tuple[HeldSlice, ...] = ()
    """Slices that lie on it, whoever made them."""
    others: bool = False
    """Another tool has cut it too, and its slices are not in the list."""
    abilities: frozenset[Ability] = SHARED
    isolation: Backend = "library"
    """Without a choice of the operator. ``library``: also ``driver``, where the card can ``limit``."""

    @property
    def device(self) -> str:
        """Name of its device node, for people."""
        return self.devices[0] if self.devices else f"card{self.index}"


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All cards of the node, or why there are none."""

    cards: tuple[CardReading, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """By name: ``driver`` and, where the vendor has them, ``cuda``, ``hdk``, ``dtk-driver``, ``library``."""
    problem: str = ""
    """Non-empty: the library or driver does not answer, or some cards could not be read."""
    outdated: bool = False
    """The driver was replaced while this process has its old library loaded: only a new process can go on."""

    @property
    def driver_version(self) -> str:
        """The driver that is loaded; empty: not known."""
        return self.versions.get("driver", "")


@dataclass(frozen=True, slots=True)
class CardSample:
    """What a card does at one moment. None: the card does not tell."""

    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    gpu_util_percent: int | None = None
    mem_copy_util_percent: int | None = None
    enc_util_percent: int | None = None
    dec_util_percent: int | None = None
    power_w: float | None = None
    energy_mj: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    pcie_replays: int | None = None
    remapped_rows: int | None = None
    corrected_remapped_rows: int | None = None
    row_remap_pending: int | None = None
    row_remap_failure: int | None = None
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process on one card, by host PID."""

    pid: int
    memory_mib: int
    sm_percent: int
    through: str = ""
    """What does its work on the card for it, such as ``mps`` (NVIDIA's server); empty: it does so itself."""


@dataclass(frozen=True, slots=True)
class CardEvent:
    """What the driver reported of a card unasked."""

    uuid: str
    text: str
    """For people, such as ``XID 79``."""
    code: int = 0
    """The driver's error number; 0: it has none."""
    fatal: bool = True
    """The card is ill from now on. Else the event is only told."""
    recovered: bool = False
    """The trouble of that text is over."""


class UntoldError(RuntimeError):
    """The card does not answer now: that is "unknown", not "none". The text says why."""


class Readings(Protocol):
    """The vendor's management library on this node."""

    def scan(self) -> NodeReading:
        """Count the cards again (re-initialises the library). Never raises: a failure is a problem."""

    def faults(self) -> Mapping[str, str]:
        """UUID to what is wrong with the card now, for cards of the last scan that are not in order."""

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """Block until the driver reports errors, at most ``timeout_s`` seconds."""

    def sample(self, uuid: str) -> CardSample:
        """Utilisation, memory, power and the like of one card."""

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        """Processes on one card; raises :class:`UntoldError`."""

    def close(self) -> None:
        """Let go of the library."""


class EditsError(RuntimeError):
    """No container can be started on a card; the text says what to run."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Container edits of some cards, in parts: those that all cards need, and each card's own."""

    cdi_version: str = "0.3.0"
    parts: tuple[Mapping[str, Any], ...] = ()

    def merged(self) -> dict[str, Any]:
        """One ``containerEdits`` object; what two parts both name stands in it once."""
        result: dict[str, Any] = {}
        for part in self.parts:
            for key, value in part.items():
                if not isinstance(value, list):
                    if value is not None:
                        result.setdefault(key, copy.deepcopy(value))
                    continue
                entries = result.setdefault(key, [])
                entries += [copy.deepcopy(entry) for entry in value if entry not in entries]
        return result


class ContainerEdits(Protocol):
    """What a container needs to use cards: device nodes, driver libraries, hooks."""

    def edits(
        self,
        cards: Sequence[CardReading],
        driver_version: str,
        *,
        shared: bool,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """The edits of exactly these cards for a container that starts; raises :class:`EditsError`.
        ``driver_version`` is the one that is loaded. ``shared``: the container has shares of the cards.
        ``realised``: the container has these slices, and nothing else of their cards."""

    def record(
        self, cards: Sequence[CardReading], *, shared: bool, realised: Sequence[Realised] = ()
    ) -> Edits:
        """The edits of a container that runs, for its record, whatever became of driver and cards since."""

    def unusable(self, cards: Iterable[CardReading], driver_version: str) -> dict[str, str]:
        """UUID to why no container can be started on the card, for those where that is so."""


def refused_singly(
    edits: ContainerEdits, cards: Iterable[CardReading], driver_version: str
) -> dict[str, str]:
    """What :meth:`ContainerEdits.unusable` says of most vendors: each card is tried by itself."""
    reasons = {}
    for card in cards:
        try:
            edits.edits([card], driver_version, shared=False)
        except EditsError as error:
            reasons[card.uuid] = str(error)
    return reasons


class Library(Protocol):
    """One installed version of an isolation library, and how a container gets it."""

    @property
    def digest(self) -> str:
        """Names the version."""

    @property
    def folder(self) -> Path:
        """Where the version lies on the host."""

    @property
    def test_build(self) -> bool:
        """Programs can choose their own limits."""

    @property
    def whole(self) -> bool:
        """Whether all of its files are there; cheap enough for each start."""

    def again(self) -> "Library":
        """The same repaired, or what lies at its source by now. Raises ``OSError``."""

    def mounts(self) -> list[dict[str, Any]]:
        """Mounts of every container with the library."""

    @property
    def limiter(self) -> Path | None:
        """The program by which the runtime asks the agent to limit a container's memory; None: it is not
        there."""

    def hooks(self, merged: Path) -> list[dict[str, Any]]:
        """Hooks of such a container; ``merged`` is a file in the container's folder that a hook may write."""

    def drop_others(self, used: Collection[str]) -> None:
        """Remove installed versions whose digest is not among these."""


class LibraryError(RuntimeError):
    """The isolation library cannot be used; the text says why."""


Install = Callable[[Path, Path], Library]
"""Installs the library at the first path below the folder of versions at the second; raises
:class:`LibraryError`."""


class MemoryLimits(Protocol):
    """Memory limits that a card's own driver holds, by control group. Both calls read back what is in force,
    and raise :class:`vc_egpu_node.vendors.slices.SliceError`."""

    def limit(self, uuid: str, group: Path, mib: int) -> None:
        """The processes of the group, and of those below it, have at most so much of the card from now on."""

    def clear(self, uuid: str, group: Path) -> None:
        """The group has no limit of its own any more."""


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """Names of the Node's labels by which a vendor's users know its cards."""

    present: str
    count: str
    product: str

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (self.product, self.count, self.present)


@dataclass(frozen=True, slots=True)
class VendorFacts:
    """What is known of a vendor without asking a card. Data only."""

    name: str
    """As the Node's inventory names it."""
    library: str
    """Name of what reads the cards, for sentences."""
    partitioned: str
    """Why a card that is cut into slices is not offered as a whole or in shares."""
    open_command: str
    """Opens a card that is :attr:`CardReading.closed_to` programs; ``{uuid}`` stands for the card."""
    labels: NodeLabels | None
    """None: users know it by our own label of the model alone."""
    hide: Mapping[str, str]
    """Variables that keep the vendor's own container runtime from adding cards."""
    runtime: str
    """Part of the name of that runtime."""
    all_cards: str
    """Variable by which an image gets all cards from that runtime."""
    shared_devices: tuple[str, ...] = ()
    """Names of device nodes that a container needs for any of the cards."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """All that the agent needs of one vendor."""

    facts: VendorFacts
    readings: Readings
    edits: ContainerEdits
    isolation: Install | None
    """None: this vendor has no library that limits containers."""
    trial: Callable[[str], str] | None = None
    """Uses the card of that UUID as a program would, and returns within a minute: why programs cannot use it,
    or empty. Raises :class:`UntoldError` where it cannot tell. None: this vendor has no such trial."""
    slicer: Slicer | None = None
    """Makes and removes slices; None: cards of this vendor are not cut."""
    memory_limits: MemoryLimits | None = None
    """None: no driver of this vendor limits memory."""
    sign: Path | None = None
    """Exists where the vendor's driver is loaded."""


ANY_DRIVER: Final = ""
"""Instead of a driver's version: edits made for any driver will do."""
