"""Volcano Jobs from creation to the end, told to our Job controller and to Volcano's own.

With Volcano's binaries at hand (``make e2e-volcano``) each story that is not ours alone runs on both.
"""

import time
from collections.abc import Iterator
from typing import Any

import jobs_rig
import pytest
from jobs_rig import NAMESPACE, SYSTEM, JobsRig, Json, is_running, real, simulated, uids
from localcluster import ClusterSpec, LocalCluster
from stack.hostprocess import HostProcess
from vc_egpu.kube.resources import COMMANDS, DEPLOYMENTS, LEASES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.command import CommandAction
from volcano.processes import NoVolcanoError, Volcano

pytestmark = pytest.mark.cluster
OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
FAILED_RESTARTS_JOB = [{"event": "PodFailed", "action": "RestartJob"}]
EVICTED_RESTARTS_JOB = [{"event": "PodEvicted", "action": "RestartJob"}]


@pytest.fixture(scope="module", params=["ours", pytest.param("volcano", marks=pytest.mark.volcano)])
def running(request: pytest.FixtureRequest) -> Iterator[JobsRig]:
    volcano: Volcano | None = None
    if request.param == "volcano":
        try:
            volcano = Volcano.from_environment()
        except NoVolcanoError as error:
            pytest.skip(str(error))
    spec = ClusterSpec(name=f"jobs-{request.param}", real_nodes=1, kwok_nodes=3, services=False, dns=False)
    with LocalCluster.up(spec) as cluster:
        yield jobs_rig.volcanos(cluster, volcano) if volcano is not None else jobs_rig.ours(cluster)


@pytest.fixture
def rig(running: JobsRig) -> Iterator[JobsRig]:
    yield running
    running.clean()


@pytest.fixture
def our_rig(rig: JobsRig) -> JobsRig:
    if not rig.ours:
        pytest.skip("about our controller alone")
    return rig


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
    done = rig.until_phase("plain", "Completed")
    assert done.status.succeeded == 4
    assert sorted(p["metadata"]["name"] for p in rig.api.list(PODS, NAMESPACE).items) == sorted(pods), (
        "logs stay"
    )


def test_scaling_up_and_down_costs_no_retry(rig: JobsRig) -> None:
    # Volcano takes its own scaling down for an eviction and would restart the Job.
    policies = EVICTED_RESTARTS_JOB if rig.ours else []
    rig.submit("scale", simulated(replicas=2), policies=policies)
    before = uids(rig.until_running("scale", 2))
    _scale(rig, "scale", 4)
    after = uids(rig.until_running("scale", 4))
    assert {name: after[name] for name in before} == before
    _scale(rig, "scale", 1)
    left = uids(rig.until_running("scale", 1))
    assert left == {"scale-w-0": before["scale-w-0"]}
    assert rig.job("scale").status.retry_count == 0


def _scale(rig: JobsRig, name: str, replicas: int) -> None:
    changes = [
        {"op": "replace", "path": "/spec/minAvailable", "value": replicas},
        {"op": "replace", "path": "/spec/tasks/0/replicas", "value": replicas},
        {"op": "replace", "path": "/spec/tasks/0/minAvailable", "value": replicas},
    ]
    rig.api.patch(VOLCANO_JOBS, name, changes, NAMESPACE, kind="json")


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
    after = _until_replaced(rig, "part", before, {"part-a-0", "part-a-1"})
    assert after["part-b-0"] == before["part-b-0"]
    assert rig.job("part").status.retry_count == 1


def _until_replaced(rig: JobsRig, name: str, before: dict[str, str], replaced: set[str]) -> dict[str, str]:
    """Wait until exactly these pods are others and all run."""

    def check(pods: dict[str, Json]) -> dict[str, str] | None:
        found = uids(pods)
        if found.keys() != before.keys() or not all(map(is_running, pods.values())):
            return None
        return found if {n for n in before if found[n] != before[n]} == replaced else None

    return rig.until_pods(name, f"{sorted(replaced)} replaced", check)


