"""The order of versions of drivers, toolkits and frameworks.

Numbers are compared part by part; missing parts are 0. A release candidate comes before its release, a post
release after it (PEP 440; CANN writes ``8.3.RC1``). What follows a plus (``+cu124``) names a build, which is
not compared.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

LONGEST: Final = 64
_LONGEST_NUMBER: Final = 9
_STAGES: Final = {
    "dev": -4,
    **dict.fromkeys(("a", "alpha"), -3),
    **dict.fromkeys(("b", "beta"), -2),
    **dict.fromkeys(("c", "rc", "pre"), -1),
    "post": 1,
}
"""Words that a version may hold, in the order of what they name; the release itself is 0."""


class VersionError(ValueError):
    """The text is no version."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version, as it is written: 12 and 12.0 are equal in order, and name different lines."""

    numbers: tuple[int, ...]
    stages: tuple[tuple[int, int], ...] = ()
    """(stage, number) in the order of the text, as ``rc1`` or ``post2``."""
    build: str = ""

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Versions compare as these do."""
        length = len(self.numbers)
        while length > 1 and not self.numbers[length - 1]:
            length -= 1
        return self.numbers[:length], (*self.stages, (0, 0))

    def is_line_of(self, other: "Version") -> bool:
        """Whether ``other`` is this release, or one of the same line: ``2.6`` is the line of ``2.6.1``."""
        if self.stages:
            return self.key == other.key
        padded = other.numbers + (0,) * (len(self.numbers) - len(other.numbers))
        return padded[: len(self.numbers)] == self.numbers


@lru_cache(maxsize=4096)
def parse(text: str) -> Version:
    """Read a version. Raises :class:`VersionError`."""
    plain, _, build = text.strip().lower().partition("+")
    if not plain or len(text) > LONGEST or not text.isascii():
        raise VersionError(f"{text[:LONGEST]!r} is no version")
    numbers: list[int] = []
    stages: list[tuple[int, int]] = []
    word = ""
    for token in _tokens(plain.removeprefix("v")):
        if token in _STAGES and not word:
            word = token
        elif not token.isdecimal() or len(token) > _LONGEST_NUMBER:
            raise VersionError(f"{text!r} is no version")
        elif word:
            stages.append((_STAGES[word], int(token)))
            word = ""
        elif stages:
            raise VersionError(f"{text!r} is no version")
        else:
            numbers.append(int(token))
    if word:
        stages.append((_STAGES[word], 0))
    if not numbers:
        raise VersionError(f"{text!r} is no version")
    return Version(tuple(numbers), tuple(stages), build)


def _tokens(text: str) -> list[str]:
    """Runs of digits and runs of letters. Dots, dashes and underscores stand between them."""
    tokens: list[str] = [""]
    for sign in text:
        if sign in ".-_":
            if not tokens[-1]:
                return [""]  # two in a row, or one at the beginning: no version
            tokens.append("")
        elif tokens[-1] and tokens[-1].isdecimal() is not sign.isdecimal():
            tokens.append(sign)
        else:
            tokens[-1] += sign
    return tokens
