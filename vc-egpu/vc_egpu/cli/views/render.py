"""Reports as tables for people: coloured on a terminal, plain columns elsewhere.

Pure: reports in, renderables out.
"""

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from vc_egpu.cli.doctor.findings import Finding
from vc_egpu.cli.pause import PauseOutcome
from vc_egpu.cli.stop import Outcome
from vc_egpu.cli.views.cards import CardRow, CardsReport, Sharer
from vc_egpu.cli.views.queues import Amount, QueueRow, QueuesReport
from vc_egpu.cli.views.table import Cell, Table, pair
from vc_egpu.cli.views.waiting import WaitingReport
from vc_egpu.cli.views.why import GangStory, MemberRow
from vc_egpu.cli.world import ON_ITS_WAY
from vc_egpu.volcano.words.names import ROOT_QUEUE
from vc_egpu.volcano.words.resource_names import classify

CLASS_STYLES: Final = {"high": "bold magenta", "unset": "", "low": "cyan"}
PHASE_STYLES: Final = {
    "Running": "green", "Gated": "yellow", "Failed": "red", "Terminating": "yellow",
    "Suspending": "yellow", "Suspended": "cyan", "Resuming": "yellow",
}  # fmt: skip
LEVELS: Final = {"ok": ("ok", "green"), "warn": ("WARN", "yellow"), "fail": ("FAIL", "bold red")}
_TAKES_WORK: Final = frozenset({"ok", "native"})
"""States of cards that work may go to."""
WIDTH: Final = 1000
"""Columns: more than any line of ours has."""


_TURNS: Final = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""What turns the direction of writing, or ends a line: shown are other words than are written."""
_STEERING: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *_TURNS)
    if chr(code) != "\n"
}
"""Characters that a terminal obeys; our own colours are no part of any text."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader has gone: the caller decides what that means, and with which status to end."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Colours on a terminal, plain text elsewhere.

    As wide as the text, as kubectl does: a number that is cut off to fit a terminal would be another number.
    """
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=WIDTH, soft_wrap=True)


class _Harmless:
    """Something to show, without what tenants may have put into their texts to steer a terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._shown, options):
            yield Segment(segment.text.translate(_STEERING), segment.style, segment.control)


def show(shown: RenderableType, *, stderr: bool = False, style: str | None = None) -> None:
    """Print it, for people: what their terminal has no character for as a question mark.

    Raises ``BrokenPipeError`` where the reader has gone.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    console(stderr=stderr).print(_Harmless(shown), style=style)


def tell(text: str, style: str = "dim") -> None:
    """Print a sentence on stderr. A closed pipe is no error there."""
    with contextlib.suppress(BrokenPipeError):
        show(hanging(text), stderr=True, style=style)


def hanging(text: str, indent: int = 2) -> str:
    """Its further lines below the first: what tenants write begins no line, as rows of ours do."""
    return text.replace("\n", "\n" + " " * indent)


def _notes(notes: Sequence[str]) -> list[RenderableType]:
    return [Text(f"note: {hanging(note)}", style="yellow") for note in notes]


_EXTRA_COLUMNS: Final[Mapping[str, Callable[[Sharer], str]]] = {
    "SLICE": lambda sharer: sharer.slice,
    "SET": lambda sharer: sharer.card_set,
}
"""Columns that are there where a share has something to say in them."""
_BUSY: Final = "USED % compute|memory"
"""The same where a node tells how busy its cards were."""


# --- cards ---------------------------------------------------------------------------------------


def cards(report: CardsReport, *, uuids: bool = False) -> RenderableType:
    """One line per share, the card's own figures on its first line; ``uuids``: also what cards are called."""
    parts: list[RenderableType] = []
    if report.cards:
        sharers = [sharer for row in report.cards for sharer in row.sharers]
        extra = {
            title: read for title, read in _EXTRA_COLUMNS.items() if any(read(sharer) for sharer in sharers)
        }
        busy = any(pair(row.compute_points, row.memory_points) for row in report.cards)
        table = Table(
            "NODE", "CARD", "MODEL", "MEMORY MiB", "CORES % high|low", *([_BUSY] if busy else []), "HELD BY",
            "STATE", "POD", "CLASS", "MiB", "CORES %", "PHASE", *extra, right=("MiB", "CORES %"),
        )  # fmt: skip
        previous = ""
        for row in report.cards:
            card = f"{row.index} {row.uuid}" if uuids else str(row.index)
            node = "" if row.node == previous else row.node
            _card_lines(table, row, node, card, tuple(extra.values()), busy=busy)
            previous = row.node
        parts.append(table)
    return Group(*parts, *_notes(report.notes))


