"""Pods that were told to go and are still on a node that does not answer."""

from collections.abc import Mapping

from vc_egpu.core.books.index import Index
from vc_egpu.core.model.cluster import Node, NodeName, Pod, PodUid


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
