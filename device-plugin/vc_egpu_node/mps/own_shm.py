"""A program with a ``/dev/shm`` of its own: ``python -m vc_egpu_node.mps.own_shm FOLDER PROGRAM ...``.

Server and programs of MPS share that folder. Daemons of several cards run in one container, and their
programs may be of different namespaces. So each daemon sees the folder of its card there. The image has no
tools to mount.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Final

_NEW_MOUNTS: Final = 0x20000
_BIND: Final = 0x1000
_PRIVATE: Final = 0x40000 | 0x4000
_SHM: Final = b"/dev/shm"


def main(arguments: Sequence[str]) -> None:
    """Become the program; exits with 1 where it may not mount."""
    folder, program, *rest = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    shm, mine = _SHM, os.fsencode(folder)
    failed = (
        libc.unshare(_NEW_MOUNTS)
        or libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None)
        or libc.mount(mine, shm, None, ctypes.c_ulong(_BIND), None)
    )
    if failed:
        error = os.strerror(ctypes.get_errno())
        raise SystemExit(f"{folder} cannot be {shm.decode()} of {program}: {error}")
    os.execvp(program, [program, *rest])  # noqa: S606 - the keeper's own program


if __name__ == "__main__":
    main(sys.argv[1:])
