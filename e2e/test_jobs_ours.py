"""Our Job controller alone: what it refuses, gangs that no Job made, crashes, standbys, outages."""

import time
from collections.abc import Iterator

import pytest
from localcluster import ClusterSpec, LocalCluster
from rigs import jobs as jobs_rig
from rigs.jobs import (
    EVICTED_RESTARTS_JOB,
    FAILED_RESTARTS_JOB,
    NAMESPACE,
    SYSTEM,
    JobsRig,
    Json,
    real,
    simulated,
    uids,
)
from stack.hostprocess import HostProcess
from vc_egpu.kube.resources import COMMANDS, DEPLOYMENTS, LEASES, POD_GROUPS, PODS, QUEUES
from vc_egpu.volcano.api.command import CommandAction
from vc_egpu.volcano.words import names

OUTAGE_S = 2 * jobs_rig.LEASE_S
"""So that nobody leads meanwhile."""
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def running() -> Iterator[JobsRig]:
    spec = ClusterSpec(name="jobs-alone", real_nodes=1, kwok_nodes=3, services=False, dns=False)
    with LocalCluster.up(spec) as cluster:
        yield jobs_rig.ours(cluster)


@pytest.fixture
def rig(running: JobsRig) -> Iterator[JobsRig]:
    yield running
    running.clean()


def test_what_it_does_not_do_it_refuses_by_name(rig: JobsRig) -> None:
    rig.submit("mpi", simulated(), plugins={"mpi": []})
    job = rig.until_job("mpi", "a reason", lambda j: j if j.status.state.reason == "Refused" else None)
    assert job.status.state.phase == "Pending"
    assert "'mpi'" in job.status.state.message
    described = rig.cluster.kubectl("describe", "vcjob", "mpi", "-n", NAMESPACE).stdout
    assert "Refused" in described
    assert not rig.api.list(PODS, NAMESPACE).items


def test_a_job_waits_for_its_queue(rig: JobsRig) -> None:
    rig.submit("early", simulated(), queue="later")
    rig.until_job("early", "a reason", lambda j: j.status.state.reason == "QueueNotFound" or None)
    queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "later"}, "spec": {}}
    rig.kit.apply(queue)
    rig.until_running("early", 2)
    rig.api.delete(QUEUES, "later")


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_killed_in_the_middle_of_a_restart(rig: JobsRig, after_s: float) -> None:
    """Whatever was half done is finished by the next one, and counted once."""
    rig.submit("crash", simulated(replicas=12), policies=FAILED_RESTARTS_JOB)
    before = uids(rig.until_running("crash", 12))
    rig.until_phase("crash", "Running")
    rig.end_pod("crash-w-5", "Failed", 1)
    time.sleep(after_s)
    rig.controller.restart()
    rig.until_replaced("crash", before, set(before))
    job = rig.until_phase("crash", "Running")
    assert (job.status.retry_count, job.status.version) == (1, 1)
    versions = {
        pod["metadata"]["annotations"]["volcano.sh/job-version"]
        for pod in rig.api.list(PODS, NAMESPACE).items
    }
    assert versions == {"1"}


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.3])
def test_killed_in_the_middle_of_a_creation(rig: JobsRig, after_s: float) -> None:
    rig.submit("many", simulated(replicas=60))
    time.sleep(after_s)
    rig.controller.restart()
    rig.until_running("many", 60)
    assert rig.until_phase("many", "Running").status.retry_count == 0


