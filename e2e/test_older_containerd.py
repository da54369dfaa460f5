"""containerd 1.7 obeys CDI only where its configuration says so, and tells nobody where it does not."""

from collections.abc import Iterator

import pytest
from localcluster import toolchain
from localcluster.api import wait_until
from rigs.agent_world import World, agent_world
from rigs.planned_pods import PlannedPod
from vc_egpu.volcano.words.annotations import CardShare

SHARED = "volcano.sh/vgpu-h20"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not toolchain.containerd().minor.startswith("1."), reason="VC_EGPU_CONTAINERD=1.7"),
]


@pytest.fixture
def world() -> Iterator[World]:
    with agent_world("cdioff", 2, "defaults: {slotsPerCard: 10}\n", ("--probe-interval-s=0.5",)) as world:
        world.offers(SHARED, 20)
        yield world


def switch_cdi(world: World, *, on: bool) -> None:
    """As an operator does it: the file, then the service."""
    node = world.agent.node
    config = node.folder / "containerd.toml"
    text = config.read_text()
    wanted = f"enable_cdi = {str(on).lower()}"
    other = f"enable_cdi = {str(not on).lower()}"
    assert other in text
    config.write_text(text.replace(other, wanted))
    node.kill_containerd()
    node.start_containerd()


def pod(world: World, name: str) -> PlannedPod:
    return PlannedPod(name, {"main": (CardShare(uuid=world.uuids[0], memory_mib=1000, cores=0),)})


def test_containers_that_start_without_their_cards_close_the_node_until_cdi_is_on(world: World) -> None:
    before, first, second = (pod(world, name) for name in ("before", "first", "second"))
    world.planner.start([before])
    world.running(1)
    switch_cdi(world, on=False)
    world.planner.start([first])
    world.running(2)
    world.refusal("first", " started it without its cards and limits: CDI is off there")
    wait_until(
        "the node says so", lambda: "delete these pods: default/first" in world.inventory().problem, 30
    )
    world.planner.start([second])
    world.refusal("second", "NotNow: containerd://1.7.")

    switch_cdi(world, on=True)
    assert world.inventory().problem
    world.planner.delete([first])
    wait_until("the node is open", lambda: not world.inventory().problem, 60)
    world.planner.delete([second])
    again = pod(world, "again")
    world.planner.start([again])
    world.started("again")
    assert not world.wrong_containers([before, again])
