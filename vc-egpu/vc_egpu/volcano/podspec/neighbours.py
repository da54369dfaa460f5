"""Rules between pods, as a pod's spec writes them. Pure.

Read are, for any node label:

- required pod affinity and anti-affinity, with namespaces, ``namespaceSelector`` and ``matchLabelKeys``;
- topology spread, with ``minDomains`` and its policies for affinity and taints of nodes;
- preferred pod affinity and anti-affinity, and spread with ``ScheduleAnyway``: they order nodes.

A node is the domain of the label ``kubernetes.io/hostname``: its kubelet writes it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vc_egpu.core.model.neighbours import (
    DOMAIN,
    NEEDED,
    NO_NEIGHBOURS,
    PREFERRED,
    SPREAD,
    Neighbours,
    RuleKey,
    Spread,
)
from vc_egpu.volcano.podspec.selectors import Selection, Selector, Term

Document = Mapping[str, Any]
HOSTNAME: Final = "kubernetes.io/hostname"
MOST_RULES: Final = 16
"""Rules of one pod."""
MOST_REQUIREMENTS: Final = 256
"""In the selectors of its rules, together."""
MOST_VALUES: Final = 1024
"""That these requirements name."""
_MOST_SKEW: Final = 1 << 20
_MOST_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_IGNORE: Final = "Ignore"
_SELECTORS: Final = ("labelSelector", "namespaceSelector")

Rules = tuple[tuple[RuleKey, Selection], ...]
"""The rules of one pod, and what they select: other pods need not have such a rule themselves."""
NO_RULES: Final[Rules] = ()


def read(
    spec: Document,
    labels: Mapping[str, str],
    namespace: str,
    *,
    pinned: bool = True,
) -> tuple[Neighbours, Rules]:
    """What the rules of a pod say about it, and the rules that other pods have to be held against.

    Labels of its namespace are not known here: :mod:`vc_egpu.admission.state.rules` knows them.
    ``pinned``: a scheduler that checks the rules sees the pod on the node of its plan alone.
    Raises ``AttributeError``, ``KeyError``, ``TypeError`` or ``ValueError`` where the spec of a template
    holds no such rules.
    """
    if not spec.get("affinity") and not spec.get("topologySpreadConstraints"):
        return NO_NEIGHBOURS, NO_RULES  # nearly all pods
    if excess(spec):
        return NO_NEIGHBOURS, NO_RULES  # it is told so while it is gated
    found = _Reading(labels, namespace)
    avoids = [found.rule("", term) for term in _terms(spec, "podAntiAffinity")]
    needs = found.needs([*_terms(spec, "podAffinity")])
    spreads, evens = list[Spread](), list[RuleKey]()
    for constraint in _spreads(spec):
        if constraint.get("whenUnsatisfiable") == "ScheduleAnyway":
            evens += found.rule(SPREAD, constraint)
        else:
            spreads.append(_spread(found, constraint, pinned=pinned))
    likes = [*_liked(found, spec, "podAffinity", 1), *_liked(found, spec, "podAntiAffinity", -1)]
    rules = tuple(sorted(found.rules.items(), key=lambda entry: entry[0]))
    selected_by = selecting(rules, labels, namespace, {})
    neighbours = Neighbours(
        avoids=tuple(sorted({key for keys in avoids for key in keys})),
        spreads=tuple(spreads),
        selected_by=selected_by,
        needs=needs,
        needs_itself=bool(needs) and set(needs) <= set(selected_by),
        likes=tuple(sorted(likes)),
        evens=tuple(sorted(set(evens))),
    )
    return (neighbours, rules) if neighbours != NO_NEIGHBOURS else (NO_NEIGHBOURS, NO_RULES)


def selecting(
    rules: Rules, labels: Mapping[str, str], namespace: str, its_labels: Mapping[str, str]
) -> tuple[RuleKey, ...]:
    """Which of the rules select a pod with these labels, in order."""
    return tuple(sorted(key for key, one in rules if one.matches(labels, namespace, its_labels)))


@dataclass(slots=True)
class _Reading:
    """The rules of one pod, as far as they are read."""

    labels: Mapping[str, str]
    namespace: str
    rules: dict[RuleKey, Selection] = field(default_factory=dict)

    def term(self, rule: Document) -> Term | None:
        """What one rule selects; None: nothing. Keys of labels stand for the pod's own values of these."""
        selector = Selector.of(rule.get("labelSelector"))
        if selector is None:
            return None
        there = {(key, operator) for key, operator, _ in selector.expressions}
        keys = [(key, "In") for key in rule.get("matchLabelKeys") or ()]
        keys += [(key, "NotIn") for key in rule.get("mismatchLabelKeys") or ()]
        own = tuple(
            (key, operator, frozenset((self.labels[key],)))
            for key, operator in keys
            if key in self.labels and (key, operator) not in there  # the API server writes them there
        )
        others = Selector.of(rule.get("namespaceSelector"))
        named = frozenset(rule.get("namespaces") or ())
        if others is None and not named:
            named = frozenset((self.namespace,))
        return Term(Selector(selector.match_labels, (*selector.expressions, *own)), named, others)

    def rule(self, kind: str, rule: Document) -> tuple[RuleKey, ...]:
        """The key of one rule, which is kept; none where it selects no pod."""
        term = self.term(rule)
        return (self.keep(kind, Selection((term,)), str(rule["topologyKey"])),) if term is not None else ()

    def keep(self, kind: str, selection: Selection, topology: str) -> RuleKey:
        key = kind + selection.key + (DOMAIN + topology if topology != HOSTNAME else "")
        self.rules[key] = selection
        return key

    def needs(self, terms: list[Document]) -> tuple[RuleKey, ...]:
        """Required pod affinity: a pod counts for any of its terms only if it fulfils all of them."""
        read_terms = [self.term(term) for term in terms]
        if not terms:
            return ()
        if None in read_terms:
            nothing = Selection((Term(Selector()),))  # it is about no namespace
            return tuple(sorted({self.keep(NEEDED, nothing, str(term["topologyKey"])) for term in terms}))
        selection = Selection(tuple(term for term in read_terms if term is not None))
        return tuple(sorted({self.keep(NEEDED, selection, str(term["topologyKey"])) for term in terms}))