def test_an_evicted_pod_restarts_the_gang_where_the_author_asked_for_it(rig: JobsRig) -> None:
    rig.submit("evict", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
    before = uids(rig.until_running("evict", 3))
    job = rig.until_phase("evict", "Running")
    group = rig.group_of(job)["metadata"]["uid"]
    rig.api.delete(PODS, "evict-w-1", NAMESPACE)
    _until_replaced(rig, "evict", before, set(before))
    job = rig.until_phase("evict", "Running")
    assert (job.status.retry_count, job.status.version) == (1, 1)
    assert rig.group_of(job)["metadata"]["uid"] != group, "a new gang has a new PodGroup"


def test_the_lever_recreates_pods_without_a_retry(rig: JobsRig) -> None:
    """What the admission layer pulls to evict a gang: policies and tries stay untouched."""
    rig.submit("lever", simulated(replicas=3), policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    before = uids(rig.until_running("lever", 3))
    rig.until_phase("lever", "Running")
    for name in ("lever-w-0", "lever-w-2"):
        rig.api.patch(PODS, name, {"metadata": {"annotations": {OUT_OF_SYNC: "true"}}}, NAMESPACE)
    _until_replaced(rig, "lever", before, {"lever-w-0", "lever-w-2"})
    job = rig.until_phase("lever", "Running")
    assert (job.status.retry_count, job.status.version) == (0, 0)


def test_suspend_and_resume(rig: JobsRig) -> None:
    rig.submit("pause", simulated(replicas=2))
    before = uids(rig.until_running("pause", 2))
    rig.client.suspend(rig.until_phase("pause", "Running"))
    rig.until_phase("pause", "Aborted")
    rig.until_pods("pause", "pods are gone", lambda pods: not pods or None)
    rig.client.resume(rig.job("pause"))
    _until_replaced(rig, "pause", before, set(before))
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


# --- ours alone ---------------------------------------------------------------------------------------


def test_what_it_does_not_do_it_refuses_by_name(our_rig: JobsRig) -> None:
    our_rig.submit("mpi", simulated(), plugins={"mpi": []})
    job = our_rig.until_job("mpi", "a reason", lambda j: j if j.status.state.reason == "Refused" else None)
    assert job.status.state.phase == "Pending"
    assert "'mpi'" in job.status.state.message
    described = our_rig.cluster.kubectl("describe", "vcjob", "mpi", "-n", NAMESPACE).stdout
    assert "Refused" in described
    assert not our_rig.api.list(PODS, NAMESPACE).items


def test_a_job_waits_for_its_queue(our_rig: JobsRig) -> None:
    our_rig.submit("early", simulated(), queue="later")
    our_rig.until_job("early", "a reason", lambda j: j.status.state.reason == "QueueNotFound" or None)
    queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "later"}, "spec": {}}
    our_rig.kit.apply(queue)
    our_rig.until_running("early", 2)
    our_rig.api.delete(QUEUES, "later")


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_killed_in_the_middle_of_a_restart(our_rig: JobsRig, after_s: float) -> None:
    """Whatever was half done is finished by the next one, and counted once."""
    our_rig.submit("crash", simulated(replicas=12), policies=FAILED_RESTARTS_JOB)
    before = uids(our_rig.until_running("crash", 12))
    our_rig.until_phase("crash", "Running")
    our_rig.end_pod("crash-w-5", "Failed", 1)
    time.sleep(after_s)
    our_rig.controller.restart()
    _until_replaced(our_rig, "crash", before, set(before))
    job = our_rig.until_phase("crash", "Running")
    assert (job.status.retry_count, job.status.version) == (1, 1)
    versions = {
        pod["metadata"]["annotations"]["volcano.sh/job-version"]
        for pod in our_rig.api.list(PODS, NAMESPACE).items
    }
    assert versions == {"1"}


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.3])
def test_killed_in_the_middle_of_a_creation(our_rig: JobsRig, after_s: float) -> None:
    our_rig.submit("many", simulated(replicas=60))
    time.sleep(after_s)
    our_rig.controller.restart()
    our_rig.until_running("many", 60)
    assert our_rig.until_phase("many", "Running").status.retry_count == 0


