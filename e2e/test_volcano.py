"""The stories on unmodified Volcano, as production runs: its controllers, its scheduler, its webhook.

Two real nodes with fake cards, our stack in the cluster, and Volcano's programs beside it; once with the
scheduler configuration that we ship, once with the stock one, under which a full cluster keeps a PodGroup
pending and its pods are never made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo.screen import Screen
from demo.story import NAMESPACE as DEMO
from demo.story import Story
from localcluster import ClusterSpec, LocalCluster
from outcomes import gangs_of_others
from outcomes.world import World, world
from rigs.player import STORIES, TIMEOUT_S, expectations
from stack import verify
from stack.install import Stack, stack_images
from stack.kit import Json, Kit, running
from vc_egpu.kube.resources import NODES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.podspec.sums import pod_requests, resources
from vc_egpu.volcano.words.annotations import Cards
from vc_egpu.volcano.words.names import (
    CARDS,
    GROUP_NAME,
    LIMIT_CORES,
    LIMIT_MEMORY,
    PRIORITY,
    shared_resource,
)
from vc_egpu.volcano.words.quantity import parse_scaled
from volcano.conf import ConfName
from volcano.player import play, queues_open
from volcano.processes import Volcano, VolcanoProcesses

OVERLAY = Path(__file__).resolve().parent / "volcano" / "overlay"
OVERLAY_VC = OVERLAY.with_name("overlay-vc")
FULL = "full"

pytestmark = [pytest.mark.volcano, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Production:
    """Our stack on Volcano."""

    stack: Stack
    volcano: VolcanoProcesses
    conf: ConfName
    kube_binds: bool


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.up(ClusterSpec(name="e2e-volcano", images=stack_images()), print) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def installed(volcano: Volcano, cluster: LocalCluster) -> tuple[Stack, VolcanoProcesses]:
    """Volcano first, as on a cluster to which our stack comes later."""
    volcano.install_crds(cluster)
    processes = VolcanoProcesses.of(cluster, volcano, "own")
    processes.start()
    print(f"Volcano {volcano.version()}, webhook {'runs' if processes.webhook else 'is not there'}")
    return Stack.install(cluster, overlay=OVERLAY, say=print), processes


@pytest.fixture(scope="module", params=["own", "stock", "own-vc", "stock-vc"])
def production(
    request: pytest.FixtureRequest, installed: tuple[Stack, VolcanoProcesses]
) -> Iterator[Production]:
    """Both configurations with the kube-scheduler binding, then with vc-scheduler, on one cluster."""
    stack, processes = installed
    conf, _, binder = str(request.param).partition("-")
    processes.use("own" if conf == "own" else "stock")
    overlay = OVERLAY_VC if binder else OVERLAY
    stack.cluster.kubectl("apply", "--server-side", "-k", str(overlay))
    stack.wait_ready({node.name: 4 for node in stack.cluster.nodes})
    yield Production(stack, processes, "own" if conf == "own" else "stock", not binder)
    processes.check_alive()


@pytest.mark.parametrize("story", [story for story in STORIES if not expectations(story).get("isolation")])
def test_story(production: Production, story: str) -> None:
    play(production.stack, production.conf, story)


def test_demo(production: Production) -> None:
    """The demo's eight steps: retry-neutral eviction through Volcano's own controllers among them."""
    stack = production.stack
    try:
        Story(stack.kit, Screen(), stack.egpu).tell()
        stack.check_invariants()
    finally:
        stack.cluster.kubectl("delete", "namespace", DEMO, "--wait=true", "--timeout=90s", check=False)
        stack.cluster.kubectl("delete", "queue", "demo-research", "demo-serving", check=False)


@pytest.mark.parametrize(
    "story",
    [
        gangs_of_others.head_and_workers,
        gangs_of_others.launcher_and_workers,
        gangs_of_others.leader_and_workers,
        gangs_of_others.driver_and_executors,
        gangs_of_others.driver_of_a_job_and_executors,
        gangs_of_others.waits_for_the_phase,
    ],
    ids=lambda story: story.__name__,
)
def test_gangs_of_others(production: Production, story: Callable[[World], dict[str, Json]]) -> None:
    with world(production.stack, story.__name__) as here:
        try:
            story(here)
            here.check()
        finally:
            gangs_of_others.clean(here)


def test_full_cluster(production: Production) -> None:
    """CPUs are full of low training, so the stock configuration holds the PodGroup of inference back and its
    pods are never made: it is planned from its Job's template, training goes whole, inference is enqueued and
    runs, and training comes back without a used try."""
    stack, kit = production.stack, production.stack.kit
    kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FULL}}, queue(FULL, 8))
    queues_open(kit)
    try:
        nodes = [kit.api.get(NODES, node.name) for node in stack.cluster.nodes]
        cpus = sum(resources(node["status"]["allocatable"]).cpu_milli / 1000 for node in nodes)
        taken = [_taken_cpus(kit, node["metadata"]["name"]) for node in nodes]
        # Three on each node, whatever else runs there.
        train_cpus = 0.9 * (cpus / len(nodes) - max(taken)) / 3
        kit.apply(job("train", 6, train_cpus, 61440, "low"))
        kit.pods_until("training runs", FULL, lambda pods: len(running(pods, "train-")) == 6, TIMEOUT_S)
        # With it the stock configuration would promise more than 1.2 times what there is.
        infer_cpus = (1.25 * cpus - sum(taken) - 6 * train_cpus) / 2
        assert infer_cpus <= 3 * train_cpus, "it would not fit in training's place: a node is too small"
        kit.apply(job("infer", 2, infer_cpus, 81920, "high"))
        held_back = kit.pods_until("training is evicted", FULL, _held_back, TIMEOUT_S) == "held back"
        # Where the kube-scheduler binds we let the pods be made ourselves.
        assert held_back == (production.conf == "stock" and not production.kube_binds)
        kit.pods_until("inference runs", FULL, lambda pods: len(running(pods, "infer-")) == 2, TIMEOUT_S)
        stack.check_invariants()
        kit.kubectl("delete", "vcjob", "infer", "-n", FULL, "--wait=true")
        kit.pods_until("training is back", FULL, lambda pods: len(running(pods, "train-")) == 6, TIMEOUT_S)
        assert not (kit.api.get(VOLCANO_JOBS, "train", FULL).get("status") or {}).get("retryCount")
        stack.check_invariants()
    finally:
        kit.kubectl("delete", "namespace", FULL, "--wait=true", "--timeout=90s", check=False)
        kit.kubectl("delete", "queue", FULL, check=False)


def test_eviction_while_the_job_controller_stands_still(production: Production) -> None:
    """Volcano's Job controller is asked to replace training's pods and does not: after ten seconds they are
    evicted plainly, and still no try is used, since the mark that it was asked by stays on them."""
    stack, kit, controllers = production.stack, production.stack.kit, production.volcano.controllers
    kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FULL}}, queue(FULL, 9))
    queues_open(kit)
    try:
        kit.apply(job("train", 6, 0.02, 61440, "low"))
        kit.pods_until("training runs", FULL, lambda pods: len(running(pods, "train-")) == 6, TIMEOUT_S)
        controllers.pause()
        # Three whole cards of one node: more than are free. Nobody has to make this pod.
        kit.apply(*gang_of_one("infer", 3, "high"))
        kit.pods_until("inference runs", FULL, lambda pods: running(pods, "infer"), TIMEOUT_S)
        events = kit.kubectl("get", "events", "-n", FULL, "--field-selector=reason=EvictedPlainly").stdout
        assert "train-worker-" in events
        controllers.resume()
        kit.pods_until("training waits again", FULL, lambda pods: len(pods) == 7, TIMEOUT_S)
        kit.kubectl("delete", "pod", "infer", "-n", FULL, "--wait=true")
        kit.pods_until("training is back", FULL, lambda pods: len(running(pods, "train-")) == 6, TIMEOUT_S)
        assert not (kit.api.get(VOLCANO_JOBS, "train", FULL).get("status") or {}).get("retryCount")
        stack.check_invariants()
    finally:
        controllers.resume()
        kit.kubectl("delete", "namespace", FULL, "--wait=true", "--timeout=90s", check=False)
        kit.kubectl("delete", "queue", FULL, check=False)


def test_card_overlap(production: Production) -> None:
    """Each card's cores are given out twice, once to low and once to high: no counter of a node or a queue
    stands in the way of whoever binds, and Volcano counts all of it to the queue."""
    stack, kit = production.stack, production.stack.kit
    kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FULL}}, queue(FULL, 16))
    queues_open(kit)
    try:
        kit.apply(job("train", 8, 0.02, 61440, "low", cores_percent=100))
        kit.pods_until("training runs", FULL, lambda pods: len(running(pods, "train-")) == 8, TIMEOUT_S)
        kit.apply(job("infer", 8, 0.02, 30720, "high", cores_percent=100))
        pods = kit.pods_until(
            "both run", FULL, lambda pods: pods if len(running(pods)) == 16 else None, TIMEOUT_S
        )
        cards = {name.split("-")[0]: set[str]() for name in pods}
        for name, pod in pods.items():
            annotation = Cards.decode(pod["metadata"]["annotations"][CARDS])
            cards[name.split("-")[0]] |= {s.uuid for shares in annotation.containers.values() for s in shares}
        assert cards["train"] == cards["infer"]
        assert len(cards["train"]) == 8
        kit.until(
            "Volcano counts all shares to the queue",
            QUEUES,
            lambda queues: _allocated(queues[FULL]) == (16, 1600),
        )
        stack.check_invariants()
        verify.check_containers(stack.cluster, kit, FULL)
    finally:
        kit.kubectl("delete", "namespace", FULL, "--wait=true", "--timeout=90s", check=False)
        kit.kubectl("delete", "queue", FULL, check=False)


def _allocated(queue: Json) -> tuple[int, int]:
    """Shares of h20 and percent of cores that Volcano counts to a queue."""
    allocated = (queue.get("status") or {}).get("allocated") or {}
    shares = shared_resource("h20")
    return parse_scaled(allocated.get(shares, 0), 1), parse_scaled(allocated.get(f"{shares}-cores", 0), 1)


def _held_back(pods: dict[str, Json]) -> str:
    """Once a member of training goes: whether inference had pods by then."""
    if not any(pod["metadata"].get("deletionTimestamp") for pod in pods.values()):
        return ""
    return "has pods" if any(name.startswith("infer-") for name in pods) else "held back"


def _taken_cpus(kit: Kit, node: str) -> float:
    """What the pods that run on a node have asked for."""
    return sum(
        pod_requests(pod["spec"]).cpu_milli / 1000
        for pod in kit.api.list(PODS).items
        if pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    )


def queue(name: str, shares: int) -> Json:
    """A queue that may hold so many shares of h20."""
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {shared_resource("h20"): shares}},
    }


def job(
    name: str, members: int, cpus: float, memory_mib: int, priority: str, *, cores_percent: int = 50
) -> Json:
    """A gang that asks for CPUs and one slice per member; a single failed try would be its last."""
    resources = {
        "requests": {"cpu": f"{cpus * 1000:.0f}m", "memory": "16Mi"},
        "limits": {shared_resource("h20"): 1, LIMIT_MEMORY: memory_mib, LIMIT_CORES: cores_percent},
    }
    template = {"metadata": {"annotations": {PRIORITY: priority}}, "spec": pod_spec(resources)}
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": name, "namespace": FULL},
        "spec": {
            "schedulerName": "volcano",
            "queue": FULL,
            "minAvailable": members,
            "maxRetry": 1,
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [{"name": "worker", "replicas": members, "minAvailable": members, "template": template}],
        },
    }


def gang_of_one(name: str, cards: int, priority: str) -> tuple[Json, Json]:
    """A pod that takes whole cards, and the PodGroup that it names."""
    group = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": name, "namespace": FULL},
        "spec": {"minMember": 1, "queue": FULL},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": FULL,
            "annotations": {PRIORITY: priority, GROUP_NAME: name},
        },
        "spec": pod_spec({"limits": {shared_resource("h20"): cards}}),
    }
    return group, pod


def pod_spec(resources: Json) -> Json:
    """A container that runs until it is told to end."""
    container = {
        "name": "main",
        "image": "vc-egpu.local/busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "trap exit TERM; while :; do sleep 1; done"],
        "resources": resources,
    }
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
