"""What queues deserve, in parts of cards, and how those roll up."""

from collections.abc import Mapping

import pytest
from unit.core import make
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.causes import Account
from vc_egpu.core.model.cluster import CardAsk, PodShape, Queue, QueueName
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.resources import parts
from vc_egpu.core.model.words import balance, cards
from vc_egpu.core.queues import deserved
from vc_egpu.core.trial.trial import Trial

H20, T4, NATIVE = "volcano.sh/vgpu-h20", "volcano.sh/vgpu-t4", "volcano.sh/gpu-h20"
CARD = 1_000_000
MODELS = {"h20": make.H20_MIB, "t4": 15360}


def queue(name: str, parent: str | None = None, /, **amounts: int) -> Queue:
    spelt = {
        f"volcano.sh/{key.replace('_', '-')}" if "gpu" in key else key: amount
        for key, amount in amounts.items()
    }
    return Queue(QueueName(name), QueueName(parent) if parent else None, deserved=spelt)


def lines(*queues: Queue, models: Mapping[str, int] = MODELS) -> dict[str, dict[str, int]]:
    trial = Trial(index_of(make.snapshot(queues=queues)), Policy(), 0.0)
    found = deserved.lines(trial, models)
    return {str(name): dict(amounts) for name, amounts in found.items()}


@pytest.mark.parametrize(
    ("amounts", "line"),
    [
        ({"vgpu_h20": 4}, {H20: 4 * CARD}),
        ({"vgpu_h20": 40, "vgpu_h20_memory": 2 * make.H20_MIB}, {H20: 2 * CARD}),
        ({"vgpu_h20": 40, "vgpu_h20_cores": 150}, {H20: 3 * CARD // 2}),
        ({"vgpu_h20_memory": make.H20_MIB, "vgpu_h20_cores": 250}, {H20: 5 * CARD // 2}),
        ({"vgpu_h20": 0}, {H20: 0}),
        ({"gpu_h20": 2, "vgpu_t4": 1}, {NATIVE: 2 * CARD, T4: CARD}),
        ({"cpu": 64000}, {}),
        ({"vgpu_a30": 3, "vgpu_a30_memory": 999}, {"volcano.sh/vgpu-a30": 3 * CARD}),
        ({"vgpu_a30_memory": 999}, {}),
    ],
    ids=[
        "the count alone", "memory, not the count", "cores, not the count", "the larger one of both",
        "none of it", "native cards are another kind", "other resources are no cards",
        "the count, where no table knows the memory", "nothing that could be judged",
    ],
)  # fmt: skip
def test_what_a_queue_names(amounts: dict[str, int], line: dict[str, int]) -> None:
    assert lines(queue("a", **amounts)) == ({"a": line} if line else {})


def test_a_parent_that_names_nothing_deserves_what_those_below_it_do() -> None:
    found = lines(
        queue("root"), queue("org", "root"), queue("a", "org", vgpu_h20=1), queue("b", "org", vgpu_h20=2)
    )
    assert found["org"] == found["root"] == {H20: 3 * CARD}


def test_what_a_parent_names_counts_for_all_above_it() -> None:
    found = lines(queue("root"), queue("org", "root", vgpu_h20=8), queue("a", "org", vgpu_h20=1, vgpu_t4=1))
    assert found == {"root": {H20: 8 * CARD, T4: CARD}, "org": {H20: 8 * CARD, T4: CARD},
                     "a": {H20: CARD, T4: CARD}}  # fmt: skip


def test_queues_in_a_circle_end_where_it_closes() -> None:
    assert lines(queue("a", "b", vgpu_h20=1), queue("b", "a"))["b"] == {H20: CARD}


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (CardAsk("c", "h20", 2, make.H20_MIB // 4, 10), CARD // 2),
        (CardAsk("c", "h20", 3, 100, 50), 3 * CARD // 2),
        (CardAsk("c", "h20", 1, make.H20_MIB, 100, whole=True), CARD),
        (CardAsk("c", "a30", 1, 24000, 100, whole=True), CARD),
        (CardAsk("c", "a30", 1, 24000, 30), 3 * CARD // 10),
    ],
    ids=["by memory", "by compute", "whole", "whole, of a size that no table has", "else compute alone"],
)
def test_parts_of_cards(ask: CardAsk, part: int) -> None:
    (found,) = parts(PodShape(asks=(ask,)), MODELS).values()
    assert found == part


def test_parts_that_fill_a_card_are_never_more_than_it() -> None:
    third = parts(PodShape(asks=(CardAsk("c", "h20", 1, make.H20_MIB // 3, 0),)), {"h20": make.H20_MIB})
    assert 3 * next(iter(third.values())) <= CARD


@pytest.mark.parametrize(
    ("microcards", "text"), [(0, "0"), (CARD, "1"), (1_500_000, "1.5"), (333_333, "0.33"), (1, "0.01")]
)
def test_cards_in_words(microcards: int, text: str) -> None:
    assert cards(microcards) == text


def test_both_queues_in_words() -> None:
    accounts = [Account("a", H20, CARD, 2 * CARD), Account("b", NATIVE, 3 * CARD, 0)]
    assert balance(accounts) == "a has 1 of 2 h20, b has 3 of 0 native h20"
