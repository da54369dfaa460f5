"""What one tenant writes must not reach another's Jobs and queues, nor the controller itself."""

import threading

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import in_phase, job, pod, task, world
from vc_egpu.jobs.rules import defaults, extent
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.work import Look
from vc_egpu.volcano.api.job import JobPhase

CENTURIES = "9999999h"
"""1,141 years: longer than any lock of Python waits."""
MANY = 2_000_000_000
"""Replicas, within what the API server takes; the names of so many pods do not fit into a machine."""


def test_a_command_closes_the_queue_that_it_names(cluster: Cluster) -> None:
    cluster.command("CloseQueue", cluster.queue("mine"))
    assert cluster.look_at_queue("mine") == "Closed"


def test_a_command_for_one_queue_with_the_uid_of_another_closes_neither(cluster: Cluster) -> None:
    """The door asks whether its author may update the queue that is named; everybody sees all UIDs."""
    cluster.command("CloseQueue", cluster.queue("theirs"), name="mine")
    assert cluster.look_at_queue("theirs") == "Open"
    assert cluster.look_at_queue("mine") == "Open"


def test_a_command_ends_the_job_that_it_names(cluster: Cluster) -> None:
    cluster.command("TerminateJob", cluster.job("mine"))
    assert cluster.look_at_job("mine")[0] == "Terminating"


@pytest.mark.parametrize(
    ("namespace", "otherwise"), [("mine", {}), ("mine", {"name": "other"}), ("theirs", {"name": "other"})]
)
def test_a_command_of_another_namespace_or_name_ends_no_job(
    cluster: Cluster, namespace: str, otherwise: dict[str, str]
) -> None:
    """The door asks whether its author may update the Job of that name in the Command's own namespace."""
    theirs = cluster.job("theirs")
    cluster.command("TerminateJob", theirs, namespace=namespace, **otherwise)
    assert cluster.look_at_job("theirs")[0] == "Pending"


def test_a_pod_of_another_namespace_is_no_pod_of_a_job(cluster: Cluster) -> None:
    """It would take the place of a pod of the Job's, and use up its retries by failing."""
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    theirs = cluster.job("theirs", policies=policies)
    cluster.pod("mine", theirs)
    assert cluster.look_at_job("theirs") == ("Pending", 0)
    assert "/api/v1/namespaces/theirs/pods/train-w-0" in cluster.server.objects


def test_a_timeout_of_centuries_leaves_the_workers_alive(cluster: Cluster) -> None:
    """Waiting for it, a lock of Python raises, and outside of any look: each of them would have ended."""
    cluster.job("mine", policies=[{"event": "PodPending", "action": "RestartJob", "timeout": CENTURIES}])
    look = cluster.controller.look
    look(Look.JOB, ("mine", "train"))  # makes the pod
    again_s = look(Look.JOB, ("mine", "train"))
    assert again_s is not None
    assert again_s < threading.TIMEOUT_MAX


def test_a_job_of_two_thousand_million_pods_is_refused(cluster: Cluster) -> None:
    """It asks for no cards, so no gang limit at the door binds it."""
    cluster.job("mine", tasks=[task(replicas=MANY, minAvailable=1)], plugins={"svc": []})
    assert cluster.look_at_job("mine")[0] == "Pending"
    assert not [path for path in cluster.server.objects if "/pods/" in path]
    assert any(f"{MANY} replicas of all tasks, the largest Job has" in text for _, text in cluster.events())


def test_a_job_that_is_scaled_to_as_many_gets_what_a_job_may_have() -> None:
    running = job(task("a", 3), task("b", MANY), task("c", 1), status=in_phase(JobPhase.RUNNING))
    bounded = defaults.bounded(defaults.complete(running))
    assert [one.replicas for one in bounded.spec.tasks] == [3, extent.MOST_PODS - 3, 0]
    decision = decide(world(bounded, pod("a-0")))
    assert len(decision.create) == extent.MOST_PODS - 1
    small = job()
    assert defaults.bounded(small) is small
