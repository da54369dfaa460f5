"""Nodes whose cards are cut into slices of fixed size, and pods that ask for them."""

from vc_egpu.core.layouts.table import Layout
from vc_egpu.core.model.cluster import Card, CardAsk, CardId, Node, NodeName, PodShape, Resources

CARD_MIB = 65536


def node(
    name: str, layout: Layout | None, *, cards: int = 2, model: str = "cut", mib: int = CARD_MIB
) -> Node:
    return Node(
        NodeName(name),
        Resources(cpu_milli=1_000_000, memory_bytes=1 << 40, ephemeral_bytes=1 << 40, pods=1000),
        cards=tuple(
            Card(CardId(f"{name}-{i}"), i, model, mib, layout=layout, stack=layout is None)
            for i in range(cards)
        ),
    )


def slice_ask(layout: Layout, name: str, *, model: str = "cut", cards: int = 1) -> CardAsk:
    template = layout.template(name)
    assert template is not None
    return CardAsk("main", model, cards, template.memory_mib, template.cores_percent, slice=name)


def shape(*asks: CardAsk) -> PodShape:
    return PodShape(asks=asks, requests=Resources(cpu_milli=1))
