"""The answers for people: what happens first, then what it takes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.foresight import told
from vc_egpu.cli.views.render import hanging
from vc_egpu.core.model.words import few
from vc_egpu.jobsapi.what_if.documents import WhatIfAnswer
from vc_egpu.kube import Json
from vc_egpu.whatif.answers import Answer, Effect

_STYLES = {"starts": "bold green", "makes room": "bold yellow", "waits": "bold yellow"}
_WORDS = {"starts": "starts now", "makes room": "starts once others have gone", "waits": "waits"}


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the command has to say."""

    answer: Answer | None
    """About the manifest; None: none was given."""
    effect: Effect | None
    """What the changes do; None: there are none."""
    notes: tuple[str, ...]
    told: Json | None = None
    """The answer of the jobs API, where the user may not read the cluster."""


def shown(found: Foreseen) -> RenderableType:
    """Both answers, then the notes."""
    parts: list[RenderableType] = []
    if found.answer is not None:
        parts += _answer(found.answer)
    if found.told is not None:
        parts += told.lines(WhatIfAnswer.model_validate(found.told))
    if found.effect is not None:
        parts += _effect(found.effect)
    return Group(*parts, *(Text(f"note: {hanging(note)}", style="yellow") for note in found.notes))


def _answer(answer: Answer) -> list[RenderableType]:
    head = Text(f"{answer.gang}: ", style="bold")
    head.append(_WORDS[answer.outcome], style=_STYLES[answer.outcome])
    if answer.outcome == "waits":
        head.append(f" ({answer.reason})")
    if answer.rule:
        head.append(f", by the placement rule {answer.rule}")
    lines: list[RenderableType] = [head]
    for place in answer.places:
        members = f"{place.members} member{'s' if place.members != 1 else ''}"
        lines.append(Text(f"  {members} on {place.node or 'some node'}{_on(place.cards)}"))
    for one in answer.going:
        what = "as a whole" if one.whole else "members above its minimum"
        lines.append(Text(f"  {one.how}: {one.gang}, {one.pods} pods, {what} ({one.cause})"))
    if answer.outcome == "starts":
        bound = "at least " if answer.more_is_bounded else ""
        lines.append(Text(f"  {bound}{answer.more} more of it would start too, without loss to others"))
    if answer.outcome == "waits":
        lines += [Text(f"  {hanging(answer.message)}"), Text(f"  {_when(answer)}")]
    return lines


def _on(cards: Sequence[str]) -> str:
    return f": {few(list(cards))}" if cards else ""


def _when(answer: Answer) -> str:
    unknown = f"{answer.unknown_ends} running gangs do not say when they end" if answer.unknown_ends else ""
    if answer.forecast is None:
        return f"when it starts is not known{': ' + unknown if unknown else ''}"
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(answer.forecast.at))
    text = f"it starts at {at} at the earliest, when {few(list(answer.forecast.ends))} will have ended"
    before = answer.forecast.waiting_before
    return text + (f"; {before} gangs that wait now may be first" if before else "")


def _effect(effect: Effect) -> list[RenderableType]:
    rows = (
        ("would start", effect.starts, "green"),
        ("would move", effect.moved, "yellow"),
        ("would lose their places and wait", effect.stranded, "bold red"),
        ("would be over", effect.ended, ""),
    )
    said: list[RenderableType] = [
        Text(f"{word}: {', '.join(gangs)}", style=style) for word, gangs, style in rows if gangs
    ]
    return said or [Text("the changes make no difference to the gangs that are there")]
