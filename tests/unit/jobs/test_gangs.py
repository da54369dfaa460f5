"""PodGroups: what they say, whose they are, and in which phase a gang is."""

from typing import Any

import pytest
from unit.jobs.worlds import UID, job, task
from vc_egpu.jobs.objects.podgroups import (
    Member,
    changes,
    group_status,
    job_group,
    job_group_spec,
    loose_group,
    loose_group_document,
)
from vc_egpu.volcano.api.podgroup import PodGroupPhase as G


def test_the_group_of_a_job() -> None:
    document = job_group(job(task("m", 1), task("w", 3, minAvailable=2), priorityClassName="egpu-low"), {})
    assert document["metadata"]["name"] == f"train-{UID}"
    assert document["status"] == {"phase": "Inqueue"}
    assert document["spec"] == {
        "minMember": 3,
        "minTaskMember": {"m": 1, "w": 2},
        "queue": "default",
        "minResources": {"cpu": "3", "pods": "3"},
        "priorityClassName": "egpu-low",
    }
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", UID, True)


def test_a_job_cannot_smuggle_a_plan_into_its_group() -> None:
    """The controller may write plans where tenants may not: it must not be talked into it."""
    subject = job()
    subject.metadata.annotations = {
        "egpu.volcano.sh/plan": "forged",
        "egpu.volcano.sh/rolled-back": "forged",
        "egpu.volcano.sh/cards": "forged",
        "egpu.volcano.sh/priority": "low",
        "team/contact": "x",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    annotations = job_group(subject, {})["metadata"]["annotations"]
    assert annotations == {
        "egpu.volcano.sh/priority": "low",
        "team/contact": "x",
        "volcano.sh/job-version": "0",
    }


def _costing(name: str, replicas: int, cpu: str, **more: Any) -> dict[str, Any]:
    value = task(name, replicas, **more)
    spec = value["template"]["spec"]
    spec["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"volcano.sh/vgpu-h20": "2"}}
    spec["priorityClassName"] = f"class-{name}"
    return value


@pytest.mark.parametrize(
    ("min_available", "cpu"),
    [
        pytest.param(2, "4", id="fewer than the tasks' least together: the more important ones"),
        pytest.param(3, "1500m", id="the least of each task"),
        pytest.param(4, "3500m", id="then one more of the more important one"),
        pytest.param(7, "9500m", id="all"),
    ],
)
def test_min_resources_take_the_more_important_tasks_first(min_available: int, cpu: str) -> None:
    tasks = _costing("low", 3, "500m"), _costing("high", 4, "2", minAvailable=0)
    spec = job_group_spec(job(*tasks, minAvailable=min_available), {"class-high": 10, "class-low": 1})
    assert spec["minResources"]["cpu"] == cpu
    assert spec["minResources"]["volcano.sh/vgpu-h20"] == str(2 * min_available)


def test_scaling_patches_only_what_differs() -> None:
    before = job_group_spec(job(task(replicas=2)), {})
    assert changes(before, before) == {}
    after = job_group_spec(job(task(replicas=3)), {})
    assert changes(after, before) == {
        "minMember": 3,
        "minTaskMember": {"w": 3},
        "minResources": {"cpu": "3", "pods": "3"},
    }
    assert changes({"minTaskMember": {"a": 1}}, {"minTaskMember": {"b": 1}}) == {
        "minTaskMember": {"a": 1, "b": None}
    }


def members(text: str) -> list[Member]:
    """One letter per pod: p unbound, b bound and starting, r running, s, f, t terminating while running."""
    kinds = {
        "p": Member("Pending", bound=False, terminating=False),
        "b": Member("Pending", bound=True, terminating=False),
        "r": Member("Running", bound=True, terminating=False),
        "s": Member("Succeeded", bound=True, terminating=False),
        "f": Member("Failed", bound=True, terminating=False),
        "t": Member("Running", bound=True, terminating=True),
    }
    return [kinds[letter] for letter in text]


@pytest.mark.parametrize(
    ("pods", "before", "expected"),
    [
        ("", None, G.INQUEUE),
        ("", G.RUNNING, G.INQUEUE),
        ("pp", G.INQUEUE, G.INQUEUE),
        ("pp", G.PENDING, G.INQUEUE),
        ("bb", G.INQUEUE, G.RUNNING),
        ("rr", G.INQUEUE, G.RUNNING),
        ("rs", G.RUNNING, G.RUNNING),
        ("ss", G.RUNNING, G.COMPLETED),
        ("rp", G.INQUEUE, G.INQUEUE),
        ("rp", G.RUNNING, G.UNKNOWN),
        ("rp", G.UNKNOWN, G.UNKNOWN),
        ("rr", G.UNKNOWN, G.RUNNING),
        ("rf", G.RUNNING, G.UNKNOWN),
        ("rt", G.RUNNING, G.RUNNING),
        ("tp", G.RUNNING, G.RUNNING),
        ("pp", G.RUNNING, G.INQUEUE),
    ],
)
def test_phase_of_a_gang_of_two(pods: str, before: G | None, expected: G) -> None:
    assert group_status(2, members(pods), before).phase is expected


def test_counts() -> None:
    counts = group_status(1, members("rrsf"), G.RUNNING)
    assert counts.document() == {"phase": "Running", "running": 2, "succeeded": 1, "failed": 1}
    assert group_status(1, members("p"), G.RUNNING).document()["running"] is None, "zero is absent"


def _pod(owner: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "pod-uid",
            "annotations": annotations,
            "ownerReferences": [owner] if owner else [],
        },
        "spec": {
            "containers": [{"resources": {"requests": {"cpu": "100m"}}}],
            "priorityClassName": "egpu-high",
        },
    }


REPLICA_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "rs",
    "uid": "rs-uid",
    "controller": True,
}
QUEUE, SIZE = "scheduling.volcano.sh/queue-name", "scheduling.volcano.sh/group-min-member"