def test_a_standby_takes_over(our_rig: JobsRig) -> None:
    """Two instances: the second leads once the first is frozen, and the first writes nothing any more."""
    standby = HostProcess(our_rig.cluster, "jobs-2", jobs_rig.controller_argv(our_rig.cluster))
    standby.start()
    try:
        holder = _holder(our_rig)
        our_rig.controller.pause()
        our_rig.submit("handover", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
        before = uids(our_rig.until_running("handover", 3))
        our_rig.until_phase("handover", "Running")
        successor = _holder(our_rig)
        assert successor != holder
        our_rig.controller.resume()
        # Both hear of the eviction; one of them leads, and it is counted once.
        our_rig.api.delete(PODS, "handover-w-0", NAMESPACE)
        _until_replaced(our_rig, "handover", before, set(before))
        assert our_rig.until_phase("handover", "Running").status.retry_count == 1
        assert _holder(our_rig) == successor
    finally:
        standby.kill()
    # The first one is a standby by now, and leads again without having been started anew.
    our_rig.submit("again", simulated(replicas=2))
    our_rig.until_running("again", 2)


def test_without_an_api_server_nothing_happens_and_afterwards_all_goes_on(our_rig: JobsRig) -> None:
    our_rig.submit("away", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
    before = uids(our_rig.until_running("away", 3))
    our_rig.until_phase("away", "Running")
    server = our_rig.cluster.component("kube-apiserver")
    server.stop()
    time.sleep(6)  # longer than the lease
    server.start()
    _scale(our_rig, "away", 4)
    after = uids(our_rig.until_running("away", 4))
    assert {name: after[name] for name in before} == before
    assert our_rig.job("away").status.retry_count == 0


def _holder(rig: JobsRig) -> str:
    spec = rig.api.get(LEASES, "vc-egpu-jobs", SYSTEM)["spec"]
    return str(spec.get("holderIdentity"))


def test_pods_of_a_deployment_share_a_group_that_goes_with_them(our_rig: JobsRig) -> None:
    labels = {"app": "serve", "egpu.volcano.sh/managed": "true"}
    pod_spec = simulated()["template"]["spec"]
    del pod_spec["restartPolicy"]
    template = {
        "metadata": {"labels": labels, "annotations": {"scheduling.volcano.sh/queue-name": "default"}},
        "spec": pod_spec,
    }
    our_rig.kit.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "serve",
                "namespace": NAMESPACE,
                "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
            },
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "serve"}}, "template": template},
        }
    )

    def grouped(pods: dict[str, Json]) -> str | None:
        named = {
            p["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name") for p in pods.values()
        }
        return named.pop() if len(pods) == 3 and len(named) == 1 else None

    name = our_rig.kit.pods_until("one group", NAMESPACE, grouped)
    assert name.startswith("podgroup-")
    group = our_rig.kit.until(
        "the group runs",
        POD_GROUPS,
        lambda found: found[name] if found[name]["status"].get("running") == 3 else None,
        namespace=NAMESPACE,
    )
    assert group["spec"]["minMember"] == 2
    assert group["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    our_rig.api.delete(DEPLOYMENTS, "serve", NAMESPACE, propagation="Background")
    our_rig.kit.until("the group is gone", POD_GROUPS, lambda found: name not in found, namespace=NAMESPACE)


def test_a_bare_pod_has_a_group_of_its_own(our_rig: JobsRig) -> None:
    spec = simulated()["template"]["spec"]
    metadata = {"name": "alone", "namespace": NAMESPACE, "labels": {"egpu.volcano.sh/managed": "true"}}
    made = our_rig.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    name = f"podgroup-{made['metadata']['uid']}"
    our_rig.kit.until("its group", POD_GROUPS, lambda found: name in found or None, namespace=NAMESPACE)


def test_a_stale_command_is_taken_away(our_rig: JobsRig) -> None:
    our_rig.submit("done", real("true"))
    job = our_rig.until_phase("done", "Completed")
    our_rig.client.command(job, CommandAction.RESTART_JOB)
    our_rig.kit.until("the Command is gone", COMMANDS, lambda found: not found or None, namespace=NAMESPACE)
    assert our_rig.job("done").status.retry_count == 0
