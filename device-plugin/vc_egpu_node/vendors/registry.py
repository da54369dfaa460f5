"""Vendors that this agent knows. A new one gets a folder of its own and a line in each table here."""

from collections.abc import Callable, Mapping
from typing import Final

from vc_egpu_node.settings.config import ConfigError, Settings, VendorName
from vc_egpu_node.vendors.base import Vendor, VendorFacts
from vc_egpu_node.vendors.nvidia.bundle import bundle as nvidia
from vc_egpu_node.vendors.nvidia.words import FACTS as NVIDIA

FACTS: Final[tuple[VendorFacts, ...]] = (NVIDIA,)
"""Facts of every vendor, whether this node has its cards or not."""
BUNDLES: Final[Mapping[VendorName, Callable[[Settings], Vendor]]] = {"nvidia": nvidia}

HIDE: Final[Mapping[str, str]] = {key: value for facts in FACTS for key, value in facts.hide.items()}
"""Variables of every container with cards: no vendor's runtime adds a card to it."""
SHARED_LABELS: Final = tuple(name for facts in FACTS for name in facts.labels.all)
"""Labels of the Node that another labeller may own: then they are left alone."""


def chosen(settings: Settings) -> tuple[Vendor, ...]:
    """The bundles that the settings name. Raises :class:`ConfigError`."""
    if len(settings.vendors) != 1:
        raise ConfigError(f"--vendor names {len(settings.vendors)} vendors: a node has cards of one vendor")
    return tuple(BUNDLES[name](settings) for name in settings.vendors)
