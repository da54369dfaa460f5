"""An ask of 0 is no ask: in one container of several, in all of them, however the 0 is written."""

from typing import Any

import pytest
from unit.webhook import job_reviews, pod_reviews
from unit.webhook.world import (
    ALICE,
    Json,
    container,
    context,
    create,
    job,
    limits,
    patched,
    pod,
    task,
    update,
)
from vc_egpu.volcano.codec.request import AskError, read_pod
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Request
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.serving.caches import slim_group, slim_job

ZEROES = (0, "0", "0k", "0.0", "0Gi", 0.0)
CARDS = container("trainer", vgpu_h20=1, vgpu_memory=4096)


def request_of(done: Json) -> Request:
    return Request.decode(done["metadata"]["annotations"][names.REQUEST])


@pytest.mark.parametrize("zero", ZEROES)
def test_a_container_that_asks_for_0_cards_has_none(zero: Any) -> None:
    done = pod_reviews.complete(pod(CARDS, container("log", vgpu_h20=zero, cpu=1)))
    assert set(request_of(done).containers) == {"trainer"}
    assert done["spec"]["containers"][1]["resources"]["limits"] == {"volcano.sh/cpu": 1}


@pytest.mark.parametrize("zero", ZEROES)
def test_a_task_with_such_a_container_is_taken_as_it_is(zero: Any) -> None:
    idle = container("log", vgpu_h20=zero)
    done = job_reviews.complete(job(task("w", 2, CARDS, idle)))
    trainer, log = done["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert trainer["resources"]["requests"] == {
        "volcano.sh/vgpu-h20": "1",
        "volcano.sh/vgpu-h20-memory": "4096",
    }
    assert log == idle


def test_an_init_container_may_ask_for_0_cards() -> None:
    init = container("prepare", vgpu_h20=0, vgpu_cores=10)
    done = pod_reviews.complete(pod(CARDS, initContainers=[init]))
    assert set(request_of(done).containers) == {"trainer"}
    assert done["spec"]["initContainers"][0]["resources"] == {"limits": {}}


@pytest.mark.parametrize("where", ["limits", "requests"])
def test_0_may_stand_in_one_of_limits_and_requests_or_in_both(where: str) -> None:
    log: Json = {"name": "log", "resources": {where: limits(vgpu_h20="0")}}
    both: Json = {"name": "both", "resources": {k: limits(vgpu_h20=0) for k in ("limits", "requests")}}
    done = pod_reviews.complete(pod(CARDS, log, both))
    assert [each["resources"] for each in done["spec"]["containers"][1:]] == [
        {where: {}},
        {"limits": {}, "requests": {}},
    ]


def test_0_next_to_another_model_asks_for_that_model_alone() -> None:
    queues = {"a": {"metadata": {"name": "a"}, "spec": {"capability": limits(vgpu_a100_40g=8)}}}
    obj = pod(container(vgpu_h20=0, vgpu_a100_40g=1, vgpu_memory=1000, gpu_h20=0))
    decision = review_pod(create(obj, ALICE), context(queues=queues))
    done = patched(obj, decision)
    assert {ask.model for ask in request_of(done).containers.values()} == {"a100-40g"}
    assert done["spec"]["containers"][0]["resources"]["limits"] == limits(
        vgpu_a100_40g=1, vgpu_a100_40g_memory="1000"
    )
    assert decision.warnings == ()


@pytest.mark.parametrize("name", ["vgpu-memory", "vgpu-memory-percentage", "vgpu-cores"])
def test_limits_per_card_of_no_card_are_warned_of_and_go(name: str) -> None:
    obj = pod(CARDS, container("log", vgpu_h20=0, **{name.replace("-", "_"): 10}))
    decision = review_pod(create(obj, ALICE), context())
    warning = (
        f'spec.containers["log"].resources.limits["volcano.sh/{name}"]: 10 has no effect next to '
        "volcano.sh/vgpu-h20: 0"
    )
    assert decision.warnings == (warning,)
    assert patched(obj, decision)["spec"]["containers"][1]["resources"]["limits"] == {}


