"""Pods and other objects that the API server does not let the controller make: told, and the rest goes on."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import task
from unit.kube.tiny_api import status
from vc_egpu.kube.wire.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable

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


def answering(cluster: Cluster, code: int, reason: str, message: str, **only: str) -> None:
    """From now on such requests are answered so, until :func:`mended`."""
    answer, wanted, part = (code, status(code, reason, message)), only.get("method"), only.get("path", "")
    cluster.server.refuses = lambda method, path, _: (
        answer if method == wanted and part in path.partition("?")[0] else None
    )


def mended(cluster: Cluster) -> None:
    """The API server takes everything again."""
    cluster.server.refuses = None


def running(cluster: Cluster, replicas: int = 2, **spec: Any) -> dict[str, Any]:
    """A Job whose pods run, and the paths of the pods."""
    made = cluster.job("mine", tasks=[task(replicas=replicas, minAvailable=1)], **spec)
    cluster.look_at_job("mine")
    for path in pods_of(cluster):
        cluster.run_pod(path)
    assert cluster.look_at_job("mine")[0] == "Running"
    return made


def pods_of(cluster: Cluster) -> list[str]:
    return sorted(path for path in cluster.server.objects if "/pods/" in path)


def test_a_restart_whose_pods_cannot_be_deleted_waits_and_says_why(cluster: Cluster) -> None:
    train = running(cluster)
    cluster.command("RestartJob", train)
    answering(cluster, 403, "Forbidden", "policy keep: pods stay", method="DELETE", path="/pods/train-w-1")
    for _ in range(3):
        with pytest.raises(Forbidden):
            cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert cluster.phase_of_job("mine") == "Restarting"
    assert [path[-1] for path in pods_of(cluster)] == ["1"], "no second generation next to the first one"
    mended(cluster)
    for _ in range(3):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert len(pods_of(cluster)) == 2
    told = "DELETE /api/v1/namespaces/mine/pods/train-w-1: policy keep: pods stay"
    assert ("WriteRefused", told) in cluster.events()


def test_a_surplus_pod_that_cannot_be_deleted_does_not_keep_the_job_from_its_end(cluster: Cluster) -> None:
    running(cluster, minAvailable=1)
    answering(cluster, 403, "Forbidden", "policy keep: pods stay", method="DELETE", path="/pods/train-w-1")
    cluster.edit_job("mine", tasks=[task(replicas=1)])
    first, second = pods_of(cluster)
    cluster.run_pod(first, "Succeeded")
    with pytest.raises(Forbidden):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Completed"
    assert pods_of(cluster) == [first, second]


def test_a_webhook_that_does_not_let_pods_go_is_told(cluster: Cluster) -> None:
    train = running(cluster)
    down = "failed calling webhook guard.example.com: connection refused"
    answering(cluster, 500, "InternalError", down, method="DELETE", path="/pods/")
    cluster.command("AbortJob", train)
    with pytest.raises(Unavailable):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Aborting"
    assert "WriteRefused" in [reason for reason, _ in cluster.events()]


def test_a_command_that_cannot_be_deleted_is_not_obeyed_and_holds_up_nothing(cluster: Cluster) -> None:
    """Each leader would obey it once more: the Job would restart whenever another one leads."""
    train = running(cluster)
    answering(cluster, 403, "Forbidden", "you cannot delete commands", method="DELETE", path="/commands/a")
    cluster.command("RestartJob", train, called="a")
    cluster.command("AbortJob", train, called="b")
    assert cluster.look_at_job("mine") == ("Aborting", 0)
    assert [path[-2:] for path in cluster.server.objects if "/commands/" in path] == ["/a"]
    (told,) = [note for reason, note in cluster.events() if reason == "NotObeyed"]
    assert told.startswith("Command a is not obeyed, because it cannot be deleted: ")
    assert told.endswith("you cannot delete commands")


def test_a_command_is_obeyed_once_it_can_be_deleted_if_the_server_was_only_busy(cluster: Cluster) -> None:
    train = running(cluster)
    answering(cluster, 503, "ServiceUnavailable", "busy", method="DELETE", path="/commands/")
    cluster.command("AbortJob", train)
    with pytest.raises(Unavailable):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Running"
    mended(cluster)
    assert cluster.look_at_job("mine") == ("Aborting", 0)


def test_a_status_that_the_api_server_does_not_take_is_told(cluster: Cluster) -> None:
    train = running(cluster)
    answering(cluster, 422, "Invalid", "status.version: too large", method="PUT", path="/status")
    cluster.command("AbortJob", train)
    with pytest.raises(Invalid):
        cluster.look_at_job("mine")
    assert len(pods_of(cluster)) == 2, "what the status does not tell is not done"
    told = "PUT /apis/batch.volcano.sh/v1alpha1/namespaces/mine/jobs/train/status: status.version: too large"
    assert ("WriteRefused", told) in cluster.events()


def test_a_job_that_cannot_be_deleted_after_its_time_is_told(cluster: Cluster) -> None:
    running(cluster, replicas=1, ttlSecondsAfterFinished=0)
    answering(cluster, 403, "Forbidden", "policy keep: Jobs stay", method="DELETE", path="/jobs/train")
    cluster.run_pod(pods_of(cluster)[0], "Succeeded")
    cluster.look_at_job("mine")
    with pytest.raises(Forbidden):
        cluster.look_at_job("mine")
    told = "DELETE /apis/batch.volcano.sh/v1alpha1/namespaces/mine/jobs/train: policy keep: Jobs stay"
    assert ("WriteRefused", told) in cluster.events()


def test_pods_of_which_the_api_server_knows_no_kind_or_place_are_told(cluster: Cluster) -> None:
    three(cluster)
    answering(cluster, 404, "NotFound", 'namespaces "mine" not found', method="POST", path="/pods")
    with pytest.raises(NotFound):
        cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Pending"
    assert "FailedCreate" in [reason for reason, _ in cluster.events()]


def test_a_queue_does_not_obey_a_command_that_cannot_be_deleted_either(cluster: Cluster) -> None:
    """Each look obeyed it again, and no later Command had its turn."""
    mine = cluster.queue("mine")
    answering(cluster, 403, "Forbidden", "you cannot delete commands", method="DELETE", path="/commands/a")
    cluster.command("CloseQueue", mine, called="a")
    assert cluster.look_at_queue("mine") == "Open"
    cluster.command("CloseQueue", mine, called="b")
    assert cluster.look_at_queue("mine") == "Closed"
    assert "NotObeyed" in [reason for reason, _ in cluster.events()]


def test_a_pod_of_an_earlier_try_is_deleted_whenever_it_is_seen(cluster: Cluster) -> None:
    """A webhook may answer a deletion with 409. That was taken for a pod that is gone, and it ran on for ever
    under the name of its successor."""
    train = running(cluster)
    cluster.command("RestartJob", train)
    answering(cluster, 409, "Conflict", "not now", method="DELETE", path="/pods/train-w-1")
    for _ in range(2):
        with pytest.raises(Conflict):
            cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert cluster.phase_of_job("mine") == "Restarting"
    mended(cluster)
    for _ in range(3):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    versions = [cluster.server.objects[path]["metadata"]["annotations"] for path in pods_of(cluster)]
    assert [one["volcano.sh/job-version"] for one in versions] == ["1", "1"]


def test_a_group_whose_deletion_meets_a_conflict_is_deleted_at_the_next_look(cluster: Cluster) -> None:
    """No watch asks for another look at a Job that has ended, and the PodGroup stayed with it."""
    running(cluster, replicas=1)
    cluster.run_pod(pods_of(cluster)[0], "Succeeded")
    answering(cluster, 409, "Conflict", "not now", method="DELETE", path="/podgroups/")
    with pytest.raises(Conflict):
        cluster.look_at_job("mine")
    mended(cluster)
    cluster.look_at_job("mine")
    assert cluster.phase_of_job("mine") == "Completed"
    assert not [path for path in cluster.server.objects if "/podgroups/" in path]


def test_no_pod_is_made_for_a_group_that_this_controller_deleted(cluster: Cluster) -> None:
    """The Job ended and was scaled up before its status was written. The watch still showed the PodGroup, and
    the new pod was made without one."""
    running(cluster, replicas=1)
    first = pods_of(cluster)[0]
    cluster.run_pod(first, "Succeeded")
    answering(cluster, 409, "Conflict", "changed", method="PUT", path="/jobs/train")
    with pytest.raises(Conflict):
        cluster.look_at_job("mine")
    mended(cluster)
    cluster.edit_job("mine", tasks=[task(replicas=2)])
    cluster.look_at_job("mine")
    assert len(pods_of(cluster)) == 2
    assert [path for path in cluster.server.objects if "/podgroups/" in path]


def test_a_pod_that_is_gone_before_the_watch_tells_is_deleted_once(cluster: Cluster) -> None:
    """Looks that may begin one write tried the same pod, and no other, until the watch told."""
    train = running(cluster)
    first = pods_of(cluster)[0]
    cluster.server.remove(first, silently=True)
    cluster.command("AbortJob", train)
    for _ in range(3):
        cluster.look_at_job("mine")
    tries = [path for method, path, _ in cluster.server.requests if method == "DELETE" and path == first]
    assert len(tries) == 1


def test_the_end_of_a_job_is_written_before_its_group_is_deleted(cluster: Cluster) -> None:
    """While the status was refused, its PodGroup was deleted and made again in turn, and each of these writes
    asked for the next look."""
    running(cluster, replicas=1)
    cluster.run_pod(pods_of(cluster)[0], "Succeeded")
    answering(cluster, 403, "Forbidden", "not this status", method="PUT", path="/jobs/train")
    (before,) = [value for path, value in cluster.server.objects.items() if "/podgroups/" in path]
    for _ in range(3):
        with pytest.raises(Forbidden):
            cluster.look_at_job("mine")
    assert before in cluster.server.objects.values()
    cluster.server.remove(
        f"/apis/scheduling.volcano.sh/v1beta1/namespaces/mine/podgroups/{before['metadata']['name']}"
    )
    cluster.tell_what_went()
    with pytest.raises(Forbidden):
        cluster.look_at_job("mine")
    assert not [path for path in cluster.server.objects if "/podgroups/" in path], (
        "nor is one made for the end"
    )
    mended(cluster)
    assert cluster.look_at_job("mine")[0] == "Completed"
