"""What a program needs of its node's software, and whether the facts of a node meet it.

A need is met in any of several ways; a way is met where all its atoms are. A fact with several values (the
capabilities of different cards) meets an atom only where each value does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from vc_egpu.core.environments.versions import Version, VersionError, parse

Facts = tuple[tuple[str, tuple[str, ...]], ...]
"""What a node tells: (name, values), in the order of names, as ``("driver", ("550.54.14",))``."""
NO_FACTS: Final[Facts] = ()
Crowd = frozenset[tuple[Facts, int]]
"""What nodes are like, and how many of them."""
OPERATORS: Final = ("==", "!=", "<=", ">=", "<", ">", "=", "in")
"""``==`` takes the whole line (2.6 is met by 2.6.1), ``=`` this one version, ``in`` any of several lines."""
_COMPARES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda one, two: one == two,
    "<": lambda one, two: one < two,
    "<=": lambda one, two: one <= two,
    ">": lambda one, two: one > two,
    ">=": lambda one, two: one >= two,
}
WORDS: Final = frozenset({"arch", "kind", "brand", "network", "isolation", "compute"})
"""Facts that are words and have no order."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One condition on one fact; an empty ``op``: that the fact is known."""

    fact: str
    op: str = ""
    value: str = ""
    """For ``in``: several, with a bar between them."""

    def __str__(self) -> str:
        return f"{self.fact} in {self.value}" if self.op == "in" else f"{self.fact}{self.op}{self.value}"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program needs of its node; without ways it needs nothing."""

    text: str = ""
    """As its user wrote it, for sentences."""
    ways: tuple[tuple[Atom, ...], ...] = ()
    presumed: bool = False
    """The stack read it off the program itself: what a node does not tell is taken for met."""
    _hash: int = field(init=False, compare=False, repr=False, default=0)
    """Worked out once: each decision looks up by it what all nodes are like."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.text, self.ways, self.presumed)))

    def __hash__(self) -> int:
        return self._hash


NO_NEEDS: Final = Needs()


@dataclass(frozen=True, slots=True)
class Want:
    """What a node lacks: the atom, and what the node has instead; empty: it does not tell."""

    needed: str
    fact: str
    has: str = ""


def lacking(needs: Needs, facts: Facts) -> tuple[Want, ...]:
    """What a node with these facts lacks: of the way that lacks least. Empty: it meets the needs."""
    known = dict(facts)
    least: tuple[Want, ...] | None = None
    for way in needs.ways:
        wants = tuple(
            Want(str(atom), atom.fact, "|".join(known.get(atom.fact, ())))
            for atom in way
            if not _met(atom, known.get(atom.fact, ()), presumed=needs.presumed)
        )
        if not wants:
            return ()
        # What is told and too old says more than what is not told.
        if least is None or (len(wants), not wants[0].has) < (len(least), not least[0].has):
            least = wants
    return least or ()


def is_met(needs: Needs, facts: Facts) -> bool:
    """Whether a node with these facts lacks nothing."""
    known = dict(facts)
    return not needs.ways or any(
        all(_met(atom, known.get(atom.fact, ()), presumed=needs.presumed) for atom in way)
        for way in needs.ways
    )


@lru_cache(maxsize=64)
def shared(crowd: Crowd) -> Crowd:
    """The one value for all equal ones: to look it up takes no comparison of what is in it."""
    return crowd


def wanting(needs: Needs, crowd: Crowd) -> tuple[tuple[Facts, int, Want], ...]:
    """By facts, how many nodes have them, and the first thing that they lack; empty where a node lacks
    nothing."""
    found = []
    for each, count in sorted(crowd):
        wants = lacking(needs, each)
        if not wants:
            return ()
        found.append((each, count, wants[0]))
    return tuple(found)


def _met(atom: Atom, values: tuple[str, ...], *, presumed: bool) -> bool:
    if not values:
        return presumed
    if not atom.op:
        return True
    if atom.fact in WORDS:
        return all(_word_holds(value.lower(), atom.op, atom.value.lower()) for value in values)
    held = _all_hold(values, atom.op, atom.value)
    return presumed if held is None else held  # no version: as if the node did not tell


@lru_cache(maxsize=1 << 15)
def _all_hold(values: tuple[str, ...], op: str, wanted: str) -> bool | None:
    """None where one of them is no version. Texts of many users have few conditions between them."""
    try:
        return all(holds(parse(value), op, wanted) for value in values)
    except VersionError:
        return None


def _word_holds(word: str, op: str, wanted: str) -> bool:
    among = word in wanted.split("|")
    return not among if op == "!=" else among and op in {"==", "=", "in"}


def holds(version: Version, op: str, value: str) -> bool:
    """Whether ``version op value``. Raises :class:`.versions.VersionError` for a value that is no version."""
    if op == "in":
        return any(parse(line).is_line_of(version) for line in value.split("|"))
    wanted = parse(value)
    if op in {"==", "!="}:
        return wanted.is_line_of(version) is (op == "==")
    return _COMPARES[op](version.key, wanted.key)
