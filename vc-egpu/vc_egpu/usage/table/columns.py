"""The columns of ``usage_hourly`` and ``queue_hourly``: the contract of the small path and the stream.

Both tables are folders of Parquet files, partitioned by ``dt`` (the UTC day as text). A reader passes over
columns that it does not know. A column that came later is empty where an older file lacks it.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its SQL type, and whether files of the first schema already have it."""

    name: str
    type: str = "DOUBLE"
    since_the_first: bool = True

    @property
    def is_text(self) -> bool:
        """Whether its values are names."""
        return self.type == "VARCHAR"


@dataclass(frozen=True, slots=True)
class TableShape:
    """One table: its name, its columns in their order, and the columns that tell one row from another."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(column.name for column in self.columns)


def _texts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "VARCHAR") for name in names)


def _numbers(*names: str, since_the_first: bool = True) -> tuple[Column, ...]:
    return tuple(Column(name, since_the_first=since_the_first) for name in names)


HOUR: Final = Column("hour_start", "TIMESTAMP")
MINUTES: Final = Column("minutes_seen", "BIGINT")

USAGE: Final = TableShape(
    "usage_hourly",
    (
        *_texts(
            "cluster", "namespace", "queue", "gang", "pod", "container", "node", "uuid", "model", "class"
        ),
        HOUR,
        *_numbers("memory_granted_bytes", "card_memory_bytes", "memory_used_max_bytes"),
        *_numbers("memory_used_mean_bytes", "cores_granted_ratio", "compute_used_seconds", "held_seconds"),
        *_numbers("suspended_seconds"),
        MINUTES,
        *_numbers("compute_used_max_ratio", "launch_wait_share_seconds", since_the_first=False),
        *_numbers("restarts", "oom_kills", since_the_first=False),
    ),
    key=("cluster", "namespace", "pod", "container", "uuid", "hour_start"),
)
"""One row for each share of a card and hour. A row with an empty ``pod`` is the card itself.

``class`` is ``high``, ``low`` or empty. Memory is in bytes. Seconds lie within the hour. ``minutes_seen`` is
60 where nothing is missing. ``cores_granted_ratio`` and ``compute_used_max_ratio`` are parts of one card. An
empty number means that nothing told it. On a card's row ``memory_granted_bytes`` is the sum of grants.
"""

EVICTION_CAUSES: Final = ("priority", "reclaim", "rollback", "node", "bypass")

QUEUE: Final = TableShape(
    "queue_hourly",
    (
        *_texts("cluster", "queue", "parent", "resource"),
        HOUR,
        *_numbers("used", "deserved", "guarantee", "capability", "waiting", "admitted", "wait_seconds"),
        *_numbers(*(f"evicted_{cause}" for cause in EVICTION_CAUSES)),
        MINUTES,
    ),
    key=("cluster", "queue", "resource", "hour_start"),
)
"""One row for each queue, resource and hour, and one with an empty ``resource`` for the queue's gangs.

On a resource's row the numbers are means over the hour, in the resource's own unit, and ``waiting`` is what
waiting gangs ask for. On a row without a resource ``waiting`` is the mean number of waiting gangs. There
``admitted`` and ``evicted_*`` are counts, and ``wait_seconds`` is the time that admitted gangs had waited.
"""
