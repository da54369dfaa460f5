"""Whether a node takes pods of a shape at all: taints, cordon, node selector, node affinity.

What depends on free amounts (cpu, cards, ports ...) is the ledger's. What is not modelled here
(inter-pod affinity, topology spread) is left to the scheduler and to the roll-back.
"""

from typing import Final

from vc_egpu.core.cluster import Node, PodShape, Requirement, Taint, Toleration

UNSCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_BEYOND: Final = 1 << 63
"""Kubernetes compares integers of 64 bits."""
_DIGITS: Final = 63
"""As long as a label's value may be."""

StaticKey = tuple[object, ...]


def static_key(shape: PodShape) -> StaticKey:
    """The part of a shape that :func:`accepts` looks at; equal keys are answered once."""
    return (shape.node_selector, shape.affinity_terms, shape.tolerations)


def accepts(node: Node, shape: PodShape) -> bool:
    """Whether the node may take a pod of this shape, amounts aside."""
    return node.is_up and why_not(node, shape) == ""


def why_not(node: Node, shape: PodShape) -> str:
    """The first rule by which the node refuses the shape, as a word for users; empty if none does."""
    if node.unschedulable and not _tolerated(UNSCHEDULABLE_TAINT, shape.tolerations):
        return "cordoned"
    for taint in node.taints:
        if taint.effect in _HARD_EFFECTS and not _tolerated(taint, shape.tolerations):
            return f"taint {taint.key}"
    for key, value in shape.node_selector:
        if node.labels.get(key) != value:
            return f"node selector {key}={value}"
    if shape.affinity_terms and not any(_term_holds(node, term) for term in shape.affinity_terms):
        return "node affinity"
    return ""


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


def _term_holds(node: Node, term: tuple[Requirement, ...]) -> bool:
    # Kubernetes: a term without requirements matches no node.
    return bool(term) and all(_requirement_holds(node, requirement) for requirement in term)


def _requirement_holds(node: Node, requirement: Requirement) -> bool:
    value = node.name if requirement.on_field else node.labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)
        case _:
            return False


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
