"""Whether a program can come to rest at the signal that its pod names, by what the kernel tells."""

import signal
from collections.abc import Iterable
from pathlib import Path

from vc_egpu.volcano.codec.suspension import SUSPEND_SIGNALS


def deaf(proc_dir: Path, pids: Iterable[int], named: str) -> int:
    """The first of these processes that neither catches the signal nor is at rest already; 0: none.

    One whose signals cannot be read counts as none of them: the helper looks again before it sends anything.
    """
    if named not in SUSPEND_SIGNALS:
        return 0
    wanted = 1 << (signal.Signals[named] - 1)
    for pid in pids:
        masks = _masks(proc_dir / str(pid) / "status")
        if masks and not any(mask & wanted for mask in masks):
            return pid
    return 0


def _masks(path: Path) -> list[int]:
    """Those that it catches and those that it ignores, as it does while it is at rest."""
    try:
        lines = (line.partition(":") for line in path.read_text(errors="replace").splitlines())
        return [int(value.strip(), 16) for key, _, value in lines if key in ("SigIgn", "SigCgt")]
    except (OSError, ValueError):
        return []
