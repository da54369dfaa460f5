"""Next to Volcano: PodGroups for pods that we bind and that have none, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.jobs.cluster import Cluster, Json
from unit.jobs.running import NO_WORKERS, Clock, running_beside
from vc_egpu.jobs.controller import Controller
from vc_egpu.jobs.known.pods import trim
from vc_egpu.jobs.work import Look
from vc_egpu.kube.resources import POD_GROUPS, PODS, QUEUES
from vc_egpu.volcano.words import names

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs-uid"}
GROUP = ("mine", "podgroup-rs-uid")
GROUP_PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/mine/podgroups/podgroup-rs-uid"
POD_PATH = "/api/v1/namespaces/mine/pods"


@pytest.fixture
def beside_volcano(tmp_path: Path) -> Iterator[Cluster]:
    clock, settings = Clock(), replace(NO_WORKERS, groups_only=True, counts=False)
    with running_beside(Controller, tmp_path, settings, monotonic=clock) as (controller, server, recorder):
        yield Cluster(controller, server, recorder, clock)


@pytest.fixture
def without_its_scheduler(tmp_path: Path) -> Iterator[Cluster]:
    clock, settings = Clock(), replace(NO_WORKERS, groups_only=True)
    with running_beside(Controller, tmp_path, settings, monotonic=clock) as (controller, server, recorder):
        yield Cluster(controller, server, recorder, clock)


def replica(cluster: Cluster, scheduler: str, name: str = "web-0", **metadata: Any) -> Json:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "mine",
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": {names.QUEUE_NAME: "mine", **metadata},
            "ownerReferences": [{**REPLICA_SET, "controller": True}],
        },
        "spec": {"schedulerName": scheduler},
        "status": {"phase": "Pending"},
    }
    found = cluster.server.put(f"{POD_PATH}/{name}", document)
    cluster.tell(PODS, trim(found))
    return found


@pytest.mark.parametrize(
    ("scheduler", "made"),
    [(names.SCHEDULER_DIRECT, True), (names.SCHEDULER_VOLCANO, False), (names.SCHEDULER_DEFAULT, False)],
)
def test_pods_that_we_bind_get_their_podgroup(scheduler: str, *, made: bool, beside_volcano: Cluster) -> None:
    """Volcano's controllers make the groups of their own scheduler's pods."""
    replica(beside_volcano, scheduler)
    assert ("mine", "web-0") in beside_volcano.asked(Look.POD)
    beside_volcano.controller.look(Look.POD, ("mine", "web-0"))
    assert (GROUP_PATH in beside_volcano.server.objects) is made
    annotations = beside_volcano.server.objects[f"{POD_PATH}/web-0"]["metadata"]["annotations"]
    assert annotations.get(names.GROUP_NAME) == (GROUP[1] if made else None)


def test_a_podgroup_that_was_deleted_under_them_is_made_again(beside_volcano: Cluster) -> None:
    replica(beside_volcano, names.SCHEDULER_DIRECT, **{names.GROUP_NAME: GROUP[1]})
    beside_volcano.controller.look(Look.GROUP, GROUP)
    assert beside_volcano.server.objects[GROUP_PATH]["spec"]["queue"] == "mine"


def test_volcano_keeps_the_status_of_podgroups_and_sweeps_them(beside_volcano: Cluster) -> None:
    beside_volcano.group(GROUP[1], "mine", owner=REPLICA_SET)
    before = len(beside_volcano.server.requests)
    assert beside_volcano.controller.look(Look.GROUP, GROUP) is None
    beside_volcano.clock.now += 3600.0
    assert beside_volcano.controller.look(Look.GROUP, GROUP) is None
    assert len(beside_volcano.server.requests) == before


def test_jobs_and_queues_are_volcanos_and_nothing_is_kept_of_them(beside_volcano: Cluster) -> None:
    beside_volcano.queue("mine")
    beside_volcano.job("mine")
    assert not beside_volcano.asked(Look.JOB)
    assert not beside_volcano.asked(Look.QUEUE)


def test_without_its_scheduler_the_status_of_podgroups_is_ours(without_its_scheduler: Cluster) -> None:
    cluster = without_its_scheduler
    cluster.queue("mine")
    cluster.group(GROUP[1], "mine", owner=REPLICA_SET)
    cluster.server.objects[GROUP_PATH]["status"] = {"phase": "Inqueue"}
    cluster.group("podgroup-other", "mine")
    cluster.member("web-0", GROUP[1], checked="mine")
    cluster.controller.look(Look.GROUP, GROUP)
    status = cluster.server.objects[GROUP_PATH]["status"]
    assert (status["phase"], status["running"]) == ("Running", 1)
    assert Look.QUEUE in {look for look in Look if cluster.asked(look)}


@pytest.mark.parametrize("before", ["Pending", None])
def test_it_lets_in_no_gang_that_waits_to_be_let_in(
    before: str | None, without_its_scheduler: Cluster
) -> None:
    """Volcano's controllers make pods once a PodGroup is Inqueue, and the admission layer says when."""
    cluster = without_its_scheduler
    cluster.group("train", "mine")
    path = GROUP_PATH.replace(GROUP[1], "train")
    old = cluster.server.objects[path]
    cluster.tell(
        POD_GROUPS, cluster.server.put(path, {**old, "status": {"phase": before} if before else {}}), old
    )
    cluster.controller.look(Look.GROUP, ("mine", "train"))
    assert cluster.server.objects[path]["status"].get("phase") == before


def test_it_sweeps_no_podgroups(without_its_scheduler: Cluster) -> None:
    cluster = without_its_scheduler
    cluster.group(GROUP[1], "mine", owner=REPLICA_SET)
    assert cluster.controller.look(Look.GROUP, GROUP) is None
    cluster.clock.now += 3600.0
    cluster.controller.look(Look.GROUP, GROUP)
    assert GROUP_PATH in cluster.server.objects


def test_what_a_queue_uses_is_written_and_nothing_else_of_its_status(without_its_scheduler: Cluster) -> None:
    cluster = without_its_scheduler
    queue = cluster.queue("mine")
    path = "/apis/scheduling.volcano.sh/v1beta1/queues/mine/status"
    mine = {**queue, "status": {"state": "Closing", "running": 7, "allocated": {"nvidia.com/gpu": "3"}}}
    cluster.tell(QUEUES, cluster.server.put(path, mine), queue)
    cluster.group(GROUP[1], "mine", owner=REPLICA_SET)
    cluster.member("web-0", GROUP[1], checked="mine")
    cluster.controller.look(Look.QUEUE, ("", "mine"))
    status = cluster.server.objects[path]["status"]
    assert status == {"state": "Closing", "running": 7, "allocated": {"cpu": "1", "pods": "1"}}
    written = len(cluster.server.requests)
    cluster.controller.look(Look.QUEUE, ("", "mine"))
    assert len(cluster.server.requests) == written, "nothing new to say"
