"""The text of ``egpu.volcano.sh/needs``: ``cuda>=12.4,torch==2.6``. A comma is an "and"."""

from typing import Final

from vc_egpu.core.environments.needs import OPERATORS, WORDS, Atom
from vc_egpu.core.environments.versions import VersionError, parse

LONGEST: Final = 512
MOST_ATOMS: Final = 16
NODE_FACTS: Final = (
    "cuda", "driver", "capability", "hdk", "hyhal", "arch", "kind", "network", "isolation", "compute",
)  # fmt: skip
"""What nodes tell of themselves. All other names are software, and a table says what it needs."""
_SIGNS: Final = frozenset("<>=!")
_LONGEST_FIRST: Final = tuple(sorted((op for op in OPERATORS if op != "in"), key=len, reverse=True))


class NeedsError(ValueError):
    """The text cannot be used; the message says which part of it."""


def read(text: str) -> tuple[Atom, ...]:
    """The atoms of a text. Names are not looked up. Raises :class:`NeedsError`."""
    if len(text) > LONGEST:
        raise NeedsError(f"is {len(text)} characters long, the limit is {LONGEST}")
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise NeedsError("has an empty part; write name>=version, with a comma between two")
    if len(parts) > MOST_ATOMS:
        raise NeedsError(f"has {len(parts)} parts, the limit is {MOST_ATOMS}")
    return tuple(_atom(part) for part in parts)


def way(text: str) -> tuple[Atom, ...]:
    """A compiled way, as the webhook wrote it on a pod. Raises :class:`NeedsError`."""
    return tuple(_atom(part) for part in text.split(","))


def _atom(part: str) -> Atom:
    found = next((place for place, sign in enumerate(part) if sign in _SIGNS), -1)
    name, _, rest = part.partition(" ")
    if rest.lstrip().startswith("in "):
        return checked(Atom(_name(name, part), "in", rest.lstrip()[3:].replace(" ", "")))
    if found < 0:
        return Atom(_name(part, part))
    name, rest = part[:found].strip(), part[found:]
    op = next((op for op in _LONGEST_FIRST if rest.startswith(op)), "")
    value = rest[len(op) :].strip()
    if not op or not value or value[0] in _SIGNS:
        raise NeedsError(f"{part!r}: write name, one of {' '.join(OPERATORS)}, and a version")
    return checked(Atom(_name(name, part), op, value))


def _name(name: str, part: str) -> str:
    if not (name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()):
        raise NeedsError(f"{part!r}: {name!r} is no name")
    return name.lower().replace("-", "_")


def checked(atom: Atom) -> Atom:
    """The atom, where its value is a version or, for facts without order, a word."""
    if atom.fact in WORDS:
        if atom.op not in {"==", "=", "!=", "in"} or not atom.value.isascii():
            raise NeedsError(f"{str(atom)!r}: {atom.fact} has no order; only == and != can be asked")
        return atom
    for value in atom.value.split("|") if atom.op == "in" else (atom.value,):
        try:
            parse(value)
        except VersionError as error:
            raise NeedsError(f"{str(atom)!r}: {error}") from error
    return atom
