"""``kubectl egpu nodes``: nodes with cards, and what software they have."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType

from vc_egpu.cli import world
from vc_egpu.cli.views.table import Table
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.needs.nodes import environment
from vc_egpu.volcano.words.annotations import NodeCards


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The cards of one model on one node; texts are empty where the node does not tell."""

    node: str
    model: str
    cards: int
    driver: str
    cuda: str
    capability: str
    """Several with a bar between them, where the node's cards differ."""
    network: str


@dataclass(frozen=True, slots=True)
class NodesReport:
    """All nodes with cards, in the order of their names."""

    nodes: tuple[NodeRow, ...]


def read(api: ApiConnection) -> NodesReport:
    """The report of the cluster."""
    return report(api.list(NODES, transform=world.light_node).items)


def report(nodes: Iterable[Json]) -> NodesReport:
    """The same, from node objects."""
    return NodesReport(tuple(row for node in sorted(nodes, key=world.name) for row in _rows(node)))


def _rows(node: Json) -> list[NodeRow]:
    inventory = world.inventory_of(node) or NodeCards()
    facts = {name: "|".join(values) for name, values in environment(inventory, world.labels(node))}
    driver = next((facts[name] for name in ("driver", "hdk", "hyhal") if name in facts), "")
    return [
        NodeRow(
            node=world.name(node),
            model=model,
            cards=count,
            driver=driver,
            cuda=facts.get("cuda", ""),
            capability=facts.get("capability", ""),
            network=facts.get("network", ""),
        )
        for model, count in sorted(Counter(card.model for card in inventory.cards).items())
    ]


def shown(found: NodesReport) -> RenderableType:
    """One line per node and model."""
    if not found.nodes:
        return Group("no node has cards that an agent of the stack tells of")
    table = Table("NODE", "MODEL", "CARDS", "DRIVER", "CUDA", "CAPABILITY", "NETWORK", right=("CARDS",))
    for row in found.nodes:
        table.add_row(
            row.node,
            row.model,
            str(row.cards),
            *(value or "-" for value in (row.driver, row.cuda, row.capability, row.network)),
        )
    return Group(table)
