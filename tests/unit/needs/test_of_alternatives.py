"""Each alternative has an image, and so needs of its own: at the door, and in the decision's values."""

import json
from dataclasses import replace
from typing import Any

import pytest
from unit.webhook import job_reviews
from unit.webhook.pod_reviews import complete, group
from unit.webhook.world import NAMESPACE, Json, container, context, create, job, patched, pod, queue, task
from vc_egpu.core.environments.needs import lacking
from vc_egpu.volcano.codec.pod_codec import pod as decode_pod
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod

TABLE = ModelTable.from_yaml(
    "models: [{name: h20, memoryMiB: 98304}, {name: v100-32g, memoryMiB: 32768}, "
    "{name: a100-40g, memoryMiB: 40960}]"
)
BOTH = {f"volcano.sh/vgpu-{model}": "4" for model in ("h20", "v100-32g", "a100-40g")}
TWO: list[Json] = [
    {"name": "h20", "needs": "cuda>=12.4", "image": {"c": "reg/a:cu124"}},
    {"name": "v100-32g", "needs": "torch==2.6+cu118", "image": {"c": "reg/a:cu118"}},
]
OLD = (("capability", ("7.0",)), ("cuda", ("12.2",)), ("driver", ("535.104",)))


def world() -> Context:
    return context("alice use queues a", queues={"a": queue("a", capability=BOTH)})


def a_replica(alternatives: list[Json], needs: str | None = None, **env: str) -> Json:
    image = container(vgpu=1, vgpu_memory=8192)
    image["env"] = [{"name": name, "value": value} for name, value in env.items()]
    said = {names.ALTERNATIVES: json.dumps(alternatives)} | ({names.NEEDS: needs} if needs else {})
    obj = pod(image, annotations=said)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "rs", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    return obj


def with_choice(choice: str) -> Context:
    name = "podgroup-rs"
    return replace(world(), pod_groups={(NAMESPACE, name): group("rs", name=name, **{names.CHOICE: choice})})


def shape_of(done: Json) -> Any:
    done["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    found = decode_pod(done, TABLE)
    assert not found.problem
    return found.pod.shape


def needs_by_option(obj: Json) -> dict[str, str]:
    shape = shape_of(complete(obj, world()))
    return {one.name: shape.as_option(one.name).needs.text for one in shape.options}


def test_the_gang_as_it_would_be_needs_what_the_alternative_needs() -> None:
    shape = shape_of(complete(a_replica(TWO), world()))
    assert lacking(shape.as_option("h20").needs, OLD)
    assert not lacking(shape.as_option("v100-32g").needs, OLD)


def test_an_alternative_without_needs_has_those_of_the_template() -> None:
    mixed: list[Json] = [*TWO[:1], {"name": "v100-32g", "image": {"c": "i"}}]
    assert needs_by_option(a_replica(mixed, "driver>=530")) == {
        "h20": "cuda>=12.4",
        "v100-32g": "driver>=530",
    }
    assert needs_by_option(a_replica(mixed)) == {"h20": "cuda>=12.4", "v100-32g": ""}


def test_variables_of_an_alternative_say_what_it_needs() -> None:
    said: list[Json] = [{"name": "h20", "env": {"c": {"CUDA_VERSION": "12.4.1"}}}, {"name": "v100-32g"}]
    assert needs_by_option(a_replica(said)) == {"h20": "CUDA_VERSION", "v100-32g": ""}
    assert needs_by_option(a_replica(said, CUDA_VERSION="11.8")) == {
        "h20": "CUDA_VERSION", "v100-32g": "CUDA_VERSION",
    }  # fmt: skip


@pytest.mark.parametrize(("choice", "text"), [("h20", "cuda>=12.4"), ("v100-32g", "torch==2.6+cu118")])
def test_once_it_is_chosen_the_pod_needs_what_that_one_needs(choice: str, text: str) -> None:
    done = complete(a_replica(TWO), with_choice(choice))
    assert shape_of(json.loads(json.dumps(done))).needs.text == text
    assert patched(done, review_pod(create(done), world())) == done, "seen once more it is complete"


def test_before_it_is_chosen_a_second_look_changes_nothing() -> None:
    done = complete(a_replica(TWO), world())
    assert patched(done, review_pod(create(done), world())) == done


def test_a_job_is_refused_for_the_needs_of_one_alternative_which_is_named() -> None:
    bad = json.dumps([*TWO, {"name": "a100-40g", "needs": "torch==2.99"}])
    obj = job(task("w", 1, container(vgpu=1)))
    obj["metadata"].setdefault("annotations", {})[names.ALTERNATIVES] = bad
    said = job_reviews.refusal(obj, world())
    assert f'["{names.ALTERNATIVES}"]: a100-40g.needs: no row of the table for torch 2.99' in said


def test_a_job_whose_alternatives_need_something_is_taken() -> None:
    obj = job(task("w", 1, container(vgpu=1)))
    obj["metadata"].setdefault("annotations", {})[names.ALTERNATIVES] = json.dumps(TWO)
    assert review_job(create(obj), world()).allowed


def test_needs_that_take_too_much_room_are_refused() -> None:
    wide = ",".join(["torch>=2.5", *(f"driver!=5{number}.111111.111111.1" for number in range(15))])
    decision = review_pod(
        create(a_replica([{"name": one, "model": "h20", "needs": wide} for one in "abcdefgh"])), world()
    )
    assert not decision.allowed
    assert "the limit is 16384" in decision.message
