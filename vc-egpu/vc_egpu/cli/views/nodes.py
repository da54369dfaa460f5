"""``kubectl egpu nodes``: nodes with cards, their software, and the steps that cards are given out in."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType

from vc_egpu.cli import world
from vc_egpu.cli.views.table import Table, pair
from vc_egpu.core.environments import backends
from vc_egpu.core.layouts.table import MAX_TEMPLATES
from vc_egpu.core.measured.use import known
from vc_egpu.core.model.cluster import Instant
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.measured.notes import current as use_now
from vc_egpu.volcano.needs.nodes import environment
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards

COLUMNS: Final = ("NODE", "MODEL", "CARDS", "DRIVER", "CUDA", "CAPABILITY", "NETWORK", "HELD BY", "PARTS")
BUSY: Final = "USED % cpu|memory"
"""Only there where a node tells."""


@dataclass(frozen=True, slots=True)
class Step:
    """One size of slice that some card of the row has, or may be cut into."""

    slice: str
    memory_mib: int
    cores_percent: int


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
    parts: str
    """``any size``: shares of any MiB and percent. ``slices``: the steps alone. ``whole``: whole cards too,
    or alone. Several with a bar between them. Empty: cards of no model, or that are not given out."""
    steps: tuple[Step, ...]
    """Smallest first, at most 16; empty unless ``parts`` has slices."""
    isolation: str
    """What keeps containers to their memory, see :mod:`vc_egpu.core.environments.backends`. Several with a
    bar between them."""
    cpu_points: int | None = None
    """How busy the node was in the last 15 minutes, in percent; None: it does not tell."""
    memory_points: int | None = None
    """The same of its memory."""


@dataclass(frozen=True, slots=True)
class NodesReport:
    """All nodes with cards, in the order of their names."""

    nodes: tuple[NodeRow, ...]


def read(api: ApiConnection) -> NodesReport:
    """The report of the cluster."""
    return report(api.list(NODES, transform=world.light_node).items, time.time())


def report(nodes: Iterable[Json], now: Instant | None = None) -> NodesReport:
    """The same, from node objects. ``now``: without it nothing is said of how busy they were."""
    return NodesReport(tuple(row for node in sorted(nodes, key=world.name) for row in _rows(node, now)))


def _rows(node: Json, now: Instant | None) -> list[NodeRow]:
    use = use_now(world.annotations(node).get(names.NODE_USE), now) if now is not None else None
    inventory = world.inventory_of(node) or NodeCards()
    facts = {name: "|".join(values) for name, values in environment(inventory, world.labels(node))}
    driver = next((facts[name] for name in ("driver", "hdk", "hyhal") if name in facts), "")
    cards_of: dict[str, list[NodeCard]] = defaultdict(list)
    for card in inventory.cards:
        cards_of[card.model].append(card)
    return [
        NodeRow(
            node=world.name(node),
            model=model,
            cards=len(cards_of[model]),
            driver=driver,
            cuda=facts.get("cuda", ""),
            capability=facts.get("capability", ""),
            network=facts.get("network", ""),
            parts="|".join(sorted({part for card in cards_of[model] for part in _parts(card, inventory)})),
            steps=_steps(cards_of[model]),
            isolation="|".join(
                backends.told(backends.shown(card.isolation, inventory.compute) for card in cards_of[model])
            ),
            cpu_points=known(use.cpu_points) if use is not None else None,
            memory_points=known(use.memory_points) if use is not None else None,
        )
        for model in sorted(cards_of)
    ]


def _parts(card: NodeCard, inventory: NodeCards) -> tuple[str, ...]:
    if card.model == names.UNKNOWN_MODEL:
        return ()
    if inventory.mode == "native":
        return ("whole",)
    if card.layout is not None:
        return ("slices", "whole") if card.layout.whole else ("slices",)
    return ("any size",) if _any_size(card, inventory) else ()


def _any_size(card: NodeCard, inventory: NodeCards) -> bool:
    """Whether it gives shares of any size. Without the library's hand on time, high does not run over low."""
    return (card.stack or inventory.compute != "library") and inventory.mode == "shared"


def _steps(cards: Iterable[NodeCard]) -> tuple[Step, ...]:
    found = {
        Step(one.name, one.memory_mib, one.cores)
        for card in cards
        if card.layout is not None
        for one in card.layout.templates
    }
    steps = sorted(found, key=lambda step: (step.memory_mib, step.cores_percent, step.slice))
    return tuple(steps[:MAX_TEMPLATES])


def shown(found: NodesReport) -> RenderableType:
    """One line per node and model."""
    if not found.nodes:
        return Group("no node has cards that an agent of the stack tells of")
    busy = [pair(row.cpu_points, row.memory_points) for row in found.nodes]
    table = Table(*COLUMNS, *([BUSY] if any(busy) else []), right=("CARDS",))
    for row, percent in zip(found.nodes, busy, strict=True):
        table.add_row(
            row.node,
            row.model,
            str(row.cards),
            *(value or "-" for value in (row.driver, row.cuda, row.capability, row.network, row.isolation)),
            "\n".join((row.parts or "-", *(_told(step) for step in row.steps))),
            *([percent or "-"] if any(busy) else []),
        )
    return Group(table)


def _told(step: Step) -> str:
    return f"{step.slice}: {step.memory_mib} MiB, {step.cores_percent} cores"
