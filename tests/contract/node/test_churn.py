"""Pods that come and go all day: whatever their number, nothing of them stays with the agent."""

import pytest
from contract.node.collecting import Cgroups, collector
from contract.node.node_world import World
from contract.node.test_live_limits import Isolated
from unit.kept import open_below, sizes
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.guard import timings_of
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall.wall import SecondWall

POLICY = Policy()


@pytest.mark.parametrize("at_once", [1, 4])
def test_short_pods_leave_nothing_behind(world: World, at_once: int) -> None:
    node, cgroups = Isolated(world), Cgroups()
    collect = collector(world, cgroups)
    observations = [Observation()]
    wall = SecondWall(
        grants=world.grants.all,
        pods=world.pods.views,
        isolation=node.isolation,
        hosts=ContainerOfProcess(world.root),
        observation=lambda: observations[-1],
        policy=lambda: "report",
        timings=lambda: timings_of(POLICY),
        tell=lambda *_event: None,
    )
    parts = (world.allocations, world.grants, world.identity, node.isolation, node.live, collect, wall)

    def live(rounds: int) -> None:
        for number in range(rounds):
            names = [f"p{number}-{one}" for one in range(at_once)]
            pods = [node.start(name, 1000, f"s{slot}") for slot, name in enumerate(names)]
            node.change(pods[0], ("GPU-1", 500, 0))
            assert node.live.apply() == 1
            looks = observations[-1].looks + 1
            observations[-1] = Observation(processes={"GPU-1": (ProcessSample(1, 1, 1),)}, looks=looks)
            wall.look()
            for pod in pods:
                world.pods.remove(pod)
                world.kubelet.free(("ns", pod.name, "main"))
            assert collect.collect() == 0
        wall.look()

    live(3)
    files, kept, held = set(world.root.rglob("*")), open_below(world.root), sizes(parts)
    live(30)
    assert set(world.root.rglob("*")) == files
    assert open_below(world.root) == kept
    assert sizes(parts) == held
