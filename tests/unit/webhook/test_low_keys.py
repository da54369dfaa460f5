"""Keys of queues for low shares: who may name them, where, and what they allow at the door."""

from typing import Any

import pytest
from unit.webhook.world import ALICE, OPERATOR, Json, caps, context, create, queue, update
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import GpuModel
from vc_egpu.volcano.words.resource_names import classify
from vc_egpu.webhook.protocol.decision import Refusal
from vc_egpu.webhook.reviews.gangs import check_caps
from vc_egpu.webhook.reviews.queues import review_queue

LOW, LOW_CORES = names.low_resource("h20"), names.low_cores_resource("h20")


def with_low() -> Json:
    return queue("a", capability={**caps(8), LOW: 8, LOW_CORES: 800})


@pytest.mark.parametrize("name", [LOW, LOW_CORES])
def test_such_a_word_is_no_model(name: str) -> None:
    assert (classify(name).kind, classify(name).model) == ("low", "h20")
    with pytest.raises(ValueError, match="mistaken"):
        GpuModel(name="h20-low", memory_mib=1000)


def test_they_need_set_cap_and_are_caps_alone() -> None:
    stored = queue("a", capability=caps(8))
    said = review_queue(update(with_low(), stored, ALICE), context()).message
    assert LOW in said
    assert names.VERB_SET_CAP in said
    assert review_queue(update(with_low(), stored, OPERATOR), context()).allowed
    for field in ("deserved", "guarantee"):
        amounts: Json = {LOW: 1} if field == "deserved" else {"resource": {LOW: 1}}
        named: dict[str, Any] = {field: amounts}
        decision = review_queue(create(queue("a", capability=caps(8), **named), OPERATOR), context())
        assert "has no effect here" in decision.message


def test_where_vc_scheduler_binds_they_are_refused() -> None:
    ctx = context(scheduler_name=names.SCHEDULER_VOLCANO)
    assert "vc-scheduler" in review_queue(create(with_low(), OPERATOR), ctx).message
    stored = with_low()
    lowered = {**stored, "spec": {**stored["spec"], "weight": 1}}
    assert review_queue(update(lowered, stored, OPERATOR), ctx).allowed, "what is stored is not judged"


def test_a_low_gang_counts_there_and_another_does_not() -> None:
    ctx = context(queues={"a": queue("a", capability={**caps(1), LOW: 8, LOW_CORES: 800})})
    need = {names.shared_resource("h20"): 4, names.cores_total_resource("h20"): 400}
    check_caps(need, "a", ctx, "spec.queue", "the gang", low=True)
    with pytest.raises(Refusal, match=r"needs 4 .* at once"):
        check_caps(need, "a", ctx, "spec.queue", "the gang")
    with pytest.raises(Refusal, match=r"needs 9 .*-low at once"):
        check_caps({names.shared_resource("h20"): 9}, "a", ctx, "spec.queue", "the gang", low=True)