def _card_lines(
    table: Table, row: CardRow, node: str, card: str, extra: Sequence[Callable[[Sharer], str]], *, busy: bool
) -> None:
    more = "+?" if row.unseen and not row.others_known else ""
    own: list[Cell] = [
        node,
        card,
        row.model,
        f"{row.used_mib}{more} of {row.memory_mib}"
        + (f" +{row.suspended_mib} away" if row.suspended_mib else ""),
        f"{row.cores_high_percent}{more}|{row.cores_low_percent}{more}",
        *([pair(row.compute_points, row.memory_points) or "-"] if busy else []),
        Text(row.isolation or "-", style="yellow" if row.isolation == "none" else ""),
        Text(row.state, style="" if row.state in _TAKES_WORK else "bold red"),
    ]
    lines = [[*_sharer(sharer), *(read(sharer) for read in extra)] for sharer in row.sharers]
    none: list[Cell] = [""] * (4 + len(extra))
    if row.unseen:
        others = "1 pod that is" if row.unseen == 1 else f"{row.unseen} pods that are"
        if row.others_known:
            others = "1 pod of others" if row.unseen == 1 else f"{row.unseen} pods of others"
        else:
            others += " not seen here"
        lines.append([Text(others, style="dim"), *none])
    if not lines:
        lines.append([Text("free" if row.state in _TAKES_WORK else "", style="dim"), *none])
    for i, line in enumerate(lines):
        table.add_row(*(own if i == 0 else [""] * len(own)), *line)


def _sharer(sharer: Sharer) -> list[Cell]:
    return [
        sharer.pod,
        Text(sharer.share_class, style=CLASS_STYLES.get(sharer.share_class, "")),
        str(sharer.memory_mib),
        str(sharer.cores_percent),
        Text(sharer.phase, style=PHASE_STYLES.get(sharer.phase, "")),
    ]


# --- queues --------------------------------------------------------------------------------------


def queues(report: QueuesReport) -> RenderableType:
    """One line per queue and model."""
    numbers = ("SHARES", "MEMORY MiB", "CORES %", "NATIVE")
    table = Table("QUEUE", "STATE", "MODEL", *numbers, "ADMITTED", "WAITING", right=(*numbers, "ADMITTED"))
    for row in report.queues:
        _queue_lines(table, row)
    legend = Text("used/cap; - is no cap. Cores are percent of a card, 100 is one card's worth.", style="dim")
    parts: list[RenderableType] = [table, legend] if report.queues else [Text("there are no queues")]
    return Group(*parts, *_notes(report.notes))


def _queue_lines(table: Table, row: QueueRow) -> None:
    by_model: dict[str, dict[str, Amount]] = {}
    for amount in row.amounts:
        kind = classify(amount.resource)
        by_model.setdefault(kind.model, {})[kind.kind] = amount
    by_model = {model: kinds for model, kinds in by_model.items() if not _is_shut(kinds)}
    waiting = ", ".join(f"{count} {reason}" for reason, count in row.waiting.items())
    name = f"{row.name} (in {row.parent})" if row.parent and row.parent != ROOT_QUEUE else row.name
    state = Text(row.problem or row.state, style="" if row.state == "Open" and not row.problem else "yellow")
    first: list[Cell] = [name, state]
    last: list[Cell] = [str(row.admitted), Text(waiting, style="yellow")]
    if not by_model:
        table.add_row(*first, Text("none", style="dim"), "", "", "", "", *last)
    for i, (model, kinds) in enumerate(by_model.items()):
        cells = [_use(kinds.get(kind)) for kind in ("shared", "memory-total", "cores-total", "native")]
        table.add_row(*(first if i == 0 else ["", ""]), model, *cells, *(last if i == 0 else ["", ""]))


def _is_shut(kinds: Mapping[str, Amount]) -> bool:
    """A model of which the queue may have nothing and has nothing: a tenant's queue names all of these."""
    return all(amount.cap == 0 and not amount.used for amount in kinds.values())


