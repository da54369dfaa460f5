"""PodDisruptionBudgets: which pods may not be evicted now. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vc_egpu.volcano.codec import Document


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector."""

    match_labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[tuple[str, str, frozenset[str]], ...] = ()

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


def _holds(labels: Mapping[str, str], key: str, operator: str, values: frozenset[str]) -> bool:
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) is (operator == "Exists")


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget: whom it covers and how many of them may go now."""

    namespace: str
    selector: Selector | None
    allowed: int


def budget(document: Document) -> Budget:
    """Read a PodDisruptionBudget; one whose status was not computed yet allows nothing."""
    status: Mapping[str, Any] = document.get("status") or {}
    metadata = document["metadata"]
    current = status.get("observedGeneration") == metadata.get("generation")
    return Budget(
        metadata["namespace"],
        Selector.of((document.get("spec") or {}).get("selector")),
        int(status.get("disruptionsAllowed") or 0) if current else 0,
    )


def forbids(budgets: Mapping[str, Budget], labels: Mapping[str, str]) -> bool:
    """Whether a namespace's budgets let no pod with these labels go now.

    One of them says so, or several guard it: the API server evicts nobody then, whatever they allow.
    """
    guards = 0
    for one in budgets.values():
        if one.selector is not None and one.selector.matches(labels):
            guards += 1
            if one.allowed <= 0 or guards > 1:
                return True
    return False


def overdrawn(budgets: Mapping[str, Budget], leaving: Iterable[Mapping[str, str]]) -> bool:
    """Whether one of a namespace's budgets does not let all pods with these labels go at once."""
    pods = list(leaving)
    return any(
        sum(b.selector.matches(labels) for labels in pods) > b.allowed
        for b in budgets.values()
        if b.selector is not None
    )
