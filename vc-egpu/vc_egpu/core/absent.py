"""Who was told to go and is still on its node: members that a gang lacks, victims that a plan waits for."""

from collections.abc import Iterable, Mapping, Sequence

from vc_egpu.core.cluster import OUT_OF_SERVICE, Node, NodeName, PodPhase, PodUid
from vc_egpu.core.gangs import GangView
from vc_egpu.core.index import Index
from vc_egpu.core.plan import Eviction, Suspension
from vc_egpu.core.words import few


def still_leaving(view: GangView, nodes: Mapping[NodeName, Node]) -> str:
    """Who is on the way off which nodes, and what ends it where nobody there does; empty where nobody is."""
    on = sorted({pod.node for pod in view.terminating if pod.node is not None})
    if not on:
        return ""
    count = len(view.terminating)
    return f"; {count} {'is' if count == 1 else 'are'} still leaving {few(on)}{_silent(on, nodes)}"


def victims_on_silent_nodes(index: Index, going: Iterable[Eviction | Suspension]) -> str:
    """What ends the wait for victims on whose nodes nobody ends them; empty where all can go.

    Those that are only to be suspended are left out: an order that a node does not carry out is taken back.
    """
    on: set[NodeName] = set()
    for entry in going:
        for uid in entry.pods:
            pod = index.pods.get(uid)
            if pod is None:
                on.update(index.held.nodes_of(uid))
            elif pod.node is not None and (isinstance(entry, Eviction) or pod.phase is not PodPhase.PLACED):
                on.add(pod.node)
    return _silent(sorted(on), index.nodes)


def still_held(index: Index, uid: PodUid) -> bool:
    """Whether an agent may still have cards for this pod, whose object is gone. What is out of service has
    nobody on its cards, and no agent to say so."""
    nodes = (index.nodes.get(name) for name in index.held.nodes_of(uid))
    return any(node is None or not node.lost for node in nodes)


def _silent(on: Sequence[NodeName], nodes: Mapping[NodeName, Node]) -> str:
    """Which of these nodes are silent, and what frees those that are there; empty where none is."""
    silent = [name for name in on if (node := nodes.get(name)) and node.is_silent]
    if not silent:
        return ""
    verb, it, each = ("is", "it is", "is") if len(silent) == 1 else ("are", "they are", "are")
    return (
        f"; {few(silent)} {verb} silent: who is there is gone once {it} back, {each} deleted, "
        f"or {each} tainted {OUT_OF_SERVICE}"
    )
