"""Who is this container? Plan = CDI file = what the container says of itself, whatever happens around it.

16 pods of two containers start at once on one node, round after round, under the same names and on slots that
other containers had a moment ago, with other cards; in some rounds the agent is killed in the middle.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest
from localcluster.api import wait_until
from rigs.agent_world import World, agent_world, all_started
from rigs.planned_pods import PlannedPod, random_round

PODS_AT_ONCE = 16
CONTAINERS = 2
CARDS = 4
SLOTS_PER_CARD = 18
"""Few, so that every round gets slots that others had just before."""
RESOURCE = "volcano.sh/vgpu-h20"
LONG = bool(os.environ.get("VC_EGPU_LONG"))
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    policy = f"defaults: {{slotsPerCard: {SLOTS_PER_CARD}, recoveryS: 1}}\n"
    with agent_world("identity", CARDS, policy) as world:
        world.offers(RESOURCE, CARDS * SLOTS_PER_CARD)
        yield world


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
    wrong = world.wrong_containers(pods)
    assert not wrong, "\n".join(wrong)
    world.planner.delete(pods, grace_period_s=0 if number % 2 else None)
    world.none_left()


def revive(world: World, pods: list[PlannedPod]) -> None:
    """The kubelet fails pods that come while no plugin is there; as a controller would, make them anew."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        listed = world.pods()
        failed = [pod for pod in pods if (listed[pod.name].get("status") or {}).get("phase") == "Failed"]
        if not failed and all(all_started(item) for item in listed.values()):
            return
        if failed:
            world.planner.delete(failed, grace_period_s=0)
            world.offers(RESOURCE, CARDS * SLOTS_PER_CARD)
            world.planner.start(failed)
        time.sleep(0.5)
    raise AssertionError("some pods did not start, however often they were made anew")


@pytest.mark.parametrize("number", range(1))
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
