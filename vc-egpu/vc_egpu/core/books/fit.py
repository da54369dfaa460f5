"""Whether a node takes pods of a shape at all: taints, cordon, node selector, node affinity.

What depends on free amounts (cpu, cards, ports ...) is the ledger's, and so are rules between pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from vc_egpu.core.books.ledger import Flags, Ints, Ledger
from vc_egpu.core.model.cluster import Node, NodeName, PodShape, Requirement, Taint, Toleration
from vc_egpu.core.model.neighbours import Spread, label_of
from vc_egpu.core.model.resources import parts_of

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_BEYOND: Final = 1 << 63
"""Kubernetes compares integers of 64 bits."""
_DIGITS: Final = 63
"""As long as a label's value may be."""
_MAX_MASKS: Final = 512
_MAX_PARTS: Final = 100_000
"""Makers of pods decide how many shapes there are, and how large. Beyond this the masks start over."""

StaticKey = tuple[object, ...]


def static_key(shape: PodShape) -> StaticKey:
    """The part of a shape that :func:`accepts` looks at; equal keys are answered once."""
    return (shape.node_selector, shape.affinity_terms, shape.tolerations)


def accepts(node: Node, shape: PodShape) -> bool:
    """Whether the node may take a pod of this shape, amounts aside."""
    return node.is_up and why_not(node, shape) == ""


def accepting(nodes: Sequence[Node], shape: PodShape) -> set[NodeName]:
    """Those of the nodes that accept the shape. One requirement after the other for all of them: node by node
    its affinity takes ten times as long."""
    bare = replace(shape, affinity_terms=())
    left = [node for node in nodes if accepts(node, bare)]
    if not shape.affinity_terms:
        return {node.name for node in left}
    found: set[NodeName] = set()
    for term in shape.affinity_terms:
        found.update(node.name for node in _those_of(term, left))
        left = [node for node in left if node.name not in found]
    return found


def why_not(node: Node, shape: PodShape) -> str:
    """The first rule by which the node refuses the shape, as a word for users; empty if none does."""
    if node.unschedulable and not _tolerated(UNSCHEDULABLE_TAINT, shape.tolerations):
        return "cordoned"
    return _untolerated(node, shape) or _unwanted(node, shape)


def _untolerated(node: Node, shape: PodShape) -> str:
    for taint in node.taints:
        if taint.effect in _HARD_EFFECTS and not _tolerated(taint, shape.tolerations):
            return f"taint {taint.key}"
    return ""


def _unwanted(node: Node, shape: PodShape) -> str:
    for key, value in shape.node_selector:
        if node.labels.get(key) != value:
            return f"node selector {key}={value}"
    if shape.affinity_terms and not any(_those_of(term, [node]) for term in shape.affinity_terms):
        return "node affinity"
    return ""


def counts_for(node: Node, shape: PodShape, spread: Spread) -> bool:
    """Whether a spread of pods of this shape looks at the node, full or closed as it may be."""
    if any(label and label not in node.labels for label in map(_label_of, shape.neighbours.spreads)):
        return False
    if spread.by_taints:
        cordoned = node.unschedulable and not _tolerated(UNSCHEDULABLE_TAINT, shape.tolerations)
        if cordoned or _untolerated(node, shape):
            return False
    return not spread.by_affinity or not _unwanted(node, shape)


def _label_of(spread: Spread) -> str:
    return label_of(spread.rule)


def preference(node: Node, shape: PodShape) -> int:
    """The weights of the shape's preferred terms that the node fulfils, together."""
    return sum(weight for weight, term in shape.prefers if _those_of(term, [node]))


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    # An empty key matches every taint, but only together with Exists.
    return toleration.operator == "Equal" and bool(toleration.key) and toleration.value == taint.value


def _those_of(term: tuple[Requirement, ...], nodes: list[Node]) -> list[Node]:
    # Kubernetes: a term without requirements matches no node.
    for requirement in term:
        nodes = _those_where(requirement, nodes)
    return nodes if term else []


