"""The file of the operator's table of needs."""

from pathlib import Path
from typing import Final

from vc_egpu.volcano.needs.table import EnvironmentTable, shipped
from vc_egpu.volcano.tables.file import TableFile, text_of

ENVIRONMENTS: Final = Path("/etc/vc-egpu-environments/environments.yaml")
"""Where the manifests mount the ConfigMap ``vc-egpu-environments``, which need not be there."""


def read_environments(file: Path) -> EnvironmentTable:
    """The table in the file; the shipped one where the usual file is not there.

    Raises :class:`.table.TableError`, another ValueError or OSError.
    """
    try:
        return EnvironmentTable.from_yaml(text_of(file))
    except FileNotFoundError:
        if file != ENVIRONMENTS:
            raise
        return shipped()


def followed(file: Path) -> TableFile[EnvironmentTable]:
    """The table of a file as it changes; the shipped one until it is first looked at."""
    return TableFile(
        file,
        read_environments,
        shipped(),
        called="table of needs",
        sized=lambda table: f"{len(table.rows)} rows, {len(table.images)} of images",
    )
