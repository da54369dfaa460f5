"""Templates may hold anything: the API server does not look into them. What is read of them is looked at."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.jobs.worlds import job, task
from vc_egpu.jobs.objects.podgroups import job_group_spec
from vc_egpu.jobs.objects.pods import build_pod
from vc_egpu.jobs.rules.defaults import problems
from vc_egpu.jobs.rules.plugins import plugins_of
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.words import names

GOOD: dict[str, Any] = {"name": "c", "image": "i"}


def of_spec(spec: Any) -> Job:
    plugins: dict[str, list[str]] = {"env": [], "pytorch": []}
    volumes = [{"mountPath": "/data", "volumeClaimName": "d"}]
    return job({**task("master", 1), "template": {"spec": spec}}, plugins=plugins, volumes=volumes)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": "c"}, "template.spec.containers: must be a list of objects"),
        ({"containers": {"c": GOOD}}, "template.spec.containers: must be a list of objects"),
        ({"containers": ["c"]}, "template.spec.containers: must be a list of objects"),
        ({"containers": [GOOD], "initContainers": 7}, "template.spec.initContainers: must be a list"),
        ({"containers": [GOOD], "volumes": "v"}, "template.spec.volumes: must be a list of objects"),
        ({"containers": [GOOD | {"env": {"A": "1"}}]}, "template.spec.containers[0].env: must be a list"),
        ({"containers": [GOOD | {"ports": [80]}]}, "template.spec.containers[0].ports: must be a list"),
        ({"containers": [GOOD | {"resources": "1"}]}, "containers[0].resources: must be an object"),
        ({"containers": [GOOD | {"resources": {"limits": [1]}}]}, "resources.limits: must be an object"),
        ({"containers": [GOOD], "overhead": "1"}, "template.spec.overhead: must be an object"),
        ({"containers": [GOOD], "schedulerName": ["x"]}, "template.spec.schedulerName: must be a text"),
    ],
)
def test_garbage_is_refused_by_name(spec: Any, expected: str) -> None:
    found = problems(of_spec(spec))
    assert any(text.startswith("spec.tasks[0].") and expected in text for text in found), found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["limits", "requests", "cpu", "name", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)
KEYS = ("name", "env", "ports", "volumeMounts", "resources", "restartPolicy")
CONTAINERS = JSON | st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3) | JSON, max_size=2)
OTHERS = ("volumes", "hostname", "subdomain", "overhead", "resources", "schedulerName", "priorityClassName")


@given(CONTAINERS, CONTAINERS, st.dictionaries(st.sampled_from(OTHERS), JSON))
def test_what_is_not_refused_can_be_made(containers: Any, first: Any, others: Any) -> None:
    subject = of_spec({"containers": containers, "initContainers": first, **others})
    if not problems(subject):
        job_group_spec(subject, {})
        build_pod(subject, subject.spec.tasks[0], 0, plugins_of(subject), "default-scheduler")


@pytest.mark.parametrize("key", ["env", "ports", "volumeMounts", "resources", "restartPolicy"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_null_is_absent_as_for_the_api_server(kind: str, key: str) -> None:
    """As Helm writes it where a template has no value: ``env:`` and nothing behind it."""
    plain, with_null = GOOD, GOOD | {key: None}
    made = []
    for container, volumes in ((plain, {}), (with_null, {"volumes": None})):
        subject = of_spec({"containers": [GOOD], kind: [container], **volumes})
        assert problems(subject) == []
        job_group_spec(subject, {})
        made.append(build_pod(subject, subject.spec.tasks[0], 0, plugins_of(subject), "default-scheduler"))
    assert made[0] == made[1]


def test_a_template_cannot_ask_for_its_pods_to_be_made_anew() -> None:
    """A pod with the mark is made again without it. From a template the mark came back each time, without
    end."""
    template = {"metadata": {"annotations": {names.OUT_OF_SYNC: "true"}}, "spec": {}}
    subject = job({**task(), "template": template})
    pod = build_pod(subject, subject.spec.tasks[0], 0, [], "default-scheduler")
    assert names.OUT_OF_SYNC not in pod["metadata"]["annotations"]
