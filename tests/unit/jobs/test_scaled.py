"""Jobs that are scaled while they run, without a door that looks at them: those without cards."""

from unit.jobs.cluster import Cluster
from unit.jobs.worlds import task

PODS = "/api/v1/namespaces/mine/pods"


def finish(cluster: Cluster, *indexes: int) -> None:
    for index in indexes:
        cluster.run_pod(f"{PODS}/train-w-{index}", "Succeeded")


def test_a_job_scaled_below_its_minimum_still_ends(cluster: Cluster) -> None:
    """Volcano's webhook refuses it; here it waited without end, even when all its pods were done."""
    cluster.job("mine", tasks=[task("w", 4, minAvailable=3)], minAvailable=4)
    cluster.look_at_job("mine")
    for index in range(4):
        cluster.run_pod(f"{PODS}/train-w-{index}")
    assert cluster.look_at_job("mine")[0] == "Running"
    cluster.edit_job("mine", tasks=[task("w", 2, minAvailable=3)])
    for _ in range(3):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert cluster.phase_of_job("mine") == "Running"
    (group,) = [value for path, value in cluster.server.objects.items() if "/podgroups/" in path]
    assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (2, {"w": 2})
    finish(cluster, 0, 1)
    assert cluster.look_at_job("mine")[0] == "Completed"
    told = [note for reason, note in cluster.events() if reason == "Ignored"]
    assert any("spec.minAvailable: 4 is more than the 2 replicas" in note for note in told), told


def test_a_job_scaled_to_nothing_keeps_its_minimum(cluster: Cluster) -> None:
    cluster.job("mine", tasks=[task("w", 2)], minAvailable=2)
    cluster.look_at_job("mine")
    for index in range(2):
        cluster.run_pod(f"{PODS}/train-w-{index}")
    cluster.look_at_job("mine")
    cluster.edit_job("mine", tasks=[task("w", 0)])
    for _ in range(3):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    (group,) = [value for path, value in cluster.server.objects.items() if "/podgroups/" in path]
    assert group["spec"]["minMember"] == 2
    assert cluster.phase_of_job("mine") == "Running"
    assert not [note for reason, note in cluster.events() if reason == "Ignored"]


def test_a_job_scaled_below_its_minimum_can_begin_anew(cluster: Cluster) -> None:
    """It was refused, once its pods were gone, for what it had gone on with."""
    restarts = [{"event": "PodFailed", "action": "RestartJob"}]
    cluster.job("mine", tasks=[task("w", 3)], minAvailable=3, policies=restarts)
    cluster.look_at_job("mine")
    for index in range(3):
        cluster.run_pod(f"{PODS}/train-w-{index}")
    cluster.look_at_job("mine")
    cluster.edit_job("mine", tasks=[task("w", 2)])
    cluster.look_at_job("mine")
    cluster.tell_what_went()
    cluster.run_pod(f"{PODS}/train-w-0", "Failed")
    for _ in range(6):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert sum("/pods/" in path for path in cluster.server.objects) == 2
    finish(cluster, 0, 1)
    assert cluster.look_at_job("mine") == ("Running", 1)
    assert cluster.look_at_job("mine") == ("Completed", 1)


def test_a_job_that_never_ran_is_refused(cluster: Cluster) -> None:
    cluster.job("mine", tasks=[task("w", 2)], minAvailable=3)
    cluster.look_at_job("mine")
    assert not [path for path in cluster.server.objects if "/pods/" in path]
