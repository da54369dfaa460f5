"""Rules between pods, as a pod's spec writes them: which of them a decision obeys. Pure.

Read are, by node (``kubernetes.io/hostname``) and within the pod's own namespace:

- required pod anti-affinity;
- topology spread with ``DoNotSchedule`` that selects the pod itself.

All else is left to the scheduler and the roll-back. That is pod affinity, other topology keys, other
namespaces, soft rules, and what a spread says about affinity and taints of nodes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from vc_egpu.core.model.neighbours import NO_NEIGHBOURS, Neighbours, RuleKey, Spread

Document = Mapping[str, Any]
HOSTNAME: Final = "kubernetes.io/hostname"
MOST_RULES: Final = 16
"""Rules by node of one pod."""
MOST_REQUIREMENTS: Final = 256
"""In the selectors of its rules, together."""
MOST_VALUES: Final = 1024
"""That these requirements name."""
_MOST_SKEW: Final = 1 << 20
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_Requirement = tuple[str, str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector."""

    match_labels: tuple[tuple[str, str], ...] = ()
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


Rules = tuple[tuple[RuleKey, Selector], ...]
"""The pod anti-affinity of one pod, and what it selects: other pods need not have such a rule themselves."""
NO_RULES: Final[Rules] = ()


def read(spec: Document, labels: Mapping[str, str], namespace: str) -> tuple[Neighbours, Rules]:
    """What the rules of a pod say about it, and the rules that other pods have to be held against.

    Raises ``AttributeError``, ``KeyError`` or ``TypeError`` where the spec of a template holds no such rules.
    """
    if excess(spec):
        return NO_NEIGHBOURS, NO_RULES  # it is told so while it is gated
    avoided = {
        _key(namespace, selector): selector
        for term in _avoids(spec)
        if _is_within(term, namespace) and (selector := _selector(term, labels)) is not None
    }
    spread = _spread(spec, labels, namespace)
    if not avoided and spread is None:
        return NO_NEIGHBOURS, NO_RULES
    selectors = {**avoided, **({spread[0].rule: spread[1]} if spread is not None else {})}
    neighbours = Neighbours(
        avoids=tuple(sorted(avoided)),
        spread=spread[0] if spread is not None else None,
        selected_by=tuple(sorted(key for key, selector in selectors.items() if selector.matches(labels))),
    )
    return neighbours, tuple(sorted(selectors.items(), key=lambda entry: entry[0]))


def _spread(spec: Document, labels: Mapping[str, str], namespace: str) -> tuple[Spread, Selector] | None:
    """How the pod is spread with its like. Kubernetes allows one such rule for each topology key."""
    for constraint in _spreads(spec):
        selector = _selector(constraint, labels)
        if selector is not None and selector.matches(labels):
            skew = min(max(int(constraint.get("maxSkew") or 1), 1), _MOST_SKEW)
            # The pod is pinned, so the scheduler sees one node: fewer than asked for, where two are.
            capped = int(constraint.get("minDomains") or 1) > 1
            return Spread(_key(namespace, selector), skew, capped), selector
    return None


def excess(spec: Document) -> str:
    """What the rules by node have too much of, with the number and the limit; empty where they have not.

    A Job's template can hold anything: a value of another kind is passed over.
    """
    rules = [*_avoids(spec), *_spreads(spec)]
    selectors = [_mapping(rule.get("labelSelector")) for rule in rules]
    expressions = [_mapping(each) for one in selectors for each in _list(one.get("matchExpressions"))]
    named = sum(len(_mapping(one.get("matchLabels"))) for one in selectors)
    named += sum(
        len(_list(rule.get(key))) for rule in rules for key in ("matchLabelKeys", "mismatchLabelKeys")
    )
    counts = (
        (len(rules), MOST_RULES, "rules by node of pod anti-affinity and topology spread"),
        (named + len(expressions), MOST_REQUIREMENTS, "requirements in the selectors of these rules"),
        (
            sum(len(_list(each.get("values"))) for each in expressions),
            MOST_VALUES,
            "values in these selectors",
        ),
    )
    over = (f"{count} {what}, the limit is {limit}" for count, limit, what in counts if count > limit)
    return next(over, "")


def _avoids(spec: Document) -> Iterator[Document]:
    affinity = _mapping(_mapping(spec.get("affinity")).get("podAntiAffinity"))
    for term in map(_mapping, _list(affinity.get(_REQUIRED))):
        if term.get("topologyKey") == HOSTNAME:
            yield term


def _spreads(spec: Document) -> Iterator[Document]:
    for constraint in map(_mapping, _list(spec.get("topologySpreadConstraints"))):
        soft = constraint.get("whenUnsatisfiable") == "ScheduleAnyway"
        if constraint.get("topologyKey") == HOSTNAME and not soft:
            yield constraint


def _is_within(term: Document, namespace: str) -> bool:
    """Whether the term is about pods of the pod's own namespace, and of no other."""
    return term.get("namespaceSelector") is None and list(term.get("namespaces") or [namespace]) == [
        namespace
    ]


def _selector(rule: Document, labels: Mapping[str, str]) -> Selector | None:
    """What the rule selects. Keys of labels stand for the pod's own values of these labels."""
    selector = Selector.of(rule.get("labelSelector"))
    if selector is None:
        return None
    keys = [(key, "In") for key in rule.get("matchLabelKeys") or ()]
    keys += [(key, "NotIn") for key in rule.get("mismatchLabelKeys") or ()]
    own = tuple((key, operator, frozenset((labels[key],))) for key, operator in keys if key in labels)
    return Selector(selector.match_labels, (*selector.expressions, *own))


def _key(namespace: str, selector: Selector) -> RuleKey:
    digest = blake2b(selector.text.encode(), digest_size=8).hexdigest()
    return f"{namespace}/{digest}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
