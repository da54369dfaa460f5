"""Whether a node takes pods of a shape at all: taints, cordon, node selector, node affinity.

What depends on free amounts (cpu, cards, ports ...) is the ledger's, and so are rules between pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from vc_egpu.core.books.ledger import Flags, Ints, Ledger
from vc_egpu.core.environments.kinds import NodeKinds
from vc_egpu.core.environments.needs import NO_NEEDS, Crowd, Needs, lacking, shared
from vc_egpu.core.model.cluster import Node, NodeName, PodShape, Requirement, Taint, Toleration
from vc_egpu.core.model.neighbours import Spread, label_of
from vc_egpu.core.model.resources import parts_of

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_BEYOND: Final = 1 << 63
"""Kubernetes compares integers of 64 bits."""
_DIGITS: Final = 63
"""As long as a label's value may be."""
_MAX_MASKS: Final = 2048
_MAX_PARTS: Final = 100_000
"""Makers of pods decide how many shapes there are, and how large. Beyond this the masks start over."""

_SPARE_KINDS: Final = 64
"""So many kinds of nodes are remembered of which there may be no node any more."""

StaticKey = tuple[object, ...]


def static_key(shape: PodShape) -> StaticKey:
    """The part of a shape that :func:`accepts` looks at, needs aside; equal keys are answered once."""
    return (shape.node_selector, shape.affinity_terms, shape.tolerations)


def accepts(node: Node, shape: PodShape) -> bool:
    """Whether the node may take a pod of this shape, amounts aside."""
    return node.is_up and why_not(node, shape) == ""


