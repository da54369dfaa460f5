"""Rows of the model table for products that nodes report and the table lacks. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable, proposed_name, proposed_row

MOST_ROWS: Final = 16
"""A node may report any product. More rows than this are not proposed at once."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One product that the table lacks."""

    product: str
    name: str
    """What the model is to be called; empty: no row can be proposed."""
    memory_mib: int
    """The least that a card of it reports: cards that report less than their row are not offered."""
    cards: int
    nodes: int
    row: str
    """For the table; empty with the name."""
    problem: str = ""
    """Why there is no row."""


def proposals(inventories: Mapping[str, NodeCards], table: ModelTable) -> tuple[Proposal, ...]:
    """By the names of their products. ``inventories``: by node."""
    found: dict[str, list[tuple[str, NodeCard]]] = defaultdict(list)
    for node, inventory in inventories.items():
        for card in inventory.cards:
            product = _printable(card.product)
            if card.model == names.UNKNOWN_MODEL and table.of_product(product) is None:
                found[product.lower()].append((node, card))
    taken = {model.name for model in table.models}
    rows: list[Proposal] = []
    for _, cards in sorted(found.items()):
        one = _proposal(cards, taken, full=sum(bool(row.row) for row in rows) >= MOST_ROWS)
        taken.add(one.name)
        rows.append(one)
    return tuple(rows)


def _proposal(cards: list[tuple[str, NodeCard]], taken: Iterable[str], *, full: bool) -> Proposal:
    product = _printable(cards[0][1].product)
    name, least = proposed_name(product), min(card.memory_mib for _, card in cards)
    problem = _problem(product, name, least, taken) or (f"{MOST_ROWS} rows at once" if full else "")
    nodes = len({node for node, _ in cards})
    if problem:
        return Proposal(product, "", least, len(cards), nodes, "", problem)
    return Proposal(product, name, least, len(cards), nodes, proposed_row(name, product, least))


def _problem(product: str, name: str, memory_mib: int, taken: Iterable[str]) -> str:
    if not product or "?" in product:  # that is what agents, too, write for what cannot be shown
        return "the product has no name that can be written"
    if name in taken:
        return f"{name} is another model's name: choose one yourself, or add the product to that row"
    try:
        GpuModel(name=name, products=(product,), memory_mib=memory_mib)
    except ValidationError as error:
        return f"{name} cannot be a model's name: {error.errors()[0]['msg']}"
    return ""


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text).strip()
