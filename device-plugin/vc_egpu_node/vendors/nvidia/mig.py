"""MIG instances that lie on a card, as NVML tells them. They are adopted: the agent makes and removes none.

An instance is known by its compute slices and its memory slices. The name of its size follows from these
and from the memory of the card. Drivers have named the same size differently.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from vc_egpu_node.vendors.slices import HeldSlice, SliceWish

log = logging.getLogger(__name__)
T = TypeVar("T")

EIGHTHS: Final = 8
QUARTERS: Final = 4
"""Memory slices of a card, by how many instances it takes at most."""
_GIB_IN_MIB: Final = 1024
_CAP_LINE: Final = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)")
Caps = dict[tuple[int, int, int], int]
"""(minor of the card, instance, compute instance or -1) to the number of its capability's device node."""
MINORS: Final = Path("/proc/driver/nvidia-caps/mig-minors")


def memory_slices(most_instances: int) -> int:
    """How many a card has that takes so many instances."""
    return QUARTERS if most_instances == QUARTERS else EIGHTHS


def name_of(compute: int, size: int, slices: int, card_mib: int) -> str:
    """``1g.10gb``: compute slices, and the part of the card's memory in whole GB."""
    card_gb = -(-card_mib // _GIB_IN_MIB)
    return f"{compute}g.{(2 * card_gb * size + slices) // (2 * slices)}gb"


def instances(handle: Any, card_mib: int, minor: int, caps: Caps) -> Iterator[HeldSlice]:
    """The card's instances. One whose numbers cannot be read is passed over, with a line in the log."""
    most = int(_told(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0)
    for index in range(most):
        instance = _told(functools.partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index))
        if instance is None:
            continue
        try:
            gi = int(pynvml.nvmlDeviceGetGpuInstanceId(instance))
            ci = int(pynvml.nvmlDeviceGetComputeInstanceId(instance))
            numbers = {"gi": gi, "ci": ci}
            for name, key in (("cap-gi", (minor, gi, -1)), ("cap-ci", (minor, gi, ci))):
                if key in caps:
                    numbers[name] = caps[key]
            place = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(handle, gi)).placement
            yield _slice(instance, place, numbers, lambda compute, size: name_of(
                compute, size, memory_slices(most), card_mib))  # fmt: skip
        except pynvml.NVMLError as error:
            log.warning("MIG instance %d of /dev/nvidia%d was passed over: %s", index, minor, error)


def _slice(
    instance: Any, place: Any, numbers: Mapping[str, int], name: Callable[[int, int], str]
) -> HeldSlice:
    attributes = pynvml.nvmlDeviceGetAttributes(instance)
    compute, size = int(attributes.gpuInstanceSliceCount), int(place.size)
    uuid = pynvml.nvmlDeviceGetUUID(instance)
    # One that is cut again has several compute instances, which share its memory: it is of no size we know.
    parted = int(attributes.computeInstanceSliceCount) != compute
    return HeldSlice(
        id=uuid if isinstance(uuid, str) else uuid.decode(),
        template="" if parted else name(compute, size),
        start=int(place.start),
        memory_mib=int(attributes.memorySizeMB),
        numbers=numbers,
    )


def capabilities(minors: Path = MINORS) -> Caps:
    """By the driver's file; empty where it has none."""
    try:
        lines = minors.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: Caps = {}
    for line in lines:
        match = _CAP_LINE.fullmatch(line.strip())
        if match is not None:
            card, gi, ci, number = match.groups()
            found[int(card), int(gi), -1 if ci is None else int(ci)] = int(number)
    return found


def _told(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except pynvml.NVMLError:
        return None


class Adopted:
    """A :class:`vc_egpu_node.vendors.slices.Slicer` of instances that others make."""

    def __init__(self, seen: Callable[[str], tuple[HeldSlice, ...]]) -> None:
        """``seen``: what the last scan found on a card."""
        self._seen = seen

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.slices`."""
        return self._seen(uuid)

    def make(self, wish: SliceWish) -> HeldSlice | None:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.make`."""
        del wish
        return None

    def destroy(self, uuid: str, slice_id: str) -> None:
        """Adopted instances stay."""
