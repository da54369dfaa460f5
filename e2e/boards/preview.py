"""Draws what each panel of a board shows, from answers of a Prometheus. It is not Grafana's picture."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from boards.panels import Board, Panel

Matrix = Sequence[Mapping[str, Any]]
"""An answer to a range query: ``metric`` (labels) and ``values`` (seconds and text) of each series."""
_COLUMNS: Final = 3
_MOST_ROWS: Final = 8
_UNITS: Final = {"bytes": (2**30, "GiB"), "percentunit": (0.01, "%"), "s": (1.0, "s")}


def draw(board: Board, ask: Callable[[str], Matrix], chosen: Mapping[str, str], path: Path) -> list[str]:
    """Write the picture. ``ask``: an expression over the last minutes. ``chosen``: values of the board's
    variables. Returns titles of panels that had nothing to show."""
    mpl.rcParams["font.size"] = 7
    rows = -(-len(board.panels) // _COLUMNS)
    figure = Figure(figsize=(15, 2.6 * rows + 0.6))
    figure.subplots_adjust(left=0.05, right=0.98, top=1 - 0.25 / rows, bottom=0.18 / rows, hspace=0.45)
    figure.suptitle(f"{board.title}: a preview drawn by matplotlib, not Grafana", fontsize=10)
    empty = []
    for number, panel in enumerate(board.panels):
        axes = figure.add_subplot(rows, _COLUMNS, number + 1)
        series = _series(panel, ask, chosen)
        axes.set_title(panel.title, loc="left")
        if not series:
            empty.append(panel.title)
            axes.text(0.5, 0.5, "nothing to show", ha="center")
        if panel.kind == "timeseries":
            _lines(axes, panel, series)
        else:
            _numbers(axes, panel, series)
    figure.savefig(path, dpi=70)
    return empty


def _series(
    panel: Panel, ask: Callable[[str], Matrix], chosen: Mapping[str, str]
) -> list[tuple[str, list[tuple[float, float]]]]:
    """Legend and points of each line, in the unit that is shown."""
    factor, _ = _UNITS.get(panel.unit, (1.0, ""))
    found = []
    for query in panel.queries:
        for one in ask(re.sub(r"\$(\w+)", lambda name: chosen[name[1]], query.expression)):
            legend = _legend(query.legend, one["metric"])
            points = [
                (float(at), float(text) / factor) for at, text in one["values"] if math.isfinite(float(text))
            ]
            found.append((legend, points))
    return found


def _legend(text: str, labels: Mapping[str, str]) -> str:
    """Grafana's ``{{label}}`` filled in; all labels where the panel names none."""
    if not text:
        return " ".join(value for key, value in labels.items() if key != "__name__")
    return re.sub(r"{{\s*(\w+)\s*}}", lambda name: labels.get(name[1], ""), text)


def _lines(axes: Any, panel: Panel, series: Sequence[tuple[str, list[tuple[float, float]]]]) -> None:
    end = max((points[-1][0] for _, points in series if points), default=0.0)
    for legend, points in series[:_MOST_ROWS]:
        axes.plot([(at - end) / 60 for at, _ in points], [value for _, value in points], label=legend[:48])
    axes.set_xlabel("minutes, 0 is now")
    axes.set_ylabel(_UNITS.get(panel.unit, (1.0, panel.unit))[1])
    if series:
        axes.legend(fontsize=5, loc="upper left")


def _numbers(axes: Any, panel: Panel, series: Sequence[tuple[str, list[tuple[float, float]]]]) -> None:
    unit = _UNITS.get(panel.unit, (1.0, ""))[1]
    lines = [f"{points[-1][1]:,.6g} {unit}  {legend}" for legend, points in series[:_MOST_ROWS] if points]
    axes.axis("off")
    size = 18 if panel.kind == "stat" and len(lines) == 1 else 7
    axes.text(0.02, 0.9, "\n".join(lines), va="top", fontsize=size)