def _spread(found: _Reading, constraint: Document, *, pinned: bool) -> Spread:
    """One topology spread constraint. Only pods of the pod's own namespace count."""
    term = found.term({**constraint, "namespaces": None, "namespaceSelector": None})
    topology = str(constraint["topologyKey"])
    affinity = constraint.get("nodeAffinityPolicy") != _IGNORE
    domains = max(int(constraint.get("minDomains") or 1), 1)
    # A selector that selects everything counts no pod in kube-scheduler, and then the pod itself is no more
    # than any skew.
    counts = term is not None and not term.selector.is_empty
    if term is None or not counts:
        rule = SPREAD + (DOMAIN + topology if topology != HOSTNAME else "")
    else:
        rule = found.keep(SPREAD, Selection((term,)), topology)
    return Spread(
        rule=rule,
        max_skew=min(max(int(constraint.get("maxSkew") or 1), 1), _MOST_SKEW),
        capped=pinned and affinity and domains > 1,
        min_domains=min(domains, _MOST_SKEW),
        itself=counts and term is not None and term.selector.matches(found.labels),
        by_affinity=affinity,
        by_taints=constraint.get("nodeTaintsPolicy") == "Honor",
    )


def _liked(found: _Reading, spec: Document, kind: str, sign: int) -> Iterator[tuple[RuleKey, int]]:
    for entry in map(_mapping, _list(_part(spec, kind).get(_PREFERRED))):
        weight = min(max(int(entry.get("weight") or 0), 0), _MOST_WEIGHT)
        for term in _rules_in([entry.get("podAffinityTerm")]) if weight else ():
            for key in found.rule(PREFERRED, term):
                yield key, sign * weight


def excess(spec: Document) -> str:
    """What the rules have too much of, with the number and the limit; empty where they have not.

    A Job's template can hold anything: a value of another kind is passed over.
    """
    rules = [*_all_rules(spec)]
    selectors = [_mapping(rule.get(key)) for rule in rules for key in _SELECTORS]
    expressions = [_mapping(each) for one in selectors for each in _list(one.get("matchExpressions"))]
    named = sum(len(_mapping(one.get("matchLabels"))) for one in selectors)
    named += sum(
        len(_list(rule.get(key)))
        for rule in rules
        for key in ("matchLabelKeys", "mismatchLabelKeys", "namespaces")
    )
    counts = (
        (len(rules), MOST_RULES, "rules between pods"),
        (named + len(expressions), MOST_REQUIREMENTS, "requirements in the selectors of these rules"),
        (
            sum(len(_list(each.get("values"))) for each in expressions),
            MOST_VALUES,
            "values in these selectors",
        ),
    )
    over = (f"{count} {what}, the limit is {limit}" for count, limit, what in counts if count > limit)
    return next(over, "")


def _all_rules(spec: Document) -> Iterator[Document]:
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _terms(spec, kind)
        for entry in map(_mapping, _list(_part(spec, kind).get(_PREFERRED))):
            yield _mapping(entry.get("podAffinityTerm"))
    yield from _spreads(spec)


def keeping_away(spec: Document) -> dict[str, Any]:
    """What of a foreign pod's spec other pods have to be held against: its required anti-affinity."""
    terms = _list(_part(spec, "podAntiAffinity").get(_REQUIRED))
    return {"affinity": {"podAntiAffinity": {_REQUIRED: terms}}} if terms else {}


def _part(spec: Document, kind: str) -> Document:
    return _mapping(_mapping(spec.get("affinity")).get(kind))


def _terms(spec: Document, kind: str) -> Iterator[Document]:
    return _rules_in(_part(spec, kind).get(_REQUIRED))


def _spreads(spec: Document) -> Iterator[Document]:
    return _rules_in(spec.get("topologySpreadConstraints"))


def _rules_in(value: object) -> Iterator[Document]:
    """A rule without a topology key is none: the API server refuses it."""
    return (rule for rule in map(_mapping, _list(value)) if rule.get("topologyKey"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
