"""The limits of one ask: pods, Jobs and edits of Queues are held to them."""

import copy
import json

import pytest
from unit.webhook.job_reviews import complete as complete_job
from unit.webhook.job_reviews import refusal as job_refusal
from unit.webhook.pod_reviews import asking
from unit.webhook.pod_reviews import complete as complete_pod
from unit.webhook.pod_reviews import refusal as pod_refusal
from unit.webhook.world import ALICE, OPERATOR, QUEUES, Json, container, context, create, job, task, update
from vc_egpu.volcano.codec.queue_limits import QueueLimits, QueueLimitsError
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.protocol.questions import Subject
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.queues import review_queue

LIMITS = "egpu.volcano.sh/limits"
QUEUE = "scheduling.volcano.sh/queue-name"


def limited(queue: Json, **limits: object) -> Json:
    found = copy.deepcopy(queue)
    found["metadata"]["annotations"] = {LIMITS: json.dumps(limits)}
    return found


def with_limits(name: str = "a", **limits: object) -> Context:
    return context(queues={**QUEUES, name: limited(QUEUES[name], **limits)})


def pod_in(queue: str, **amounts: int) -> Json:
    found = asking(**amounts)
    found["metadata"]["annotations"] = {QUEUE: queue}
    return found


@pytest.mark.parametrize(
    ("limits", "amounts", "said"),
    [
        (
            {"maxCardsPerPod": 1},
            {"vgpu_h20": 2, "vgpu_memory": 1024},
            "spec.containers: the pod asks for 2 cards, queue 'a' lets one pod have 1",
        ),
        (
            {"maxMemoryMiBPerCard": 1024},
            {"vgpu_h20": 1, "vgpu_memory": 1025},
            "the pod asks for 1025 MiB on a card, queue 'a' lets one pod have 1024",
        ),
        ({"maxMemoryMiBPerCard": 50_000}, {"vgpu_h20": 1}, "asks for 98304 MiB on a card"),
    ],
)
def test_a_pod_that_asks_for_too_much_is_refused(
    limits: dict[str, object], amounts: dict[str, int], said: str
) -> None:
    assert said in pod_refusal(pod_in("a", **amounts), with_limits(**limits))
    assert LIMITS in pod_refusal(pod_in("a", **amounts), with_limits(**limits))
    complete_pod(pod_in("a", **amounts), context())


def test_a_pod_may_ask_for_all_that_is_let() -> None:
    limits = with_limits(maxCardsPerPod=2, maxMemoryMiBPerCard=1024)
    complete_pod(pod_in("a", vgpu_h20=2, vgpu_memory=1024), limits)


def test_the_limits_of_a_queue_above_hold_too() -> None:
    ctx = with_limits("org", maxCardsPerPod=1)
    said = pod_refusal(pod_in("org-1", vgpu_h20=2, vgpu_memory=1024), ctx)
    assert "queue 'org' lets one pod have 1" in said


def test_limits_that_cannot_be_read_let_nothing_in() -> None:
    queue = copy.deepcopy(QUEUES["a"])
    queue["metadata"]["annotations"] = {LIMITS: "{"}
    ctx = context(queues={**QUEUES, "a": queue})
    said = pod_refusal(pod_in("a", vgpu_h20=1, vgpu_memory=1024), ctx)
    assert f"queue 'a': its annotation {LIMITS} cannot be read, so nothing is let in: is no JSON" in said


def gang(replicas: int, cards: int = 1) -> Json:
    asks = container(vgpu_h20=cards, vgpu_memory=1024)
    return job(task("w", replicas, asks), queue="a", minAvailable=1)


def test_a_job_is_held_to_them_task_by_task() -> None:
    said = job_refusal(gang(1, cards=2), with_limits(maxCardsPerPod=1))
    assert 'spec.tasks["w"]' in said
    assert "each of its pods asks for 2 cards, queue 'a' lets one pod have 1" in said
    said = job_refusal(gang(5), with_limits(maxMembersPerGang=4))
    assert said.startswith("spec.tasks: 5 members in all, queue 'a' lets one gang have 4")
    complete_job(gang(4), with_limits(maxMembersPerGang=4, maxCardsPerPod=1))


def test_a_job_that_is_there_may_shrink_and_not_grow() -> None:
    stored = complete_job(gang(5))
    ctx = with_limits(maxMembersPerGang=3)
    assert review_job(update(gang(4), stored), ctx).allowed
    assert "6 members in all" in job_refusal(gang(6), ctx, old=stored)


# --- edits of a Queue ----------------------------------------------------------------------------------


def verdict(after: Json, before: Json | None, subject: Subject = ALICE) -> str:
    review = create(after, subject) if before is None else update(after, before, subject)
    return review_queue(review, context()).message


A = limited(QUEUES["a"], maxCardsPerPod=2)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (limited(A, maxCardsPerPod=3), "maxCardsPerPod: 2 to 3: user 'alice' may not raise queue 'a'"),
        (limited(A, maxMembersPerGang=3), "maxCardsPerPod: 2 to no limit"),
        (QUEUES["a"], "maxCardsPerPod: 2 to no limit"),
    ],
)
def test_raising_needs_set_cap(after: Json, said: str) -> None:
    assert said in verdict(after, A)
    assert verdict(after, A, OPERATOR) == ""


def test_lowering_and_adding_need_nothing_more() -> None:
    assert verdict(limited(A, maxCardsPerPod=1, maxMembersPerGang=4), A) == ""
    assert verdict(A, QUEUES["a"]) == ""


def test_bad_limits_are_refused_also_to_the_operator() -> None:
    for limits in ({"maxCards": 1}, {"maxCardsPerPod": 0}, {"maxCardsPerPod": "2"}, {"maxCardsPerPod": 1.5}):
        said = verdict(limited(A, **limits), A, OPERATOR)
        assert said.startswith(f'metadata.annotations["{LIMITS}"]: maxCards'), said
        assert verdict(limited(QUEUES["a"], **limits), None, OPERATOR) != ""


def test_what_was_bad_before_can_be_put_right_by_the_operator_only() -> None:
    bad = copy.deepcopy(A)
    bad["metadata"]["annotations"] = {LIMITS: "["}
    assert "what was there cannot be read" in verdict(A, bad)
    assert verdict(A, bad, OPERATOR) == ""
    finalized = copy.deepcopy(bad)
    finalized["metadata"]["finalizers"] = ["x"]
    assert verdict(finalized, bad) == ""


@pytest.mark.parametrize("text", ["", "[]", "1", "null", '{"maxCardsPerPod": true}', "{" * 2000, None])
def test_texts_that_are_no_limits(text: object) -> None:
    with pytest.raises(QueueLimitsError):
        QueueLimits.decode(text)


def test_written_limits_are_read_again() -> None:
    limits = QueueLimits(max_cards_per_pod=2, max_memory_mib_per_card=1024)
    assert limits.encode() == '{"maxCardsPerPod":2,"maxMemoryMiBPerCard":1024}'
    assert QueueLimits.decode(limits.encode()) == limits
    assert QueueLimits().encode() == ""
