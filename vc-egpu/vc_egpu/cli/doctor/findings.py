"""One thing that ``kubectl egpu doctor`` found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vc_egpu.core.model.words import few

Level = Literal["ok", "warn", "fail"]
_MOST: Final = 20
"""Names of nodes in one sentence."""


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
    """Works, but an operator should look."""
    return Finding("warn", topic, text, hint)


def fail(topic: str, text: str, hint: str = "") -> Finding:
    """Does not work."""
    return Finding("fail", topic, text, hint)


def told_once(names: Sequence[str], one: str, several: str) -> str:
    """What holds of several nodes as one sentence: a large cluster has thousands of them."""
    return f"{few(names, _MOST)} {one if len(names) == 1 else several}"
