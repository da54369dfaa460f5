"""Volcano's HyperNodes, as a tree of domains: which of them each node is in. Pure.

A HyperNode has nodes as members, by name, by a pattern of names or by labels, and other HyperNodes by name.
What is wrong with one is named, and so much of it is left out: nothing here raises for what stands in one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final

from pydantic import StringConstraints, TypeAdapter
from pydantic_core import SchemaError

from vc_egpu.core.topology.network import Domain
from vc_egpu.volcano.podspec.selectors import Selector

Document = Mapping[str, Any]
_LONGEST_PATTERN: Final = 1024
_MOST_PROBLEMS: Final = 8
"""So many are named of one HyperNode."""
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class Pattern:
    """A pattern of node names, found anywhere in a name. It takes time in proportion to the name's length.

    Python's own engine may take for ever over a name, and whoever writes HyperNodes could stop the decision.
    """

    def __init__(self, text: str) -> None:
        """Raises ``ValueError`` for what is no pattern."""
        if not text or len(text) > _LONGEST_PATTERN:
            raise ValueError(f"a pattern has 1 to {_LONGEST_PATTERN} characters")
        try:
            self._adapter = TypeAdapter(Annotated[str, StringConstraints(pattern=text)])
        except SchemaError as error:
            raise ValueError(f"{text[:63]!r} is no pattern") from error

    def matches(self, name: str) -> bool:
        """Whether a node of this name is a member."""
        return bool(self._adapter.validator.isinstance_python(name))


@dataclass(frozen=True, slots=True)
class HyperNode:
    """One of them, as it was read."""

    name: str
    tier: int
    level: str = ""
    nodes: frozenset[str] = frozenset()
    patterns: tuple[Pattern, ...] = ()
    selectors: tuple[Selector, ...] = ()
    children: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What in it cannot be read."""

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is a member by a pattern of its name, or by its labels."""
        return any(pattern.matches(name) for pattern in self.patterns) or any(
            selector.matches(labels) for selector in self.selectors
        )


@dataclass(slots=True)
class _Members:
    nodes: list[str] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    selectors: list[Selector] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    def add(self, member: Document) -> None:
        """Raises ``ValueError`` and its like for what cannot be read."""
        selector, kind = member.get("selector") or {}, member.get("type")
        exact = str((selector.get("exactMatch") or {}).get("name") or "")
        if kind == "HyperNode":
            if not exact:
                raise ValueError("a HyperNode is a member by its exact name alone")
            self.children.append(exact)
        elif kind != "Node":
            raise ValueError(f"its type is {str(kind)[:63]!r}, neither Node nor HyperNode")
        elif exact:
            self.nodes.append(exact)
        elif selector.get("regexMatch"):
            self.patterns.append(Pattern(str(selector["regexMatch"].get("pattern") or "")))
        elif selector.get("labelMatch"):
            self.selectors.append(_selector(selector["labelMatch"]))
        else:
            raise ValueError("it selects nothing")


def _selector(document: Document) -> Selector:
    found = Selector.of(document)
    if found is None or found.is_empty:
        raise ValueError("an empty labelMatch selects no node")
    if any(operator not in _OPERATORS for _, operator, _ in found.expressions):
        raise ValueError("labelMatch has an operator that is unknown here")
    return found


def read(document: Document) -> HyperNode:
    """A HyperNode. Raises ``KeyError`` or ``TypeError`` only for what has no name or no tier."""
    spec = document["spec"]
    tier = spec["tier"]
    if not isinstance(tier, int):
        raise TypeError(f"spec.tier: {tier!r} is no whole number")
    members, problems = _Members(), list[str]()
    for number, member in enumerate(spec.get("members") or ()):
        try:
            members.add(member)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problems.append(f"spec.members[{number}] is left out: {error}")
    return HyperNode(
        name=str(document["metadata"]["name"]),
        tier=tier,
        level=str(spec.get("tierName") or ""),
        nodes=frozenset(members.nodes),
        patterns=tuple(members.patterns),
        selectors=tuple(members.selectors),
        children=tuple(members.children),
        problems=tuple(problems),
    )


def read_or_why(document: Document) -> HyperNode | str:
    """The same, or why it is left out."""
    try:
        return read(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return str(error)


class Tree:
    """All HyperNodes together. Equal ones give equal trees, in whatever order they came."""

    def __init__(self, listed: Iterable[HyperNode]) -> None:
        self._all = {one.name: one for one in sorted(listed, key=lambda one: (one.tier, one.name))}
        self._problems = {name: list(one.problems) for name, one in self._all.items()}
        self._leave_out_cycles()
        self._parents: dict[str, str] = {}
        for name, child in [(one.name, child) for one in self._all.values() for child in one.children]:
            self._adopt(name, child)
        self._by_node: dict[str, list[str]] = {}
        for one in self._all.values():
            for node in one.nodes:
                self._by_node.setdefault(node, []).append(one.name)
        self._looking = [one for one in self._all.values() if one.patterns or one.selectors]

    @property
    def problems(self) -> dict[str, tuple[str, ...]]:
        """By HyperNode that is not taken as it stands: what is wrong with it."""
        return {name: tuple(found[:_MOST_PROBLEMS]) for name, found in self._problems.items() if found}

    def domains_of(self, node: str, labels: Mapping[str, str]) -> tuple[Domain, ...]:
        """The domains that a node is in, the nearest first; one of each tier."""
        found: dict[int, Domain] = {}
        for one in self._members_with(node, labels):
            for above in self._upwards(one):
                found.setdefault(above.tier, Domain(above.tier, above.name, above.level))
        return tuple(found[tier] for tier in sorted(found))

    def unknown_nodes(self, known: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
        """By HyperNode: nodes that it names and that are not there."""
        found = {}
        for name, one in self._all.items():
            gone = sorted(node for node in one.nodes if node not in known)
            if gone:
                found[name] = tuple(gone)
        return found

    def _members_with(self, node: str, labels: Mapping[str, str]) -> Iterator[HyperNode]:
        named = self._by_node.get(node, ())
        looked = [one.name for one in self._looking if one.name not in named and one.takes(node, labels)]
        found = [self._all[name] for name in (*named, *looked)]
        return iter(sorted(found, key=lambda one: (one.tier, one.name)))

    def _upwards(self, one: HyperNode) -> Iterator[HyperNode]:
        name: str | None = one.name
        while name is not None:
            yield self._all[name]
            name = self._parents.get(name)

    def _leave_out_cycles(self) -> None:
        while True:
            children = {
                name: [child for child in one.children if child in self._all]
                for name, one in self._all.items()
            }
            try:
                TopologicalSorter(children).prepare()
            except CycleError as error:
                names = sorted(set(error.args[1]))
                for name in names:
                    others = ", ".join(other for other in names if other != name) or "itself"
                    self._problems[name].append(f"it is left out: it is a member of itself, with {others}")
                    del self._all[name]
                continue
            return

    def _adopt(self, name: str, child: str) -> None:
        """A member of a HyperNode is below it, unless something is wrong with that."""
        parent, below = self._all[name], self._all.get(child)
        if below is None:
            why = "is left out" if child in self._problems else "is not there"
            self._problems[name].append(f"its member {child} {why}")
        elif below.tier >= parent.tier:
            self._problems[name].append(
                f"its member {child} is left out: its tier {below.tier} is not below tier {parent.tier}"
            )
        elif self._parents.setdefault(child, name) != name:
            other = self._parents[child]
            self._problems[name].append(f"its member {child} is left out: it is one of {other} already")
