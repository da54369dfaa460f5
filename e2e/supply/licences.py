"""Which licences we may ship, and whether an expression (SPDX) is one of them."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from supply.lock import Package

ALLOWED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"),
    }
)
"""Names of SPDX. MPL binds the files that are under it, and we change none of those."""
MEANT: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What packages write that know no SPDX."""


def expression(text: str) -> str:
    """The licence as SPDX writes it, as far as we know what is meant."""
    return MEANT.get(text.strip(), text.strip())


def is_allowed(text: str) -> bool:
    """Whether we may ship it: all of what stands with AND, one of what stands with OR."""
    if not text:
        return False
    words = re.findall(r"\(|\)|[^\s()]+", expression(text))
    try:
        allowed, rest = _either(words)
    except IndexError:
        return False
    return allowed and not rest


def _either(words: list[str]) -> tuple[bool, list[str]]:
    allowed, rest = _all(words)
    while rest[:1] == ["OR"]:
        other, rest = _all(rest[1:])
        allowed = allowed or other
    return allowed, rest


def _all(words: list[str]) -> tuple[bool, list[str]]:
    allowed, rest = _one(words)
    while rest[:1] == ["AND"]:
        other, rest = _one(rest[1:])
        allowed = allowed and other
    return allowed, rest


def _one(words: list[str]) -> tuple[bool, list[str]]:
    if words[0] != "(":
        return words[0] in ALLOWED, words[1:]
    allowed, rest = _either(words[1:])
    return (allowed, rest[1:]) if rest[:1] == [")"] else (False, rest)


def refused(packages: Iterable[Package]) -> Iterator[str]:
    """A sentence for each package that we may not ship."""
    for package in packages:
        if not is_allowed(package.licence):
            said = package.licence or "nothing"
            name = f"{package.locked.name} {package.locked.version}"
            yield f"{name}: its licence is {said!r}, which is not on the list"
