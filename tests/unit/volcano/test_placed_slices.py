"""Slices at places, from what an agent writes on its Node to where the decision puts the next one."""

from typing import Any

import numpy as np
import pytest
import sliced
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import need_of, rooms, seats_of, starts_of
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.placing.pack import Board
from vc_egpu.core.placing.policies import BINPACK
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    AnnotationError,
    NodeCard,
    NodeCards,
    NodeLayout,
    NodeSlice,
    NodeTemplate,
)
from vc_egpu.volcano.words.model_table import ModelTable

TABLE = ModelTable.from_yaml("models: [{name: h100, memoryMiB: 81559}]")
LAYOUT = NodeLayout(
    totals={},
    templates=(
        NodeTemplate(name="1g.10gb", memory_mib=9152, cores=14, size=1, starts=tuple(range(7))),
        NodeTemplate(name="3g.40gb", memory_mib=36672, cores=42, size=4, starts=(0, 4)),
    ),
    whole=False,
    made=True,
)


def document(*slices: NodeSlice, layout: NodeLayout = LAYOUT) -> dict[str, Any]:
    card = NodeCard(
        uuid="GPU-1", index=0, model="h100", memory_mib=81559, layout=layout, slices=slices, stack=False
    )
    allocatable = {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "64Gi", "pods": "110"}
    inventory = NodeCards(cards=(card,), mode="mig").encode()
    return {
        "metadata": {"name": "n", "uid": "u", "annotations": {names.NODE_CARDS: inventory}},
        "spec": {},
        "status": {
            "allocatable": {**allocatable, "volcano.sh/vgpu-h100": "100"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def starts(*slices: NodeSlice) -> list[int]:
    """Where one 3g after the other begins, until none fits."""
    node = cluster_codec.node(document(*slices), TABLE)
    layout = node.cards[0].layout
    assert layout is not None
    ledger = Ledger()
    row = ledger.put_node(node)
    need = need_of(ledger, sliced.shape(sliced.slice_ask(layout, "3g.40gb", model="h100")), ShareClass.UNSET)
    found: list[int] = []
    while int(rooms(ledger, need, np.array([row]))[0][0]):
        assignment = Board(ledger, row).choose(need, BINPACK.cards)
        assert assignment is not None
        begins = starts_of(ledger, need, row, assignment)
        seats = seats_of(need, assignment, 1000, begins)
        found += [seat.start for seat in seats]
        ledger.add(Booking(row, (0, 0, 0, 0), seats))
    return found


def test_the_decision_names_a_place_for_each_slice() -> None:
    assert starts() == [4, 0]


def test_a_slice_of_somebody_else_takes_its_place() -> None:
    assert starts(NodeSlice(id="MIG-operator", template="3g.40gb", start=4)) == [0]
    assert starts(NodeSlice(id="MIG-operator", template="1g.10gb", start=2)) == [4]


def test_a_slice_of_a_pod_of_ours_is_counted_with_the_pod() -> None:
    assert starts(NodeSlice(id="MIG-1", template="3g.40gb", start=4, owner="uid-a")) == [4, 0]


def test_a_slice_that_the_card_cannot_have_leaves_no_room() -> None:
    assert starts(NodeSlice(id="MIG-odd", template="", start=0)) == []


@pytest.mark.parametrize("size", [0, 64])
def test_places_that_cannot_be_leave_the_card_out(size: int) -> None:
    odd = LAYOUT.templates[0].model_copy(update={"size": size, "starts": (63,)})
    layout = LAYOUT.model_copy(update={"templates": (odd,)})
    node = cluster_codec.node(document(layout=layout), TABLE)
    assert [(card.layout, card.usable) for card in node.cards] == [(None, False)]


def test_absurd_places_are_no_inventory() -> None:
    text = NodeCards(
        cards=(NodeCard(uuid="GPU-1", index=0, model="h100", memory_mib=81559, layout=LAYOUT),)
    ).encode()
    with pytest.raises(AnnotationError):
        NodeCards.decode(text.replace('"size":4', '"size":400'))
