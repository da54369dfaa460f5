"""Names of software become conditions on nodes, by the operator's table."""

import difflib
from itertools import product
from typing import Final

from vc_egpu.core.environments.needs import Atom, holds
from vc_egpu.core.environments.versions import Version, VersionError, parse
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.needs.text import NODE_FACTS, NeedsError, read

MOST_WAYS: Final = 64
_DEEPEST: Final = 8
Ways = tuple[tuple[Atom, ...], ...]


def compiled(text: str, table: EnvironmentTable) -> Ways:
    """What a text asks of a node. Raises :class:`.text.NeedsError` for what no row could meet."""
    return _all_of(read(text), table, 0)


def _all_of(atoms: tuple[Atom, ...], table: EnvironmentTable, depth: int) -> Ways:
    ways: Ways = ((),)
    for atom in atoms:
        found = _any_of(atom, table, depth)
        ways = tuple(dict.fromkeys(_joined(one, two) for one, two in product(ways, found)))
        if len(ways) > MOST_WAYS:
            raise NeedsError(f"{atom}: more than {MOST_WAYS} combinations; name a build, as torch==2.6+cu124")
    return ways


def _joined(one: tuple[Atom, ...], two: tuple[Atom, ...]) -> tuple[Atom, ...]:
    return tuple(dict.fromkeys((*one, *two)))


def _any_of(atom: Atom, table: EnvironmentTable, depth: int) -> Ways:
    if atom.fact in NODE_FACTS:
        return ((atom,),)
    rows = table.by_program.get(atom.fact)
    if rows is None:
        near = difflib.get_close_matches(atom.fact, table.names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise NeedsError(f"{atom.fact!r} is unknown; known are {', '.join(table.names)}{hint}")
    if depth >= _DEEPEST:
        raise NeedsError(f"{atom}: rows of the table lead in a circle")
    build = parse(atom.value).build if atom.op and atom.op != "in" else ""
    matching = [(row, line, ways) for row, line, ways in rows if _matches(atom, line)]
    exact = [each for each in matching if atom.op in {"==", "="} and _is_exactly(atom, each[1])]
    by_build: dict[str, Ways] = {}
    for row, _, ways in exact or matching:
        if not build or row.build in {"", build}:
            by_build.setdefault(row.build if exact or row.build else row.when, ways)
    if not by_build:
        what = f"{atom.fact} {atom.value}" if atom.op in {"==", "="} else str(atom)
        raise NeedsError(f"no row of the table for {what}; ask your operator to add one")
    found: dict[tuple[Atom, ...], None] = {}
    problem: NeedsError | None = None
    for way in (way for ways in by_build.values() for way in ways):
        try:
            found.update(dict.fromkeys(_all_of(way, table, depth + 1)))
        except NeedsError as error:
            problem = error
    if problem is not None and not found:
        raise problem
    return tuple(found)


def _lines(line: Atom) -> list[Version]:
    return [parse(value) for value in line.value.split("|")]


def _is_exactly(atom: Atom, line: Atom) -> bool:
    return any(version.key == parse(atom.value).key for version in _lines(line))


def _matches(atom: Atom, line: Atom) -> bool:
    """Whether what the user asks for may be of a row's line."""
    if not atom.op:
        return True
    try:
        wanted = [parse(value) for value in atom.value.split("|")]
    except VersionError as error:
        raise NeedsError(f"{atom}: {error}") from error
    for version in _lines(line):
        if holds(version, atom.op, atom.value):
            return True
        # The row is of a whole line, and the user names a member of it: 2.6 is the line of 2.6.1.
        if any(version.is_line_of(each) and version.key != each.key for each in wanted):
            return True
    return False
