"""Memory limits of control groups that NVIDIA's driver holds: from R615 on, with control groups of version 2,
not in MIG mode.

NVML is called in a child, as for MIG: a driver that hangs costs the child. Run as a program, this module is
that child. The soft limit stays 0, so that no group above ever keeps a share of a container that is gone.
Source: NVIDIA's pages on NVML and on memory partitioning of MPS v3. Not run on hardware."""

from pathlib import Path
from typing import Any, Final

import pynvml

from vc_egpu_node.vendors.child import Child, serve
from vc_egpu_node.vendors.nvidia.calls import card_of
from vc_egpu_node.vendors.slices import SliceError

MODULE: Final = "vc_egpu_node.vendors.nvidia.limits"
OLDEST_DRIVER: Final = 615
MIB: Final = 1 << 20
UNLIMITED: Final = int(pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)
_UNSET: Final = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND})
"""What reading answers where nothing is set, and also where the group is gone."""
_ROOT: Final = b"/sys/fs/cgroup"


def offered(driver: str, card: Any) -> bool:
    """Whether this driver has the functions. Whether this agent may use them, only a call tells."""
    major = driver.partition(".")[0]
    if not major.isdecimal() or int(major) < OLDEST_DRIVER:
        return False
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(card, pynvml.c_nvmlGetMemoryLimits_v1_t(_ROOT))
    except pynvml.NVMLError as error:
        return bool(error.value in _UNSET)
    return True


class NvidiaLimits:
    """A :class:`vc_egpu_node.vendors.base.MemoryLimits`. Its calls end with the child that makes them."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def limit(self, uuid: str, group: Path, mib: int) -> None:
        """See :meth:`vc_egpu_node.vendors.base.MemoryLimits.limit`."""
        self._child.card("put", (uuid,), str(group), mib * MIB)

    def clear(self, uuid: str, group: Path) -> None:
        """See :meth:`vc_egpu_node.vendors.base.MemoryLimits.clear`."""
        self._child.card("put", (uuid,), str(group), UNLIMITED)


def put(uuid: str, group: str, hard: int) -> None:
    """In the child: set it, and read it back. Bytes. Raises :class:`SliceError`."""
    with card_of(uuid) as card:
        said = pynvml.c_nvmlSetMemoryLimits_v1_t(group.encode(), 0, hard)
        pynvml.nvmlDeviceSetMemoryLimits_v1(card, said)
        found = _read(card, group)
    if found != hard:
        text = "no limit" if found == UNLIMITED else f"{found} bytes"
        raise SliceError("failed", f"card {uuid}: the driver took a limit of {hard} bytes and reads {text}")


def _read(card: Any, group: str) -> int:
    told = pynvml.c_nvmlGetMemoryLimits_v1_t(group.encode())
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(card, told)
    except pynvml.NVMLError as error:
        if error.value in _UNSET:
            return UNLIMITED
        raise
    return int(told.hardLimit)


if __name__ == "__main__":
    serve({"put": put})
