"""What our processes said of pods, gangs and nodes: ``kubectl egpu events``, ``kubectl egpu history JOB``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.views.render import hanging
from vc_egpu.cli.views.table import Table
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import CORE_EVENTS

SPEAKERS: Final = ("vc-egpu-admission", "vc-egpu-node", "vc-egpu-jobs", "vc-egpu-webhook", "vc-egpu-report")
"""The processes that write events, as each names itself."""
KEPT: Final = "the API server keeps events for an hour, unless its --event-ttl says otherwise"


@dataclass(frozen=True, slots=True)
class EventRow:
    """One thing that was said."""

    time: str
    """When it was said last, as the API server writes times."""
    subject: str
    """``kind/namespace/name``; without a namespace for nodes."""
    reason: str
    warning: bool
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class EventsReport:
    """All of them, the latest last."""

    events: tuple[EventRow, ...]
    notes: tuple[str, ...] = ()


def read(api: ApiConnection, namespace: str | None, about: str = "") -> EventsReport:
    """Events of one namespace, of all where it is None. ``about``: of the Job of this name and its pods."""
    found: list[Json] = []
    for speaker in SPEAKERS:
        found += api.list(CORE_EVENTS, namespace, field_selector=f"reportingComponent={speaker}").items
    return report(found, about)


def report(events: Iterable[Json], about: str = "") -> EventsReport:
    """The rows; ``about`` as in :func:`read`."""
    rows = sorted(
        (_row(event) for event in events if _is_ours(event) and _is_about(event, about)),
        key=lambda row: (row.time, row.subject),
    )
    what = f"of {about} " if about else ""
    return EventsReport(tuple(rows), () if rows else (f"nothing {what}was said lately; {KEPT}",))


def _row(event: Json) -> EventRow:
    about = event.get("involvedObject") or event.get("regarding") or {}
    place = f"{about['namespace']}/" if about.get("namespace") else ""
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return EventRow(
        time=re.sub(r"\.\d+", "", str(last)),
        subject=f"{str(about.get('kind') or '').lower()}/{place}{about.get('name') or ''}",
        reason=str(event.get("reason") or ""),
        warning=event.get("type") == "Warning",
        count=int(series.get("count") or event.get("count") or 1),
        message=str(event.get("message") or event.get("note") or ""),
    )


def _is_ours(event: Json) -> bool:
    """Servers that do not know the selector send all events."""
    source = (event.get("source") or {}).get("component")
    speaker = event.get("reportingComponent") or event.get("reportingController") or source
    return speaker in SPEAKERS


def _is_about(event: Json, name: str) -> bool:
    """A Job's PodGroup and its pods begin with its name."""
    if not name:
        return True
    about = event.get("involvedObject") or event.get("regarding") or {}
    told = str(about.get("name") or "")
    return told == name or told.startswith((f"{name}-", f"podgroup-{name}"))


def shown(found: EventsReport) -> RenderableType:
    """One line for each."""
    parts: list[RenderableType] = []
    if found.events:
        table = Table("TIME", "SUBJECT", "REASON", "COUNT", "MESSAGE", right=("COUNT",))
        for row in found.events:
            reason = Text(row.reason, style="yellow" if row.warning else "")
            table.add_row(row.time, row.subject, reason, str(row.count), row.message)
        parts.append(table)
    return Group(*parts, *(Text(f"note: {hanging(note)}", style="yellow") for note in found.notes))
