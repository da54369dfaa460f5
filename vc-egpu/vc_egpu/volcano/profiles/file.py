"""The file of the operator's table of placement."""

from pathlib import Path
from typing import Final

from vc_egpu.core.profiles.table import NO_RULES, Table
from vc_egpu.volcano.profiles.table import table_of
from vc_egpu.volcano.tables.file import TableFile, text_of

PLACEMENT: Final = Path("/etc/vc-egpu-placement/placement.yaml")
"""Where the manifests mount the ConfigMap ``vc-egpu-placement``, which need not be there."""


def read_profiles(file: Path) -> Table:
    """The table in the file; one without rules where the usual file is not there.

    Raises :class:`.table.ProfilesError`, another ValueError or OSError.
    """
    try:
        return table_of(text_of(file))
    except FileNotFoundError:
        if file != PLACEMENT:
            raise
        return NO_RULES


def followed(file: Path) -> TableFile[Table]:
    """The table of a file as it changes; without rules until it is first looked at."""
    return TableFile(
        file,
        read_profiles,
        NO_RULES,
        called="table of placement",
        sized=lambda table: f"{len(table.rules)} rules",
    )
