"""The user-space libraries of NVIDIA drivers, where this machine has some: they answer without a card.

``VC_EGPU_DRIVER_LIBRARIES`` names folders, separated by colons, each with a driver's libcuda.so.1. Without
a card cuInit fails there, and yet cuGetProcAddress, versions and error texts are answered, and a call that
comes too early is refused, as they are beside one.
"""

import os
from pathlib import Path
from typing import Final

DRIVERS: Final = tuple(
    Path(folder).resolve() / "libcuda.so.1"
    for folder in os.environ.get("VC_EGPU_DRIVER_LIBRARIES", "").split(":")
    if folder
)


def name_of(library: Path) -> str:
    """For the name of a test: ``libcuda.so.550.163.01``."""
    return library.resolve().name