def test_the_author_of_a_job_sees_that_warning() -> None:
    idle = container("log", vgpu_h20=0, vgpu_memory=10)
    for obj in (job(task("w", 1, CARDS, idle)), job(task("w", 1, idle))):
        (warning,) = review_job(create(obj, ALICE), context()).warnings
        assert warning.startswith('spec.tasks["w"].template.spec.containers["log"].resources.limits')


@pytest.mark.parametrize("amounts", [{"vgpu_h20": 0}, {"gpu_h20": "0"}, {"vgpu_h20": 0, "vgpu_memory": 9}])
def test_a_pod_that_asks_for_0_cards_alone_is_none_of_ours(amounts: Json) -> None:
    """Its names go: by the names alone the admission policies would hold it to be ours."""
    obj = pod(container(cpu=1, **amounts))
    done = patched(obj, review_pod(create(obj, ALICE), context()))
    assert done == pod(container(cpu=1))
    assert job_reviews.complete(job(task("w", 1, obj["spec"]["containers"][0]))) == job(
        task("w", 1, obj["spec"]["containers"][0])
    )


def test_volcanos_own_vgpus_stay_next_to_a_0_of_ours() -> None:
    obj = pod(container(vgpu_number=1, vgpu_memory=1000, vgpu_h20=0))
    done = patched(obj, review_pod(create(obj, ALICE), context()))
    assert done["spec"]["containers"][0]["resources"]["limits"] == limits(vgpu_number=1, vgpu_memory=1000)
    assert set(request_of(pod_reviews.complete(pod(CARDS, container("v", vgpu_number=0)))).containers) == {
        "trainer"
    }


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ({"vgpu_h20": 0, "vgpu_h20_memory": 5}, "no model is named"),
        ({"vgpu_h20": 1, "vgpu_h20_memory": 0}, "0 is written, the sum is 98304"),
        ({"vgpu_h20": 1, "vgpu_memory": 0}, "0 is below 1"),
        ({"vgpu_h20": "0x"}, "not a quantity"),
        ({"vgpu_h20": -1}, "-1 is below 1"),
    ],
)
def test_what_is_not_0_cards_is_refused_as_before(amounts: Json, words: str) -> None:
    assert words in pod_reviews.refusal(pod(CARDS, container("log", **amounts)))


def test_a_request_of_1_with_a_limit_of_0_is_refused() -> None:
    one: Json = {"name": "c", "resources": {"limits": limits(vgpu_h20=0), "requests": limits(vgpu_h20=1)}}
    with pytest.raises(AskError, match="1 differs from the limit 0"):
        read_pod({"containers": [one]}, context().table)


def test_completing_twice_is_completing_once() -> None:
    once = pod_reviews.complete(pod(CARDS, container("log", vgpu_h20=0, vgpu_memory=1)))
    assert review_pod(create(once), context()).patch == ()


def test_a_0_that_is_added_to_a_job_changes_no_ask() -> None:
    stored = job_reviews.complete(job(task("w", 2, CARDS, container("log"))))
    again = job(task("w", 2, CARDS, container("log", vgpu_h20=0, vgpu_memory=1)))
    decision = review_job(update(again, stored), context())
    assert decision.allowed
    assert (
        patched(again, decision)["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
        == (stored["spec"]["tasks"][0]["template"]["spec"]["containers"][0])
    )


def test_an_amount_of_0_makes_no_gang_and_no_job_ask_for_cards() -> None:
    group = {"metadata": {}, "spec": {"minResources": {"cpu": 1, "volcano.sh/vgpu-h20": "0"}}}
    assert slim_group(group)["spec"]["minResources"] == {}
    assert slim_job(job(task("w", 1, container(vgpu_h20=0))))["spec"]["asks"] is False
    assert slim_job(job(task("w", 1, CARDS)))["spec"]["asks"] is True
