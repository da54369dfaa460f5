"""Label selectors, and which pods a rule between pods selects. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

Document = Mapping[str, Any]
Label = tuple[str, str]
_Requirement = tuple[str, str, frozenset[str]]
NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Each namespace has it: its own name."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector."""

    match_labels: tuple[Label, ...] = ()
    expressions: tuple[_Requirement, ...] = ()

    @classmethod
    def of(cls, document: Document | None) -> "Selector | None":
        """Read a selector; None selects nothing, an empty one everything."""
        if document is None:
            return None
        return cls(
            tuple((document.get("matchLabels") or {}).items()),
            tuple(
                (entry["key"], entry["operator"], frozenset(entry.get("values") or ()))
                for entry in document.get("matchExpressions") or ()
            ),
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are selected."""
        return all(labels.get(key) == value for key, value in self.match_labels) and all(
            _holds(labels, *entry) for entry in self.expressions
        )

    @property
    def is_empty(self) -> bool:
        """Whether it selects everything."""
        return not self.match_labels and not self.expressions

    @property
    def label(self) -> Label | None:
        """A label that all have which it selects; None where it names none."""
        if self.match_labels:
            return self.match_labels[0]
        one = (entry for entry in self.expressions if entry[1] == "In" and len(entry[2]) == 1)
        found = next(one, None)
        return (found[0], next(iter(found[2]))) if found is not None else None

    @property
    def text(self) -> str:
        """The same text for selectors that say the same, in whatever order and form."""
        entries: set[tuple[str, str, tuple[str, ...]]]
        entries = {(key, "In", (value,)) for key, value in self.match_labels}
        entries |= {(key, operator, tuple(sorted(values))) for key, operator, values in self.expressions}
        return json.dumps(sorted(entries))


def _holds(labels: Mapping[str, str], key: str, operator: str, values: frozenset[str]) -> bool:
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) is (operator == "Exists")


@dataclass(frozen=True, slots=True)
class Term:
    """Pods of some namespaces that a selector selects."""

    selector: Selector
    namespaces: frozenset[str] = frozenset()
    of_namespaces: Selector | None = None
    """Namespaces with such labels, too."""

    def matches(self, labels: Mapping[str, str], namespace: str, its_labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels in this namespace, which has labels of its own."""
        return self.within(namespace, its_labels) and self.selector.matches(labels)

    def within(self, namespace: str, its_labels: Mapping[str, str]) -> bool:
        """Whether it is about pods of this namespace."""
        if namespace in self.namespaces:
            return True
        named = {NAME_LABEL: namespace, **its_labels}
        return self.of_namespaces is not None and self.of_namespaces.matches(named)

    @property
    def text(self) -> str:
        """The same text for terms that say the same."""
        others = self.of_namespaces.text if self.of_namespaces is not None else None
        return json.dumps([sorted(self.namespaces), others, self.selector.text])


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods that all of these terms select."""

    terms: tuple[Term, ...]

    def matches(self, labels: Mapping[str, str], namespace: str, its_labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels in this namespace is one of them."""
        return all(term.matches(labels, namespace, its_labels) for term in self.terms)

    @property
    def label(self) -> Label | None:
        """A label that all of them have; None where none is named."""
        return next((found for term in self.terms if (found := term.selector.label)), None)

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Where they are; None where that depends on labels of namespaces."""
        first = self.terms[0]
        return first.namespaces if first.of_namespaces is None else None

    @property
    def key(self) -> str:
        """Short, and equal for selections that say the same."""
        text = json.dumps(sorted({term.text for term in self.terms}))
        return blake2b(text.encode(), digest_size=8).hexdigest()
