"""MIG instances that lie on a card, and those that it may have, as NVML tells them.

An instance is known by its compute slices and its memory slices. The name of its size follows from these
and from the memory of the card. Drivers have named the same size differently.
"""

import ctypes
import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml
from vc_egpu.core.layouts.table import Layout, LayoutError, Place, Template

from vc_egpu_node.vendors.slices import HeldSlice

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
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
OFFERED: Final = (
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2,
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE,
    pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE,
)
"""Profiles that are made: those with media engines of their own, or for graphics, are others'."""
MOST_INSTANCES: Final = 8
MOST_PLACES: Final = 64


@dataclass(frozen=True, slots=True)
class Profile:
    """One size of instance that a card may have."""

    id: int
    """The card's own number of it."""
    name: str
    compute: int
    """Compute slices."""
    memory_mib: int
    places: tuple[Place, ...]
    """In memory slices."""
    offered: bool
    """One of :data:`OFFERED`."""


def memory_slices(most_instances: int) -> int:
    """How many a card has that takes so many instances."""
    return QUARTERS if most_instances == QUARTERS else EIGHTHS


def name_of(compute: int, size: int, slices: int, card_mib: int) -> str:
    """``1g.10gb``: compute slices, and the part of the card's memory in whole GB."""
    card_gb = -(-card_mib // _GIB_IN_MIB)
    return f"{compute}g.{(2 * card_gb * size + slices) // (2 * slices)}gb"


def profiles(handle: Any, card_mib: int) -> tuple[Profile, ...]:
    """What the card may be cut into, as its driver tells."""
    most = int(_told(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0)
    found = []
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _told(functools.partial(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number))
        places = _places(handle, int(info.id)) if info is not None else ()
        if info is not None and places:
            compute = int(info.sliceCount)
            name = name_of(compute, places[0].size, memory_slices(most), card_mib)
            memory_mib, offered = int(info.memorySizeMB), number in OFFERED
            found.append(Profile(int(info.id), name, compute, memory_mib, places, offered))
    return tuple(found)


def _places(handle: Any, profile_id: int) -> tuple[Place, ...]:
    count = ctypes.c_uint(MOST_PLACES)
    places = (pynvml.c_nvmlGpuInstancePlacement_t * MOST_PLACES)()
    told = _told(
        lambda: pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(
            handle, profile_id, places, ctypes.byref(count)
        )
    )
    if told is None:
        return ()
    return tuple(Place(int(one.start), int(one.size)) for one in places[: min(count.value, MOST_PLACES)])


def layout(known: Iterable[Profile]) -> Layout | None:
    """What instances the card may hold together; None: its driver does not tell, or contradicts itself."""
    offered = sorted((one for one in known if one.offered), key=lambda one: one.memory_mib)
    most = max((one.compute for one in offered), default=0)
    try:
        return Layout(
            "mig",
            {},
            tuple(
                Template(one.name, one.memory_mib, 100 * one.compute // most, places=one.places)
                for one in offered
            ),
            whole=False,
        )
    except (LayoutError, ZeroDivisionError) as error:
        log.debug("no layout: %s", error)
        return None


def boot_number(boot: Path = BOOT) -> int:
    """Another one after each start of the node; -1: it is not known."""
    try:
        return int(boot.read_text(encoding="ascii").replace("-", "").strip()[:8], 16)
    except (OSError, ValueError):
        return -1


def held(handle: Any, card_mib: int, minor: int, caps: Caps, known: Iterable[Profile]) -> list[HeldSlice]:
    """All instances of the card: the whole ones, and those without a compute instance."""
    whole = list(instances(handle, card_mib, minor, caps))
    seen = {one.numbers["gi"] for one in whole}
    halves: list[HeldSlice] = []
    for profile in known:
        for instance in _gpu_instances(handle, profile.id):
            info = _told(functools.partial(pynvml.nvmlGpuInstanceGetInfo, instance))
            if info is not None and int(info.id) not in seen:
                halves.append(
                    HeldSlice(
                        f"gi{int(info.id)}",
                        profile.name,
                        int(info.placement.start),
                        profile.memory_mib,
                        numbers={"gi": int(info.id), "boot": boot_number()},
                        half=True,
                    )
                )
    return whole + halves


def _gpu_instances(handle: Any, profile_id: int) -> list[Any]:
    count = ctypes.c_uint(MOST_INSTANCES)
    found = (pynvml.c_nvmlGpuInstance_t * MOST_INSTANCES)()
    told = _told(lambda: pynvml.nvmlDeviceGetGpuInstances(handle, profile_id, found, ctypes.byref(count)))
    return [] if told is None else list(found[: min(count.value, MOST_INSTANCES)])


def instances(handle: Any, card_mib: int, minor: int, caps: Caps) -> Iterator[HeldSlice]:
    """Those that programs can use. One that cannot be read is passed over, with a line in the log."""
    most = int(_told(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0)
    for index in range(most):
        instance = _told(functools.partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index))
        if instance is None:
            continue
        try:
            gi = int(pynvml.nvmlDeviceGetGpuInstanceId(instance))
            ci = int(pynvml.nvmlDeviceGetComputeInstanceId(instance))
            numbers = {"gi": gi, "ci": ci, "boot": boot_number()}
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
