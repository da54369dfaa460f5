"""The outcome of runs as files: CSV always; Parquet, PNG and one HTML page with the extra ``sim``.

The libraries for these are imported here and only when a file of theirs is asked for.
"""

import base64
import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from vc_egpu.sim.curves import ALL, COLUMNS, Point

CSV: Final = "csv"
PARQUET: Final = "parquet"
PNG: Final = "png"
HTML: Final = "html"
FORMATS: Final = (CSV, PARQUET, PNG, HTML)
_PANELS: Final = (
    ("allocation", ALL, "cards held, % of all"),
    ("fragmentation", ALL, "free and of no use to the mix, % of all cards"),
    ("waiting_gpus", ALL, "cards asked for by gangs that wait"),
    ("finished", "gpu_hours", "finished work, card hours"),
)
_PIXELS_PER_INCH: Final = 110


class ExtraMissingError(RuntimeError):
    """A format needs a library that is not installed; the text says which, and how to get it."""


def write(folder: Path, formats: Iterable[str], points: Sequence[Point], summary: Sequence[Mapping[str, str]],
          title: str) -> list[Path]:  # fmt: skip
    """Write ``curves.*`` in these formats; returns the files.

    Raises ``OSError``, and :class:`ExtraMissingError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in formats:
        path = folder / f"curves.{name}"
        match name:
            case "csv":
                path.write_text(as_csv(points))
            case "parquet":
                _write_parquet(path, points)
            case "png":
                path.write_bytes(as_png(points, title))
            case _:
                path.write_text(as_page(points, summary, title))
        written.append(path)
    return written


def as_csv(points: Iterable[Point]) -> str:
    """The long table as text."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(point.cells() for point in points)
    return text.getvalue()


def _write_parquet(path: Path, points: Sequence[Point]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise _missing(PARQUET, "pyarrow") from error
    columns = zip(*(point.cells() for point in points), strict=True) if points else [[] for _ in COLUMNS]
    table = pyarrow.table({name: list(column) for name, column in zip(COLUMNS, columns, strict=True)})
    parquet.write_table(table, path)


def as_png(points: Sequence[Point], title: str) -> bytes:
    """Four panels, one line for each policy; lines of more seeds are thin."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing(PNG, "matplotlib") from error
    figure = Figure(figsize=(11, 7), dpi=_PIXELS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    policies = list(dict.fromkeys(point.policy for point in points))
    by_time = _by_time(points)
    for panel, (curve, key, label) in zip(figure.subplots(2, 2).flat, _PANELS, strict=True):
        for number, policy in enumerate(policies):
            lines = _lines(points, policy, curve, key, by_time=by_time)
            for nth, (across, up) in enumerate(lines):
                panel.plot(
                    across,
                    up,
                    color=f"C{number}",
                    linewidth=1.6 if nth == 0 else 0.6,
                    label=policy if nth == 0 else None,
                )
        panel.set_title(label, fontsize=10)
        panel.set_xlabel("hours" if by_time else "arrived, % of all cards", fontsize=9)
        panel.grid(visible=True, alpha=0.3)
    figure.axes[0].legend(fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _by_time(points: Iterable[Point]) -> bool:
    """Whether time tells more than what has arrived: once anything ends."""
    return any(point.curve == "finished" and point.value for point in points)


def _lines(
    points: Iterable[Point], policy: str, curve: str, key: str, *, by_time: bool
) -> list[tuple[list[float], list[float]]]:
    by_seed: dict[int, tuple[list[float], list[float]]] = {}
    for point in points:
        if (point.policy, point.curve, point.key) == (policy, curve, key):
            across, up = by_seed.setdefault(point.seed, ([], []))
            across.append(point.time_s / 3600 if by_time else point.arrived_percent)
            up.append(point.value)
    return list(by_seed.values())


def as_page(points: Sequence[Point], summary: Sequence[Mapping[str, str]], title: str) -> str:
    """One HTML file with nothing outside it: the table of the runs, the curves, and all points to save."""
    picture = base64.b64encode(as_png(points, title)).decode()
    table = base64.b64encode(as_csv(points).encode()).decode()
    names = list(summary[0]) if summary else []
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(row[name])}</td>" for name in names) + "</tr>" for row in summary
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem}}
table{{border-collapse:collapse}}td,th{{padding:.25rem .8rem;border-bottom:1px solid #ccc;text-align:right}}
td:first-child,th:first-child{{text-align:left}}img{{max-width:100%}}</style></head>
<body><h1>{html.escape(title)}</h1>
<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
<p><img alt="curves of all runs" src="data:image/png;base64,{picture}"></p>
<p><a download="curves.csv" href="data:text/csv;base64,{table}">all points as CSV</a></p>
</body></html>
"""


def _missing(what: str, library: str) -> ExtraMissingError:
    return ExtraMissingError(f"{what} needs {library}: pip install 'vc-egpu[sim]'")


def summary_row(policy: str, seed: int, figures: Mapping[str, Any]) -> dict[str, str]:
    """One line of the table of runs."""
    return {"policy": policy, "seed": str(seed), **{name: _shown(value) for name, value in figures.items()}}


def _shown(value: object) -> str:
    return (
        f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