def _use(amount: Amount | None) -> Text:
    if amount is None:
        return Text("")
    full = amount.cap is not None and amount.used >= amount.cap > 0
    return Text(f"{amount.used}/{'-' if amount.cap is None else amount.cap}", style="yellow" if full else "")


# --- why -----------------------------------------------------------------------------------------


def why(story: GangStory) -> RenderableType:
    """The verdict first, then the numbers, then the members."""
    head = Text()
    head.append(f"{story.job}: ", style="bold")
    head.append(story.reason, style="bold green" if story.admitted else "bold yellow")
    head.append(f"\n  {hanging(story.message)}\n")
    facts = [f"queue {story.queue}", f"class {story.share_class}", _members(story.min_member)]
    facts += [f"PodGroup {story.group} is {story.phase or 'Pending'}"] if story.group else []
    facts += [f"since {story.since}"] if story.since else []
    facts += ["a plan is in force"] if story.has_plan else []
    head.append(f"  {', '.join(facts)}", style="dim")
    parts: list[RenderableType] = [head]
    if story.members:
        table = Table("POD", "PHASE", "NODE", "CARDS", "MESSAGE")
        for member in story.members:
            table.add_row(*_member(member, story))
        parts.append(table)
    if story.rolled_back:
        parts.append(Text(f"rolled back: {hanging(story.rolled_back)}", style="yellow"))
    return Group(*parts, *_notes(story.notes))


def waiting(report: WaitingReport) -> RenderableType:
    """One line per gang, those that have waited longest first."""
    where = f"in namespace {report.place}" if report.place else "anywhere"
    if not report.waiting:
        return Group(Text(f"no gang waits {where}"), *_notes(report.notes))
    table = Table("GANG", "QUEUE", "CLASS", "REASON", "SINCE", "MESSAGE")
    for gang in report.waiting:
        style = CLASS_STYLES.get(gang.share_class, "")
        table.add_row(
            gang.gang,
            gang.queue,
            Text(gang.share_class, style=style),
            Text(gang.reason, style="yellow"),
            gang.since or "-",
            gang.message,
        )
    return Group(table, *_notes(report.notes))


def _members(least: int) -> str:
    return f"at least {least} member{'' if least == 1 else 's'}"


def _member(member: MemberRow, story: GangStory) -> list[Cell]:
    same = member.reason == story.reason and member.message == story.message
    away = member.phase in ON_ITS_WAY
    told = member.reason and not same and (away or not story.admitted)
    said = f"{member.reason}: {member.message}" if told else ""
    phase = Text(member.phase, style=PHASE_STYLES.get(member.phase, ""))
    return [member.pod, phase, member.node or "-", "\n".join(member.cards) or "-", said]


# --- suspend, resume ------------------------------------------------------------------------------


def paused(outcome: PauseOutcome) -> RenderableType:
    """What was reached, then the members."""
    head = Text()
    head.append(f"{outcome.gang}: ", style="bold")
    head.append(outcome.wanted if outcome.reached else f"not {outcome.wanted}")
    head.stylize("green" if outcome.reached else "yellow", len(outcome.gang) + 2)
    head.append(f"\n  {hanging(outcome.why)}")
    table = Table("POD", "STATE", "NODE", "MESSAGE")
    for member in outcome.members:
        state = Text(member.state, style=PHASE_STYLES.get(member.state, ""))
        table.add_row(member.pod, state, member.node or "-", member.message)
    return Group(head, table)


# --- doctor, stop-admitting ----------------------------------------------------------------------


def findings(found: Iterable[Finding]) -> RenderableType:
    """One line per finding, what to do about it below."""
    table = Table()
    for finding in found:
        word, style = LEVELS[finding.level]
        hint = [Text(f"→ {finding.hint}", style="dim")] if finding.hint else []
        topic = Text(finding.topic, style="bold")
        table.add_row(Text(word, style=style), topic, [Text(finding.text), *hint])
    return table


def outcomes(done: Iterable[Outcome]) -> RenderableType:
    """One line per queue."""
    table = Table("QUEUE", "BEFORE", "NOW")
    for outcome in done:
        left = "" if outcome.done else " (the order stands, the queue's controller has not taken it yet)"
        style = "green" if outcome.done else "red"
        table.add_row(outcome.queue, outcome.before, Text(outcome.after + left, style=style))
    return table
