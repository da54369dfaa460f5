"""The report on a terminal: the first rows of each table, as wide as their widest cell."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len

from vc_egpu.usage.output.words import DRAWN, Words, partial, shown
from vc_egpu.usage.reports.whole import Report
from vc_egpu.usage.table.window import text_of

MOST_ROWS: Final = 15
_GAP: Final = "  "
_WIDEST: Final = 60


def lines(report: Report, words: Words, most_rows: int = MOST_ROWS) -> Iterator[str]:
    """The report as lines of text, without control characters."""
    span = words.text("span").format(
        since=text_of(report.window.since), until=text_of(report.window.until), zone=report.zone
    )
    yield f"{words.text('heading')}. {span}"
    if report.tenant:
        yield words.text("of_tenant").format(tenant=plain(report.tenant))
    several = report.clusters is not None
    yield from map(plain, partial(report, words))
    for table, rows in report.tables.items():
        if table in DRAWN:
            continue
        yield ""
        yield f"{words.title(table)}. {words.remark(table)}"
        if table == "summary":
            yield from _facts(rows[0], words, several)
        else:
            columns = shown(table, rows[0], several=several) if rows else ()
            yield from _table(columns, rows, words, most_rows)
    yield ""
    yield words.text("currency").format(currency=report.currency)
    if report.notes:
        yield ""
        yield words.text("notes")
        yield from (f"- {plain(note)}" for note in report.notes)


def plain(text: str) -> str:
    """A text in which nothing steers the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _facts(row: Mapping[str, Any], words: Words, several: bool) -> Iterator[str]:  # noqa: FBT001
    columns = shown("summary", row, several=several)
    heads = [words.head(column) for column in columns]
    widest = max(map(cell_len, heads))
    for column, head in zip(columns, heads, strict=True):
        yield f"  {head}{' ' * (widest - cell_len(head))}{_GAP}{words.value(column, row[column])}"


def _table(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], words: Words, most_rows: int
) -> Iterator[str]:
    if not rows:
        yield f"  {words.text('nothing')}"
        return
    cells = [[words.head(column) for column in columns]]
    cells += [[_cell(words.value(column, row[column])) for column in columns] for row in rows[:most_rows]]
    widths = [max(cell_len(row[place]) for row in cells) for place in range(len(columns))]
    numbers = [any(isinstance(row[column], int | float) for row in rows[:most_rows]) for column in columns]
    for row in cells:
        padded = (
            _padded(cell, width, right) for cell, width, right in zip(row, widths, numbers, strict=True)
        )
        yield ("  " + _GAP.join(padded)).rstrip()
    if len(rows) > most_rows:
        yield f"  {words.text('more').format(count=len(rows) - most_rows)}"


def _padded(cell: str, width: int, right: bool) -> str:  # noqa: FBT001
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space


def _cell(text: str) -> str:
    text = plain(text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
