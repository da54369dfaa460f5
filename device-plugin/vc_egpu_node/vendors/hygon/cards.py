"""What Hygon cards are and do: the library's answers as the agent's values."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.vendors.base import (
    Ability,
    CardEvent,
    CardReading,
    CardSample,
    NodeReading,
    ProcessSample,
    UntoldError,
)
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.hygon.words import COMPUTE_UNITS, PRODUCTS
from vc_egpu_node.vendors.slices import HeldSlice, SliceError

MODULE: Final = "vc_egpu_node.vendors.hygon.driver"
ABILITIES: Final[frozenset[Ability]] = frozenset({"utilisation", "make"})


class HygonReadings:
    """ROCm SMI through a child; used by one thread."""

    def __init__(
        self,
        child: Child,
        node_name: str,
        sys_dir: Path,
        slices: Callable[[str], tuple[HeldSlice, ...]] = lambda _uuid: (),
        companions: Sequence[Child] = (),
    ) -> None:
        """``slices``: those of a card that are ours. ``companions``: children that end with this one."""
        self._companions = tuple(companions)
        self._child = child
        self._node_name = node_name
        self._sys_dir = sys_dir
        self._slices = slices
        self._known: dict[int, CardReading] = {}
        self._listed: dict[str, int] = {}
        self._silent: dict[str, str] = {}
        self._ended = threading.Event()

    def scan(self) -> NodeReading:
        """See :meth:`vc_egpu_node.vendors.base.Readings.scan`. A card that does not answer stays as it was,
        and is ill."""
        self._silent = {}
        try:
            count = int(self._child.call("count"))
        except SliceError as error:
            return NodeReading(problem=f"ROCm SMI: {error}")
        cards: list[CardReading] = []
        problem = ""
        for index in range(count):
            try:
                card = self._read(index)
            except SliceError as error:
                problem = problem or f"ROCm SMI: {error}"
                known = self._known.get(index)
                if known is None:
                    continue
                card = known
                self._silent[card.uuid] = str(error)
            self._known[index] = card
            cards.append(card)
        self._listed = {card.uuid: card.index for card in cards}
        return NodeReading(tuple(cards), self._versions(), problem)

    def _versions(self) -> dict[str, str]:
        path = self._sys_dir / "module/hydcu/version"
        try:
            return {"driver": path.read_text(encoding="utf-8").strip()}
        except OSError:
            return {}

    def _read(self, index: int) -> CardReading:
        told: Mapping[str, Any] = self._child.card("describe", (index,))
        product = told["name"] or PRODUCTS.get(told["device"], f"PCI device {told['device']:04x}")
        units = told["units"] or COMPUTE_UNITS.get(product, 0)
        reading = CardReading(
            uuid=_uuid(told, self._node_name),
            index=index,
            product=product,
            memory_mib=int(told["memory_mib"]),
            pci_bus_id=told["pci"],
            devices=self._devices(told["pci"]),
            numbers={"cu": units},
            attributes={"pci_device": f"{told['device']:04x}"},
            abilities=ABILITIES,
            isolation="vendor-file",
        )
        ours = self._slices(reading.uuid)
        others = bool(told["units"] and told["units_free"] < told["units"])
        if ours or others:
            reading = replace(reading, slices=ours, others=others, abilities=ABILITIES | {"slice"})
        return reading

    def _devices(self, pci: str) -> tuple[str, ...]:
        """Its nodes below ``/dev``. Another GPU or the board's own may have the first numbers, so they are
        found by PCI address."""
        folder = self._sys_dir / "bus/pci/devices" / pci / "drm"
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError:
            return ()
        return tuple(f"dri/{name}" for name in names if name.startswith(("card", "renderD")))

    def faults(self) -> Mapping[str, str]:
        """See :meth:`vc_egpu_node.vendors.base.Readings.faults`."""
        found = dict(self._silent)
        for uuid, index in self._listed.items():
            try:
                self._child.card("sample", (index,))
            except SliceError as error:
                found.setdefault(uuid, f"ROCm SMI: {error}")
        return found

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """Cards are asked again and again, so there are none."""
        self._ended.wait(timeout_s)
        return ()

    def sample(self, uuid: str) -> CardSample:
        """See :meth:`vc_egpu_node.vendors.base.Readings.sample`."""
        index = self._listed.get(uuid)
        card = None if index is None else self._known.get(index)
        if card is None:
            return CardSample()
        try:
            told = self._child.card("sample", (card.index,))
        except SliceError:
            return CardSample()
        return CardSample(
            memory_used_mib=told["used_mib"],
            memory_free_mib=card.memory_mib - told["used_mib"],
            gpu_util_percent=told["util"],
            temperature_c=None if told["temp_mc"] is None else told["temp_mc"] // 1000,
            power_w=None if told["power_uw"] is None else told["power_uw"] / 1e6,
        )

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:  # noqa: ARG002 - the protocol's
        """The agent does not ask for them yet."""
        raise UntoldError("processes of Hygon cards are not read")

    def close(self) -> None:
        """End the children."""
        self._ended.set()
        for child in (self._child, *self._companions):
            child.close()


def _uuid(told: Mapping[str, Any], node_name: str) -> str:
    """Unique in the cluster: some drivers give every card of a kind the same serial number or none."""
    if told["unique"]:
        return f"DCU-{told['unique']:016x}"
    place = told["pci"].replace(":", "-")
    return f"DCU-{told['serial']}-{place}" if told["serial"] else f"DCU-{node_name}-{place}"
