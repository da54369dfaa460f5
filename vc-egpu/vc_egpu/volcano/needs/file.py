"""The file of the operator's table, read again when it changes."""

import logging
from pathlib import Path
from typing import Final

from vc_egpu.volcano.needs.table import EnvironmentTable, shipped

ENVIRONMENTS: Final = Path("/etc/vc-egpu-environments/environments.yaml")
"""Where the manifests mount the ConfigMap ``vc-egpu-environments``, which need not be there."""

logger = logging.getLogger(__name__)


def read_environments(file: Path) -> EnvironmentTable:
    """The table in the file; the shipped one where the usual file is not there.

    Raises :class:`.table.TableError` or OSError.
    """
    try:
        return EnvironmentTable.from_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if file != ENVIRONMENTS:
            raise
        return shipped()


class TableFile:
    """The last good table of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self.table = shipped()

    def look(self) -> bool:
        """Read the file where it has changed since the last look; whether the table is another one now.

        One that cannot be read is logged, and changes nothing.
        """
        try:
            status = self._file.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        except OSError:
            seen = (0, 0, 0)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            table = read_environments(self._file)
        except (OSError, ValueError) as error:
            logger.warning("table of needs %s: %s; the last good one stays", self._file, error)
            return False
        if table == self.table:
            return False
        self.table = table
        logger.info(
            "table of needs %s: %d rows, %d of images", self._file, len(table.rows), len(table.images)
        )
        return True
