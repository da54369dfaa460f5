"""The objects that pods of a Job need are there, even if a user deleted them."""

from unit.jobs.cluster import Cluster
from unit.jobs.test_scaled import PODS
from unit.jobs.worlds import task

HOSTS = "/api/v1/namespaces/mine/configmaps/train-svc"


def running(cluster: Cluster) -> None:
    restarts = [{"event": "PodFailed", "action": "RestartJob"}]
    cluster.job("mine", tasks=[task("w", 2)], minAvailable=2, plugins={"svc": []}, policies=restarts)
    cluster.look_at_job("mine")
    for index in range(2):
        cluster.run_pod(f"{PODS}/train-w-{index}")
    assert cluster.look_at_job("mine")[0] == "Running"


def test_a_host_list_that_somebody_deleted_is_made_for_the_next_try(cluster: Cluster) -> None:
    """Its pods would wait for it without end, as for a volume."""
    running(cluster)
    cluster.server.remove(HOSTS)
    cluster.run_pod(f"{PODS}/train-w-0", "Failed")
    for _ in range(6):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert sum("/pods/" in path for path in cluster.server.objects) == 2
    assert HOSTS in cluster.server.objects


def test_what_another_leader_did_is_not_taken_for_done(cluster: Cluster) -> None:
    """It scaled the Job up, and ended before the host list followed the Job down again."""
    running(cluster)
    cluster.controller.rest()
    hosts = cluster.server.objects[HOSTS]
    wanted = dict(hosts["data"])
    cluster.server.put(HOSTS, {**hosts, "data": {**wanted, "VC_W_NUM": "3"}})
    cluster.controller.lead()
    cluster.look_at_job("mine")
    assert cluster.server.objects[HOSTS]["data"] == wanted
