"""What the agent needs from a vendor's management library, and the values that come back.

Values are raw readings: an adapter passes on what the library says, however odd, and
:mod:`vc_egpu_node.cards.inventory` judges it. One thread calls an adapter, so adapters need no locks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

ComputeMode = Literal["", "others", "all"]
"""All may use the card; one program alone may, at a time (exclusive process); nobody may (prohibited)."""


@dataclass(frozen=True, slots=True)
class CardReading:
    """What a card is: facts that stay the same while the driver is loaded."""

    uuid: str
    index: int
    """Position in the vendor's list."""
    product: str
    memory_mib: int
    sm_count: int = 0
    clock_mhz: int = 0
    compute_capability: str = ""
    pci_bus_id: str = ""
    minor: int = -1
    """Number of the device node (``/dev/nvidia<minor>``), -1 where unknown."""
    partitioned: bool = False
    """MIG mode is on: the card cannot be handed out whole or in shares."""
    closed_to: ComputeMode = ""
    """What the card's compute mode keeps out."""
    links: Mapping[str, int] = field(default_factory=dict)
    """Peer UUID to number of direct links."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All cards of the node, or why there are none."""

    cards: tuple[CardReading, ...] = ()
    driver_version: str = ""
    cuda_version: str = ""
    problem: str = ""
    """Non-empty: the library or driver does not answer, or some cards could not be read."""
    outdated: bool = False
    """The driver was replaced under the library that this process has loaded: only a new one can go on."""


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
    row_remap_pending: int | None = None
    row_remap_failure: int | None = None
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process on one card, by host PID."""

    pid: int
    memory_mib: int
    sm_percent: int
    mps: bool = False
    """Its work goes through NVIDIA's MPS server."""


@dataclass(frozen=True, slots=True)
class CardEvent:
    """Something the driver told about a card."""

    uuid: str
    xid: int
    """The driver's error number."""


class UntoldError(RuntimeError):
    """The card does not tell that now: not "nothing", but not known. The text says why."""


class Vendor(Protocol):
    """One vendor's cards on this node."""

    name: str

    def scan(self) -> NodeReading:
        """Count the cards anew (re-initialises the library). Never raises: a failure is a problem."""

    def faults(self) -> Mapping[str, str]:
        """UUID to what is wrong with the card now, for cards of the last scan that are not in order."""

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """Block until the driver tells of errors, at most ``timeout_s`` seconds."""

    def sample(self, uuid: str) -> CardSample:
        """Utilisation, memory, power and the like of one card."""

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        """Who runs on one card; raises :class:`UntoldError`."""

    def close(self) -> None:
        """Let go of the library."""