def accepting(nodes: Sequence[Node], shape: PodShape) -> set[NodeName]:
    """Those of the nodes that accept the shape, needs aside. One requirement after the other for all of them:
    node by node its affinity takes ten times as long."""
    bare = replace(shape, affinity_terms=(), needs=NO_NEEDS)
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
    if node.drained:  # a pod that tolerates all taints would come back at once
        return "being drained"
    if node.emptied is not None:
        return "being emptied"
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
    wants = lacking(shape.needs, node.environment) if shape.needs.ways else ()
    if wants:
        return f"{wants[0].needed} is needed, " + (
            f"it has {wants[0].has}" if wants[0].has else "it does not tell"
        )
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
        """Needs aside."""
        self._parts = 0
        self._kinds = NodeKinds()
        """What nodes tell of their software."""
        self._kind_of: Ints = np.zeros(0, np.int64)
        """By row, that of its node."""
        self._narrowed: dict[tuple[StaticKey, int], Flags] = {}
        """Masks with what the kinds of nodes leave that meet some needs; until any node changes."""
        self._crowds: dict[tuple[int, ...], Crowd] = {}
        """By kinds of cards, see :meth:`crowd`; until any node changes."""
        self._ranks: Ints | None = None
        self._reach: dict[StaticKey, tuple[PodShape, Spread, Flags]] = {}
        self._preferences: dict[object, tuple[PodShape, Ints]] = {}

    def mask(self, nodes: Mapping[NodeName, Node], shape: PodShape) -> Flags:
        """By row: whether the node may take pods of this shape, amounts aside."""
        key = static_key(shape)
        mask = self._mask(key, nodes, shape)
        if not shape.needs.ways:
            return mask
        met = self._kinds.meeting(shape.needs)
        found = self._narrowed.get((key, met))
        if found is None or len(found) != len(mask):
            if len(self._narrowed) >= _MAX_MASKS:
                self._narrowed.clear()
            found = self._narrowed[key, met] = mask & self._rows_of(met)
        return found

    def _mask(self, key: StaticKey, nodes: Mapping[NodeName, Node], shape: PodShape) -> Flags:
        known = self._masks.get(key)
        rows = len(self._ledger.names)
        if known is not None and len(known[1]) == rows:
            return known[1]
        if len(self._masks) >= _MAX_MASKS or self._parts >= _MAX_PARTS:
            self._masks.clear()
            self._parts = 0
        bare = replace(shape, needs=NO_NEEDS)
        mask = np.zeros(rows, np.bool_)
        known_nodes = [nodes[name] for name in self._ledger.rows]
        mask[[self._ledger.rows[name] for name in accepting(known_nodes, bare)]] = True
        self._masks[key] = (bare, mask)
        self._parts += parts_of(bare)
        return mask

    def meeting(self, needs: Needs) -> int:
        """Equal for needs that the same nodes meet, as long as no node tells something new."""
        return self._kinds.meeting(needs)

    def crowd(self, cards: tuple[int, ...]) -> Crowd:
        """What nodes are like that have a card of any of these kinds, and how many of them; without kinds,
        all nodes."""
        known = self._crowds.get(cards)
        if known is not None:
            return known
        if cards:
            rows = np.flatnonzero(np.isin(self._ledger.kind, cards).any(axis=1))
        else:
            rows = np.fromiter(self._ledger.rows.values(), np.int64, len(self._ledger.rows))
        counts = np.bincount(self._kind_of[rows], minlength=len(self._kinds)).tolist()
        pairs = zip(self._kinds.facts, counts, strict=True)
        if len(self._crowds) >= _MAX_MASKS:
            self._crowds.clear()
        found = self._crowds[cards] = shared(frozenset((facts, count) for facts, count in pairs if count))
        return found

    def _rows_of(self, kinds: int) -> Flags:
        """By row: whether its node is of one of these kinds."""
        flags = np.array([bool(kinds >> kind & 1) for kind in range(max(1, len(self._kinds)))], np.bool_)
        rows = len(self._ledger.names)
        if len(self._kind_of) < rows:
            self._kind_of = np.concatenate([self._kind_of, np.zeros(rows - len(self._kind_of), np.int64)])
        return np.asarray(flags[self._kind_of[:rows]])

    def reach(self, nodes: Mapping[NodeName, Node], shape: PodShape, spread: Spread) -> Flags:
        """By row: see :func:`counts_for`."""
        labels = tuple(map(_label_of, shape.neighbours.spreads))
        key = (*static_key(shape), labels, spread.by_affinity, spread.by_taints)
        known = self._reach.get(key)
        if known is None or len(known[2]) != len(self._ledger.names):
            if len(self._reach) >= _MAX_MASKS:
                self._reach.clear()
            bare = replace(shape, needs=NO_NEEDS)
            reach = np.zeros(len(self._ledger.names), np.bool_)
            for name, row in self._ledger.rows.items():
                reach[row] = counts_for(nodes[name], bare, spread)
            known = self._reach[key] = (bare, spread, reach)
        if not spread.by_affinity or not shape.needs.ways:
            return known[2]
        return known[2] & self._rows_of(self._kinds.meeting(shape.needs))

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

    def node_changed(self, row: int, node: Node | None) -> bool:
        """The row has a new or changed node, or none any more. Returns whether :meth:`meeting` may have
        changed."""
        for shape, spread, reach in self._reach.values():
            if row < len(reach):
                reach[row] = node is not None and counts_for(node, shape, spread)
        for shape, preferences in self._preferences.values():
            if row < len(preferences):
                preferences[row] = preference(node, shape) if node is not None else 0
        for shape, mask in self._masks.values():
            if row < len(mask):
                mask[row] = node is not None and accepts(node, shape)
        self._narrowed.clear()
        self._crowds.clear()
        return node is not None and self._enter_kind(row, node)

    def _enter_kind(self, row: int, node: Node) -> bool:
        rows, before = len(self._ledger.names), len(self._kinds)
        if len(self._kind_of) < rows:
            self._kind_of = np.concatenate([self._kind_of, np.zeros(rows - len(self._kind_of), np.int64)])
        self._kind_of[row] = self._kinds.number(node.environment)
        if len(self._kinds) <= _SPARE_KINDS + 2 * rows:
            return len(self._kinds) != before
        self._number_again()
        return True

    def _number_again(self) -> None:
        """Nodes change, and so does what they are like: forget the kinds of which there is none."""
        former, self._kinds = self._kinds, NodeKinds()
        numbers = [self._kinds.number(former.facts[kind]) for kind in self._kind_of.tolist()]
        self._kind_of = np.array(numbers, np.int64)

    def names_changed(self) -> None:
        """A node came or went."""
        self._ranks = None
