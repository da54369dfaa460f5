"""Queues from before our time: an edit is judged for what it changes, and what is Volcano's is left alone."""

import copy
from typing import Any

import pytest
from unit.webhook.world import ALICE, OPERATOR, Json, context, create, limits, queue, update
from vc_egpu.webhook.protocol.decision import Decision
from vc_egpu.webhook.protocol.questions import Subject
from vc_egpu.webhook.reviews.queues import review_queue

VOLCANOS = limits(vgpu_number=8, vgpu_memory=400_000, vgpu_cores=800)


def edit(stored: Json, subject: Subject = ALICE, **spec: Any) -> Decision:
    obj = copy.deepcopy(stored)
    obj["spec"] |= spec
    return review_queue(update(obj, stored, subject), context())


@pytest.mark.parametrize("field", ["capability", "deserved", "guarantee"])
def test_a_queue_that_caps_volcanos_own_vgpus_can_be_edited(field: str) -> None:
    amounts: Json = {"resource": VOLCANOS} if field == "guarantee" else VOLCANOS
    stored = queue("a", capability={"cpu": 64})
    stored["spec"][field] = {**stored["spec"].get(field, {}), **amounts}
    lowered = {**stored["spec"]["capability"], "cpu": 32}
    decision = edit(stored, capability=lowered)
    assert (decision.message, decision.warnings) == ("", ())


def test_its_own_amounts_go_up_and_down_as_others_do() -> None:
    stored = queue("a", capability=VOLCANOS)
    assert edit(stored, capability={**VOLCANOS, "volcano.sh/vgpu-memory": 300_000}).message == ""
    assert edit(stored, capability={**VOLCANOS, "volcano.sh/vgpu-memory": "300k"}).message == ""
    raised = {**VOLCANOS, "volcano.sh/vgpu-memory": 500_000}
    assert '"set-cap"' in edit(stored, capability=raised).message
    assert edit(stored, OPERATOR, capability=raised).message == ""
    assert edit(stored, capability={**VOLCANOS, "volcano.sh/vgpu-memory-percentage": 5}).message == ""
    broken = edit(stored, OPERATOR, capability={**VOLCANOS, "volcano.sh/vgpu-memory": "-1"})
    assert broken.message == 'spec.capability["volcano.sh/vgpu-memory"]: -1 is below 0'


def test_a_new_queue_may_cap_them_too() -> None:
    ctx = context("operator set-cap queues new")
    assert review_queue(create(queue("new", capability=VOLCANOS), OPERATOR), ctx).message == ""
    alone = limits(vgpu_memory=1000)
    assert "counts nothing" in review_queue(create(queue("new", capability=alone), OPERATOR), ctx).message


STORED: dict[str, Json] = {
    "no number": {"volcano.sh/vgpu-h20": "many"},
    "below nothing": {"volcano.sh/vgpu-h20": -1},
    "a part": {"volcano.sh/vgpu-h20": "500m"},
    "bytes": {"volcano.sh/vgpu-h20-memory": "10Gi"},
    "per card": {"volcano.sh/vgpu-memory": 1000},
    "too long": {"x" * 400: "1"},
    "not ours": {"cpu": "lots"},
}


@pytest.mark.parametrize("story", STORED)
@pytest.mark.parametrize("field", ["capability", "deserved", "guarantee"])
def test_what_was_stored_before_us_is_in_no_edits_way(story: str, field: str) -> None:
    amounts = STORED[story]
    stored = queue("a", capability={"memory": "64Gi"})
    stored["spec"] |= {field: {"resource": amounts} if field == "guarantee" else amounts}
    stored["spec"]["capability"] = {**stored["spec"]["capability"], "memory": "64Gi"}
    lowered = {**stored["spec"]["capability"], "memory": "32Gi"}
    assert edit(stored, capability=lowered).message == ""
    assert edit(stored, weight=1).message == ""


def test_a_bad_amount_that_is_changed_to_another_is_refused() -> None:
    stored = queue("a", capability={"volcano.sh/vgpu-h20": "many", "cpu": 4})
    changed = {"volcano.sh/vgpu-h20": "more", "cpu": 4}
    assert "'more' is not a quantity" in edit(stored, OPERATOR, capability=changed).message
    assert edit(stored, OPERATOR, capability={"volcano.sh/vgpu-h20": 3, "cpu": 4}).message == ""
