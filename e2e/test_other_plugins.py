"""Other device plugins and DRA drivers beside the node agent: their cards are not ours.

NVIDIA's own plugin (0.20) went the same way on such a node; the one here is smaller.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from rigs.agent_world import World, agent_world, all_started
from rigs.other_plugin import OtherPlugin
from rigs.planned_pods import NAMESPACE, PlannedPod
from vc_egpu.kube.resources import NODES, PODS, RESOURCE_SLICES
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import CardShare, NodeCards

CARDS = 4
SLOTS = 10
TAKE_OVER_S = 3
SHARED = "volcano.sh/vgpu-h20"
OTHERS = "nvidia.com/gpu"
SLICES = RESOURCE_SLICES[0]
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster_world() -> Iterator[World]:
    policy = f"defaults: {{slotsPerCard: {SLOTS}, takeOverAfterS: {TAKE_OVER_S}}}\n"
    with agent_world("others", CARDS, policy) as world:
        yield world


@pytest.fixture
def world(cluster_world: World) -> Iterator[World]:
    """The same cluster for all; each test leaves it as it was."""
    cluster_world.offers(SHARED, CARDS * SLOTS)
    yield cluster_world
    cluster_world.restore()


def pod(name: str, uuid: str) -> PlannedPod:
    return PlannedPod(name, {"main": (CardShare(uuid=uuid, memory_mib=1000, cores=0),)})


def their_pod(world: World, name: str) -> dict[str, Any]:
    """One that asks for a card of the other plugin's."""
    document = pod(name, world.uuids[0]).document(world.agent.node.name)
    del document["spec"]["schedulerName"]
    document["spec"]["containers"][0]["resources"] = {"limits": {OTHERS: "1"}}
    return document


def inventory_in(node: dict[str, Any]) -> NodeCards:
    return NodeCards.decode(node["metadata"]["annotations"][names.NODE_CARDS])


def says(world: World, text: str) -> None:
    """Wait until the node says that it takes nothing, and why; an empty text: that it takes pods."""

    def check(nodes: dict[str, Any]) -> bool | None:
        problem = inventory_in(nodes[world.agent.node.name]).problem
        return (text in problem if text else not problem) or None

    world.kit.until(f"the problem {text!r}", NODES, check, timeout_s=60)


def test_another_plugin_comes_restarts_and_leaves(world: World) -> None:
    node = world.agent.node
    world.planner.start([pod("ours", world.uuids[0])])
    world.running(1)
    plugin = OtherPlugin(node.device_plugins_dir, OTHERS, world.uuids)
    plugin.start()
    world.offers(SHARED, 1)  # the slot that is in use
    says(world, f"another plugin offers the same cards: {OTHERS}={CARDS}")

    # What runs here goes on, and starts again. The program that kills its container dies with it.
    world.cluster.kubectl("exec", "ours", "--", "kill", "-TERM", "1", check=False)

    def again(pods: dict[str, Any]) -> bool | None:
        status = pods["ours"]["status"]["containerStatuses"][0]
        return (status["restartCount"] == 1 and all_started(pods["ours"])) or None

    world.kit.until("started again", PODS, again, namespace=NAMESPACE, timeout_s=60)

    # It is replaced, or deleted: who can tell. Its pods run on, and the kubelet knows its devices.
    world.api.create(PODS, their_pod(world, "theirs"))
    world.started("theirs")
    plugin.stop()
    says(world, f"pods of another plugin hold cards: {NAMESPACE}/theirs")
    assert (world.allocatable(OTHERS), world.node()["status"]["capacity"][OTHERS]) == (0, str(CARDS))
    world.api.delete(PODS, "theirs", NAMESPACE)
    says(world, f"another plugin offered the same cards less than {TAKE_OVER_S} s ago: {OTHERS}")
    world.agent.kill()
    world.agent.start()
    world.agent.wait_ready()
    assert "another plugin offered the same cards" in inventory_in(world.node()).problem
    assert world.allocatable(SHARED) <= 1

    # A kubelet that restarts forgets them; the resource stays, at zero.
    node.kill_kubelet()
    node.start_kubelet()
    node.wait_ready()
    world.offers(SHARED, CARDS * SLOTS)
    says(world, "")
    assert world.node()["status"]["capacity"][OTHERS] == "0"


def test_cards_of_a_dra_driver_are_not_offered(world: World) -> None:
    """As NVIDIA's publishes them. Nothing on the Node tells of them."""
    node = world.agent.node.name
    devices = [{"name": f"gpu-{index}", "attributes": {"uuid": {"string": uuid}}}
               for index, uuid in enumerate(world.uuids)]  # fmt: skip
    document = {
        "metadata": {"name": f"{node}-gpu.nvidia.com"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    try:
        world.api.create(SLICES, document)
    except NotFound:
        pytest.skip("this Kubernetes has no ResourceSlices of version 1")
    says(world, f"another plugin offers the same cards: gpu.nvidia.com={CARDS}")
    world.offers(SHARED, 0)
    world.api.delete(SLICES, f"{node}-gpu.nvidia.com")
    says(world, "")
