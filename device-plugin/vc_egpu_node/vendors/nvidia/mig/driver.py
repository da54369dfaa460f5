"""The child that makes and removes MIG instances: ``python -m <this module> [<file of minors>]``.

NVML is begun for each call and let go of behind it, so that the child keeps no card open between them. An
instance is always made at a place that is named: without one, the order decides whether a large one fits
later. It has one compute instance, which has all of it.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pynvml

from vc_egpu_node.vendors.base import UntoldError
from vc_egpu_node.vendors.child import serve
from vc_egpu_node.vendors.nvidia.calls import CODES, card_of, checked
from vc_egpu_node.vendors.nvidia.lists import Kind, running, wide_lists
from vc_egpu_node.vendors.nvidia.mig import instances as mig
from vc_egpu_node.vendors.slices import HeldSlice, SliceError

KINDS: Final[tuple[Kind, ...]] = ("Compute", "MPSCompute", "Graphics")
MIB: Final = 1 << 20
_SHARED_ENGINES: Final = 0
"""The one profile of engines that compute instances have."""


class Driver:
    """NVML, begun for each call."""

    def __init__(self, minors: Path = mig.MINORS) -> None:
        self._minors = minors

    def _held(self, card: Any) -> list[HeldSlice]:
        card_mib = int(pynvml.nvmlDeviceGetMemoryInfo(card).total) // MIB
        minor = int(pynvml.nvmlDeviceGetMinorNumber(card))
        caps = mig.capabilities(self._minors)
        return mig.held(card, card_mib, minor, caps, mig.profiles(card, card_mib))

    def slices(self, uuid: str) -> list[dict[str, Any]]:
        """The instances on it."""
        with card_of(uuid) as card:
            return [_told(one) for one in self._held(card)]

    def make(self, uuid: str, template: str, start: int) -> dict[str, Any]:
        """An instance of that size at that place; what it is."""
        with card_of(uuid) as card:
            card_mib = int(pynvml.nvmlDeviceGetMemoryInfo(card).total) // MIB
            fitting = (one for one in mig.profiles(card, card_mib) if one.offered and one.name == template)
            profile = next(fitting, None)
            place = next((one for one in profile.places if one.start == start), None) if profile else None
            if profile is None or place is None:
                raise SliceError("not-supported", f"card {uuid} takes no {template} at {start}")
            if any(one.start == start and one.template == template for one in self._held(card)):
                raise SliceError("no-room", f"card {uuid} has another {template} at {start}")
            where = pynvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)
            with checked(f"making {template} at {start} on card {uuid}"):
                instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                    card, profile.id, ctypes.byref(where)
                )
            try:
                _fill(instance, profile.compute, uuid)
            except SliceError:
                with checked(f"removing a half-made {template} at {start} on card {uuid}"):
                    pynvml.nvmlGpuInstanceDestroy(instance)
                raise
            number = int(pynvml.nvmlGpuInstanceGetInfo(instance).id)
            made = (one for one in self._held(card) if one.numbers["gi"] == number and not one.half)
            found = next(made, None)
            if found is None:
                raise SliceError("failed", f"card {uuid} made {template} at {start}, and does not list it")
            return _told(found)

    def destroy(self, uuid: str, slice_id: str) -> None:
        """Remove the instance, unless a program runs on it or nobody can tell."""
        with card_of(uuid) as card:
            found = next((one for one in self._held(card) if one.id == slice_id), None)
            if found is None:
                return
            number = found.numbers["gi"]
            if not found.half:
                _refuse_in_use(card, number, slice_id)
            instance = pynvml.nvmlDeviceGetGpuInstanceById(card, number)
            with checked(f"removing {found.template} at {found.start} from card {uuid}"):
                for compute in _compute_instances(instance):
                    pynvml.nvmlComputeInstanceDestroy(compute)
                pynvml.nvmlGpuInstanceDestroy(instance)


def _compute_profiles(instance: Any) -> Iterator[Any]:
    """Those that the instance has."""
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, _SHARED_ENGINES)
        except pynvml.NVMLError as error:
            if (
                CODES.get(error.value) != "not-supported"
                and error.value != pynvml.NVML_ERROR_INVALID_ARGUMENT
            ):
                raise


def _fill(instance: Any, compute: int, uuid: str) -> None:
    """One compute instance that has all of it."""
    with checked(f"making a compute instance of {compute} slices on card {uuid}"):
        whole = next((one for one in _compute_profiles(instance) if one.sliceCount == compute), None)
        if whole is None:
            raise SliceError("not-supported", f"card {uuid} has no compute instance of {compute} slices")
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)


def _compute_instances(instance: Any) -> list[Any]:
    found: dict[int, Any] = {}
    for profile in _compute_profiles(instance):
        count = ctypes.c_uint(mig.MOST_INSTANCES)
        some = (pynvml.c_nvmlComputeInstance_t * mig.MOST_INSTANCES)()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, some, ctypes.byref(count))
        for one in some[: min(count.value, mig.MOST_INSTANCES)]:
            found[int(pynvml.nvmlComputeInstanceGetInfo(one).id)] = one
    return list(found.values())


def _refuse_in_use(card: Any, number: int, slice_id: str) -> None:
    """Raises :class:`SliceError`, unless the driver says that no program runs on the instance."""
    wide = wide_lists(_text(pynvml.nvmlSystemGetDriverVersion()))
    for index in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(card))):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
        except pynvml.NVMLError_NotFound:
            continue
        if int(pynvml.nvmlDeviceGetGpuInstanceId(handle)) != number:
            continue
        try:
            pids = {int(one.pid) for kind in KINDS for one in running(handle, kind, wide=wide)}
        except UntoldError as error:
            raise SliceError("not-ready", f"whether {slice_id} is used is not known: {error}") from error
        if pids:
            raise SliceError("busy", f"{slice_id} is used by {len(pids)} processes, such as {min(pids)}")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _told(one: HeldSlice) -> dict[str, Any]:
    return {
        "id": one.id,
        "template": one.template,
        "start": one.start,
        "memory_mib": one.memory_mib,
        "numbers": dict(one.numbers),
        "half": one.half,
    }


def calls(driver: Driver) -> dict[str, Callable[..., Any]]:
    """What the child answers, by name."""
    return {"slices": driver.slices, "make": driver.make, "destroy": driver.destroy}


if __name__ == "__main__":
    serve(calls(Driver(*(Path(one) for one in sys.argv[1:2]))))
