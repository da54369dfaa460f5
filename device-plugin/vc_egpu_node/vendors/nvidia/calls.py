"""Calls of NVML in a child: begun for one card and let go of behind it, with its errors as refusals."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pynvml

from vc_egpu_node.vendors.slices import Refusal, SliceError

CODES: Final[dict[int, Refusal]] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not-supported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not-supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "not-permitted",
    pynvml.NVML_ERROR_NOT_FOUND: "absent",
    pynvml.NVML_ERROR_GPU_IS_LOST: "absent",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "not-ready",
    pynvml.NVML_ERROR_TIMEOUT: "not-ready",
    pynvml.NVML_ERROR_IN_USE: "busy",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "no-room",
}


@contextmanager
def checked(doing: str) -> Iterator[None]:
    """NVML's errors as refusals."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise SliceError(
            CODES.get(error.value, "failed"), f"{doing}: NVML answers {error.value}: {error}"
        ) from error


@contextmanager
def card_of(uuid: str) -> Iterator[Any]:
    """The card of this UUID. Raises :class:`SliceError`, for the calls inside as well."""
    with checked(f"card {uuid}"):
        pynvml.nvmlInit()
    try:
        with checked(f"card {uuid}"):
            yield pynvml.nvmlDeviceGetHandleByUUID(uuid)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
