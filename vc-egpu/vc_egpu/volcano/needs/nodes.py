"""What a node tells of its software: from its agent's record, else from labels that others have set.

The labels are those of NVIDIA's GPU feature discovery. They are read where the agent says nothing, and never
written.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from vc_egpu.core.environments import backends
from vc_egpu.core.environments.needs import Facts
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCards

DRIVER_OF: Final = {"nvidia": "driver", "ascend": "hdk", "hygon": "hyhal"}
"""By vendor, how needs call the version of its driver."""
_LONGEST: Final = 64
_GFD_DRIVER: Final = "nvidia.com/cuda.driver-version.full"
_GFD_CUDA: Final = "nvidia.com/cuda.runtime-version"
_GFD_CAPABILITY: Final = "nvidia.com/gpu.compute"


def environment(inventory: NodeCards, labels: Mapping[str, str]) -> Facts:
    """The facts of a node. What it does not tell is not there."""
    capabilities = {card.compute_capability for card in inventory.cards}
    said: dict[str, tuple[str, ...]] = {
        "arch": (labels.get("kubernetes.io/arch", ""),),
        "network": (labels.get(names.NETWORK_LABEL, ""),),
        # One card that does not tell makes the whole unknown.
        "capability": tuple(sorted(capabilities)) if "" not in capabilities else ("",),
    }
    if inventory.cards:
        said["kind"] = (inventory.vendor,)
        said[DRIVER_OF.get(inventory.vendor, "driver")] = (inventory.driver_version,)
        said["cuda"] = (inventory.cuda_version,)
        said[backends.FACT] = _kept_apart_by(inventory)
        said[backends.COMPUTE_FACT] = (inventory.compute,)
    for name, value in (
        ("driver", labels.get(_GFD_DRIVER, "")),
        ("cuda", labels.get(f"{_GFD_CUDA}.full") or _joined(labels, _GFD_CUDA)),
        ("capability", _joined(labels, _GFD_CAPABILITY)),
    ):
        if value and not any(said.get(name, ())):
            said[name] = (value,)
    return _shared(
        tuple(
            (name, values)
            for name, values in sorted(said.items())
            if values and all(values) and max(map(len, values)) <= _LONGEST
        )
    )


def _kept_apart_by(inventory: NodeCards) -> tuple[str, ...]:
    """The words of cards that are offered; where none is, of all cards."""
    offered = [card for card in inventory.cards if card.offered] or inventory.cards
    return backends.told(card.isolation for card in offered)


def _joined(labels: Mapping[str, str], prefix: str) -> str:
    major, minor = labels.get(f"{prefix}.major", ""), labels.get(f"{prefix}.minor", "")
    return f"{major}.{minor}" if major and minor else ""


@lru_cache(maxsize=1024)
def _shared(facts: Facts) -> Facts:
    """Equal nodes have one value, which is compared at a glance."""
    return facts
