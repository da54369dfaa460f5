"""Ascend's bundle, put together from the agent's settings. Not run on hardware."""

from pathlib import Path
from typing import Final

from vc_egpu_node.settings.config import Settings
from vc_egpu_node.vendors.ascend.cards import MODULE, AscendReadings, AscendSlicer
from vc_egpu_node.vendors.ascend.edits import MANAGER, AscendEdits
from vc_egpu_node.vendors.ascend.words import FACTS
from vc_egpu_node.vendors.base import Vendor
from vc_egpu_node.vendors.child import Child

DRIVER: Final = Path("usr/local/Ascend/driver")
"""Below the host's root."""


def bundle(settings: Settings) -> Vendor:
    """All that the agent needs for Ascend's cards."""
    driver = settings.host_root / DRIVER
    folders = (driver / "lib64/driver", driver / "lib64/common", driver / "lib64")
    found = next((folder / "libdcmi.so" for folder in folders if (folder / "libdcmi.so").exists()), None)
    arguments = (str(found or "libdcmi.so"),)
    environment = {"LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders)} if found else {}
    changes = Child(MODULE, arguments, environment=environment)
    readings = AscendReadings(
        Child(MODULE, arguments, environment=environment),
        settings.node_name,
        driver / "version.info",
        companions=[changes],
    )
    return Vendor(
        facts=FACTS,
        readings=readings,
        edits=AscendEdits(settings.dev_dir, settings.host_root),
        isolation=None,
        slicer=AscendSlicer(changes, readings),
        sign=settings.dev_dir / MANAGER,
    )
