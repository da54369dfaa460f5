"""One thing that ``kubectl egpu doctor`` found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence, how bad it is, and what to do about it."""

    level: Level
    topic: str
    text: str
    hint: str = ""


def ok(topic: str, text: str) -> Finding:
    """All is well."""
    return Finding("ok", topic, text)


def warn(topic: str, text: str, hint: str = "") -> Finding:
    """Works, but somebody should look."""
    return Finding("warn", topic, text, hint)


def fail(topic: str, text: str, hint: str = "") -> Finding:
    """Does not work."""
    return Finding("fail", topic, text, hint)
