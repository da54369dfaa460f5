"""Whether what containers need can be written, once a write of it has failed.

The kubelet turns a refused Allocate into a failed pod and does not ask again. A node whose pods all fail
looks free to the planner. So after a first failure of the disk the node takes nothing. It opens again once
each folder takes as many bytes as one container needs there.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from vc_egpu_node.containers.cdi import FILE_PREFIX
from vc_egpu_node.isolation.pages import KINDS

log = logging.getLogger(__name__)

DISKS_OWN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors that every container of the node would meet. Others (a lease that a container holds on its own
files, say) are of one container."""
AGAIN_S: Final = 1.0
"""Between two tries, however much else happens: a try writes all that one container needs."""
FILES_BYTES: Final = 64 * 1024
"""For one container in each folder of ours: promise, CDI spec, limits, control page and seed take less."""
PAGES_BYTES: Final = sum(kind.size for kind in KINDS)
TRIAL: Final = f".{FILE_PREFIX}trial.tmp"
"""Named like a half-written file, so that no runtime reads it. Where an agent dies in the middle, the next
one or removal takes it away."""


class Disk:
    """Remembers a failure, and looks whether it is over. :meth:`failed` from any thread, the rest by one."""

    def __init__(
        self,
        folders: Mapping[Path, int],
        *,
        on_failure: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``folders``: bytes that must fit into each."""
        self._folders = folders
        self._on_failure = on_failure
        self._clock = clock
        self._failing = False
        self._problem = ""
        self._tried_s = float("-inf")

    def failed(self, error: OSError) -> None:
        """Something that a container needs was not written."""
        if error.errno in DISKS_OWN and not self._failing:
            log.error("nothing can be written, the node takes nothing until it can: %s", error)
            self._failing = True
            self._on_failure()

    def problem(self) -> str:
        """Why nothing can be written; empty: it can, or no write has failed."""
        if not self._failing:
            return ""
        if self._clock() - self._tried_s >= AGAIN_S:
            self._tried_s = self._clock()
            self._problem = self._try()
            if not self._problem:
                log.info("what containers need can be written again")
                self._failing = False
        return self._problem

    def _try(self) -> str:
        for folder, size in self._folders.items():
            try:
                _write_and_remove(folder / TRIAL, size)
            except OSError as error:
                return f"what containers need cannot be written: {folder}: {error.strerror}"
        return ""


def _write_and_remove(path: Path, size: int) -> None:
    try:
        with path.open("wb") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)
