"""Objects that hold more than anybody writes: refused before they are read, while all other reviews wait."""

import json
import string
import time
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from unit.webhook.job_reviews import refusal
from unit.webhook.world import (
    QUEUES,
    Json,
    container,
    context,
    create,
    job,
    pod,
    task,
    update,
)
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of
from vc_egpu.volcano.words.resource_names import classify
from vc_egpu.webhook.protocol.decision import Decision
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.membership import asks
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.reviews.queues import review_queue
from vc_egpu.webhook.reviews.size_limits import MAX_PARTS
from vc_egpu.webhook.serving.caches import slim, slim_group, slim_job

MANY: Final = 300_000
A_SECOND: Final = 1.0


def heavy(**resources: Any) -> Json:
    made = container(vgpu_h20=1)
    made["resources"] |= resources
    return made


AMOUNTS: Final = {f"a{number}": 1 for number in range(MANY)}
JOBS: Final[dict[str, tuple[Json, str]]] = {
    "tasks": (
        job(task("w", 1), *({} for _ in range(MANY))),
        f"spec.tasks: {MANY + 1} tasks, the largest gang has 2048 members; split the Job",
    ),
    "containers": (
        job(task("w", 1, container(vgpu_h20=1), *({} for _ in range(MANY)))),
        f"spec.tasks: {MANY + 1} containers in all, the limit is {MAX_PARTS}",
    ),
    "amounts": (job(task("w", 1, heavy(requests=AMOUNTS))), "amounts in limits and requests in all"),
    "mounts": (job(task("w", 1, {**heavy(), "volumeMounts": [{}] * MANY})), "volumeMounts in all"),
    "volumes": (job(task("w", 1), volumes=[{}] * MANY), "spec.volumes: "),
}


@pytest.mark.parametrize("story", JOBS)
def test_a_job_of_too_many_parts_is_refused_at_once(story: str) -> None:
    obj, words = JOBS[story]
    began = time.process_time()
    assert words in refusal(obj)
    assert words in refusal(job(task("w", 1)), old=obj)
    assert words in refusal(obj, old=job(task("w", 1)))
    assert time.process_time() - began < A_SECOND


def test_a_pod_of_too_many_parts_is_refused_at_once() -> None:
    began = time.process_time()
    decision = review_pod(create(pod(heavy(requests=AMOUNTS))), context())
    assert f"spec: {MANY + 1} amounts in limits and requests in all" in decision.message
    assert time.process_time() - began < A_SECOND


# --- names: they are remembered, and thousands of a few MiB each took all memory ----------------------


@cache
def no_word() -> str:
    """As fits into a request: the API server asks us before it looks at names."""
    return "".join(Random(1).choices(string.ascii_lowercase + string.digits, k=2_800_000))


@pytest.mark.parametrize("prefix", ["volcano.sh/vgpu-", "a.example/"])
def test_names_of_resources_that_nothing_can_have_are_not_remembered(prefix: str) -> None:
    reviews: list[Callable[[Json], Decision]] = [
        lambda spec: review_pod(create(pod(spec)), context()),
        lambda spec: review_job(create(job(task("w", 1, spec))), context()),
    ]
    for reviewed in reviews:
        before = classify.cache_info().currsize
        spec = heavy()
        spec["resources"]["limits"][prefix + no_word()] = 1
        decision = reviewed(spec)
        assert "the name of a resource has 28000" in decision.message
        assert "the limit is 317" in decision.message
        assert classify.cache_info().currsize == before


@pytest.mark.parametrize("prefix", ["volcano.sh/vgpu-", "a.example/"])
def test_nor_are_those_in_a_pod_group_or_in_a_job_that_nobody_looks_at(prefix: str) -> None:
    """Job controllers sum up in a PodGroup whatever a Job names; one without cards does not come here."""
    resources = {prefix + no_word(): 1}
    spec: Json = {"name": "c", "resources": {"requests": resources}}
    group = {
        "metadata": {"name": "g", "namespace": "team-a", "uid": "u", "resourceVersion": "1"},
        "spec": {"minResources": resources},
    }
    before = classify.cache_info().currsize
    assert not cluster_codec.group(group).asks
    assert not asks(group)
    assert not slim_job(job(task("w", 1, spec)))["spec"]["asks"]
    assert classify.cache_info().currsize == before


def large(**spec: Any) -> Json:
    """As large as an object can be, without being looked at by anybody."""
    owners: list[Json] = [{"kind": "Job", "name": f"j{number}", "uid": "u"} for number in range(9000)]
    owners.append({"kind": "Job", "name": "j", "uid": "u", "controller": True})
    annotations = {names.PRIORITY: "x" * 100_000, names.QUEUE_NAME: "x" * 100_000, "a.example/b": "y" * 9999}
    return {
        "metadata": {"name": "g", "ownerReferences": owners, "annotations": annotations},
        "spec": {"queue": "a", **spec},
    }


@pytest.mark.parametrize("card", ["volcano.sh/vgpu-h20", "a.example/vgpu"])
def test_of_large_objects_little_is_kept(card: str) -> None:
    """Some eighty PodGroups of Jobs without cards, of a megabyte each, took the memory of all replicas."""
    needs = {f"a.example/{number}": "1" for number in range(30_000)}
    group = slim_group(large(minResources=needs | {card: 1}))
    assert asks(group) is card.startswith("volcano.sh")
    assert controller_of(group)["name"] == "j"
    assert group["spec"]["queue"] == "a"
    for kept in (group, slim(large()), slim_job(large(tasks=[task("w", 1)] * 2000))):
        assert len(json.dumps(kept)) < 1000
        assert len(kept["metadata"]["annotations"][names.QUEUE_NAME]) > names.LONGEST_OBJECT_NAME


def test_nor_are_accounts() -> None:
    entry = task("w", 1)
    entry["template"]["spec"]["serviceAccountName"] = no_word()
    assert "serviceAccountName has 2800000 characters, the limit is 253" in refusal(job(entry))
    assert "serviceAccount has" in review_pod(create(pod(serviceAccount=no_word())), context()).message


def test_nor_what_a_queue_names_anew() -> None:
    stored = QUEUES["a"]
    edited = {**stored, "spec": {**stored["spec"]}}
    edited["spec"]["capability"] = {**edited["spec"]["capability"], f"volcano.sh/vgpu-{no_word()}-memory": 1}
    assert "the limit is 317" in review_queue(update(edited, stored), context()).message
    assert review_queue(update(stored, edited), context("alice set-cap queues a")).allowed


def test_what_is_much_longer_than_any_setting_is_near_none_of_them() -> None:
    def named(length: int) -> Json:
        words = [no_word()[length * number :][:length] for number in range(4)]
        return pod(annotations={f"egpu.volcano.sh/{word}": "x" for word in words})

    began = time.process_time()
    assert len(review_pod(create(named(16_000)), context()).warnings) == 4
    assert "the limit is" in review_pod(create(named(700_000)), context()).message
    assert time.process_time() - began < A_SECOND / 10
