"""Charts as SVG: one area with a line, bars, and squares of a week. Text is escaped, nothing is loaded."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_WIDTH: Final = 920
_HEIGHT: Final = 220
_LEFT: Final = 48
_BOTTOM: Final = 24
_MOST_POINTS: Final = 400
_SQUARE: Final = 15
_BAR: Final = 22
_LABEL: Final = 220

Point = tuple[str, float, float]


def area_and_line(points: Sequence[Point], title: str, names: tuple[str, str]) -> str:
    """Two series over time: the first as a line, the second as an area. Points are (time, line, area)."""
    points = _thinned(points)
    top = _nice(max((max(line, area) for _, line, area in points), default=1.0))
    step = (_WIDTH - _LEFT) / max(len(points) - 1, 1)

    def place(number: int, value: float) -> str:
        return f"{_LEFT + number * step:.1f},{_HEIGHT - value / top * (_HEIGHT - 10):.1f}"

    line = " ".join(place(number, point[1]) for number, point in enumerate(points))
    area = " ".join(place(number, point[2]) for number, point in enumerate(points))
    ends = f"{_LEFT + (len(points) - 1) * step:.1f},{_HEIGHT} {_LEFT},{_HEIGHT}"
    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in (0, top / 2, top)
        for y in (_HEIGHT - value / top * (_HEIGHT - 10),)
    )
    first, last = (points[0][0], points[-1][0]) if points else ("", "")
    feet = (
        f'<text x="{_LEFT}" y="{_HEIGHT + 18}">{escape(first)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 18}" text-anchor="end">{escape(last)}</text>'
    )
    body = (
        f'{grid}<polygon class="area" points="{area} {ends}"/><polyline class="line" points="{line}"/>{feet}'
    )
    keys = (
        f'<figcaption><span class="key line"></span>{escape(names[0])} '
        f'<span class="key area"></span>{escape(names[1])}</figcaption>'
    )
    return f"<figure>{_svg(body, _HEIGHT + _BOTTOM, title)}{keys}</figure>"


def bars(rows: Sequence[tuple[str, float]], title: str) -> str:
    """One bar for each name, with its value."""
    top = max((value for _, value in rows), default=0.0) or 1.0
    unit = (_WIDTH - _LABEL - 90) / top
    body = "".join(
        f'<text x="{_LABEL - 8}" y="{number * _BAR + 15}" text-anchor="end">{escape(_cut(name))}</text>'
        f'<rect class="bar" x="{_LABEL}" y="{number * _BAR + 3}" height="{_BAR - 8}" '
        f'width="{value * unit:.1f}"/>'
        f'<text x="{_LABEL + value * unit + 6:.1f}" y="{number * _BAR + 15}">{value:,.1f}</text>'
        for number, (name, value) in enumerate(rows)
    )
    return f"<figure>{_svg(body, max(len(rows), 1) * _BAR + 4, title)}</figure>"


def week(values: Mapping[tuple[int, int], float], days: Sequence[str], title: str) -> str:
    """24 by 7 squares: (weekday from 1, hour) to a part from 0 to 1. What is not there stays empty."""
    squares = "".join(
        f'<rect class="cell" x="{40 + hour * _SQUARE}" y="{14 + (day - 1) * _SQUARE}" width="{_SQUARE - 1}" '
        f'height="{_SQUARE - 1}" fill-opacity="{0.08 + 0.92 * value:.2f}">'
        f"<title>{escape(days[day - 1])} {hour:02}:00 {value * 100:.0f} %</title></rect>"
        for (day, hour), value in sorted(values.items())
    )
    names = "".join(
        f'<text x="34" y="{14 + number * _SQUARE + 12}" text-anchor="end">{escape(day)}</text>'
        for number, day in enumerate(days)
    )
    hours = "".join(f'<text x="{40 + hour * _SQUARE}" y="10">{hour}</text>' for hour in (0, 6, 12, 18))
    width, height = 44 + 24 * _SQUARE, 18 + 7 * _SQUARE
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">{names}{hours}{squares}</svg>'
    )


def _svg(body: str, height: int, title: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">{body}</svg>'


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most some hundred points, each the mean of its neighbours."""
    size = -(-len(points) // _MOST_POINTS)
    if size <= 1:
        return points
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(g[0][0], sum(p[1] for p in g) / len(g), sum(p[2] for p in g) / len(g)) for g in groups]


def _nice(value: float) -> float:
    """The next number upward that reads well: 1, 2 or 5 and zeros."""
    size = 1.0
    while size * 10 < value:
        size *= 10
    return next((size * step for step in (1, 2, 5, 10) if size * step >= value), value)


def _cut(text: str) -> str:
    return text if len(text) <= 32 else f"{text[:31]}…"
