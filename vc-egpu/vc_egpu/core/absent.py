"""Where the members are that a gang lacks: those that were told to go, and are still on their nodes."""

from collections.abc import Mapping

from vc_egpu.core.cluster import OUT_OF_SERVICE, Node, NodeName
from vc_egpu.core.gangs import GangView
from vc_egpu.core.words import few


def still_leaving(view: GangView, nodes: Mapping[NodeName, Node]) -> str:
    """Who is on the way off which nodes, and what ends it where nobody there does; empty where nobody is."""
    on = sorted({pod.node for pod in view.terminating if pod.node is not None})
    if not on:
        return ""
    count = len(view.terminating)
    text = f"; {count} {'is' if count == 1 else 'are'} still leaving {few(on)}"
    silent = [name for name in on if (node := nodes.get(name)) and not node.ready and not node.lost]
    if silent:
        verb, it, each = ("is", "it is", "is") if len(silent) == 1 else ("are", "they are", "are")
        text += (
            f"; {few(silent)} {verb} silent: who is there is gone once {it} back, {each} deleted, "
            f"or {each} tainted {OUT_OF_SERVICE}"
        )
    return text