def _those_where(requirement: Requirement, nodes: list[Node]) -> list[Node]:
    key, values = requirement.key, requirement.values
    of = [node.name if requirement.on_field else node.labels.get(key) for node in nodes]
    match requirement.operator:
        case "In":
            known = frozenset(values)
            return [node for node, value in zip(nodes, of, strict=True) if value in known]
        case "NotIn":
            known = frozenset(values)
            return [node for node, value in zip(nodes, of, strict=True) if value not in known]
        case "Exists":
            return [node for node, value in zip(nodes, of, strict=True) if value is not None]
        case "DoesNotExist":
            return [node for node, value in zip(nodes, of, strict=True) if value is None]
        case "Gt" | "Lt":
            return [node for node, value in zip(nodes, of, strict=True) if _compares(value, requirement)]
        case _:
            return []


def _compares(value: str | None, requirement: Requirement) -> bool:
    left = _integer(value or "")
    right = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _integer(text: str) -> int | None:
    """As Kubernetes reads one, more strictly than Python; what is none is neither more nor less."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        return None
    number = int(text)
    return number if -_BEYOND <= number < _BEYOND else None


class NodeMasks:
    """Which nodes take pods of a shape at all, and how nodes are ordered; kept until a node changes.

    One row per ledger row. The arrays handed out are not to be written to.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._masks: dict[StaticKey, tuple[PodShape, Flags]] = {}
        self._parts = 0
        self._ranks: Ints | None = None
        self._reach: dict[StaticKey, tuple[PodShape, Spread, Flags]] = {}
        self._preferences: dict[object, tuple[PodShape, Ints]] = {}

    def mask(self, nodes: Mapping[NodeName, Node], shape: PodShape) -> Flags:
        """By row: whether the node may take pods of this shape, amounts aside."""
        key = static_key(shape)
        known = self._masks.get(key)
        rows = len(self._ledger.names)
        if known is not None and len(known[1]) == rows:
            return known[1]
        if len(self._masks) >= _MAX_MASKS or self._parts >= _MAX_PARTS:
            self._masks.clear()
            self._parts = 0
        mask = np.zeros(rows, np.bool_)
        known_nodes = [nodes[name] for name in self._ledger.rows]
        mask[[self._ledger.rows[name] for name in accepting(known_nodes, shape)]] = True
        self._masks[key] = (shape, mask)
        self._parts += parts_of(shape)
        return mask

    def reach(self, nodes: Mapping[NodeName, Node], shape: PodShape, spread: Spread) -> Flags:
        """By row: see :func:`counts_for`."""
        labels = tuple(map(_label_of, shape.neighbours.spreads))
        key = (*static_key(shape), labels, spread.by_affinity, spread.by_taints)
        known = self._reach.get(key)
        if known is not None and len(known[2]) == len(self._ledger.names):
            return known[2]
        if len(self._reach) >= _MAX_MASKS:
            self._reach.clear()
        reach = np.zeros(len(self._ledger.names), np.bool_)
        for name, row in self._ledger.rows.items():
            reach[row] = counts_for(nodes[name], shape, spread)
        self._reach[key] = (shape, spread, reach)
        return reach

    def preferences(self, nodes: Mapping[NodeName, Node], shape: PodShape) -> Ints:
        """By row: see :func:`preference`."""
        known = self._preferences.get(shape.prefers)
        if known is not None and len(known[1]) == len(self._ledger.names):
            return known[1]
        if len(self._preferences) >= _MAX_MASKS:
            self._preferences.clear()
        preferences = np.zeros(len(self._ledger.names), np.int64)
        for name, row in self._ledger.rows.items():
            preferences[row] = preference(nodes[name], shape)
        self._preferences[shape.prefers] = (shape, preferences)
        return preferences

    def ranks(self) -> Ints:
        """By row: the node's place in the order of names, which settles ties."""
        if self._ranks is None or len(self._ranks) != len(self._ledger.names):
            ranks = np.zeros(len(self._ledger.names), np.int64)
            for rank, name in enumerate(sorted(self._ledger.rows)):
                ranks[self._ledger.rows[name]] = rank
            self._ranks = ranks
        return self._ranks

    def node_changed(self, row: int, node: Node | None) -> None:
        """The row has a new or changed node, or none any more."""
        for shape, spread, reach in self._reach.values():
            if row < len(reach):
                reach[row] = node is not None and counts_for(node, shape, spread)
        for shape, preferences in self._preferences.values():
            if row < len(preferences):
                preferences[row] = preference(node, shape) if node is not None else 0
        for shape, mask in self._masks.values():
            if row < len(mask):
                mask[row] = node is not None and accepts(node, shape)

    def names_changed(self) -> None:
        """A node came or went."""
        self._ranks = None
