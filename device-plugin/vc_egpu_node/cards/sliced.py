"""Cards that are cut into slices of fixed size: what they offer of what lies on them. Pure."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano.words.annotations import NodeLayout, NodeSlice, NodeTemplate
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable

from vc_egpu_node.vendors.base import CardReading


@dataclass(frozen=True, slots=True)
class CardCut:
    """A card as it is cut."""

    problem: str = ""
    """Why it offers nothing."""
    layout: NodeLayout | None = None
    slices: tuple[NodeSlice, ...] = ()


UNCUT: Final = CardCut()


def cut_of(card: CardReading, row: GpuModel | None, table: ModelTable) -> CardCut:
    """What a card offers whose slices others made: each that is as large as the table says."""
    layout = table.layout_of(row) if row is not None else None
    if "slice" not in card.abilities:
        return CardCut("it is not cut into slices, and its node offers slices: turn MIG mode on")
    if row is None or layout is None:
        return CardCut("the model table has no layout for it")
    known = {one.name: one for one in layout.templates}
    good = [
        one for one in card.slices
        if one.template in known and one.memory_mib >= known[one.template].memory_mib
    ]  # fmt: skip
    slices = tuple(
        NodeSlice(id=one.id[:96], template=one.template[:63], start=one.start) for one in card.slices
    )
    if not card.slices:
        return CardCut("no slices lie on it: none were made since the node started, or they were removed")
    if not good:
        found = ", ".join(
            sorted({f"{one.template or 'of no known size'} ({one.memory_mib} MiB)" for one in card.slices})
        )
        return CardCut(f"none of its slices is one of the model table: {found}", slices=slices)
    count = Counter(one.template for one in good)
    templates = tuple(
        NodeTemplate(name=one.name, memory_mib=one.memory_mib, cores=one.cores_percent, parts={one.name: 1})
        for one in layout.templates
        if one.name in count
    )
    return CardCut(layout=NodeLayout(totals=dict(count), templates=templates, whole=False), slices=slices)
