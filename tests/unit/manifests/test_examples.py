"""The examples as data: each can be read, and its README tells the steps that expect.yaml checks."""

from pathlib import Path

import pytest
from rigs.player import STORIES, Player, expectations, method_of
from unit.manifests.kustomize import MANIFESTS, of_kind, rendered
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.api.queue import Queue


def folder(story: str) -> Path:
    return MANIFESTS / "examples" / story


def test_all_stories_are_there_and_listed() -> None:
    listed = (MANIFESTS / "examples" / "README.md").read_text()
    assert set(STORIES) == {
        "gang-shares-cards", "cap-waits", "gang-all-or-nothing", "colocate-inference", "preempt-training",
        "training-comes-back", "deployment", "gpu-and-cpu-tasks", "native-cards",
        "oversubscribe", "suspend-training",
    }  # fmt: skip
    assert all(f"({story})" in listed for story in STORIES)


@pytest.mark.parametrize("story", STORIES)
def test_objects_are_valid_and_each_belongs_to_a_step(story: str) -> None:
    objects = rendered(f"manifests/examples/{story}")
    steps = {str(step["step"]) for step in expectations(story)["steps"]}
    for document in objects:
        assert document["metadata"]["labels"]["egpu-example/step"] in steps
        if document["kind"] != "Namespace" and "namespace" in document["metadata"]:
            assert document["metadata"]["namespace"] == expectations(story)["namespace"]
    queues = {Queue.parse(queue).metadata.name for queue in of_kind(objects, "Queue")}
    for job in of_kind(objects, "Job"):
        assert Job.parse(job).spec.queue in queues


@pytest.mark.parametrize("story", STORIES)
def test_expectations_use_known_words(story: str) -> None:
    words = {word for step in expectations(story)["steps"] for line in step["expect"] for word in line}
    assert words
    assert [word for word in words if not hasattr(Player, method_of(word))] == []


@pytest.mark.parametrize("story", STORIES)
def test_the_readme_tells_every_step(story: str) -> None:
    text = (folder(story) / "README.md").read_text()
    for step in expectations(story)["steps"]:
        if "egpu" in step:
            assert f"kubectl egpu {' '.join(step['egpu'])} -n {expectations(story)['namespace']}" in text
        elif not {"delete", "scale"} & set(step):
            assert f"-l egpu-example/step={step['step']}" in text
    assert f"kubectl delete -k manifests/examples/{story}" in text
