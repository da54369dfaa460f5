"""Needs of pods and Jobs at the door, and what becomes of them in the decision's values."""

import json
from typing import Any

import pytest
from unit.webhook import job_reviews
from unit.webhook.pod_reviews import complete, refusal
from unit.webhook.world import ALICE, Json, container, context, create, job, pod, task
from vc_egpu.core.environments.needs import lacking
from vc_egpu.volcano.codec.pod_codec import pod as decode_pod
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.webhook.reviews.pods import review_pod

NEEDS = "egpu.volcano.sh/needs"
TABLE = ModelTable.from_yaml("models: [{name: h20, memoryMiB: 98304}]")
OLD = (("capability", ("9.0",)), ("cuda", ("12.2",)), ("driver", ("535.104.05",)))
NEW = (("capability", ("9.0",)), ("cuda", ("12.4",)), ("driver", ("550.54.14",)))


def with_env(needs: str | None = None, **variables: str) -> Json:
    image = container(vgpu_h20=1)
    image["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    return pod(image, annotations={NEEDS: needs} if needs is not None else None)


def shape_of(obj: Json) -> Any:
    done = complete(obj)
    done["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    found = decode_pod(done, TABLE)
    assert not found.problem
    return found.pod.shape


def test_what_a_user_writes_reaches_the_decision() -> None:
    needs = shape_of(pod(annotations={NEEDS: "cuda>=12.4,torch==2.6"})).needs
    assert needs.text == "cuda>=12.4,torch==2.6"
    assert not needs.presumed
    assert lacking(needs, OLD)
    assert not lacking(needs, NEW)
    assert lacking(needs, ())


def test_a_pod_that_says_nothing_needs_nothing() -> None:
    done = complete(pod())
    assert "needs" not in json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])
    assert not shape_of(pod()).needs.ways


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("trch==2.6", f"metadata.annotations[\"{NEEDS}\"]: 'trch' is unknown"),
        ("torch==2.99", "no row of the table for torch 2.99; ask your operator to add one"),
        ("cuda>=12.4,", "has an empty part"),
        ("x" * 513, "is 513 characters long, the limit is 512"),
        (",".join(["cuda>=1"] * 17), "has 17 parts, the limit is 16"),
        ("cuda>=twelve", "'twelve' is no version"),
        ("", "has an empty part"),
    ],
)
def test_what_no_node_could_ever_meet_is_refused(written: str, said: str) -> None:
    assert said in refusal(pod(annotations={NEEDS: written}))
    assert said.rpartition("]: ")[2] in job_reviews.refusal(job(task("w", 1, annotations={NEEDS: written})))


def test_an_edit_cannot_bring_it_in() -> None:
    stored = job_reviews.complete(job(task("w", 1)))
    assert "is unknown" in job_reviews.refusal(job(task("w", 1, annotations={NEEDS: "trch"})), old=stored)


def test_what_the_containers_say_is_filled_in_with_a_warning() -> None:
    obj = with_env(NVIDIA_REQUIRE_CUDA="cuda>=12.4 brand=tesla,driver>=535,driver<536")
    needs = shape_of(obj).needs
    assert needs.presumed
    assert not lacking(needs, OLD)  # by its second term
    assert not lacking(needs, ())
    warnings = review_pod(create(obj, ALICE), context()).warnings
    assert any("NVIDIA_REQUIRE_CUDA: taken for what the program needs" in text for text in warnings)


def test_an_old_image_says_it_by_its_cuda_version() -> None:
    needs = shape_of(with_env(CUDA_VERSION="12.4.1")).needs
    assert lacking(needs, OLD)
    assert not lacking(needs, NEW)


def test_the_users_word_beats_the_image() -> None:
    needs = shape_of(with_env("cuda>=12.0", NVIDIA_REQUIRE_CUDA="cuda>=12.4")).needs
    assert not needs.presumed
    assert not lacking(needs, OLD)


def test_a_pod_that_comes_again_is_completed_alike() -> None:
    once = complete(pod(annotations={NEEDS: "torch==2.6"}))
    assert complete(once)["metadata"]["annotations"] == once["metadata"]["annotations"]


def test_variables_that_are_no_texts_say_nothing() -> None:
    image = container(vgpu_h20=1)
    image["env"] = [{"name": "CUDA_VERSION", "valueFrom": {"fieldRef": {}}}, "x", {"value": "1"}]
    assert not shape_of(pod(image)).needs.ways


TABLE_OF_IMAGES = EnvironmentTable.from_yaml(
    "{shipped: true, images: [{image: 'reg/torch:*-cu124', needs: 'torch==2.6+cu124'}]}"
)


def of_image(image: str, needs: str | None = None, **variables: str) -> tuple[Any, tuple[str, ...]]:
    obj = with_env(needs, **variables)
    obj["spec"]["containers"][0]["image"] = image
    known = context(environments=TABLE_OF_IMAGES)
    done = complete(obj, known)
    warnings = review_pod(create(obj, ALICE), known).warnings
    done["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    return decode_pod(done, TABLE).pod.shape.needs, tuple(warnings)


def test_the_operator_s_row_for_an_image_is_filled_in_with_a_warning() -> None:
    needs, warnings = of_image("reg/torch:2.6-cu124")
    assert needs.presumed
    assert lacking(needs, (("capability", ("9.0",)), ("cuda", ("11.8",)), ("driver", ("520.61.05",))))
    assert not lacking(needs, NEW)
    assert not lacking(needs, ()), "a node that does not tell is taken for fit"
    assert any("image reg/torch:2.6-cu124: taken for what the program needs" in text for text in warnings)
    assert not of_image("reg/torch:2.6-cu118")[0].ways


def test_the_user_s_word_and_the_variables_beat_the_row_for_the_image() -> None:
    assert of_image("reg/torch:2.6-cu124", "cuda>=12.0")[0].text == "cuda>=12.0"
    assert of_image("reg/torch:2.6-cu124", CUDA_VERSION="11.8")[0].text == "CUDA_VERSION"


def test_any_of_several_needs_of_an_image_will_do() -> None:
    """One that leads nowhere counts for nothing."""
    row = "{image: 'i', needs: ['cuda>=12.4', 'driver>=535,driver<536', 'torch==2.99']}"
    known = context(environments=EnvironmentTable.from_yaml(f"{{shipped: true, images: [{row}]}}"))
    done = complete(with_env(), known)
    done["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    needs = decode_pod(done, TABLE).pod.shape.needs
    assert not lacking(needs, OLD)
    assert not lacking(needs, NEW)
    assert lacking(needs, (("cuda", ("11.8",)), ("driver", ("520.61.05",))))
