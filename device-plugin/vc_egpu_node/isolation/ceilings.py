"""What containers may still use above their grant, where it was lowered while they ran. A context's cost
that was learnt late counts likewise. A ceiling never rises, and it ends once the container is down to its
grant.

This process goes by its memory. The file in a container's folder is for the next agent. A file that cannot
be written now (a full disk) is written later, and no process is ended for it meanwhile.
"""

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vc_egpu_node.files import read_promptly, write_atomically

log = logging.getLogger(__name__)

CEILINGS_NAME: Final = "lowered.json"
"""In a container's folder: card UUID to MiB."""


class Ceilings:
    """Ceilings of all containers of the node. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """``folder`` holds a folder per container."""
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, int]] = {}
        self._unwritten: set[str] = set()

    def of(self, name: str) -> dict[str, int]:
        """Card UUID to MiB, where it is above what is granted now."""
        with self._lock:
            found = self._known.get(name)
            if found is None:
                found = self._read(name)
                if found:  # else it may be gone, and no call would drop it again
                    self._known[name] = found
            return dict(found)

    def keep(self, name: str, ceilings: Mapping[str, int]) -> None:
        """These from now on; nothing where the container is gone."""
        with self._lock:
            self._known[name] = dict(ceilings)
            self._write(name)

    def mend(self, name: str) -> None:
        """Write what could not be written before."""
        with self._lock:
            if name in self._unwritten:
                self._write(name)

    def drop(self, name: str) -> None:
        """The container is gone."""
        with self._lock:
            self._known.pop(name, None)
            self._unwritten.discard(name)

    def _read(self, name: str) -> dict[str, int]:
        try:
            document = json.loads(read_promptly(self._folder / name / CEILINGS_NAME))
            return {str(uuid): int(mib) for uuid, mib in document.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def _write(self, name: str) -> None:
        try:
            write_atomically(self._folder / name / CEILINGS_NAME, json.dumps(self._known[name]))
        except FileNotFoundError:
            self._known.pop(name, None)
        except OSError as error:
            if name not in self._unwritten:
                log.warning("what %s may still use was not written, trying again: %s", name, error)
            self._unwritten.add(name)
            return
        self._unwritten.discard(name)
        if not self._known.get(name):
            self._known.pop(name, None)
