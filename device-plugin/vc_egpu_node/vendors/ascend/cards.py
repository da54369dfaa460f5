"""What Ascend cards are and do, and their vNPUs: the library's answers as the agent's values."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.vendors.ascend.words import fault_of, group_of, module_of, product_of
from vc_egpu_node.vendors.base import (
    Ability,
    CardEvent,
    CardReading,
    CardSample,
    NodeReading,
    ProcessSample,
    UntoldError,
)
from vc_egpu_node.vendors.child import CHANGE_S, Child
from vc_egpu_node.vendors.slices import HeldSlice, SliceError, SliceWish, if_supported

ABILITIES: Final[frozenset[Ability]] = frozenset({"processes", "utilisation"})
"""What every card can do. It is shared by no library of ours."""
CUT: Final[frozenset[Ability]] = frozenset({"slice"})
MADE: Final[frozenset[Ability]] = frozenset({"make"})
MODULE: Final = "vc_egpu_node.vendors.ascend.driver"
Numbers = tuple[int, int]
"""(card, device), as the library counts."""


class AscendReadings:
    """DCMI through a child; used by one thread."""

    def __init__(
        self, child: Child, node_name: str, version_file: Path, companions: Sequence[Child] = ()
    ) -> None:
        """``companions``: children of the same vendor, which end with this one."""
        self._child = child
        self._companions = tuple(companions)
        self._node_name = node_name
        self._version_file = version_file
        self._numbers: dict[str, Numbers] = {}
        self._known: dict[Numbers, CardReading] = {}
        self._silent: dict[str, str] = {}
        self._ended = threading.Event()

    def scan(self) -> NodeReading:
        """See :meth:`vc_egpu_node.vendors.base.Readings.scan`. A card that does not answer stays as it was,
        and is ill."""
        self._silent = {}
        try:
            devices = [(int(card), int(device)) for card, device in self._child.call("devices")]
            versions = {"library": str(self._child.call("version"))}
        except SliceError as error:
            return NodeReading(problem=f"DCMI: {error}")
        driver = _driver_version(self._version_file)
        if driver:
            versions["driver"] = driver
        cards: list[CardReading] = []
        problem = ""
        for index, numbers in enumerate(devices):
            try:
                card = self._read(index, numbers, len(devices))
            except SliceError as error:
                known = self._known.get(numbers)
                problem = problem or f"DCMI: {error}"
                if known is None:
                    continue
                card = replace(known, index=index)
                self._silent[card.uuid] = str(error)
            self._known[numbers] = card
            cards.append(card)
        self._numbers = {card.uuid: numbers for numbers, card in self._known.items() if card in cards}
        return NodeReading(tuple(cards), versions, problem)

    def _read(self, index: int, numbers: Numbers, cards: int) -> CardReading:
        told: Mapping[str, Any] = self._child.card("describe", numbers)
        held = self._held(numbers)
        product, phy = product_of(told["type"], told["name"]), int(told["phy"])
        return CardReading(
            uuid=told["die"] or f"pci-{self._node_name}-{told['pci'].replace(':', '-')}",
            index=index,
            product=product,
            memory_mib=int(told["memory_mib"]),
            pci_bus_id=told["pci"],
            devices=(f"davinci{phy}",),
            numbers={"phy": phy, "logic": int(told["logic"]), "aicore": int(told["aicore"])},
            attributes={"chip": told["name"], "chip_version": told["version"], "board": str(told["board"])},
            group=group_of(product, phy, cards),
            module=module_of(product, phy),
            slices=held or (),
            abilities=ABILITIES | (CUT if held else frozenset()) | (frozenset() if held is None else MADE),
            isolation="none" if held is None else "hardware",
        )

    def _held(self, numbers: Numbers) -> tuple[HeldSlice, ...] | None:
        """None: chips that are never cut answer that they do not support it."""
        return if_supported(lambda: held_slices(self._child.card("slices", numbers)))

    def numbers(self, uuid: str) -> Numbers:
        """As the library counts the card. Raises :class:`SliceError`."""
        try:
            return self._numbers[uuid]
        except KeyError:
            raise SliceError("absent", f"DCMI lists no card {uuid}") from None

    def faults(self) -> Mapping[str, str]:
        """See :meth:`vc_egpu_node.vendors.base.Readings.faults`."""
        found = dict(self._silent)
        for uuid, numbers in self._numbers.items():
            try:
                health, codes = self._child.card("health", numbers)
                fault = fault_of(health, codes)
            except SliceError as error:
                fault = f"DCMI: {error}"
            if fault:
                found.setdefault(uuid, fault)
        return found

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """Health is read again and again, so there are none."""
        self._ended.wait(timeout_s)
        return ()

    def sample(self, uuid: str) -> CardSample:
        """See :meth:`vc_egpu_node.vendors.base.Readings.sample`."""
        try:
            told = self._child.card("sample", self.numbers(uuid))
        except SliceError:
            return CardSample()
        return CardSample(
            memory_used_mib=told["used_mib"],
            memory_free_mib=told["size_mib"] - told["used_mib"],
            gpu_util_percent=told["util"],
            mem_copy_util_percent=told["bandwidth"],
            temperature_c=told["temp_c"],
            power_w=None if told["power_dw"] is None else told["power_dw"] / 10,
        )

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        """See :meth:`vc_egpu_node.vendors.base.Readings.processes`. Their part of the compute is not told."""
        try:
            told = self._child.card("processes", self.numbers(uuid))
        except SliceError as error:
            raise UntoldError(f"DCMI: {error}") from error
        return tuple(ProcessSample(pid, mib, 0) for pid, mib in told)

    def close(self) -> None:
        """End the children."""
        self._ended.set()
        for child in (self._child, *self._companions):
            child.close()


class AscendSlicer:
    """vNPUs by template. It has a child of its own: a reading that hangs holds up no container."""

    def __init__(self, child: Child, readings: AscendReadings, change_s: float = CHANGE_S) -> None:
        """``change_s``: how long making or removing one may take."""
        self._child = child
        self._readings = readings
        self._change_s = change_s

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.slices`."""
        return held_slices(self._child.card("slices", self._readings.numbers(uuid)))

    def make(self, wish: SliceWish) -> HeldSlice | None:
        """Make the vNPU, and read back what it is: the same template has other memory on another chip."""
        numbers = self._readings.numbers(wish.uuid)
        number = self._child.card("make", numbers, wish.template, timeout_s=self._change_s)
        made = next((one for one in self.slices(wish.uuid) if one.id == str(number)), None)
        if made is None:
            raise SliceError("failed", f"card {wish.uuid} made vNPU {number}, and does not list it")
        return made

    def destroy(self, uuid: str, slice_id: str) -> None:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.destroy`."""
        try:
            self._child.card("destroy", self._readings.numbers(uuid), int(slice_id), timeout_s=self._change_s)
        except SliceError:
            if any(one.id == slice_id for one in self.slices(uuid)):
                raise


def held_slices(told: list[dict[str, Any]]) -> tuple[HeldSlice, ...]:
    """The library's list of vNPUs."""
    return tuple(
        HeldSlice(
            id=str(one["id"]),
            template=str(one["template"]),
            memory_mib=int(one["memory_mib"]),
            in_use=bool(one["in_use"]),
            numbers={"vdev": int(one["id"])},
        )
        for one in told
    )


def _driver_version(path: Path) -> str:
    """The line ``Version=`` of the driver's file; empty: it does not say."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("Version=")), "")
