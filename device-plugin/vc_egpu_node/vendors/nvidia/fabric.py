"""Whether a card's NVLink fabric is up, as NVML tells it.

On boards with NVSwitch a program gets ``CUDA_ERROR_SYSTEM_NOT_READY`` (802) until the fabric manager has
registered the card. NVML answers all other questions meanwhile. After a boot the kubelet may be faster.
Source: NVIDIA's NVML reference, ``nvmlGpuFabricInfoV_t``.
"""

from collections.abc import Callable
from typing import Any, Final

import pynvml

FABRIC_DOWN: Final = "its NVLink fabric is not up"
"""How the reason of such a card begins."""
_STATES: Final = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in progress",
}
_CALLS: Final[tuple[tuple[str, Callable[[], Any]], ...]] = (
    ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v3_t),
    ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t),
    ("nvmlDeviceGetGpuFabricInfo", pynvml.c_nvmlGpuFabricInfo_t),
)
"""The newest first: older drivers know the function and not the record, or an older function alone."""
_ANOTHER_CALL: Final = frozenset(
    {
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
    }
)


def fabric_fault(handle: Any) -> str:
    """What the fabric says against the card; empty: nothing, or it has none, or the driver does not tell."""
    told = _told(handle)
    if told is None or told.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return ""
    if told.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return f"{FABRIC_DOWN} ({_STATES.get(told.state, f'state {told.state}')})"
    if told.status != pynvml.NVML_SUCCESS:
        return f"{FABRIC_DOWN} ({pynvml.NVMLError(told.status)})"
    return ""


def _told(handle: Any) -> Any:
    """The record with ``state`` and ``status``; None: there is no answer."""
    for name, record in _CALLS:
        info = record()
        try:
            getattr(pynvml, name)(handle, pynvml.byref(info))
        except pynvml.NVMLError as error:
            if error.value in _ANOTHER_CALL:
                continue
            return None
        return info
    return None
