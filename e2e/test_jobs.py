"""Volcano Jobs from creation to the end, told to our Job controller and to Volcano's own.

With Volcano's binaries at hand (``make e2e-volcano``) each story runs on both. What is about our controller
alone: ``test_jobs_ours.py``.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from localcluster import ClusterSpec, LocalCluster
from rigs import jobs as jobs_rig
from rigs.jobs import (
    EVICTED_RESTARTS_JOB,
    FAILED_RESTARTS_JOB,
    NAMESPACE,
    JobsRig,
    Json,
    real,
    simulated,
    uids,
)
from vc_egpu.kube.resources import COMMANDS, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names
from volcano.processes import Volcano

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=["ours", pytest.param("volcano", marks=pytest.mark.volcano)])
def running(request: pytest.FixtureRequest) -> Iterator[JobsRig]:
    volcano: Volcano | None = None
    if request.param == "volcano":
        volcano = request.getfixturevalue("volcano")
    spec = ClusterSpec(name=f"jobs-{request.param}", real_nodes=1, kwok_nodes=3, services=False, dns=False)
    with LocalCluster.up(spec) as cluster:
        yield jobs_rig.volcanos(cluster, volcano) if volcano is not None else jobs_rig.ours(cluster)


@pytest.fixture
def rig(running: JobsRig) -> Iterator[JobsRig]:
    yield running
    running.clean()


# --- an ordinary life ---------------------------------------------------------------------------------


def test_a_gang_runs_and_completes(rig: JobsRig) -> None:
    rig.submit("plain", simulated("a", 3), simulated("b", 1))
    pods = rig.until_running("plain", 4)
    assert sorted(pods) == ["plain-a-0", "plain-a-1", "plain-a-2", "plain-b-0"]
    job = rig.until_phase("plain", "Running")
    group = rig.kit.until(
        "PodGroup runs",
        POD_GROUPS,
        lambda found: next((g for g in found.values() if g["status"].get("running") == 4), None),
        namespace=NAMESPACE,
    )
    assert group["metadata"]["name"] == job.pod_group_name()
    assert group["spec"]["minMember"] == 4
    assert group["spec"]["minTaskMember"] == {"a": 3, "b": 1}
    assert group["spec"]["minResources"]["cpu"] == "40m"
    annotations = pods["plain-a-1"]["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == job.pod_group_name()
    assert annotations["volcano.sh/task-spec"] == "a"
    assert annotations["volcano.sh/job-version"] == "0"
    for name in pods:
        rig.end_pod(name, "Succeeded")
    # Volcano's own controller may write the phase before the count.
    rig.until_job(
        "plain",
        "is complete with four that succeeded",
        lambda j: j if (j.status.state.phase, j.status.succeeded) == ("Completed", 4) else None,
    )
    assert sorted(p["metadata"]["name"] for p in rig.api.list(PODS, NAMESPACE).items) == sorted(pods), (
        "logs stay"
    )


def test_scaling_up_and_down_costs_no_retry(rig: JobsRig) -> None:
    # Volcano takes its own scaling down for an eviction and would restart the Job.
    policies = EVICTED_RESTARTS_JOB if rig.ours else []
    rig.submit("scale", simulated(replicas=2), policies=policies)
    before = uids(rig.until_running("scale", 2))
    rig.scale("scale", 4)
    after = uids(rig.until_running("scale", 4))
    assert {name: after[name] for name in before} == before
    rig.scale("scale", 1)
    left = uids(rig.until_running("scale", 1))
    assert left == {"scale-w-0": before["scale-w-0"]}
    assert rig.job("scale").status.retry_count == 0


def test_ttl_removes_the_job_and_its_pods(rig: JobsRig) -> None:
    rig.submit("ttl", real("true"), ttlSecondsAfterFinished=1)
    rig.until_gone("ttl")
    rig.until_pods("ttl", "pods are gone", lambda pods: not pods or None)


def test_a_task_waits_for_the_one_it_depends_on(rig: JobsRig) -> None:
    rig.submit(
        "order",
        simulated("first", 1),
        simulated("second", 1, dependsOn={"name": ["first"]}),
        minAvailable=1,
    )
    pods = rig.until_running("order", 2)
    first, second = (pods[f"order-{name}-0"]["metadata"]["creationTimestamp"] for name in ("first", "second"))
    assert first <= second
    started = pods["order-first-0"]["status"]["startTime"]
    assert second >= started


# --- failures -----------------------------------------------------------------------------------------


def test_a_job_that_keeps_failing_is_restarted_up_to_max_retry(rig: JobsRig) -> None:
    rig.submit("fails", real("exit 1"), policies=FAILED_RESTARTS_JOB, maxRetry=2)
    job = rig.until_phase("fails", "Failed", timeout_s=90)
    assert job.status.retry_count == 2
    assert job.status.version >= 2


def test_an_exit_code_chooses_the_action(rig: JobsRig) -> None:
    policies = [{"exitCode": 3, "action": "CompleteJob"}, {"exitCode": 4, "action": "AbortJob"}]
    rig.submit("code", real("exit 3", "a"), simulated("b", 1), policies=policies)
    rig.until_phase("code", "Completed")


def test_a_completed_master_completes_the_job(rig: JobsRig) -> None:
    own = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    rig.submit("master", real("sleep 1", "m", policies=own), simulated("w", 2))
    rig.until_phase("master", "Completed")
    left = rig.until_pods(
        "master", "workers are gone", lambda pods: pods if len(pods) == 1 and "master-m-0" in pods else None
    )
    assert left["master-m-0"]["status"]["phase"] == "Succeeded"


def test_restart_task_leaves_the_other_tasks_alone(rig: JobsRig) -> None:
    own = [{"event": "PodFailed", "action": "RestartTask"}]
    rig.submit("part", simulated("a", 2, policies=own), simulated("b", 1))
    before = uids(rig.until_running("part", 3))
    rig.until_phase("part", "Running")
    rig.end_pod("part-a-0", "Failed", 1)
    after = rig.until_replaced("part", before, {"part-a-0", "part-a-1"})
    assert after["part-b-0"] == before["part-b-0"]
    assert rig.job("part").status.retry_count == 1


def test_an_evicted_pod_restarts_the_gang_where_the_author_asked_for_it(rig: JobsRig) -> None:
    rig.submit("evict", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
    before = uids(rig.until_running("evict", 3))
    job = rig.until_phase("evict", "Running")
    group = rig.group_of(job)["metadata"]["uid"]
    rig.api.delete(PODS, "evict-w-1", NAMESPACE)
    rig.until_replaced("evict", before, set(before))
    job = rig.until_phase("evict", "Running")
    assert (job.status.retry_count, job.status.version) == (1, 1)
    assert rig.group_of(job)["metadata"]["uid"] != group, "a new gang has a new PodGroup"


def test_the_lever_recreates_pods_without_a_retry(rig: JobsRig) -> None:
    """What the admission layer pulls to evict a gang: policies and tries stay untouched."""
    rig.submit("lever", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
    before = uids(rig.until_running("lever", 3))
    rig.until_phase("lever", "Running")
    for name in ("lever-w-0", "lever-w-2"):
        rig.api.patch(PODS, name, {"metadata": {"annotations": {names.OUT_OF_SYNC: "true"}}}, NAMESPACE)
    rig.until_replaced("lever", before, {"lever-w-0", "lever-w-2"})
    job = rig.until_phase("lever", "Running")
    assert (job.status.retry_count, job.status.version) == (0, 0)


def test_suspend_and_resume(rig: JobsRig) -> None:
    rig.submit("pause", simulated(replicas=2))
    before = uids(rig.until_running("pause", 2))
    rig.client.suspend(rig.until_phase("pause", "Running"))
    rig.until_phase("pause", "Aborted")
    rig.until_pods("pause", "pods are gone", lambda pods: not pods or None)
    rig.client.resume(rig.job("pause"))
    rig.until_replaced("pause", before, set(before))
    rig.until_phase("pause", "Running")
    assert not rig.api.list(COMMANDS, NAMESPACE).items, "Commands are taken away once obeyed"


# --- what pods see ------------------------------------------------------------------------------------

SHOW = "env | sort; for f in /etc/volcano/*.host; do echo $f; cat $f; echo; done; hostname"


def test_svc_env_and_pytorch_as_the_container_sees_them(rig: JobsRig) -> None:
    plugins = {"svc": [], "env": [], "pytorch": ["--master=ma-ster", "--worker=w", "--port=29500"]}
    rig.submit("torch", real(SHOW, "ma-ster"), real(SHOW, "w", 2), plugins=plugins)
    rig.until_phase("torch", "Completed")
    seen = rig.api.pod_log("torch-w-1", NAMESPACE)
    for line in (
        "MASTER_ADDR=torch-ma-ster-0.torch",
        "MASTER_PORT=29500",
        "WORLD_SIZE=3",
        "RANK=2",
        "VC_TASK_INDEX=1",
        "VK_TASK_INDEX=1",
        "VC_MA_STER_HOSTS=torch-ma-ster-0.torch",
        "VC_MA_STER_NUM=1",
        "VC_W_HOSTS=torch-w-0.torch,torch-w-1.torch",
        "VC_W_NUM=2",
        "torch-w-1",
    ):
        assert line in seen.splitlines(), f"{line} missing in:\n{seen}"
    assert "/etc/volcano/w.host\ntorch-w-0.torch\ntorch-w-1.torch" in seen
    assert "/etc/volcano/ma_ster.host\ntorch-ma-ster-0.torch" in seen
    assert "RANK=0" in rig.api.pod_log("torch-ma-ster-0", NAMESPACE).splitlines()


# --- queues -------------------------------------------------------------------------------------------


def test_a_queue_counts_closes_and_opens(rig: JobsRig) -> None:
    queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "story"}}
    rig.kit.apply({**queue, "spec": {"weight": 1, "reclaimable": True}})
    rig.submit("queued", simulated(replicas=2), queue="story")
    rig.until_running("queued", 2)
    _until_queue(rig, lambda s: s.get("state") == "Open" and _cpu(s) == "20m")
    if rig.ours:  # Volcano counts gangs in its metrics only
        _until_queue(rig, lambda s: s.get("running") == 1)
    typed = rig.client.queues.get("story")
    rig.client.close_queue(typed)
    _until_queue(rig, lambda s: s.get("state") == "Closing")
    rig.api.delete(VOLCANO_JOBS, "queued", NAMESPACE)
    _until_queue(rig, lambda s: s.get("state") == "Closed")
    rig.client.open_queue(typed)
    _until_queue(rig, lambda s: s.get("state") == "Open")
    rig.api.delete(QUEUES, "story")


def _cpu(status: Json) -> Any:
    return (status.get("allocated") or {}).get("cpu")


def _until_queue(rig: JobsRig, check: Any) -> None:
    rig.kit.until(
        "status of the queue", QUEUES, lambda found: check(found["story"].get("status") or {}) or None
    )
