"""A day of use of what runs now, as the table that reports read.

Which pod has which share of which card is what the leading admission controller tells Prometheus at this
moment. What programs do with it is the story's own: simulated nodes run none.
"""

import json
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from vc_egpu.usage.main import main
from vc_egpu.usage.table.columns import USAGE
from vc_egpu.usage.table.database import database
from vc_egpu.usage.table.services import service_of

GIB: Final = 1 << 30
WRITTEN_HOURS: Final = 48
SINCE: Final = "24h"
"""What is reported: less than is written, for a story that runs while an hour ends."""
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Work:
    """What one service does with its share."""

    memory_gib: float
    busy: Callable[[int], float]
    """By hour of the day: the part of a card's time that it computes."""


@dataclass(frozen=True, slots=True)
class Share:
    """One share as it is scraped."""

    labels: Mapping[str, str]
    memory_bytes: float
    cores_ratio: float

    @property
    def service(self) -> str:
        """Whose it is, as reports name it."""
        return service_of(self.labels["gang"], self.labels["pod"])


@dataclass(frozen=True, slots=True)
class Held:
    """All cards, and who has them."""

    cards: Mapping[str, tuple[Mapping[str, str], float]]
    """By UUID: labels, bytes."""
    shares: tuple[Share, ...]

    @classmethod
    def scraped(cls, port: int) -> "Held":
        """From the pages of a controller on this machine."""
        cards = {
            labels["uuid"]: (labels, value)
            for name, labels, value in _samples(port, "cards")
            if name == "egpu_card_memory_bytes"
        }
        told: dict[tuple[str, str, str], dict[str, float]] = {}
        described: dict[tuple[str, str, str], Mapping[str, str]] = {}
        for name, labels, value in _samples(port, "shares"):
            key = labels["pod"], labels["container"], labels["uuid"]
            told.setdefault(key, {})[name] = value
            described.setdefault(key, labels)
        shares = tuple(
            Share(described[key], values["egpu_share_memory_bytes"], values["egpu_share_cores_ratio"])
            for key, values in sorted(told.items())
        )
        return cls(cards, shares)

    @property
    def pods(self) -> set[str]:
        """Those with a share."""
        return {share.labels["pod"] for share in self.shares}

    @property
    def nodes(self) -> set[str]:
        """Those with a share."""
        return {share.labels["node"] for share in self.shares}

    def used_as(self, does: Mapping[str, Work], folder: Path) -> "Report":
        """The report on two days in which each service did this. ``folder`` is made for its table."""
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        rows: list[dict[str, Any]] = []
        for back in range(1, WRITTEN_HOURS + 1):
            start = now - timedelta(hours=back)
            rows += [self._of_card(uuid, start) for uuid in self.cards]
            rows += [self._of_share(share, does[share.service], start) for share in self.shares]
        home = folder / "hours" / USAGE.name
        home.mkdir(parents=True)
        with database() as db:
            db.fill(USAGE.name, USAGE.columns, rows)
            db.write_parquet(f"SELECT * FROM {USAGE.name}", home / "use.parquet")
        return Report.of(folder)

    def _of_card(self, uuid: str, start: datetime) -> dict[str, Any]:
        labels, memory_bytes = self.cards[uuid]
        return {
            "uuid": uuid, "node": labels["node"], "model": labels["model"], "hour_start": start,
            "card_memory_bytes": memory_bytes, "held_seconds": HOUR_S, "minutes_seen": 60,
        }  # fmt: skip

    def _of_share(self, share: Share, does: Work, start: datetime) -> dict[str, Any]:
        labels = share.labels
        texts = ("namespace", "queue", "gang", "pod", "container", "node", "uuid", "model", "class")
        used_bytes, busy = does.memory_gib * GIB, does.busy(start.hour)
        assert used_bytes <= share.memory_bytes, f"{labels['pod']} cannot use more than it has"
        return {
            **{name: labels.get(name, "") for name in texts},
            "hour_start": start,
            "memory_granted_bytes": share.memory_bytes,
            "card_memory_bytes": self.cards[labels["uuid"]][1],
            "memory_used_max_bytes": used_bytes,
            "memory_used_mean_bytes": used_bytes,
            "cores_granted_ratio": share.cores_ratio,
            "compute_used_seconds": busy * HOUR_S,
            "compute_used_max_ratio": busy,
            "held_seconds": HOUR_S,
            "suspended_seconds": 0.0,
            "launch_wait_share_seconds": 0.0,
            "minutes_seen": 60,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What ``vc-egpu report`` says about a folder of hours."""

    folder: Path
    tables: Mapping[str, list[dict[str, Any]]]

    @classmethod
    def of(cls, folder: Path) -> "Report":
        """``folder`` has the tables in ``hours``."""
        output = folder / "report.json"
        argv = ["--folder", str(folder / "hours"), "--since", SINCE, "--format", "json"]
        assert main([*argv, "--output", str(output)]) == 0
        return cls(folder, json.loads(output.read_text())["tables"])

    @property
    def file(self) -> str:
        """For commands that act on it."""
        return str(self.folder / "report.json")

    @property
    def cards_used(self) -> float:
        """At each hour; an error where it changes."""
        (cards,) = {round(row["used_cards"], 6) for row in self.tables["gains_by_hour"]}
        return float(cards)

    def saved_cards(self, by: str = "") -> float:
        """Fewer than each share on a card of its own would take; ``by``: only by this means."""
        column = f"by_{by}_card_hours" if by else "saved_card_hours"
        hours = len(self.tables["gains_by_hour"])
        saved_hours: float = sum(row[column] for row in self.tables["gains"])
        return round(saved_hours / hours, 6)


def _samples(port: int, page: str) -> list[tuple[str, Mapping[str, str], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/{page}", timeout=10) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return [(one.name, one.labels, one.value) for family in families for one in family.samples]
