"""Draws what each panel of a board shows, from answers of a Prometheus. It is not Grafana's picture."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from boards.panels import WIDTH, Board, Panel, document

Matrix = Sequence[Mapping[str, Any]]
"""An answer to a range query: ``metric`` (labels) and ``values`` (seconds and text) of each series."""
_ROW_INCHES: Final = 0.27
"""Of one row of Grafana's grid: numbers are 4 high, lines 8, tables 9."""
_MOST_ROWS: Final = 8
_UNITS: Final = {"bytes": (2**30, "GiB"), "percentunit": (0.01, "%"), "s": (1.0, "s")}


def draw(board: Board, ask: Callable[[str], Matrix], chosen: Mapping[str, str], path: Path) -> list[str]:
    """Write the picture. ``ask``: an expression over the last minutes. ``chosen``: values of the board's
    variables. Returns titles of panels that had nothing to show."""
    mpl.rcParams["font.size"] = 7
    places = [one["gridPos"] for one in document(board)["panels"]]
    rows = max(place["y"] + place["h"] for place in places) + 1  # one for the title
    figure = Figure(figsize=(15, _ROW_INCHES * rows))
    grid = figure.add_gridspec(rows, WIDTH, left=0, right=1, top=1, bottom=0, wspace=0, hspace=0)
    title = f"{board.title}: a preview drawn by matplotlib, not Grafana"
    figure.suptitle(title, fontsize=10, y=1 - 0.3 / rows)
    empty = []
    for panel, place in zip(board.panels, places, strict=True):
        top, left = place["y"] + 1, place["x"]
        cell = grid[top : top + place["h"], left : left + place["w"]].get_position(figure)
        head, foot = 0.9 / rows, (1.9 if panel.kind == "timeseries" else 0.2) / rows
        room = (cell.x0 + 0.035, cell.y0 + foot, cell.width - 0.045, cell.height - head - foot)
        axes = figure.add_axes(room)
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
    if any(legend for legend, _ in series):
        axes.legend(fontsize=5, loc="upper left")


def _numbers(axes: Any, panel: Panel, series: Sequence[tuple[str, list[tuple[float, float]]]]) -> None:
    """One number alone is shown without its labels, as Grafana does. What is too long is cut off."""
    unit = _UNITS.get(panel.unit, (1.0, ""))[1]
    found = [(f"{points[-1][1]:,.4g} {unit}", legend) for legend, points in series[:_MOST_ROWS] if points]
    axes.axis("off")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    is_alone = panel.kind == "stat" and len(found) == 1
    text = found[0][0] if is_alone else "\n".join(f"{value:>12}   {legend}" for value, legend in found)
    axes.text(0, 0.85, text, va="top", fontsize=18 if is_alone else 7, clip_on=True)
