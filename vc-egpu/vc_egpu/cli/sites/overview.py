"""``kubectl egpu clusters``: what each cluster has, in one line for each model of its cards."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli import world
from vc_egpu.cli.views import cards, waiting
from vc_egpu.cli.views.cards import CardRow, CardsReport
from vc_egpu.cli.views.table import Table
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import NODES
from vc_egpu.kube.wire.errors import Forbidden
from vc_egpu.volcano.words.model_table import ModelTable

_WELL = frozenset({"ok", "native"})


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The cards of one model."""

    name: str
    """The model; empty for a cluster without cards."""
    cards: int
    closed: int
    """Cards that take nothing new, for whatever cause."""
    used_mib: int
    memory_mib: int


_NO_CARDS = (ModelRow("", 0, 0, 0, 0),)


@dataclass(frozen=True, slots=True)
class Overview:
    """One cluster."""

    models: tuple[ModelRow, ...]
    waiting: int | None
    """Gangs that wait; None: the user may not see them."""
    notes: tuple[str, ...]


def read(api: ApiConnection, namespace: str) -> Overview:
    """What the user may see of the cluster."""
    seen = cards.read(api, namespace)
    try:
        waits: int | None = len(waiting.read(api, None).waiting)
    except Forbidden:
        waits = None
    return overview(seen, waits)


def quick(api: ApiConnection) -> Overview:
    """Its cards alone, by its nodes: nothing of what is used, or waits."""
    nodes = api.list(NODES, transform=world.light_node).items
    return counted(nodes, cards.model_table(api))


def counted(nodes: Iterable[Json], table: ModelTable) -> Overview:
    """The same numbers as of a report of these cards without pods. It makes no rows."""
    models: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for node in nodes:
        inventory = world.inventory_of(node)
        if inventory is None:
            continue
        for card, (_, state) in zip(inventory.cards, cards.states(node, inventory), strict=True):
            known = table.get(card.model)
            row = models[card.model]
            row[0] += 1
            row[1] += state not in _WELL
            row[2] += card.memory_mib if known is None else known.memory_mib
    rows = tuple(
        ModelRow(model, count, closed, 0, memory) for model, (count, closed, memory) in sorted(models.items())
    )
    return Overview(rows or _NO_CARDS, None, ())


def overview(seen: CardsReport, waits: int | None) -> Overview:
    """The rows of a report of cards."""
    models: dict[str, list[CardRow]] = defaultdict(list)
    for card in seen.cards:
        models[card.model].append(card)
    rows = tuple(_row(model, found) for model, found in sorted(models.items()))
    return Overview(rows or _NO_CARDS, waits, seen.notes)


def _row(model: str, found: list[CardRow]) -> ModelRow:
    closed = sum(card.state not in _WELL for card in found)
    used, memory = sum(card.used_mib for card in found), sum(card.memory_mib for card in found)
    return ModelRow(model, len(found), closed, used, memory)


def shown(report: Overview, city: str = "") -> RenderableType:
    """One line for each model; what waits stands on the first."""
    numbers = ("CARDS", "CLOSED", "USED GiB", "OF GiB", "WAITING")
    table = Table("CITY", "MODEL", *numbers, right=numbers)
    for index, row in enumerate(report.models):
        waits = "?" if report.waiting is None else str(report.waiting)
        table.add_row(
            city,
            row.name or "none",
            str(row.cards),
            Text(str(row.closed), style="yellow" if row.closed else ""),
            str(row.used_mib // 1024),
            str(row.memory_mib // 1024),
            waits if index == 0 else "",
        )
    return Group(table)


def sums(reports: Iterable[Overview], answered: int, asked: int) -> RenderableType:
    """Cards of each model over all clusters that answered. Different models are never added up."""
    total: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for report in reports:
        for row in report.models:
            for index, value in enumerate((row.cards, row.closed, row.used_mib, row.memory_mib)):
                total[row.name][index] += value
    said = [
        f"{cards} {model} ({closed} closed, {100 * used // memory}% of memory used)"
        for model, (cards, closed, used, memory) in sorted(total.items())
        if memory
    ]
    return Text(f"{answered} of {asked} clusters have {', '.join(said) or 'no cards'}")
