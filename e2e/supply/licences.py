"""Which licences we may ship, and whether an expression (SPDX) is one of them."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from supply.debian import Package as Debian
from supply.lock import Package

ALLOWED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"),
    }
)
"""Names of SPDX. MPL binds the files that are under it, and we change none of those."""
OF_DEBIAN: Final = ALLOWED | {
    *("Beerware", "GPL-2.0-or-later", "GPL-3.0-or-later", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    *("LGPL-2.0-or-later", "LGPL-2.1-or-later", "LicenseRef-public-domain", "Sleepycat", "X11"),
    *("blessing", "bzip2-1.0.6"),
}
"""What Debian's own packages may also be under: the image has them as Debian built them."""
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


def is_allowed(text: str, among: Collection[str] = ALLOWED) -> bool:
    """Whether we may ship it: all of what stands with AND, one of what stands with OR."""
    if not text:
        return False
    words = re.findall(r"\(|\)|[^\s()]+", expression(text))
    try:
        allowed, rest = _either(words, among)
    except IndexError:
        return False
    return allowed and not rest


def _either(words: list[str], among: Collection[str]) -> tuple[bool, list[str]]:
    allowed, rest = _all(words, among)
    while rest[:1] == ["OR"]:
        other, rest = _all(rest[1:], among)
        allowed = allowed or other
    return allowed, rest


def _all(words: list[str], among: Collection[str]) -> tuple[bool, list[str]]:
    allowed, rest = _one(words, among)
    while rest[:1] == ["AND"]:
        other, rest = _one(rest[1:], among)
        allowed = allowed and other
    return allowed, rest


def _one(words: list[str], among: Collection[str]) -> tuple[bool, list[str]]:
    if words[0] != "(":
        length = 3 if words[1:2] == ["WITH"] else 1
        return " ".join(words[:length]) in among, words[length:]
    allowed, rest = _either(words[1:], among)
    return (allowed, rest[1:]) if rest[:1] == [")"] else (False, rest)


def refused(packages: Iterable[Package], debian: Iterable[Debian] = ()) -> Iterator[str]:
    """A sentence for each package that we may not ship."""
    shipped = [(one.locked.name, one.locked.version, one.licence, ALLOWED) for one in packages]
    shipped += [(one.name, one.version, one.licence, OF_DEBIAN) for one in debian]
    for name, version, licence, among in shipped:
        if not is_allowed(licence, among):
            said = repr(licence) if licence else "one that nobody has read"
            yield f"{name} {version}: its licence is {said}, which is not on the list"
