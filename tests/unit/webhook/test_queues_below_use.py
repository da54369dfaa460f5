"""What an operator or a tenant's admin is told who lowers a cap below what is in use."""

import copy

from unit.webhook.world import OPERATOR, QUEUES, Json, caps, context, queue, update
from vc_egpu.webhook.reviews.queues import review_queue


def edited(stored: Json, **spec: object) -> Json:
    return {**stored, "spec": stored["spec"] | spec}


def test_lowering_below_use_warns_and_evicts_nothing() -> None:
    stored = queue("a", capability=caps(8, 400_000))
    stored["status"]["allocated"] = {"volcano.sh/vgpu-h20": "6"}
    decision = review_queue(update(edited(stored, capability=caps(4, 400_000)), stored), context())
    assert decision.allowed
    assert "4 is below the 6 in use" in decision.warnings[0]
    assert "nothing is evicted" in decision.warnings[0]
    stored["status"]["allocated"] = {"volcano.sh/vgpu-h20": "9"}
    assert review_queue(update(edited(stored, weight=1), stored), context()).warnings == (), (
        "told of when it was lowered"
    )


def test_a_model_that_is_named_no_longer_is_lowered_to_none() -> None:
    """Nothing more of it is admitted: the operator who takes the key out is told what is in use."""
    stored = queue("a", capability=caps(8, 400_000))
    stored["status"]["allocated"] = {"volcano.sh/vgpu-h20": "6", "volcano.sh/vgpu-h20-memory": "9"}
    review = update(edited(stored, capability={}), stored, OPERATOR)
    assert review_queue(review, context()).warnings == (
        'spec.capability["volcano.sh/vgpu-h20"]: none is below the 6 in use; '
        "nothing is evicted, new work waits",
    )
    assert review_queue(review, context(unnamed_model_unlimited=True)).warnings == ()
    org = copy.deepcopy(QUEUES["org"])
    org["status"]["allocated"] = {"volcano.sh/vgpu-h20": "6"}
    above = context("operator set-cap queues org")
    review = update(edited(org, capability={}), org, OPERATOR)
    assert review_queue(review, above).warnings == (), "a parent that names no model has no say in models"
    review = update(edited(org, capability=caps(1, model="v100-32g")), org, OPERATOR)
    assert "none is below the 6 in use" in review_queue(review, above).warnings[0]


def test_what_the_queues_below_use_counts_for_their_parents_cap() -> None:
    below = {**QUEUES["org-1"], "status": {"state": "Open", "allocated": {"volcano.sh/vgpu-h20": "6"}}}
    other = {**QUEUES["org-2"], "status": {"state": "Open", "allocated": {"volcano.sh/vgpu-h20": "1"}}}
    ctx = context(queues={**QUEUES, "org-1": below, "org-2": other})
    lowered = edited(QUEUES["org"], capability=caps(6))
    (warning,) = review_queue(update(lowered, QUEUES["org"]), ctx).warnings
    assert "6 is below the 7 in use" in warning
    counted = {**QUEUES["org"], "status": {"allocated": {"volcano.sh/vgpu-h20": "7"}}}
    decision = review_queue(update(edited(counted, capability=caps(7)), counted), ctx)
    assert decision.warnings == (), "where the parent's own figure has them in it they count once"
