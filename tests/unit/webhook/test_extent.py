"""Objects that hold more than anybody writes: refused before they are read, while all other reviews wait."""

import time
from typing import Any, Final

import pytest
from unit.webhook.job_reviews import refusal
from unit.webhook.world import Json, container, context, create, job, pod, task
from vc_egpu.webhook.extent import MAX_PARTS
from vc_egpu.webhook.pods import review_pod

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
