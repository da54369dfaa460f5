"""What a pod takes from its node while it is resized there (Kubernetes 1.33 on), and what it gives back."""

import copy
from typing import Any

import pytest
from unit.admission.build import TABLE, added, group, node, pod, queue, version
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.volcano.podspec.sums import given, pod_requests


def requests(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def in_cpu(running: str, set_aside: str, name: str = "main") -> dict[str, Any]:
    """A container's status."""
    given = {"resources": {"requests": {"cpu": running}}, "allocatedResources": {"cpu": set_aside}}
    return {"name": name, **given}


@pytest.mark.parametrize(
    ("running", "set_aside", "pending", "cpu"),
    [
        ("2", "2", None, 4000),  # asked for a moment ago
        ("2", "2", "Deferred", 4000),  # the scheduler keeps room for it
        ("2", "2", "Infeasible", 2000),  # asked for in vain: anybody could close a node to all others by it
        ("2", "3", "Infeasible", 3000),
        ("4", "4", None, 4000),
        ("6", "4", None, 6000),  # less is asked for, and not yet given back
        ("4", "6", None, 6000),
    ],
)
def test_of_a_pod_that_is_resized_the_most_counts_that_it_may_take(
    running: str, set_aside: str, pending: str | None, cpu: int
) -> None:
    spec = {"containers": [{"name": "main", **requests("4")}]}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    status = {"containerStatuses": [in_cpu(running, set_aside)], "conditions": conditions}
    assert pod_requests(spec, given(status)).cpu_milli == cpu
    sidecar = {
        "containers": [],
        "initContainers": [{"name": "main", **requests("4", restartPolicy="Always")}],
    }
    beside = {"initContainerStatuses": status["containerStatuses"], "conditions": conditions}
    assert pod_requests(sidecar, given(beside)).cpu_milli == cpu
    whole = {"containers": [{"name": "main"}], **requests("4")}
    level = {"containerStatuses": [{"name": "main", "resources": {}}], "conditions": conditions}
    level |= in_cpu(running, set_aside)
    assert pod_requests(whole, given(level)).cpu_milli == cpu
    assert pod_requests(spec, given(status | {"phase": "Failed"})).cpu_milli == 4000


def test_an_init_container_that_is_over_gives_nothing_back() -> None:
    spec = {"containers": [], "initContainers": [{"name": "main", **requests("4")}]}
    assert pod_requests(spec, given({"initContainerStatuses": [in_cpu("9", "9")]})).cpu_milli == 4000


@pytest.mark.parametrize("managed", [True, False])
def test_room_that_a_running_pod_gives_back_is_heard_of(managed: bool) -> None:
    mirror = Mirror(TABLE)
    for kind, document in (("nodes", node()), ("queues", queue()), ("podgroups", group())):
        mirror.apply(kind, added(document))
    running = pod("other", index=7)
    if not managed:
        running["metadata"] |= {"annotations": {}, "labels": {}}
        running["spec"].pop("schedulingGates", None)
    running["spec"] |= {"nodeName": "n1", "containers": [{"name": "main", **requests("60")}]}
    mirror.apply("pods", added(running))
    mirror.agenda.take_question()
    for cpu, frees in (("61", False), ("2", True)):
        smaller = copy.deepcopy(running)
        smaller["metadata"]["resourceVersion"] = version()
        smaller["spec"]["containers"] = [{"name": "main", **requests(cpu)}]
        mirror.apply("pods", added(smaller))
        assert (mirror.agenda.all_for is not None) is frees


@pytest.mark.parametrize("managed", [True, False])
def test_who_asks_for_more_than_there_can_be_still_ends(managed: bool) -> None:
    """Its room would be its own for as long as its object is there, which no quota counts."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    running = pod(uid="p", spec={"nodeName": "n1", "schedulingGates": []})
    if not managed:
        running["metadata"] |= {"labels": {}, "annotations": {}}
    mirror.apply("pods", added(running))
    for phase in ("Running", "Succeeded"):
        resized = copy.deepcopy(running)
        resized["metadata"]["resourceVersion"] = version()
        resized["spec"]["containers"][0] |= requests(str(2**63 - 1))
        resized["status"] = {"phase": phase, "containerStatuses": [in_cpu("1", "1")]}
        mirror.apply("pods", added(resized))
    pods = mirror.snapshot().pods
    assert not pods if not managed else pods[PodUid("p")].phase is PodPhase.SUCCEEDED
