"""Ascend's facts and words, after the vendor's documents. Nothing here was run on hardware."""

from typing import Final

from vc_egpu_node.vendors.base import VendorFacts

FACTS: Final = VendorFacts(
    name="ascend",
    library="DCMI",
    partitioned="its chip takes no vNPUs, or some lie on it: it is given out whole, by nodes in mode native",
    open_command="npu-smi info -t health -i {uuid}",
    labels=None,
    hide={"ASCEND_VISIBLE_DEVICES": "void"},
    runtime="ascend",
    all_cards="ASCEND_VISIBLE_DEVICES=0-7",
    shared_devices=("davinci_manager", "devmm_svm", "hisi_hdc"),
)
ILL: Final = 2
"""From this health on a card takes nothing new; 1 is a warning."""
_RING_SIZE: Final = 4
_BOX_HALF: Final = 8


def product_of(kind: str, name: str) -> str:
    """``Ascend`` and ``910B3`` -> ``Ascend910B3``: what the model table lists."""
    return name if name.startswith(kind) else f"{kind}{name}"


def group_of(product: str, phy: int, cards: int) -> int:
    """Cards of one group have direct links: rings of four on a 910A server, halves of a box with 16 cards.
    -1: all cards of the node have them."""
    if product.removeprefix("Ascend") in ("910", "910A", "910ProA", "910ProB", "910PremiumA"):
        return phy // _RING_SIZE
    return phy // _BOX_HALF if cards > _BOX_HALF and is_of(product, "910B") else -1


def module_of(product: str, phy: int) -> int:
    """Two dies of a 910C share a module, and so do the two chips of a 300I Duo board."""
    return phy // 2 if is_of(product, "910C") or is_of(product, "910_93") else -1


def is_of(product: str, family: str) -> bool:
    """Whether the product belongs to that family of chips."""
    return product.removeprefix("Ascend").startswith(family)


def fault_of(health: int, codes: list[int]) -> str:
    """What is wrong with the card; empty: nothing."""
    if health < ILL:
        return ""
    told = "the card is absent" if health == 0xFFFFFFFF else f"DCMI health is {health}"
    return f"{told}, error codes {', '.join(hex(code) for code in codes)}" if codes else told
