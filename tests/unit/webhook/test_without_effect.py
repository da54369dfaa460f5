"""Fields that are accepted and do nothing are told of; words that are a must and nobody holds are refused."""

from typing import Any

import pytest
from unit.webhook.world import OPERATOR, Json, caps, context, create, queue, update
from vc_egpu.volcano.words import names
from vc_egpu.webhook.policies.checks import admission_policies
from vc_egpu.webhook.protocol.context import Settings
from vc_egpu.webhook.protocol.decision import Refusal
from vc_egpu.webhook.reviews import without_effect
from vc_egpu.webhook.reviews.queues import review_queue

HERE, VOLCANO = Settings(), Settings(scheduler_name=names.SCHEDULER_VOLCANO)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"extendClusters": [{"name": "far"}]}, "spec.extendClusters"),
        ({"affinity": {"nodeGroupAffinity": {PREFERRED: ["a"]}}}, "spec.affinity"),
    ],
)
def test_a_queue_is_told_of_each_field_once(spec: Json, field: str) -> None:
    asked = queue("a", capability=caps(1), **spec)
    (warning,) = review_queue(create(asked, OPERATOR), context()).warnings
    assert warning.startswith(field)
    other = {**asked, "spec": {**asked["spec"], "weight": 0}}
    assert not review_queue(update(other, asked, OPERATOR), context()).warnings, "it was told before"


@pytest.mark.parametrize("key", ["nodeGroupAffinity", "nodeGroupAntiAffinity"])
def test_a_must_of_a_queue_that_nobody_holds_is_refused(key: str) -> None:
    spec: Json = {"affinity": {key: {REQUIRED: ["a"]}}}
    with pytest.raises(Refusal, match=REQUIRED):
        without_effect.of_queue(spec, {}, HERE)
    assert without_effect.of_queue(spec, {}, VOLCANO)


def test_a_must_of_a_job_is_refused_where_nobody_holds_it() -> None:
    spec: Json = {"tasks": [{"name": "w", "topologyPolicy": "single-numa-node"}]}
    with pytest.raises(Refusal, match="held by nobody here"):
        without_effect.of_job(spec, HERE)
    assert len(without_effect.of_job(spec, VOLCANO)) == 1


def test_a_wish_of_a_job_is_told_of() -> None:
    spec: Json = {"tasks": [{"name": "w", "topologyPolicy": "best-effort"}]}
    (warning,) = without_effect.of_job(spec, HERE)
    assert "has no effect on the plan" in warning


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tasks": None},
        {"tasks": [7, {"topologyPolicy": "none"}]},
        {"networkTopology": "x"},
        {"networkTopology": {"mode": "soft"}},
        {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
        {"networkTopology": {"highestTierAllowed": 3}},
        {"networkTopology": {"highestTierAllowed": 0}},
        {"networkTopology": {"highestTierName": "rack"}},
        {"tasks": [{"partitionPolicy": {"networkTopology": {"mode": "soft"}}}]},
        {"tasks": [{"partitionPolicy": {"networkTopology": {"highestTierAllowed": 1}}}]},
        {"tasks": [{"partitionPolicy": {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 4}}]},
    ],
)
def test_nothing_is_said_of_what_says_nothing(spec: Any) -> None:
    assert not without_effect.of_job(spec, HERE)


@pytest.mark.parametrize(
    "topology",
    [
        {"mode": "hard"},
        {"mode": "hard", "highestTierAllowed": -1},
        {"highestTierAllowed": "1"},
        {"highestTierAllowed": 1, "highestTierName": "rack"},
    ],
)
def test_a_must_names_one_tier_or_is_refused(topology: Json) -> None:
    with pytest.raises(Refusal, match=r"spec\.networkTopology"):
        without_effect.of_job({"networkTopology": topology}, HERE)
    task = {"name": "w", "partitionPolicy": {"networkTopology": topology}}
    with pytest.raises(Refusal, match=r'tasks\["w"\]\.partitionPolicy\.networkTopology'):
        without_effect.of_job({"tasks": [task]}, HERE)


def test_partitions_that_may_be_missing_are_counted_as_members() -> None:
    policy = {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 2}
    (warning,) = without_effect.of_job({"tasks": [{"name": "w", "partitionPolicy": policy}]}, HERE)
    assert "minPartitions: counts as so many members of the task" in warning


def test_a_pod_is_told_of_rules_that_are_not_read_and_of_modes() -> None:
    term = {"topologyKey": "zone", "wordOfTomorrow": True}
    spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    said = without_effect.of_pod(spec, {"volcano.sh/vgpu-mode": "mig"}, "spec.tasks[0].template")
    assert [text.count("template.") for text in said] == [1, 1]
    assert "podAffinity.wordOfTomorrow is a rule between pods that is left to a scheduler" in said[0]
    wish = {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}}
    assert not without_effect.of_pod(wish, {}, "")
    assert not without_effect.of_pod({}, {"volcano.sh/vgpu-mode": "hami-core"}, "")


def test_the_policy_about_asks_of_others_warns_and_never_refuses() -> None:
    *_, policy, binding = admission_policies()
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == "vc-egpu-not-ours"
    assert binding["spec"]["validationActions"] == ["Warn"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
