"""Vendors that this agent knows. A new one gets a folder of its own and a line in each table here."""

from collections.abc import Callable, Mapping
from typing import Final

from vc_egpu_node.settings.config import ConfigError, Settings, VendorName
from vc_egpu_node.vendors.ascend.bundle import bundle as ascend
from vc_egpu_node.vendors.ascend.words import FACTS as ASCEND
from vc_egpu_node.vendors.base import Vendor, VendorFacts
from vc_egpu_node.vendors.hygon.bundle import bundle as hygon
from vc_egpu_node.vendors.hygon.words import FACTS as HYGON
from vc_egpu_node.vendors.joined import joined
from vc_egpu_node.vendors.nvidia.bundle import bundle as nvidia
from vc_egpu_node.vendors.nvidia.words import FACTS as NVIDIA

FACTS: Final[tuple[VendorFacts, ...]] = (NVIDIA, ASCEND, HYGON)
"""Facts of every vendor, whether this node has its cards or not."""
BUNDLES: Final[Mapping[VendorName, Callable[[Settings], Vendor]]] = {
    "nvidia": nvidia,
    "ascend": ascend,
    "hygon": hygon,
}

HIDE: Final[Mapping[str, str]] = {key: value for facts in FACTS for key, value in facts.hide.items()}
"""Variables of every container with cards: no vendor's runtime adds a card to it."""
SHARED_LABELS: Final = tuple(name for facts in FACTS if facts.labels is not None for name in facts.labels.all)
"""Labels of the Node that another labeller may own: then they are left alone."""


def chosen(settings: Settings) -> Vendor:
    """The vendors that the settings name, as one. Those without a loaded driver are left out, unless all are.
    Raises :class:`ConfigError`."""
    if len(set(settings.vendors)) != len(settings.vendors):
        raise ConfigError("--vendor names a vendor twice")
    named = [BUNDLES[name](settings) for name in settings.vendors]
    return joined([one for one in named if one.sign is not None and one.sign.exists()] or named[:1])
