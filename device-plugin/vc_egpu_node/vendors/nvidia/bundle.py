"""NVIDIA's bundle, put together from the agent's settings."""

from vc_egpu_node.settings.config import Settings
from vc_egpu_node.vendors.base import Vendor
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.nvidia.limits import MODULE as LIMITS_MODULE
from vc_egpu_node.vendors.nvidia.limits import NvidiaLimits
from vc_egpu_node.vendors.nvidia.mig.slicer import MODULE, MigSlicer
from vc_egpu_node.vendors.nvidia.preload import install
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings
from vc_egpu_node.vendors.nvidia.toolkit import Toolkit
from vc_egpu_node.vendors.nvidia.trial import ContextTrial
from vc_egpu_node.vendors.nvidia.words import FACTS


def bundle(settings: Settings) -> Vendor:
    """All that the agent needs for NVIDIA's cards."""
    changes, limits = Child(MODULE), Child(LIMITS_MODULE)
    readings = NvidiaReadings(companions=[changes, limits])
    return Vendor(
        facts=FACTS,
        readings=readings,
        slicer=MigSlicer(changes),
        edits=Toolkit(settings.toolkit_specs, settings.toolkit, settings.driver_device),
        isolation=install,
        trial=ContextTrial(),
        memory_limits=NvidiaLimits(limits),
        sign=settings.driver_device,
    )
