"""Plain columns for people, as wide as their widest cell; nothing is cut off, wrapped or padded at the end.

Rich's own table measures and wraps every cell by itself, which takes milliseconds a row: minutes for all
cards of a large cluster. And it pads each line to the full width: empty lines on a narrow terminal.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

Cell = str | Text | Sequence[Text]
"""Line breaks make further lines of it; a sequence is lines of a style each."""

GAP: Final = "  "
_WIDEST: Final = 320
"""More than a namespace and a name have. Where names are not bounded (that of an owner, a PodGroup's queue),
one of a megabyte would make as much of each row."""
_Line = tuple[str, str]
"""What stands there, and its style."""


class Table:
    """Rows under a header; without names of columns there is none. Prints itself on a rich console."""

    def __init__(self, *columns: str, right: Iterable[str] = ()) -> None:
        self.columns = columns
        numbers = set(right)
        self._right = [column in numbers for column in columns]
        self._rows: list[list[list[_Line]]] = []
        self._widths: list[int] = []
        if columns:
            self.add_row(*(Text(column, style="bold") for column in columns))

    @classmethod
    def joined(cls, column: str, parts: Iterable[tuple[str, "Table"]]) -> "Table":
        """Tables of the same columns as one. Each row begins with what stands before its table."""
        whole: Table | None = None
        for name, part in parts:
            if whole is None:
                whole = cls(column, *part.columns)
                whole._right = [False, *part._right]
            rows = part._rows[1:] if part.columns else part._rows
            for row in rows:
                whole._add([[(name, "")], *row])
        return whole if whole is not None else cls()

    def add_row(self, *cells: Cell) -> None:
        """One row, which is as high as its highest cell."""
        self._add([_lines(cell) for cell in cells])

    def _add(self, row: list[list[_Line]]) -> None:
        self._widths += [0] * (len(row) - len(self._widths))
        for i, lines in enumerate(row):
            self._widths[i] = max(self._widths[i], *(min(_WIDEST, cell_len(text)) for text, _ in lines))
        self._rows.append(row)

    def __rich_console__(self, console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        for row in self._rows:
            for i in range(max(map(len, row), default=0)):
                yield from self._line(console, [lines[i] if i < len(lines) else ("", "") for lines in row])
                yield Segment.line()

    def _line(self, console: Console, line: Sequence[_Line]) -> Iterator[Segment]:
        plain = ""  # not written yet: whether what is left blank has something behind it shows later
        written = 0
        for i, (text, style) in enumerate(line):
            gap = " " * (self._widths[i] - cell_len(text))
            before, after = (gap, "") if i < len(self._right) and self._right[i] else ("", gap)
            if text and style:
                yield Segment(plain + before)
                yield Segment(text, console.get_style(style))
                plain, written = after, 0
            elif text:
                plain += before + text
                written = len(plain)
                plain += after
            else:
                plain += gap
            plain += GAP
        yield Segment(plain[:written])


def _lines(cell: Cell) -> list[_Line]:
    if isinstance(cell, str):
        return [(line, "") for line in cell.split("\n")]
    if isinstance(cell, Text):
        return [(line, str(cell.style)) for line in cell.plain.split("\n")]
    return [line for text in cell for line in _lines(text)]


def pair(one: int | None, other: int | None) -> str:
    """Two figures with a bar between them; empty where neither is known."""
    if one is None and other is None:
        return ""
    return "|".join("-" if figure is None else str(figure) for figure in (one, other))
