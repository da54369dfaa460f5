"""Cards that are cut into slices of fixed size: what they offer of what lies on them. Pure.

Slices that others made are adopted: the card offers those that are there. On other cards a slice is made for
each container. Such a card offers all that the table says, less what lies on it without a container. Where a
driver has places for slices, others take theirs. Elsewhere a card with slices of others offers nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.volcano.words.annotations import NodeLayout, NodeSlice, NodeTemplate
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable

from vc_egpu_node.vendors.base import CardReading
from vc_egpu_node.vendors.slices import HeldSlice


@dataclass(frozen=True, slots=True)
class CardCut:
    """A card as it is cut."""

    problem: str = ""
    """Why it offers nothing."""
    layout: NodeLayout | None = None
    slices: tuple[NodeSlice, ...] = ()


UNCUT: Final = CardCut()
NOT_CUT: Final = "it is not cut into slices, and its node offers slices: turn MIG mode on"
NO_LAYOUT: Final = "the model table has no layout for it"


@dataclass(frozen=True, slots=True)
class SliceOwners:
    """Whose the slices of the node are."""

    ours: Mapping[str, tuple[NodeSlice, ...]] = field(default_factory=dict)
    """By card: slices of our record. Those without a pod are still to be removed."""
    strange: Mapping[str, tuple[HeldSlice, ...]] = field(default_factory=dict)
    """By card: slices that no record of ours has."""


def made_on(card: CardReading, row: GpuModel | None, table: ModelTable, owners: SliceOwners) -> CardCut:
    """What a card offers on which a slice is made for each container: its model's layout."""
    layout = table.layout_of(row) if row is not None else None
    if row is None or layout is None:
        return CardCut(
            "the model table has no layout for it, so it is given out whole, by nodes in mode native"
        )
    ours, strange = owners.ours.get(card.uuid, ()), owners.strange.get(card.uuid, ())
    if strange or card.others:
        which = f": {_called(strange)}" if strange else ""
        return CardCut(f"slices that this agent did not make lie on it{which}; remove them", slices=ours)
    less = _less(card, layout.totals)
    if less:
        return CardCut(f"its layout in the model table does not fit: {less}", slices=ours)
    templates = tuple(
        NodeTemplate(name=one.name, memory_mib=one.memory_mib, cores=one.cores_percent, parts=one.parts)
        for one in layout.templates
    )
    offered = NodeLayout(totals=layout.totals, templates=templates, whole=layout.whole, made=True)
    return CardCut(layout=offered, slices=ours)


def _less(card: CardReading, totals: Mapping[str, int]) -> str:
    """What the driver counts less of than the table has; empty: nothing of what it tells."""
    told: Iterable[tuple[str, int, int]] = (
        (name, card.numbers[name], total) for name, total in totals.items() if name in card.numbers
    )
    return next(
        (f"it has {there} {name}, the table says {total}" for name, there, total in told if there < total), ""
    )


def placed_on(card: CardReading, row: GpuModel | None, table: ModelTable, owners: SliceOwners) -> CardCut:
    """What a card offers on which slices are made at places that its driver names. These are the sizes of its
    model's layout that the driver has, and that are as large there. Slices of others take their places."""
    layout = table.layout_of(row) if row is not None else None
    if "slice" not in card.abilities:
        return CardCut(NOT_CUT)
    if row is None or layout is None:
        return CardCut(NO_LAYOUT)
    if card.layout is None:
        return CardCut("its driver does not tell where slices may lie, so none are made on it")
    templates = tuple(
        NodeTemplate(
            name=one.name,
            memory_mib=one.memory_mib,
            cores=one.cores_percent,
            size=there.places[0].size,
            starts=tuple(place.start for place in there.places),
        )
        for one in layout.templates
        if (there := card.layout.template(one.name)) is not None and there.memory_mib >= one.memory_mib
    )
    strange = owners.strange.get(card.uuid, ())
    slices = owners.ours.get(card.uuid, ()) + tuple(
        NodeSlice(id=one.id[:96], template=one.template[:63], start=one.start) for one in strange
    )
    if not templates:
        return CardCut("its driver has none of the sizes of the model table", slices=slices)
    odd = tuple(one for one in strange if one.template not in {each.name for each in templates})
    if odd:
        return CardCut(f"slices of no size of the model table lie on it: {_called(odd)}", slices=slices)
    return CardCut(layout=NodeLayout(totals={}, templates=templates, whole=False, made=True), slices=slices)


def _called(slices: Iterable[HeldSlice]) -> str:
    return ", ".join(f"{one.id} ({one.template or 'of no known size'})"[:96] for one in slices)


def cut_of(card: CardReading, row: GpuModel | None, table: ModelTable, owners: SliceOwners) -> CardCut:
    """What a card offers whose slices others made: each that is as large as the table says."""
    layout = table.layout_of(row) if row is not None else None
    if "slice" not in card.abilities:
        return CardCut(NOT_CUT)
    if row is None or layout is None:
        return CardCut(NO_LAYOUT)
    known = {one.name: one for one in layout.templates}
    good = [
        one for one in card.slices
        if one.template in known and not one.half and one.memory_mib >= known[one.template].memory_mib
    ]  # fmt: skip
    pod_of = {one.id: one.owner for one in owners.ours.get(card.uuid, ())}
    slices = tuple(
        NodeSlice(
            id=one.id[:96], template=one.template[:63], start=one.start, owner=pod_of.get(one.id[:96], "")
        )
        for one in card.slices
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
