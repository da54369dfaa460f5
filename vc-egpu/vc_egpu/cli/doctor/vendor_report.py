"""``kubectl egpu doctor --vendor-report``: what the agents say of their cards.

It holds no names of pods, tenants or nodes. A program in the agent's container prints what the library
of the driver says: the report names its command for each node.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from vc_egpu.cli import world
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards

AGENTS: Final = "app.kubernetes.io/name=vc-egpu-node-agent"
PROGRAM: Final = "python -m vc_egpu_node.vendors.report"
_OURS: Final = {"uuid", "held", "slices", "links", "near"}
"""Fields of a card that name it, its neighbours or its pods."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node's agent says."""

    vendor: str
    """Several with a plus between them."""
    mode: str
    driver: str
    agent: str
    kubelet: str
    runtime: str
    kernel: str
    problem: str
    cards: tuple[dict[str, Any], ...]
    """As in the node's inventory, without names."""


@dataclass(frozen=True, slots=True)
class VendorReport:
    """What to send."""

    nodes: tuple[NodeReport, ...]
    commands: tuple[str, ...]
    """For the owner of the cluster, and not to be sent: one for each node."""


def read(api: ApiConnection) -> VendorReport:
    """The report of the cluster."""
    agents = api.list(PODS, names.SYSTEM_NAMESPACE, label_selector=AGENTS).items
    return report(api.list(NODES).items, agents)


def report(nodes: Iterable[Json], agents: Iterable[Json]) -> VendorReport:
    """The same, from nodes and the agents' pods. Nodes without cards are left out."""
    agent_on = {(pod.get("spec") or {}).get("nodeName"): pod for pod in agents}
    rows, commands = [], []
    for node in sorted(nodes, key=world.name):
        inventory = world.inventory_of(node)
        if inventory is None or not inventory.cards:
            continue
        rows.append(_row(node, inventory))
        agent = agent_on.get(world.name(node))
        if agent is not None:
            vendors = " ".join(f"--vendor={vendor}" for vendor in inventory.vendor.split("+"))
            where = f"kubectl -n {names.SYSTEM_NAMESPACE} exec {agent['metadata']['name']} --"
            commands.append(f"{where} {PROGRAM} {vendors}")
    return VendorReport(tuple(rows), tuple(commands))


def _row(node: Json, inventory: NodeCards) -> NodeReport:
    told = (node.get("status") or {}).get("nodeInfo") or {}
    return NodeReport(
        vendor=inventory.vendor,
        mode=inventory.mode,
        driver=inventory.driver_version,
        agent=inventory.agent_version,
        kubelet=str(told.get("kubeletVersion", "")),
        runtime=str(told.get("containerRuntimeVersion", "")),
        kernel=str(told.get("kernelVersion", "")),
        problem=inventory.problem,
        cards=tuple(_card(card) for card in inventory.cards),
    )


def _card(card: NodeCard) -> dict[str, Any]:
    told = {key: value for key, value in card.model_dump(mode="json").items() if key not in _OURS}
    told["slices"] = [
        {"template": one.template, "start": one.start, "ours": bool(one.owner)} for one in card.slices
    ]
    told["reason"] = card.reason.replace(card.uuid, "<card>")
    return told


def shown(found: VendorReport) -> Text:
    """For people: what there is, and the commands."""
    lines = [
        f"{len(one.cards)} cards of {one.vendor}, driver {one.driver or 'not known'}, mode {one.mode}"
        + (f": {one.problem}" if one.problem else "")
        for one in found.nodes
    ]
    lines = lines or ["no node has cards"]
    lines += (
        ["", "Send the same with -o json, and what these print:", *found.commands] if found.commands else []
    )
    return Text("\n".join(lines))
