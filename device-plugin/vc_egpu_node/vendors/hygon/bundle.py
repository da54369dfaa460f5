"""Hygon's bundle, put together from the agent's settings. Not run on hardware."""

from vc_egpu_node.settings.config import Settings
from vc_egpu_node.vendors.base import CardReading, Vendor
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.hygon.cards import MODULE, HygonReadings
from vc_egpu_node.vendors.hygon.edits import DRIVERS, HygonEdits
from vc_egpu_node.vendors.hygon.slicer import HygonSlicer
from vc_egpu_node.vendors.hygon.words import FACTS
from vc_egpu_node.vendors.slices import SliceError


def bundle(settings: Settings) -> Vendor:
    """All that the agent needs for Hygon's cards."""
    roots = [settings.host_root / place.lstrip("/") for place in DRIVERS]
    folders = [folder for root in roots for folder in (root / "lib", root / "lib64", root / "hydmi/lib")]
    arguments = tuple(
        next((str(folder / name) for folder in folders if (folder / name).exists()), name)
        for name in ("librocm_smi64.so", "libhydmi.so")
    )
    folder = settings.state_dir / "vdcu"
    second = Child(MODULE, arguments)
    asked = HygonReadings(second, settings.node_name, settings.sys_dir)

    def card(uuid: str) -> CardReading:
        """Asked of the library at once, by a child of its own: a card that hangs gets no vDCU."""
        reading = asked.scan()
        found = next((one for one in reading.cards if one.uuid == uuid), None)
        if found is None:
            if reading.problem:
                raise SliceError("no-answer", reading.problem)
            raise SliceError("absent", f"ROCm SMI lists no card {uuid}")
        fault = asked.faults().get(uuid)
        if fault:
            raise SliceError("no-answer", fault)
        return found

    slicer = HygonSlicer(folder, card, settings.host_root / "etc/vdev")
    return Vendor(
        facts=FACTS,
        readings=HygonReadings(
            Child(MODULE, arguments),
            settings.node_name,
            settings.sys_dir,
            slices=slicer.slices,
            companions=[second],
        ),
        edits=HygonEdits(settings.dev_dir, settings.host_root, folder),
        isolation=None,
        slicer=slicer,
        sign=settings.dev_dir / "mkfd",
    )
