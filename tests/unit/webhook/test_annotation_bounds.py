"""Annotations have a bound at the door: what the stack writes next to them must find room."""

import copy

import pytest
from unit.webhook import job_reviews, pod_reviews
from unit.webhook.world import Json, container, context, create, job, pod, task, update
from vc_egpu.volcano import room
from vc_egpu.volcano.words import names
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod

SIZE = 64 * 1024
LIMIT = f"the limit is {SIZE}"
QUEUE = room.size(pod(container())["metadata"]["annotations"])
"""What each pod here says besides."""


def text(length: int) -> Json:
    """One annotation of so many bytes in all."""
    return {"k": "x" * (length - 1)}


def asking(**annotations: Json) -> Json:
    return pod(job_reviews.small(), **annotations)


def test_a_pod_has_64_kib_for_annotations_and_no_byte_more() -> None:
    assert review_pod(create(asking(annotations=text(SIZE - QUEUE))), context()).allowed
    assert LIMIT in pod_reviews.refusal(asking(annotations=text(SIZE - QUEUE + 1)))


def test_bytes_count_and_not_characters() -> None:
    assert LIMIT in pod_reviews.refusal(asking(annotations={"k": "é" * (SIZE // 2)}))


def test_pods_that_are_none_of_ours_are_not_measured() -> None:
    assert review_pod(create(pod(container(), annotations=text(SIZE * 3))), context()).allowed


def test_the_copy_of_client_side_apply_is_counted_apart() -> None:
    said = text(SIZE - QUEUE) | {names.LAST_APPLIED: "x" * 100_000}
    assert review_pod(create(asking(annotations=said)), context()).allowed
    said = text(SIZE - QUEUE) | {names.LAST_APPLIED: "x" * 190_000}
    message = pod_reviews.refusal(asking(annotations=said))
    assert "190000 of them are kubectl.kubernetes.io/last-applied-configuration" in message
    assert "kubectl apply --server-side writes none" in message


@pytest.mark.parametrize("where", ["job", "template"])
def test_a_job_and_each_template_have_64_kib(where: str) -> None:
    def of(size: int) -> Json:
        said = {where: text(size)}
        entry = task("w", 1, job_reviews.small(), annotations=said.get("template"))
        return job(entry, annotations=said.get("job"))

    assert review_job(create(of(SIZE)), context()).allowed
    assert LIMIT in job_reviews.refusal(of(SIZE + 1))


def stored_beyond(size: int) -> Json:
    """A Job from before the bound."""
    stored = job_reviews.complete(job(task("w", 1, job_reviews.small(), annotations={})))
    stored["metadata"]["annotations"] = text(size)
    stored["spec"]["tasks"][0]["template"]["metadata"].setdefault("annotations", {}).update(text(size))
    return stored


def test_what_was_stored_beyond_the_bound_changes_and_shrinks_and_does_not_grow() -> None:
    stored = stored_beyond(SIZE * 2)
    edited = copy.deepcopy(stored)
    edited["metadata"]["finalizers"] = []
    edited["status"] = {"state": {"phase": "Running"}}
    assert review_job(update(edited, stored), context()).allowed
    edited["metadata"]["annotations"] = text(SIZE * 2 - 1)
    assert review_job(update(edited, stored), context()).allowed
    edited["metadata"]["annotations"] = text(SIZE * 2 + 1)
    assert LIMIT in job_reviews.refusal(edited, old=stored)
    edited = copy.deepcopy(stored)
    edited["spec"]["tasks"][0]["template"]["metadata"]["annotations"] |= {"more": "x"}
    assert LIMIT in job_reviews.refusal(edited, old=stored)


def test_the_plan_of_a_large_gang_must_fit_next_to_what_controllers_copy() -> None:
    def of(replicas: int, copied: int) -> Json:
        entry = task("w", replicas, job_reviews.small())
        return job(entry, annotations={names.LAST_APPLIED: "x" * copied}, minAvailable=1)

    assert review_job(create(of(64, 150_000)), context()).allowed
    message = job_reviews.refusal(of(2000, 150_000))
    assert "the plan of 2000 pods, on the PodGroup that gets a copy of them, needs" in message
    assert "kubectl apply --server-side writes none" in message
    small = job_reviews.complete(of(64, 150_000))
    assert "the plan of 2000 pods" in job_reviews.refusal(of(2000, 150_000), old=small), "it grows"


def test_the_room_is_counted_as_the_api_server_counts() -> None:
    assert room.size({"ab": "cde", "é": "x"}) == 8
    assert room.own_size({names.CARDS: "x" * 9, names.LAST_APPLIED: "x", "a": "b"}) == 2
    kept = room.without({"annotations": {names.LAST_APPLIED: "x" * 100, "a": "b"}}, names.LAST_APPLIED)
    assert kept["annotations"] == {"a": "b"}
    assert room.size_of(kept) == len(names.LAST_APPLIED) + 100 + 2
    assert room.without(kept, names.LAST_APPLIED) == kept, "also of what was trimmed before"
