"""Who is this container? Plan = CDI file = what the container says of itself, whatever happens around it.

16 pods of two containers start at once on one node, round after round, under the same names and on slots that
other containers had a moment ago, with other cards; in some rounds the agent is killed in the middle.
"""

import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from agent_on_node import AgentOnNode
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from planned_pods import NAMESPACE, PlannedPod, Planner, random_round, said
from stack.kit import Kit
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import PODS

PODS_AT_ONCE = 16
CONTAINERS = 2
CARDS = 4
LONG = bool(os.environ.get("VC_EGPU_LONG"))
pytestmark = pytest.mark.cluster


@dataclass
class World:
    """A cluster with one real node, its agent, and hands to plan pods with."""

    cluster: LocalCluster
    agent: AgentOnNode
    kit: Kit
    planner: Planner

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in self.agent.fake.cards]

    def running(self, count: int, timeout_s: float = 120) -> dict[str, Any]:
        """All pods, once ``count`` of them run."""

        def check(pods: dict[str, Any]) -> dict[str, Any] | None:
            up = {name: pod for name, pod in pods.items() if _all_started(pod)}
            return dict(pods) if len(up) == count else None

        return self.kit.until(f"{count} pods running", PODS, check, namespace=NAMESPACE, timeout_s=timeout_s)

    def none_left(self) -> None:
        """Every pod is gone and the agent has let go of everything."""
        gone = "all pods gone"
        self.kit.until(gone, PODS, lambda pods: not pods or None, namespace=NAMESPACE, timeout_s=60)
        wait_until("CDI files collected", lambda: not self.cdi_files(), 30)

    def cdi_files(self) -> list[Any]:
        return list(self.agent.node.cdi_dir.glob("egpu.volcano.sh-*.json"))

    def cdi_cards(self) -> dict[tuple[str, str], list[Any]]:
        """(pod UID, container) to the cards in its CDI file."""
        found = {}
        for path in self.cdi_files():
            device = json.loads(path.read_text())["devices"][0]
            grant = json.loads(device["annotations"]["egpu.volcano.sh/grant"])
            env = dict(entry.split("=", 1) for entry in device["containerEdits"]["env"])
            found[(grant["pod_uid"], grant["container"])] = json.loads(env["EGPU_CARDS"])
        return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    spec = ClusterSpec(name="identity", real_nodes=1, services=False, dns=False)
    with LocalCluster.up(spec) as cluster:
        agent = AgentOnNode.with_h20(cluster, cluster.nodes[0], CARDS)
        # Few slots, so that every round gets slots that others had just before.
        (agent.folder / "policy.yaml").write_text("defaults: {slotsPerCard: 18, recoveryS: 1}\n")
        agent.start()
        agent.wait_ready()
        api = ApiConnection.connect(cluster.kubeconfig)
        world = World(cluster, agent, Kit(api, cluster.kubectl), Planner(api, agent.node.name))
        wait_until("slots offered", lambda: _allocatable(cluster, agent) == CARDS * 18, 60)
        yield world
        print(agent.process.log_tail())


def _allocatable(cluster: LocalCluster, agent: AgentOnNode) -> int:
    node = json.loads(cluster.kubectl("get", "node", agent.node.name, "-o", "json").stdout)
    return int(node["status"]["allocatable"].get("volcano.sh/vgpu-h20", 0))


def _all_started(pod: Any) -> bool:
    states = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(states) and all("running" in one["state"] for one in states)


def wrong_containers(world: World, pods: list[PlannedPod]) -> list[str]:
    """Containers whose plan, CDI file and own words are not the same."""
    by_name = {item["metadata"]["name"]: item for item in world.planner.api.list(PODS, NAMESPACE).items}
    in_files = world.cdi_cards()

    def look(pod: PlannedPod) -> list[str]:
        faults = []
        uid = by_name[pod.name]["metadata"]["uid"]
        for container, shares in pod.containers.items():
            planned = [share.model_dump(by_alias=True) for share in shares]
            heard, limits = said(world.planner.api.pod_log(pod.name, NAMESPACE, container=container))
            filed = in_files.get((uid, container))
            sizes = [{key: card[key] for key in ("uuid", "memoryMiB", "cores")} for card in limits["cards"]]
            if not planned == heard == filed == sizes or limits["podUid"] != uid:
                faults.append(f"{pod.name}/{container}: plan {planned}, container {heard}, file {filed}")
        return faults

    with ThreadPoolExecutor(8) as pool:
        return [fault for faults in pool.map(look, pods) for fault in faults]


def play(world: World, number: int, *, kill: bool) -> None:
    """One round; with ``kill`` the agent dies without warning while the containers start."""
    pods = random_round(random.Random(number), world.uuids, pods=PODS_AT_ONCE, containers=CONTAINERS)
    world.planner.start(pods)
    if kill:
        wait_until("the first containers let in", lambda: len(world.cdi_files()) >= 4, 60)
        world.agent.kill()
        world.agent.start()
        world.agent.wait_ready()
        revive(world, pods)
    world.running(PODS_AT_ONCE)
    wrong = wrong_containers(world, pods)
    assert not wrong, "\n".join(wrong)
    world.planner.delete(pods, grace_period_s=0 if number % 2 else None)
    world.none_left()


def revive(world: World, pods: list[PlannedPod]) -> None:
    """The kubelet fails pods that come while no plugin is there; as a controller would, make them anew."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        listed = {item["metadata"]["name"]: item for item in world.planner.api.list(PODS, NAMESPACE).items}
        failed = [pod for pod in pods if (listed[pod.name].get("status") or {}).get("phase") == "Failed"]
        if not failed and all(_all_started(item) for item in listed.values()):
            return
        if failed:
            world.planner.delete(failed, grace_period_s=0)
            wait_until("slots are back", lambda: _allocatable(world.cluster, world.agent) == CARDS * 18, 60)
            world.planner.start(failed)
        time.sleep(0.5)


@pytest.mark.parametrize("number", range(3))
def test_every_container_gets_its_own_cards(world: World, number: int) -> None:
    play(world, number, kill=False)


def test_agent_killed_in_the_middle(world: World) -> None:
    play(world, 100, kill=True)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not LONG, reason="belongs to make test-long")
def test_twenty_rounds(world: World) -> None:
    for number in range(200, 220):
        play(world, number, kill=number % 4 == 3)
