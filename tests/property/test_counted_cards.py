"""The quick count of cards says what the whole table of cards says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.cli.sites.overview import counted, overview
from vc_egpu.cli.views import cards
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = pytest.mark.timeout(120)
TABLE = ModelTable.model_validate(
    {"models": [{"name": "h20", "memoryMiB": 98304}, {"name": "t4", "memoryMiB": 16384}]}
)
GARBAGE = st.sampled_from(["", "{", "[]", '{"version": 2}', '{"cards": [{}]}'])


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Nodes in all states, some without an agent and some with garbage in its place."""
    return [_node(draw, number) for number in range(draw(st.integers(0, 4)))]


def _node(draw: st.DrawFn, number: int) -> dict[str, Any]:
    some = tuple(
        NodeCard(
            uuid=f"GPU-{number}-{index}",
            index=index,
            model=draw(st.sampled_from(["h20", "t4", "unlisted"])),
            memory_mib=draw(st.sampled_from([98304, 16384, 1000])),
            healthy=draw(st.booleans()),
            offered=draw(st.booleans()),
            reason=draw(st.sampled_from(["", "Xid 79"])),
        )
        for index in range(draw(st.integers(0, 3)))
    )
    inventory = NodeCards(
        cards=some,
        mode=draw(st.sampled_from(["shared", "native", "mig"])),
        problem=draw(st.sampled_from(["", "the driver is too old"])),
    )
    text = draw(st.one_of(st.just(inventory.encode()), GARBAGE, st.none()))
    annotations = {names.NODE_CARDS: text} if text is not None else {}
    if draw(st.booleans()):
        annotations[names.CORDONED_CARDS] = f"GPU-{number}-0, GPU-nowhere"
    ready = draw(st.sampled_from(["True", "False", "Unknown"]))
    return {
        "metadata": {"name": f"n{number}", "annotations": annotations},
        "spec": {"unschedulable": True} if draw(st.booleans()) else {},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {}},
    }


@given(nodes(), st.sampled_from([TABLE, ModelTable()]))
def test_counted_is_what_the_table_of_cards_sums_up_to(
    documents: list[dict[str, Any]], table: ModelTable
) -> None:
    slow = overview(cards.report(documents, (), table), None)
    fast = counted(documents, table)
    assert (fast.models, fast.waiting) == (slow.models, slow.waiting)
