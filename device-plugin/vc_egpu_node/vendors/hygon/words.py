"""Hygon's facts and words, after the vendor's documents and headers. Nothing here was run on hardware."""

from typing import Final

from vc_egpu_node.vendors.base import VendorFacts

FACTS: Final = VendorFacts(
    name="hygon",
    library="ROCm SMI",
    partitioned="vDCUs lie on it: nodes in mode native give cards out whole",
    open_command="hy-smi",
    labels=None,
    hide={},
    runtime="dcu-container-runtime",
    all_cards="DCU_VISIBLE_DEVICES=all",
    shared_devices=("kfd", "mkfd"),
)
PRODUCTS: Final = {
    0x54B7: "Z100",
    0x55B7: "Z100L",
    0x51B7: "Z200SM",
    0x62B7: "K100",
    0x6210: "K100_AI",
    0x6211: "K100_LC_E_AI",
    0x6212: "K100_LC_AI",
    0x6213: "K100_AI",
    0x62C7: "K100_LC",
}
"""By PCI device id: some drivers tell no name."""
COMPUTE_UNITS: Final = {
    "Z100": 60,
    "Z100L": 60,
    "K100": 120,
    "K100_AI": 120,
    "K100_LC_AI": 120,
    "K100_LC_E_AI": 128,
}
"""Where the driver does not tell."""
MOST_SLICES: Final = 4
"""A card takes no more slices: with more, programs fail on hardware."""
MOST_ON_NODE: Final = 200
MOST_PIPES: Final = 20
RSMI: Final = {
    1: "an argument is wrong",
    2: "it is not supported",
    3: "a file of the driver cannot be read",
    4: "it is not permitted",
    6: "internal error",
    8: "the library is not begun",
}
"""What an answer of ROCm SMI means, in part."""
