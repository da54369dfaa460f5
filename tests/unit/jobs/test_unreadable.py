"""Jobs that are edited, while they run, into something of which no pod can be made: the rest goes on."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import task
from vc_egpu.jobs.rules import defaults
from vc_egpu.volcano.api.job import Job


def of_spec(**spec: Any) -> dict[str, Any]:
    return {"tasks": [{"name": "w", "replicas": 2, "minAvailable": 1, "template": {"spec": spec}}]}


UNREADABLE: dict[str, dict[str, Any]] = {
    "plugin": {"plugins": {"tensorflow": []}},
    "argument": {"plugins": {"svc": ["--no-such"]}},
    "containers": of_spec(containers=["x"]),
    "class": of_spec(containers=[{"name": "c"}], priorityClassName=["x"]),
    "env": {**of_spec(containers=[{"name": "c", "env": "x"}]), "plugins": {"env": []}},
}


def begin(cluster: Cluster) -> str:
    """A Job of one pod, which runs; where that is."""
    cluster.job("mine", tasks=[task(replicas=1)])
    cluster.look_at_job("mine")
    (path,) = [path for path in cluster.server.objects if "/pods/" in path]
    cluster.run_pod(path)
    assert cluster.look_at_job("mine")[0] == "Running"
    return path


@pytest.mark.parametrize("story", UNREADABLE)
def test_a_job_that_was_edited_into_garbage_still_ends(cluster: Cluster, story: str) -> None:
    path = begin(cluster)
    cluster.edit_job("mine", **UNREADABLE[story])
    (problem, *_) = defaults.unreadable(defaults.complete(Job.parse(_job_of(cluster))))
    cluster.run_pod(path, "Succeeded")
    cluster.edit_job("mine", minSuccess=1)
    assert cluster.look_at_job("mine")[0] == "Completed"
    assert any(reason == "Ignored" and problem in text for reason, text in cluster.events())


def test_its_pods_are_made_once_it_is_put_right(cluster: Cluster) -> None:
    begin(cluster)
    cluster.edit_job("mine", **UNREADABLE["containers"])
    cluster.look_at_job("mine")
    assert sum("/pods/" in path for path in cluster.server.objects) == 1
    cluster.edit_job("mine", tasks=[task(replicas=2, minAvailable=1)])
    cluster.look_at_job("mine")
    assert sum("/pods/" in path for path in cluster.server.objects) == 2


def test_one_that_waits_says_why_it_is_not_run(cluster: Cluster) -> None:
    """Its PodGroup is there already, and none of its pods."""
    cluster.job("mine")
    cluster.look_at_job("mine")
    (path,) = [path for path in cluster.server.objects if "/pods/" in path]
    cluster.controller.known.pods.gone(("mine", "train-w-0"), cluster.server.objects[path]["metadata"]["uid"])
    cluster.edit_job("mine", **UNREADABLE["containers"])
    assert cluster.look_at_job("mine")[0] == "Pending"
    assert _job_of(cluster)["status"]["state"]["reason"] == "Refused"


def _job_of(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.controller.known.jobs.get(("mine", "train")) or {}
    return found