def test_pods_of_one_controller_share_a_group_that_goes_with_it() -> None:
    pod = _pod(REPLICA_SET)
    group = loose_group(pod, None, {QUEUE: "from-namespace"})
    document = loose_group_document(group, pod)
    assert group.name == "podgroup-rs-uid"
    assert document["metadata"]["ownerReferences"] == [REPLICA_SET]
    assert document["spec"] == {
        "minMember": 1,
        "queue": "from-namespace",
        "minResources": {"cpu": "100m", "pods": "1"},
        "priorityClassName": "egpu-high",
    }


def test_a_bare_pod_has_a_group_of_its_own() -> None:
    group = loose_group(_pod(), None, {})
    document = loose_group_document(group, _pod())
    assert (group.name, group.queue) == ("podgroup-pod-uid", "default")
    assert document["metadata"]["ownerReferences"][0]["kind"] == "Pod"


def test_the_pod_says_more_than_its_controller_and_that_more_than_the_namespace() -> None:
    owner = {"metadata": {"annotations": {QUEUE: "owner", SIZE: "4"}}}
    namespace = {QUEUE: "namespace"}
    assert loose_group(_pod(REPLICA_SET, **{QUEUE: "pod"}), owner, namespace).queue == "pod"
    group = loose_group(_pod(REPLICA_SET), owner, namespace)
    assert (group.queue, group.min_member) == ("owner", 4)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "", "\u00b2", "99999999999999999999", "9" * 5000])
def test_a_senseless_gang_size_is_one(text: str) -> None:
    assert loose_group(_pod(REPLICA_SET, **{SIZE: text}), None, {}).min_member == 1


def test_a_pod_cannot_smuggle_a_plan_into_its_group() -> None:
    pod = _pod(REPLICA_SET, **{"egpu.volcano.sh/plan": "forged", "egpu.volcano.sh/priority": "low", "x": "y"})
    annotations = loose_group_document(loose_group(pod, None, {}), pod)["metadata"]["annotations"]
    assert annotations == {"egpu.volcano.sh/priority": "low"}
