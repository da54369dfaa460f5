"""What nodes say about pods that may be suspended."""

from collections.abc import Iterable

from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.names import NODE_SUSPENSION
from vc_egpu.volcano.suspension import NodeSuspension, PodSuspension

from stack.kit import Json, Kit


def reports(nodes: Iterable[Json]) -> dict[str, PodSuspension]:
    """By pod UID."""
    texts = ((node["metadata"].get("annotations") or {}).get(NODE_SUSPENSION) for node in nodes)
    return {uid: report for text in texts if text for uid, report in NodeSuspension.decode(text).pods.items()}


def until_suspendable(kit: Kit, uids: set[str], timeout_s: float = 60.0) -> None:
    """Until their nodes say so; raises :class:`stack.kit.StoryError` otherwise.

    An agent looks at a pod some time after its start; who asks sooner is told that nothing is known yet.
    """

    def check(nodes: dict[str, Json]) -> bool:
        found = reports(nodes.values())
        return all(uid in found and found[uid].suspendable for uid in uids)

    kit.until("the nodes say that the pods can be suspended", NODES, check, timeout_s=timeout_s)
