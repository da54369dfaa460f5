"""Which clusters a report is about: the part of each, and those that no sum has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vc_egpu.usage.sources.several import Missing
from vc_egpu.usage.table.database import Database


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters that were asked for."""

    asked: tuple[str, ...]
    missing: tuple[Missing, ...] = ()

    @property
    def answered(self) -> int:
        """How many of them the sums are over."""
        return len(self.asked) - len(self.missing)

    def in_short(self) -> dict[str, Any]:
        """Columns of the summary."""
        return {
            "clusters_asked": len(self.asked),
            "clusters_answered": self.answered,
            "clusters_missing": ", ".join(one.cluster for one in self.missing),
        }


def rows_of(database: Database, clusters: Clusters) -> list[dict[str, Any]]:
    """One row for each cluster: its part of the sums, or why it has none.

    A source that tells of several clusters has a row for each.
    """
    cards = database.rows(
        "SELECT cluster, COUNT(DISTINCT uuid) AS cards, COALESCE(SUM(seconds), 0.0) / 3600.0 AS card_hours "
        "FROM card_hours GROUP BY cluster ORDER BY cluster"
    )
    sums: dict[str, Mapping[str, float]] = {
        column: _sums(database, query)
        for column, query in {
            "granted_card_hours": (
                "SELECT cluster, SUM(charged_card_hours) AS n FROM charges "
                "WHERE category <> 'idle' GROUP BY cluster"
            ),
            "compute_used_card_hours": (
                "SELECT cluster, SUM(compute_used_seconds) / 3600.0 AS n FROM share_hours GROUP BY cluster"
            ),
            "idle_card_hours_of_shares": (
                "SELECT cluster, SUM(idle_card_hours) AS n FROM idle_services GROUP BY cluster"
            ),
            "saved_card_hours": "SELECT cluster, SUM(saved_card_hours) AS n FROM gains GROUP BY cluster",
        }.items()
    }
    there = [
        {**row, **{column: found.get(row["cluster"], 0.0) for column, found in sums.items()}, "missing": ""}
        for row in cards
    ]
    nothing = dict.fromkeys(("cards", "card_hours", *sums))
    return there + [{"cluster": one.cluster, **nothing, "missing": one.reason} for one in clusters.missing]


def _sums(database: Database, query: str) -> Mapping[str, float]:
    return {row["cluster"]: row["n"] or 0.0 for row in database.rows(query)}
