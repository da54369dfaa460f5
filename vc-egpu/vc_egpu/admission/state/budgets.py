"""PodDisruptionBudgets: which pods may not be evicted now. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.neighbours import Selector


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget: which pods it covers and how many of them may go now."""

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


Label = tuple[str, str]


class Budgets:
    """Those of one namespace. Nearly all name a label and its value: a pod is held against those of its own
    labels only, however many there are."""

    def __init__(self) -> None:
        self._by_name: dict[str, Budget] = {}
        self._by_label: dict[Label | None, dict[str, Budget]] = {}
        """By the first label that a selector names; None: those that name none."""

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def put(self, name: str, now: Budget | None) -> tuple[Selector, ...]:
        """Enter a budget, or take it out; returns whose pods may be guarded otherwise.

        How many may go changes with each pod that becomes ready: only whether any may is news to them.
        """
        before = self._by_name.pop(name, None)
        if before is not None:
            place = _place(before)
            self._by_label[place].pop(name)
            if not self._by_label[place]:
                del self._by_label[place]
        if now is not None:
            self._by_name[name] = now
            self._by_label.setdefault(_place(now), {})[name] = now
        if before is not None and now is not None and _guards(before) == _guards(now):
            return ()
        return tuple(one.selector for one in (before, now) if one is not None and one.selector is not None)

    def forbids(self, labels: Mapping[str, str]) -> bool:
        """Whether no pod with these labels may go now.

        One of them says so, or several guard it: the API server evicts no pod then, whatever they allow.
        """
        guarding = [budget for _, budget in self._guarding(labels)]
        return len(guarding) > 1 or any(budget.allowed <= 0 for budget in guarding)

    def overdrawn(self, leaving: Iterable[Mapping[str, str]]) -> bool:
        """Whether one of them does not let all pods with these labels go at once."""
        going = Counter(name for labels in leaving for name, _ in self._guarding(labels))
        return any(count > self._by_name[name].allowed for name, count in going.items())

    def _guarding(self, labels: Mapping[str, str]) -> Iterator[tuple[str, Budget]]:
        for place in (None, *labels.items()):
            for name, one in self._by_label.get(place, {}).items():
                if one.selector is not None and one.selector.matches(labels):
                    yield name, one


def _place(one: Budget) -> Label | None:
    return one.selector.match_labels[0] if one.selector is not None and one.selector.match_labels else None


def _guards(one: Budget) -> tuple[Selector | None, bool]:
    return one.selector, one.allowed <= 0
