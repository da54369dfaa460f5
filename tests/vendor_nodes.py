"""Nodes with fake Ascend, Hygon and MIG cards, for tests of the agent's vendors."""

from collections.abc import Mapping
from pathlib import Path

from fakes.nvml_state import FakeCard, FakeNode
from fakes.vendor_script import VendorScript
from vc_egpu_node.vendors.ascend.cards import MODULE as ASCEND
from vc_egpu_node.vendors.ascend.cards import AscendReadings, AscendSlicer
from vc_egpu_node.vendors.base import CardReading
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.hygon.cards import MODULE as HYGON
from vc_egpu_node.vendors.hygon.cards import HygonReadings
from vc_egpu_node.vendors.hygon.slicer import HygonSlicer
from vc_egpu_node.vendors.nvidia.mig.slicer import MODULE as MIG
from vc_egpu_node.vendors.nvidia.mig.slicer import MigSlicer
from vc_egpu_node.vendors.slices import SliceError

BUILD = Path(__file__).parents[1] / "device-plugin/native/build"


class AscendNode:
    """Cards of one kind, and the agent's view of them."""

    def __init__(
        self, folder: Path, cards: int = 1, alone_s: float = 60.0, change_s: float = 18.0, **keys: str | int
    ) -> None:
        self.script = VendorScript(folder / "dcmi.state", {number: dict(keys) for number in range(cards)})
        self.script.write()
        self._environment = {"FAKE_DCMI_STATE": str(self.script.path)}
        self._alone_s = alone_s
        self._children: list[Child] = []
        self.readings = AscendReadings(self.child(), "node-1", folder / "version.info")
        self.slicer = AscendSlicer(self.child(), self.readings, change_s)

    def child(self) -> Child:
        arguments = (str(BUILD / "libdcmi.so"),)
        child = Child(ASCEND, arguments, environment=self._environment, alone_s=self._alone_s)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            child.close()


class HygonNode:
    """Cards of one kind with their sysfs, and the agent's view of them."""

    def __init__(
        self, folder: Path, cards: int = 1, numbers: Mapping[int, int] | None = None, **keys: str | int
    ) -> None:
        """``numbers``: card to the number of its device node, where another one has the first."""
        self.script = VendorScript(folder / "dcu.state", {number: dict(keys) for number in range(cards)})
        self.script.write()
        self.sys_dir, self.slices = folder / "sys", folder / "vdcu"
        for card in range(cards):
            number = (numbers or {}).get(card, card)
            drm = self.sys_dir / f"bus/pci/devices/0000:{0x30 + card:02x}:00.0/drm"
            for name in (f"card{number}", f"renderD{128 + number}"):
                (drm / name).mkdir(parents=True)
        arguments = (str(BUILD / "librocm_smi64.so"), str(BUILD / "libhydmi.so"))
        environment = {"FAKE_DCU_STATE": str(self.script.path)}
        self._child = Child(HYGON, arguments, environment=environment)
        self.asked = HygonReadings(self._child, "node-1", self.sys_dir)
        self.slicer = HygonSlicer(self.slices, self.card, folder / "etc-vdev")
        self.readings = HygonReadings(self._child, "node-1", self.sys_dir, slices=self.slicer.slices)

    def card(self, uuid: str) -> CardReading:
        reading = self.asked.scan()
        found = next((one for one in reading.cards if one.uuid == uuid), None)
        if found is None:
            raise SliceError("no-answer" if reading.problem else "absent", reading.problem)
        fault = self.asked.faults().get(uuid)
        if fault:
            raise SliceError("no-answer", fault)
        return found

    def close(self) -> None:
        self._child.close()


class MigNode:
    """H100 cards in MIG mode, and the agent's slicer of them."""

    def __init__(self, folder: Path, cards: int = 1, change_s: float = 18.0, alone_s: float = 60.0) -> None:
        self.node = FakeNode(
            folder / "nvml.state",
            [
                FakeCard(
                    f"GPU-h100-{number}", "NVIDIA H100 80GB HBM3", 81559, minor=number, mig=1, mig_slices=8
                )
                for number in range(cards)
            ],
        )
        self.node.write()
        self.minors = folder / "mig-minors"
        self.minors.write_text("".join(_minors(card, gi) for card in range(cards) for gi in range(1, 9)))
        environment = {"LD_LIBRARY_PATH": str(BUILD), "FAKE_NVML_STATE": str(self.node.path)}
        self.child = Child(MIG, (str(self.minors),), environment=environment, alone_s=alone_s)
        self.slicer = MigSlicer(self.child, change_s)

    def say(self, number: int, **fields: object) -> None:
        """The card is so from now on; what programs made stays."""
        self.node.take_in()
        for name, value in fields.items():
            setattr(self.node.cards[number], name, value)
        self.node.write()

    def lying(self) -> int:
        """How many instances lie on all cards."""
        self.node.take_in()
        return sum(len(card.instances) for card in self.node.cards)

    def close(self) -> None:
        self.child.close()


def _minors(card: int, gi: int) -> str:
    first = 100 * card + 10 * gi
    return f"gpu{card}/gi{gi}/access {first}\ngpu{card}/gi{gi}/ci0/access {first + 1}\n"
