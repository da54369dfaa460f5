"""NVML's lists of the processes on a card, as each driver gives them."""

import ctypes
from typing import Any, Final, Literal

import pynvml

from vc_egpu_node.vendors.base import UntoldError

NOT_AVAILABLE: Final = 2**64 - 1
"""NVML's number for a size that is not told."""
WIDE_LISTS: Final = ((535, 0), (535, 98))
"""Drivers from the first up to before the second list processes in records of one field more. The call has
the same name and version."""
NO_SUCH_LIST: Final = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
OLD_NAME: Final = "_v2"
"""Ending of the call's name in drivers before 510; its records are the same."""
LIST_TRIES: Final = 4
"""More processes may come between two calls, of which one asks how many there are."""
Kind = Literal["Compute", "MPSCompute", "Graphics"]


class _WideProcess(ctypes.Structure):
    """A record of :data:`WIDE_LISTS`."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
        ("usedGpuCcProtectedMemory", ctypes.c_ulonglong),
    )


def wide_lists(driver: str) -> bool:
    """Whether a driver of that version is one of :data:`WIDE_LISTS`. Numbers that it lacks count as 0."""
    major, minor = ([*driver.split("."), "", ""])[:2]
    numbers = (int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0)
    return WIDE_LISTS[0] <= numbers < WIDE_LISTS[1]


def running(handle: Any, kind: Kind, *, wide: bool) -> list[Any]:
    """Processes of one kind; none where the card has no such list. Every driver lists programs that compute:
    one that has no name of that list which we know does not tell. Raises :class:`UntoldError`.
    ``wide``: the driver is one of :data:`WIDE_LISTS`."""
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    for tries_left in reversed(range(LIST_TRIES)):
        try:
            return _wide_list(handle, f"{name}_v3") if wide else _list(handle, name)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            nameless = code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND and kind == "Compute"
            if code in NO_SUCH_LIST and not nameless:
                return []
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or not tries_left:
                raise UntoldError(f"{name}: {error}") from error
    raise AssertionError("not reached")


def _list(handle: Any, name: str) -> list[Any]:
    try:
        return list(getattr(pynvml, name)(handle))
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
        code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return list(getattr(pynvml, name + OLD_NAME)(handle))


def _wide_list(handle: Any, name: str) -> list[_WideProcess]:
    """A list of :data:`WIDE_LISTS`, which the package would read as one of shorter records."""
    function = pynvml._nvmlGetFunctionPointer(name)
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    if code == pynvml.NVML_SUCCESS:
        return []
    if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        raise pynvml.NVMLError(code)
    count.value = count.value * 2 + 5  # more may have come meanwhile
    records = (_WideProcess * count.value)()
    code = function(handle, ctypes.byref(count), records)
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    for one in records[: count.value]:
        if one.usedGpuMemory == NOT_AVAILABLE:
            one.usedGpuMemory = 0
    return list(records[: count.value])
