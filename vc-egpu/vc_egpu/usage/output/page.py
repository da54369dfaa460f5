"""The report as one page of HTML: no script, nothing from outside, all names escaped."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from vc_egpu.usage.output.charts import area_and_line, bars, week
from vc_egpu.usage.output.words import DRAWN, Words, partial, shown
from vc_egpu.usage.reports.whole import Report
from vc_egpu.usage.table.window import text_of

MOST_ROWS: Final = 200
_MOST_WEEKS: Final = 12
_MOST_BARS: Final = 20
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root{color-scheme:light dark;--line:#b4472c;--area:#2f6f8f;
--text:#1c1c1c;--soft:#666;--edge:#ddd;--back:#fff}
@media(prefers-color-scheme:dark){:root{--line:#f08a6c;--area:#5fb0d6;
--text:#eee;--soft:#aaa;--edge:#444;--back:#161616}}
body{font:15px/1.5 system-ui,"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif;
color:var(--text);background:var(--back);margin:0 auto;padding:1.5rem;max-width:76rem}
h1{font-size:1.6rem;margin:0}
h2{font-size:1.2rem;margin:2.2rem 0 .2rem}p{margin:.2rem 0 .8rem;color:var(--soft)}
nav a{margin-right:1rem}a{color:var(--area)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.86rem;min-width:100%}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--edge);
text-align:left;vertical-align:top;white-space:nowrap}
th{white-space:normal;vertical-align:bottom;color:var(--soft);font-weight:600}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.8rem;margin:1rem 0}
dl div{border:1px solid var(--edge);border-radius:.5rem;padding:.6rem .8rem}
dt{color:var(--soft);font-size:.82rem}
dd{margin:0;font-size:1.35rem}figure{margin:.8rem 0}svg{max-width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--edge)}
.area{fill:var(--area);fill-opacity:.35}polyline.line{fill:none;stroke:var(--line);stroke-width:1.5}
.bar,.cell{fill:var(--area)}.key{display:inline-block;width:.9rem;height:.6rem;margin:0 .3rem 0 .8rem}
.key.line{background:var(--line)}.key.area{background:var(--area);opacity:.5}figcaption{font-size:.82rem;color:var(--soft)}
.weeks{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:.6rem}
.weeks h3{font-size:.9rem;margin:.4rem 0}
"""


def page(report: Report, words: Words) -> str:
    """The whole page."""
    heading = words.text("heading")
    span = words.text("span").format(
        since=text_of(report.window.since), until=text_of(report.window.until), zone=report.zone
    )
    currency = words.text("currency").format(currency=report.currency)
    tenant = f"<p>{escape(words.text('of_tenant').format(tenant=report.tenant))}</p>" if report.tenant else ""
    contents = " ".join(f'<a href="#{table}">{escape(words.title(table))}</a>' for table in report.tables)
    several = report.clusters is not None
    sections = "".join(_section(table, rows, words, several) for table, rows in report.tables.items())
    missing = "".join(f"<p><strong>{escape(text)}</strong></p>" for text in partial(report, words))
    return (
        f'<!DOCTYPE html>\n<html lang="{words.language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(heading)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(heading)}</h1>"
        f"<p>{escape(span)}</p><p>{escape(currency)}</p>{tenant}{missing}"
        f'<nav aria-label="{escape(words.text("table_of"))}">{contents}</nav>{sections}'
        f"{_notes(report, words)}"
        "</main></body></html>\n"
    )


def _section(table: str, rows: Sequence[Mapping[str, Any]], words: Words, several: bool) -> str:  # noqa: FBT001
    head = f'<section id="{table}"><h2>{escape(words.title(table))}</h2><p>{escape(words.remark(table))}</p>'
    if not rows:
        return f"{head}<p>{escape(words.text('nothing'))}</p></section>"
    columns = shown(table, rows[0], several=several) if table not in DRAWN else ()
    match table:
        case "summary":
            body = _facts(columns, rows[0], words)
        case "gains_by_hour":
            points = [(row["hour_start"], row["unshared_cards"], row["used_cards"]) for row in rows]
            names = (words.text("unshared"), words.text("in_use"))
            body = area_and_line(points, words.text("cards_chart"), names)
        case "idle_windows":
            body = _weeks(rows, words)
        case "showback":
            body = _table(columns, rows, words) + bars(_by_tenant(rows, words), words.text("costs_chart"))
        case _:
            body = _table(columns, rows, words)
    return f"{head}{body}</section>"


def _facts(columns: Sequence[str], row: Mapping[str, Any], words: Words) -> str:
    facts = "".join(
        f"<div><dt>{escape(words.head(column))}</dt><dd>{escape(words.value(column, row[column]))}</dd></div>"
        for column in columns
    )
    return f"<dl>{facts}</dl>"


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], words: Words) -> str:
    shown = rows[:MOST_ROWS]
    numbers = {column for column in columns if any(isinstance(row[column], int | float) for row in shown)}
    marks = {column: ' class="number"' if column in numbers else "" for column in columns}
    head = "".join(f'<th scope="col"{marks[column]}>{escape(words.head(column))}</th>' for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{marks[column]}>{escape(words.value(column, row[column]))}</td>" for column in columns)
        + "</tr>"
        for row in shown
    )
    more = len(rows) - len(shown)
    rest = f"<p>{escape(words.text('more').format(count=more))}</p>" if more else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}'
    )


def _weeks(rows: Sequence[Mapping[str, Any]], words: Words) -> str:
    weeks: dict[tuple[str, ...], dict[tuple[int, int], float]] = defaultdict(dict)
    keys = ("cluster", "namespace", "service", "container", "model")
    for row in rows:
        weeks[tuple(row[key] for key in keys)][row["local_weekday"], row["local_hour"]] = row["idle_ratio"]
    first = sorted(weeks.items(), key=lambda entry: -sum(entry[1].values()))[:_MOST_WEEKS]
    days = words.texts["weekdays"]
    drawn = "".join(
        f"<div><h3>{escape(f'{key[1]}/{key[2]}')}</h3>{week(values, days, words.text('windows_chart'))}</div>"
        for key, values in first
    )
    return f'<p>{escape(words.text("windows_chart"))}</p><div class="weeks">{drawn}</div>'


def _by_tenant(rows: Sequence[Mapping[str, Any]], words: Words) -> list[tuple[str, float]]:
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row["tenant"]] += row["charged_card_hours"]
    largest = sorted(sums.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST_BARS]
    return [(words.value("tenant", name), value) for name, value in largest]


def _notes(report: Report, words: Words) -> str:
    if not report.notes:
        return ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f'<section id="notes"><h2>{escape(words.text("notes"))}</h2><ul>{notes}</ul></section>'
