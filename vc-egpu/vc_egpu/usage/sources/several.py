"""The hours of several clusters as the two tables: each under its own name, and what is missing named."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from vc_egpu.usage.sources.folder import FolderError, Loaded, load
from vc_egpu.usage.table.columns import QUEUE, USAGE
from vc_egpu.usage.table.database import Database
from vc_egpu.usage.table.window import Window

_ALL: Final = "of_all_clusters_"


@dataclass(frozen=True, slots=True)
class Source:
    """The Prometheus of one cluster."""

    cluster: str
    """The name that its rows get."""
    url: str
    token_file: str = ""
    ca_file: str = ""
    trouble: str = ""
    """Why nothing can be read from it now; empty where it answers."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A cluster that no number of the report is about."""

    cluster: str
    reason: str


def load_all(
    database: Database, folders: Mapping[str, Path], window: Window, now: datetime
) -> tuple[Loaded, list[Missing]]:
    """Make ``usage_hourly`` and ``queue_hourly`` of the folders of several clusters, by their names.

    A folder without a usable row is missing. Where a folder tells of several clusters itself, their names are
    put behind its own. Raises :class:`FolderError` where no folder has a row.
    """
    whole, missing = Loaded(), []
    for shape in (USAGE, QUEUE):
        columns = ", ".join(f'"{column.name}" {column.type}' for column in shape.columns)
        database.run(f"CREATE OR REPLACE TABLE {_ALL}{shape.name} ({columns})")
    for cluster, folder in folders.items():
        try:
            loaded = load(database, folder, window, now)
        except FolderError as error:
            missing.append(Missing(cluster, str(error)))
            continue
        _append(database, cluster)
        whole.usage_rows += loaded.usage_rows
        whole.queue_rows += loaded.queue_rows
        whole.notes += [f"{cluster}: {note}" for note in loaded.notes]
    if not whole.usage_rows:
        raise FolderError(told(missing) or "no cluster has a row")
    for shape in (USAGE, QUEUE):
        database.run(f"DROP TABLE {shape.name}")
        database.run(f"ALTER TABLE {_ALL}{shape.name} RENAME TO {shape.name}")
    return whole, missing


def _append(database: Database, cluster: str) -> None:
    own = database.one(f"SELECT COUNT(DISTINCT cluster) AS n FROM {USAGE.name}")["n"]  # noqa: S608 - ours
    name = "$1" if own <= 1 else "$1 || '/' || cluster"
    for shape in (USAGE, QUEUE):
        database.run(
            f"INSERT INTO {_ALL}{shape.name} SELECT * REPLACE ({name} AS cluster) FROM {shape.name}",  # noqa: S608
            (cluster,),
        )


def told(missing: Iterable[Missing]) -> str:
    """In one line which clusters are missing, and why."""
    return "; ".join(f"{one.cluster} is missing: {one.reason}" for one in missing)
