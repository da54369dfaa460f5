"""Pods and other objects that the API server does not let the controller make: told, and the rest goes on."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import task
from unit.kube.tiny_api import status
from vc_egpu.kube.wire.errors import Forbidden, Invalid, Unavailable

QUOTA = "exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1"


def refuse(cluster: Cluster, pods: int, *, after: int = 0) -> None:
    """So many pods are refused once ``after`` have been made."""
    cluster.server.script = [(403, status(403, "Forbidden", QUOTA), {})] * pods
    cluster.server.script_for, cluster.server.skip = '"kind": "Pod"', after


def tried(cluster: Cluster) -> int:
    """How often a pod was to be made so far."""
    return sum(
        method == "POST" and path.endswith("/pods") for method, path, _ in list(cluster.server.requests)
    )


def three(cluster: Cluster, **spec: Any) -> None:
    """A Job of three pods, for which one is enough."""
    cluster.job("mine", tasks=[task(replicas=3, minAvailable=1)], **spec)


def test_a_job_of_which_the_quota_lets_some_pods_in_goes_on_with_those(cluster: Cluster) -> None:
    three(cluster)
    refuse(cluster, 2, after=1)
    with pytest.raises(Forbidden):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Pending"
    (path,) = [path for path in cluster.server.objects if "/pods/" in path]
    cluster.run_pod(path)
    refuse(cluster, 1)
    with pytest.raises(Forbidden):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Running"
    assert ("FailedCreate", f"POST /api/v1/namespaces/mine/pods: {QUOTA}") in cluster.events()


def test_while_the_quota_is_used_up_one_pod_is_tried_at_a_time(cluster: Cluster) -> None:
    three(cluster)
    refuse(cluster, 3)
    for expected in (3, 4, 5):
        with pytest.raises(Forbidden):
            cluster.look_at_job("mine")
        assert tried(cluster) == expected
        refuse(cluster, 3)
    cluster.server.script.clear()
    cluster.look_at_job("mine")
    assert tried(cluster) == 8
    assert sum("/pods/" in path for path in cluster.server.objects) == 3


@pytest.mark.parametrize(
    ("owner", "whose"),
    [
        (None, "it belongs to no controller"),
        (("apps/v1", "Deployment", "web"), "it belongs to Deployment web"),
        (("batch.volcano.sh/v1alpha1", "Job", "train"), "it belongs to an earlier Job of this name"),
    ],
)
def test_a_service_of_somebody_else_that_is_in_the_way_is_told(
    cluster: Cluster, owner: tuple[str, str, str] | None, whose: str
) -> None:
    keys = ("apiVersion", "kind", "name")
    owners = [dict(zip(keys, owner, strict=True)) | {"uid": "x", "controller": True}] if owner else []
    service = {"kind": "Service", "metadata": {"name": "train", "ownerReferences": owners}}
    cluster.server.put("/api/v1/namespaces/mine/services/train", service)
    three(cluster, plugins={"svc": []})
    with pytest.raises(Unavailable):
        cluster.look_at_job("mine")
    assert ("FailedCreate", f"Service mine/train is in the way: {whose}") in cluster.events()
    assert cluster.phase_of_job("mine") == "Pending"
    assert tried(cluster) == 0


def test_a_service_that_the_api_server_does_not_take_is_told(cluster: Cluster) -> None:
    three(cluster, plugins={"svc": []})
    cluster.server.script = [(422, status(422, "Invalid", "a name must begin with a letter"), {})]
    cluster.server.script_for = '"kind": "Service"'
    with pytest.raises(Invalid):
        cluster.look_at_job("mine")
    told = "POST /api/v1/namespaces/mine/services: a name must begin with a letter"
    assert ("FailedCreate", told) in cluster.events()


def test_a_webhook_of_somebodys_that_does_not_answer_is_told(cluster: Cluster) -> None:
    three(cluster)
    down = "failed calling webhook guard.example.com: connection refused"
    cluster.server.script = [(500, status(500, "InternalError", down), {})] * 2
    cluster.server.script_for, cluster.server.skip = '"kind": "Pod"', 1
    with pytest.raises(Unavailable):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Pending"
    assert ("FailedCreate", f"POST /api/v1/namespaces/mine/pods: {down}") in cluster.events()


def test_a_podgroup_that_the_quota_does_not_let_in_is_told(cluster: Cluster) -> None:
    three(cluster)
    quota = "exceeded quota: gangs, requested: count/podgroups.scheduling.volcano.sh=1"
    cluster.server.script = [(403, status(403, "Forbidden", quota), {})]
    cluster.server.script_for = '"kind": "PodGroup"'
    with pytest.raises(Forbidden):
        cluster.look_at_job("mine")
    assert tried(cluster) == 0
    assert cluster.phase_of_job("mine") == "Pending"
    told = f"POST /apis/scheduling.volcano.sh/v1beta1/namespaces/mine/podgroups: {quota}"
    assert ("FailedCreate", told) in cluster.events()


def test_a_webhook_that_takes_its_time_does_not_keep_the_writers_from_other_jobs(cluster: Cluster) -> None:
    """Each pod of the Job would wait for its time-out of ten seconds, while the writes of all other Jobs
    stand in line. Ten thousand pods took an hour and a half, at every look."""
    cluster.job("mine", tasks=[task(replicas=200)])
    slow = "failed calling webhook guard.example.com: context deadline exceeded"
    cluster.server.script = [(500, status(500, "InternalError", slow), {})] * 300
    cluster.server.script_for, cluster.server.delay_s = '"kind": "Pod"', 0.05
    for most in (64, 65, 66):
        with pytest.raises(Unavailable):
            cluster.look_at_job("mine")
        assert tried(cluster) <= most
    cluster.server.script.clear()
    cluster.server.delay_s = 0.0
    cluster.look_at_job("mine")
    assert sum("/pods/" in path for path in cluster.server.objects) == 200
