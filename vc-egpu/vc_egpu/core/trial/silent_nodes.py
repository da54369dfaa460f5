"""Pods that were told to go and are still on a node that does not answer."""

from collections.abc import Mapping, Sequence

from vc_egpu.core.books.index import Index
from vc_egpu.core.model.cluster import OUT_OF_SERVICE, Node, NodeName, Pod, PodUid
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.words import few


def still_leaving(view: GangView, nodes: Mapping[NodeName, Node]) -> str:
    """How many members are still leaving which nodes, and what ends that on a silent one; else empty."""
    on = sorted({pod.node for pod in view.terminating if pod.node is not None})
    if not on:
        return ""
    count = len(view.terminating)
    return f"; {count} {'is' if count == 1 else 'are'} still leaving {few(on)}{_silent(on, nodes)}"


def is_on_a_silent_node(pod: Pod, nodes: Mapping[NodeName, Node]) -> bool:
    """Whether the pod is on a silent node, where an order to go or to wait is not heard."""
    node = nodes.get(pod.node) if pod.node is not None else None
    return node is not None and node.is_silent


def still_held(index: Index, uid: PodUid) -> bool:
    """Whether an agent may still hold cards for this pod, whose object is gone.

    On a node that is out of service nothing runs, and no agent is there to say so.
    """
    nodes = (index.nodes.get(name) for name in index.held.nodes_of(uid))
    return any(node is None or not node.lost for node in nodes)


def _silent(on: Sequence[NodeName], nodes: Mapping[NodeName, Node]) -> str:
    """Which of these nodes are silent, and what frees those that are there; empty where none is."""
    silent = [name for name in on if (node := nodes.get(name)) and node.is_silent]
    if not silent:
        return ""
    verb, its, it, each = (
        ("is", "its", "it is", "is") if len(silent) == 1 else ("are", "their", "they are", "are")
    )
    return (
        f"; {few(silent)} {verb} silent: {its} pods are gone once {it} back, {each} deleted, "
        f"or {each} tainted {OUT_OF_SERVICE}"
    )
