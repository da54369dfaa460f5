"""Numbers and names as people read them, and the texts of each language."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from vc_egpu.usage.reports.whole import Report
from vc_egpu.usage.table.columns import EVICTION_CAUSES

LANGUAGES: Final = ("en", "zh-Hans")
_GIB: Final = 1 << 30
_EMPTY: Final = "–"


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of one language: titles and remarks of tables, heads of columns, kinds of values."""

    language: str
    texts: Mapping[str, Any]

    def text(self, name: str) -> str:
        """One text."""
        return str(self.texts["texts"][name])

    def title(self, table: str) -> str:
        """The title of a table."""
        return str(self.texts["tables"][table]["title"])

    def remark(self, table: str) -> str:
        """What a table tells, and how it is counted."""
        return str(self.texts["tables"][table]["remark"])

    def head(self, column: str) -> str:
        """The head of a column: the name without its unit, which stands in the value."""
        return str(self.texts["columns"].get(column, column))

    def value(self, column: str, value: Any) -> str:
        """A value with its unit."""
        if value is None or value == "":
            return _EMPTY
        if isinstance(value, str):
            return str(self.texts["values"].get(value, value)) if column in _KINDS else value
        if column == "local_weekday":
            return str(self.texts["weekdays"][int(value) - 1])
        size, unit, digits = _unit(column, value)
        return f"{value / size:,.{digits}f}{unit}"


def _unit(column: str, value: float) -> tuple[float, str, int]:
    """What a column's values are divided by, the unit that is shown, and the digits behind the point."""
    if column.endswith("_bytes"):
        return _GIB, " GiB", 1
    if column.endswith("_ratio"):
        return 0.01, " %", 0
    if column.endswith("_seconds"):
        return 60.0, " min", 1
    return 1.0, "", 0 if isinstance(value, int) or column in _COUNTS else 1


_COUNTS: Final = frozenset(
    {"restarts", "oom_kills", "admitted", *(f"evicted_{cause}" for cause in EVICTION_CAUSES)}
)
_KINDS: Final = frozenset({"advice", "method", "tenant", "queue"})
"""Columns with words of ours among their values."""


def shown(table: str, row: Mapping[str, Any], *, several: bool) -> tuple[str, ...]:
    """The columns that people are shown of a table with rows such as this one.

    ``several``: the report is of several clusters, and each row says of which one.
    """
    columns = SHOWN[table]
    if not several or "cluster" in columns:
        return columns
    if table == "summary":
        return (*OF_SEVERAL, *columns)
    return ("cluster", *columns) if "cluster" in row else columns


def partial(report: Report, words: Words) -> Iterator[str]:
    """A sentence for each cluster that no sum has, and one for what the sums are over."""
    clusters = report.clusters
    if clusters is None or not clusters.missing:
        return
    for one in clusters.missing:
        yield words.text("missing").format(cluster=one.cluster, reason=one.reason)
    yield words.text("partial").format(answered=clusters.answered, asked=len(clusters.asked))


def words(language: str) -> Words:
    """The texts of a language; each is one of :data:`LANGUAGES`."""
    text = resources.files("vc_egpu.usage").joinpath("output", f"texts.{language}.json").read_text("utf-8")
    return Words(language, json.loads(text))


SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "summary": (
        "cards", "card_hours", "granted_card_hours", "compute_used_card_hours",
        "idle_card_hours_of_shares", "memory_slack_ratio", "saved_card_hours",
        "could_save_card_hours_per_week",
    ),
    "clusters": (
        "cluster", "missing", "cards", "card_hours", "granted_card_hours", "compute_used_card_hours",
        "idle_card_hours_of_shares", "saved_card_hours",
    ),
    "idle_services": (
        "tenant", "namespace", "service", "model", "held_card_hours", "idle_card_hours", "idle_ratio",
        "compute_used_ratio", "idle_since",
    ),
    "idle_gangs": (
        "tenant", "namespace", "gang", "model", "idle_hours", "idle_card_hours", "idle_since",
    ),
    "idle_cards": (
        "node", "uuid", "model", "card_hours", "free_hours", "granted_idle_hours", "compute_used_ratio",
    ),
    "right_sizes": (
        "tenant", "namespace", "service", "container", "advice", "memory_granted_bytes",
        "memory_used_max_bytes", "memory_proposed_bytes", "cores_granted_ratio", "cores_proposed_ratio",
        "saved_card_hours_per_week", "confidence_ratio", "hours_seen", "restarts", "oom_kills",
        "hours_exceeded",
    ),
    "gains": (
        "cluster", "model", "unshared_card_hours", "used_card_hours", "saved_card_hours",
        "by_slicing_card_hours", "by_colocation_card_hours", "by_oversubscription_card_hours",
        "by_suspension_card_hours",
    ),
    "pairs": (
        "model", "namespace_one", "service_one", "namespace_other", "service_other", "method",
        "spill_bytes", "overlap_ratio", "conflict_hours", "conflicts", "saved_card_hours_per_week",
    ),
    "showback": (
        "tenant", "queue", "model", "namespace", "service", "requested_card_hours",
        "charged_card_hours", "compute_used_card_hours", "memory_used_card_hours", "list_cost",
        "billed_cost",
    ),
    "queue_shares": (
        "queue", "resource", "used", "deserved", "used_of_deserved_ratio", "guarantee", "capability",
        "hours_above_deserved", "hours_below_deserved_and_waiting",
    ),
    "queue_waits": (
        "queue", "admitted", "mean_wait_seconds", "mean_waiting_gangs", "most_waiting_gangs",
        "evicted_priority", "evicted_reclaim", "evicted_rollback", "evicted_node", "evicted_bypass",
    ),
}  # fmt: skip
"""The columns that people are shown of each table, in their order. Files have all of them."""
OF_SEVERAL: Final = ("clusters_asked", "clusters_answered", "clusters_missing")
"""Columns of the summary that stand before the others where several clusters were asked."""
DRAWN: Final = frozenset({"idle_windows", "gains_by_hour"})
"""Tables that people are shown as pictures only."""