def test_a_standby_takes_over(rig: JobsRig) -> None:
    """Two instances: the second leads once the first is frozen, and the first writes nothing any more."""
    standby = HostProcess(rig.cluster, "jobs-2", jobs_rig.controller_argv(rig.cluster))
    standby.start()
    try:
        holder = _holder(rig)
        rig.controller.pause()
        rig.submit("handover", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
        before = uids(rig.until_running("handover", 3))
        rig.until_phase("handover", "Running")
        successor = _holder(rig)
        assert successor != holder
        rig.controller.resume()
        # Both hear of the eviction; one of them leads, and it is counted once.
        rig.api.delete(PODS, "handover-w-0", NAMESPACE)
        rig.until_replaced("handover", before, set(before))
        assert rig.until_phase("handover", "Running").status.retry_count == 1
        assert _holder(rig) == successor
    finally:
        standby.kill()
    # The first one is a standby by now, and leads again without having been started anew.
    rig.submit("again", simulated(replicas=2))
    rig.until_running("again", 2)


def test_without_an_api_server_nothing_happens_and_afterwards_all_goes_on(rig: JobsRig) -> None:
    rig.submit("away", simulated(replicas=3), policies=EVICTED_RESTARTS_JOB)
    before = uids(rig.until_running("away", 3))
    rig.until_phase("away", "Running")
    server = rig.cluster.component("kube-apiserver")
    server.stop()
    time.sleep(OUTAGE_S)
    server.start()
    rig.scale("away", 4)
    after = uids(rig.until_running("away", 4))
    assert {name: after[name] for name in before} == before
    assert rig.job("away").status.retry_count == 0


def _holder(rig: JobsRig) -> str:
    spec = rig.api.get(LEASES, "vc-egpu-jobs", SYSTEM)["spec"]
    return str(spec.get("holderIdentity"))


def test_pods_of_a_deployment_share_a_group_that_goes_with_them(rig: JobsRig) -> None:
    labels = {"app": "serve", "egpu.volcano.sh/managed": "true"}
    pod_spec = simulated()["template"]["spec"]
    del pod_spec["restartPolicy"]
    template = {
        "metadata": {"labels": labels, "annotations": {"scheduling.volcano.sh/queue-name": "default"}},
        "spec": pod_spec,
    }
    rig.kit.apply(
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

    name = rig.kit.pods_until("one group", NAMESPACE, grouped)
    assert name.startswith("podgroup-")
    group = rig.kit.until(
        "the group runs",
        POD_GROUPS,
        lambda found: found[name] if found[name]["status"].get("running") == 3 else None,
        namespace=NAMESPACE,
    )
    assert group["spec"]["minMember"] == 2
    assert group["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    rig.api.delete(DEPLOYMENTS, "serve", NAMESPACE, propagation="Background")
    rig.kit.until("the group is gone", POD_GROUPS, lambda found: name not in found, namespace=NAMESPACE)


def bare_pod(rig: JobsRig, name: str, group: str = "") -> str:
    """Make one; the name of the PodGroup that is made for it if it names none."""
    metadata: Json = {"name": name, "namespace": NAMESPACE, "labels": {"egpu.volcano.sh/managed": "true"}}
    metadata["annotations"] = {names.GROUP_NAME: group} if group else {}
    spec = simulated()["template"]["spec"]
    made = rig.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return f"podgroup-{made['metadata']['uid']}"


def until_grouped(rig: JobsRig, group: str, former: str = "") -> str:
    """Until there is this PodGroup, and not the former one of its name; its UID."""

    def there(groups: dict[str, Json]) -> str | None:
        uid = groups[group]["metadata"]["uid"] if group in groups else former
        return uid if uid != former else None

    return rig.kit.until(f"PodGroup {group}", POD_GROUPS, there, namespace=NAMESPACE)


def test_a_bare_pod_has_a_group_of_its_own_also_after_that_was_deleted(rig: JobsRig) -> None:
    group = bare_pod(rig, "alone")
    former = until_grouped(rig, group)
    rig.api.delete(POD_GROUPS, group, NAMESPACE)
    until_grouped(rig, group, former)


def test_a_group_that_somebody_made_is_not_made_again_under_another_name(rig: JobsRig) -> None:
    body = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "spec": {"minMember": 1}}
    rig.api.create(POD_GROUPS, {**body, "metadata": {"name": "theirs", "namespace": NAMESPACE}})
    nobodys = bare_pod(rig, "member", "theirs")
    rig.kit.until(
        "it counts",
        POD_GROUPS,
        lambda found: (found["theirs"].get("status") or {}).get("running") == 1,
        namespace=NAMESPACE,
    )
    rig.api.delete(POD_GROUPS, "theirs", NAMESPACE)
    until_grouped(rig, bare_pod(rig, "later"))  # by then it has seen that "theirs" is gone
    assert nobodys not in {found["metadata"]["name"] for found in rig.api.list(POD_GROUPS, NAMESPACE).items}


def test_a_stale_command_is_taken_away(rig: JobsRig) -> None:
    rig.submit("done", real("true"))
    job = rig.until_phase("done", "Completed")
    rig.client.command(job, CommandAction.RESTART_JOB)
    rig.kit.until("the Command is gone", COMMANDS, lambda found: not found or None, namespace=NAMESPACE)
    assert rig.job("done").status.retry_count == 0
