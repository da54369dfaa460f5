"""How two cards of one node reach each other, and how much goes that way.

NVLinks are counted, and the driver tells what one carries. Ways over PCIe are only told by their kind. So
their figures are nominal: they put kinds in order, and no measurement stands behind them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

DEFAULT_LINK_MB_S: Final = 25_000
"""What one NVLink carries each way where the driver does not tell: as on V100, A100 and H100."""


class Near(StrEnum):
    """The way between two cards over PCIe, in the words of ``nvidia-smi topo``."""

    SWITCH = "pix"
    """At most one PCIe switch."""
    SWITCHES = "pxb"
    """Several PCIe switches, and no bridge of the host."""
    BRIDGE = "phb"
    """A bridge of the host."""
    NODE = "node"
    """Bridges of the host within one NUMA node."""
    SYSTEM = "sys"
    """From one socket to another."""


NEAR_MB_S: Final[Mapping[Near, int]] = {
    Near.SWITCH: 12_000,
    Near.SWITCHES: 11_000,
    Near.BRIDGE: 9_000,
    Near.NODE: 8_000,
    Near.SYSTEM: 6_000,
}


class Ends(NamedTuple):
    """What the two cards of a pair tell of each other."""

    nvlinks: int = 0
    link_mb_s: int = 0
    """What one of them carries each way, in MB/s; 0: the driver does not tell."""
    near: Near | None = None

    @property
    def mb_s(self) -> int:
        """What the pair carries each way; the slowest way where nothing is told."""
        if self.nvlinks:
            return self.nvlinks * (self.link_mb_s or DEFAULT_LINK_MB_S)
        return NEAR_MB_S[self.near or Near.SYSTEM]

    @property
    def word(self) -> str:
        """As ``nvidia-smi topo`` names it: ``NV2``, ``PIX``; ``?`` where nothing is told."""
        if self.nvlinks:
            return f"NV{self.nvlinks}"
        return self.near.value.upper() if self.near else "?"
