"""What a kube-scheduler says of rules between pods, read from whole objects in the dullest way.

It shares no code with the codec or the books. One pod after the other is held against all pods that are on
nodes at that moment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass
class Kube:
    """Nodes, namespaces by name, and (pod, node name) for each pod that is on a node."""

    nodes: dict[str, Json]
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    there: list[tuple[Json, str]] = field(default_factory=list)

    def takes(self, pod: Json, name: str) -> bool:
        """Whether rules between pods, taints and node selector let the pod go to the node."""
        node = self.nodes[name]
        return (
            _fits_node(pod, node)
            and self._apart(pod, node)
            and self._near(pod, node)
            and all(self._even(pod, node, rule) for rule in _spreads(pod))
        )

    def _term(self, owner: Json, term: Json, other: Json) -> bool:
        namespace = other["metadata"]["namespace"]
        named, chosen = term.get("namespaces") or [], term.get("namespaceSelector")
        if not named and chosen is None:
            named = [owner["metadata"]["namespace"]]
        within = namespace in named or (
            chosen is not None and selects(chosen, self.namespaces.get(namespace, {}))
        )
        return within and selects(_selector(owner, term), other["metadata"]["labels"])

    def _apart(self, pod: Json, node: Json) -> bool:
        for other, where in self.there:
            there = self.nodes[where]
            both = ((pod, other, pod), (other, pod, other))
            for owner, selected, _ in both:
                for term in _terms(owner, "podAntiAffinity"):
                    if self._term(owner, term, selected) and _same(node, there, term["topologyKey"]):
                        return False
        return True

    def _near(self, pod: Json, node: Json) -> bool:
        terms = _terms(pod, "podAffinity")
        if not terms:
            return True
        labels = node["metadata"]["labels"]
        if any(term["topologyKey"] not in labels for term in terms):
            return False
        matching = [
            where for other, where in self.there if all(self._term(pod, term, other) for term in terms)
        ]
        counted = [
            (where, term["topologyKey"])
            for where in matching
            for term in terms
            if term["topologyKey"] in self.nodes[where]["metadata"]["labels"]
        ]
        if not counted:
            return all(self._term(pod, term, pod) for term in terms)
        return all(
            any(_same(self.nodes[where], node, term["topologyKey"]) for where in matching) for term in terms
        )

    def _even(self, pod: Json, node: Json, rule: Json) -> bool:
        keys = [one["topologyKey"] for one in _spreads(pod)]
        if any(key not in node["metadata"]["labels"] for key in keys):
            return False
        selector = _selector(pod, rule)
        key, counts = rule["topologyKey"], dict[str, int]()
        for name, other in self.nodes.items():
            labels = other["metadata"]["labels"]
            if any(one not in labels for one in keys):
                continue
            if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and not _selected(pod, other):
                continue
            if rule.get("nodeTaintsPolicy", "Ignore") == "Honor" and not _tolerated(pod, other):
                continue
            counts.setdefault(labels[key], 0)
            counts[labels[key]] += sum(
                where == name
                and one["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and not one["metadata"].get("deletionTimestamp")
                and bool(selector)
                and selects(selector, one["metadata"]["labels"])
                for one, where in self.there
            )
        least = min(counts.values(), default=1 << 30)
        if len(counts) < rule.get("minDomains", 1):
            least = 0
        itself = int(selects(selector, pod["metadata"]["labels"]))
        here = counts.get(node["metadata"]["labels"][key], 0)
        return here + itself - least <= int(rule["maxSkew"])


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """A label selector; None selects nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions") or []:
        value, values = labels.get(one["key"]), one.get("values") or []
        holds = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[one["operator"]]:
            return False
    return True


def _selector(owner: Json, rule: Json) -> Json | None:
    selector = rule.get("labelSelector")
    if selector is None or not rule.get("matchLabelKeys"):
        return selector
    labels = owner["metadata"]["labels"]
    own = {key: labels[key] for key in rule["matchLabelKeys"] if key in labels}
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}


def _same(one: Json, other: Json, key: str) -> bool:
    mine, its = one["metadata"]["labels"].get(key), other["metadata"]["labels"].get(key)
    return mine is not None and mine == its


def _terms(pod: Json, kind: str) -> list[Json]:
    return list(((pod["spec"].get("affinity") or {}).get(kind) or {}).get(REQUIRED) or [])


def _spreads(pod: Json) -> Iterable[Json]:
    rules = pod["spec"].get("topologySpreadConstraints") or []
    return [rule for rule in rules if rule["whenUnsatisfiable"] == "DoNotSchedule"]


def _fits_node(pod: Json, node: Json) -> bool:
    return _selected(pod, node) and _tolerated(pod, node)


def _selected(pod: Json, node: Json) -> bool:
    wanted = pod["spec"].get("nodeSelector") or {}
    return all(node["metadata"]["labels"].get(key) == value for key, value in wanted.items())


def _tolerated(pod: Json, node: Json) -> bool:
    taints = node["spec"].get("taints") or []
    return not taints or bool(pod["spec"].get("tolerations"))
