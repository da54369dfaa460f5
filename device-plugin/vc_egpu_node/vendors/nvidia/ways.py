"""How the cards of a node reach each other, as NVML tells it: NVLinks, switches, and the way over PCIe.

Source: NVIDIA's NVML reference, "NvLink Methods" and ``nvmlGpuTopologyLevel_t``. What one link carries
follows from its version, by the data sheets of P100 (1), V100 (2), A100 (3), H100 (4) and B200 (5).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import pynvml
from vc_egpu.core.topology.links import Near

from vc_egpu_node.vendors.base import CardReading

_T = TypeVar("_T")

LINK_MB_S: Final[Mapping[int | None, int]] = {
    pynvml.NVML_NVLINK_VERSION_1_0: 20_000,
    pynvml.NVML_NVLINK_VERSION_2_0: 25_000,
    pynvml.NVML_NVLINK_VERSION_2_2: 25_000,
    pynvml.NVML_NVLINK_VERSION_3_0: 25_000,
    pynvml.NVML_NVLINK_VERSION_3_1: 25_000,
    pynvml.NVML_NVLINK_VERSION_4_0: 25_000,
    pynvml.NVML_NVLINK_VERSION_5_0: 50_000,
}
NEAR: Final[Mapping[int | None, Near]] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Near.SWITCH,  # two chips of one board
    pynvml.NVML_TOPOLOGY_SINGLE: Near.SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Near.SWITCHES,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Near.BRIDGE,
    pynvml.NVML_TOPOLOGY_NODE: Near.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: Near.SYSTEM,
}


def with_ways(cards: list[CardReading], handles: Mapping[str, Any]) -> tuple[CardReading, ...]:
    """The cards with their links to each other. What the driver does not tell is left out.

    A link may end at a card that this node does not have, as in a virtual machine. It counts nowhere.
    """
    uuid_at = {card.pci_bus_id: card.uuid for card in cards if card.pci_bus_id}
    return tuple(_with_way(card, cards, uuid_at, handles) for card in cards)


def _with_way(
    card: CardReading, cards: list[CardReading], uuid_at: Mapping[str, str], handles: Mapping[str, Any]
) -> CardReading:
    handle = handles[card.uuid]
    links: dict[str, int] = {}
    switch_links, link_mb_s = 0, 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not _told(pynvml.nvmlDeviceGetNvLinkState, handle, link):
            continue  # not one of this card's, or it is down
        link_mb_s = link_mb_s or LINK_MB_S.get(_told(pynvml.nvmlDeviceGetNvLinkVersion, handle, link), 0)
        far_end = _told(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if far_end == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switch_links += 1
            continue
        remote = _told(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        peer = uuid_at.get(_bus_id(remote)) if remote is not None else None
        if peer is not None and peer != card.uuid:
            links[peer] = links.get(peer, 0) + 1
    near = {}
    for other in cards:
        if other.uuid != card.uuid:
            level = _told(pynvml.nvmlDeviceGetTopologyCommonAncestor, handle, handles[other.uuid])
            if level in NEAR:
                near[other.uuid] = NEAR[level]
    return replace(card, links=links, switch_links=switch_links, link_mb_s=link_mb_s, near=near)


def _bus_id(remote: Any) -> str:
    raw = remote.busId
    return (raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)).upper()


def _told(call: Callable[..., _T], *arguments: Any) -> _T | None:
    """The call's result; None where the card, driver or library does not tell."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, UnicodeDecodeError):
        return None
