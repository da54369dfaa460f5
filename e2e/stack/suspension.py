"""What nodes say about pods that may be suspended."""

from collections.abc import Iterable

from localcluster.api import wait_until
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension
from vc_egpu.volcano.words.names import NODE_SUSPENSION

from stack.figures import Figures
from stack.kit import Json, Kit

TIMEOUT_S = 60.0


def reports(nodes: Iterable[Json]) -> dict[str, PodSuspension]:
    """By pod UID."""
    texts = ((node["metadata"].get("annotations") or {}).get(NODE_SUSPENSION) for node in nodes)
    return {uid: report for text in texts if text for uid, report in NodeSuspension.decode(text).pods.items()}


def until_suspendable(kit: Kit, pods: Iterable[Json]) -> None:
    """Until their nodes say so and have seen their GPU memory; raises an ``AssertionError`` otherwise.

    An agent looks every other second. Who asks sooner after a start is told that nothing is known yet, and
    who needs cards sooner after a gang came back has it evicted.
    """
    wanted = list(pods)
    uids = {pod["metadata"]["uid"] for pod in wanted}

    def check(nodes: dict[str, Json]) -> bool:
        found = reports(nodes.values())
        return all(uid in found and found[uid].suspendable for uid in uids)

    for pod in wanted:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]

        def held(name: str = name, node: str = node) -> bool:
            return bool(Figures.read(kit, node).held_mib.get(name))

        wait_until(f"{node} sees the GPU memory of {name}", held, TIMEOUT_S)
    kit.until("the nodes say that the pods can be suspended", NODES, check, timeout_s=TIMEOUT_S)
