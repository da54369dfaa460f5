"""Panels, variables and boards as values, and the JSON that Grafana reads of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]
Kind = Literal["stat", "timeseries", "table"]
Unit = Literal["short", "bytes", "percentunit", "s", "watt", "celsius"]

WIDTH: Final = 24
"""Columns of a board."""
SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA: Final = 42
_HEIGHTS: Final[dict[Kind, int]] = {"stat": 4, "timeseries": 8, "table": 9}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``meaning`` says in a sentence what a high value means."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    unit: Unit = "short"
    width: int = 12
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the head of a board: the values of a label."""

    name: str
    series: str
    """What to take the label's values from."""


@dataclass(frozen=True, slots=True)
class Board:
    """One board: panels fill rows from left to right."""

    uid: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = field(default=())


def panel(
    title: str, meaning: str, *queries: tuple[str, str], kind: Kind = "timeseries", unit: Unit = "short",
    width: int = 12, stacked: bool = False,
) -> Panel:  # fmt: skip
    """A panel of (expression, legend) pairs."""
    return Panel(title, meaning, tuple(Query(*one) for one in queries), kind, unit, width, stacked)


def stat(title: str, meaning: str, expression: str, unit: Unit = "short", width: int = 4) -> Panel:
    """One number."""
    return panel(title, meaning, (expression, ""), kind="stat", unit=unit, width=width)


def document(board: Board) -> Json:
    """As Grafana reads it."""
    variables: list[Json] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        *(_variable(one) for one in board.variables),
    ]
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.about,
        "tags": ["vc-egpu"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": _laid_out(board.panels),
    }


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "type": "query",
        "label": variable.name,
        "datasource": SOURCE,
        "query": f"label_values({variable.series}, {variable.name})",
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }


def _laid_out(panels: Sequence[Panel]) -> list[Json]:
    found: list[Json] = []
    x = y = height = 0
    for number, one in enumerate(panels, start=1):
        if x + one.width > WIDTH:
            x, y, height = 0, y + height, 0
        tall = _HEIGHTS[one.kind]
        found.append(_panel(number, one, {"x": x, "y": y, "w": one.width, "h": tall}))
        x, height = x + one.width, max(height, tall)
    return found


def _panel(number: int, one: Panel, grid: Json) -> Json:
    instant = one.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend,
            **({"instant": True, "range": False, "format": "table"} if instant else {}),
        }
        for index, query in enumerate(one.queries)
    ]
    defaults: Json = {"unit": one.unit}
    if one.kind == "timeseries":
        stacking = {"mode": "normal" if one.stacked else "none", "group": "A"}
        defaults |= {"min": 0, "custom": {"fillOpacity": 10, "stacking": stacking}}
    return {
        "id": number,
        "type": one.kind,
        "title": one.title,
        "description": one.meaning,
        "gridPos": grid,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {},
    }
