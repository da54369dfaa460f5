"""Makes a CUDA context on the first card that it sees, and says on one line what the driver answered.

Run as a program of its own, never imported by the agent: a broken driver may crash or hang in here. It needs
the standard library alone. ``CUDA_VISIBLE_DEVICES`` names the card. The line is the driver's code and the
call that gave it; the code is -1 where there is no driver to call.
"""

import ctypes
import sys
from collections.abc import Callable


def first_answer() -> tuple[int, str]:
    """The first code that is not 0 with its call, or 0 and the last call."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return -1, f"libcuda.so.1: {error}"
    device, context = ctypes.c_int(), ctypes.c_void_p()
    calls: tuple[tuple[str, Callable[[], int]], ...] = (
        ("cuInit", lambda: cuda.cuInit(0)),
        ("cuDeviceGet", lambda: cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
        ("cuDevicePrimaryCtxRelease", lambda: cuda.cuDevicePrimaryCtxRelease_v2(device)),
    )
    name = ""
    for name, call in calls:
        code = call()
        if code != 0:
            return code, name
    return 0, name


if __name__ == "__main__":
    sys.stdout.write("{} {}\n".format(*first_answer()))
