"""What a container needs to use Hygon cards or vDCUs: device nodes, the driver's folder, groups, a file."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.vendors import paths
from vc_egpu_node.vendors.base import CardReading, Edits, EditsError, refused_singly
from vc_egpu_node.vendors.slices import Realised

COMMON: Final = ("kfd", "mkfd")
DRIVERS: Final = ("/opt/hyhal", "/opt/hygondriver")
"""The newer place, and the older one. DTK itself is in the image."""
INSIDE: Final = "/etc/vdev/docker/vdev0.conf"
"""Where the vendor's library looks for what its container has of a card."""


class HygonEdits:
    """Edits from the vendor's list. ``dev`` is ``/dev``, and ``root`` is the host's, as the agent sees it.
    ``slices`` is the folder of our vDCUs' files, at the same path on the host."""

    def __init__(self, dev: Path, root: Path, slices: Path) -> None:
        self._dev = dev
        self._root = root
        self._slices = slices

    def edits(
        self,
        cards: Sequence[CardReading],
        driver_version: str,  # noqa: ARG002 - the protocol's
        *,
        shared: bool,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        for card in cards:
            if not card.devices:
                raise EditsError(f"sysfs names no device nodes at PCI address {card.pci_bus_id}")
        absent = paths.missing(self._dev, ["kfd", *(name for card in cards for name in card.devices)])
        if absent:
            raise EditsError(f"{absent} is not there: the Hygon driver is not loaded, or has lost the card")
        return self.record(cards, shared=shared, realised=realised)

    def record(
        self,
        cards: Sequence[CardReading],
        *,
        shared: bool,  # noqa: ARG002 - the protocol's
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        own = [name for card in cards for name in card.devices]
        there = [name for name in (*COMMON, *own) if (self._dev / name).exists()]
        mounts = paths.read_only(self._root, DRIVERS)[:1]
        mounts += [
            {
                "hostPath": str(self._slices / f"vdev{one.slice.numbers['vdev']}.conf"),
                "containerPath": INSIDE,
                "options": ["ro", "bind", "nosuid", "nodev"],
            }
            for one in realised
        ]
        part: dict[str, Any] = {
            "deviceNodes": paths.nodes(there),
            "mounts": mounts,
            "additionalGids": paths.groups(self._dev, there),
        }
        return Edits(paths.VERSION, (part,))

    def unusable(self, cards: Iterable[CardReading], driver_version: str) -> dict[str, str]:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        return refused_singly(self, cards, driver_version)
