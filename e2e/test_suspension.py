"""Suspending on a real API server: training leaves its cards for inference and comes back, not restarted.

Nodes are simulated and a stand-in answers for their agents; what a real agent does is tried in the tests of
the node's side.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from localcluster.net import free_ports
from rigs.admission import Rig, StandInController
from rigs.gangs import Gang, admitted, job, pod, podgroup
from rigs.suspender import Suspender, until_known
from stack.kit import condition
from vc_egpu.cli import pause
from vc_egpu.kube.resources import POD_GROUPS, PODS, VOLCANO_JOBS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]

TURNS = itertools.count()
(PORT,) = free_ports(1, set())
LOW = Gang("train", 8, memory_mib=60000, cores=100, priority="low")
HIGH = Gang("infer", 2, memory_mib=60000, cores=50, priority="high")


@pytest.fixture
def world(simulated: Rig) -> Iterator[Rig]:
    """A clean cluster with one queue; the invariants hold at the end. Tests start the controller."""
    turn = f"-{next(TURNS)}"
    simulated.suffix = lambda: turn
    with simulated.story():
        yield simulated


def start(world: Rig, name: str = "admission", *flags: str) -> None:
    """An admission controller that tells on ``PORT`` what it knows."""
    world.controller(name, "--port", str(PORT), "--bind-address", "127.0.0.1", *flags).start()


def train(world: Rig, suspendable: int = LOW.members) -> dict[str, str]:
    """Training runs; its pods' UIDs by name."""
    world.submit(LOW)
    bound = world.until_bound(LOW)
    until_known(PORT, suspendable)
    return {name: found["metadata"]["uid"] for name, found in bound.items()}


def member(world: Rig, index: int) -> str:
    """Name of a pod of training in this test."""
    return f"{LOW.name}-worker-{index}{world.suffix()}"


def until_pods(world: Rig, gang: Gang, what: str, check: Callable[[list[Json]], bool]) -> list[Json]:
    def judge(pods: dict[str, Json]) -> list[Json] | None:
        found = list(pods.values())
        return found if check(found) else None

    return world.kit.until(
        what, PODS, judge, namespace="default", label_selector=f"gang={gang.name}", timeout_s=60
    )


def said(obj: Json) -> tuple[str, str]:
    """(reason, message) of the condition on suspension."""
    found = condition(obj, names.CONDITION_SUSPENDED) or {}
    return found.get("reason", ""), found.get("message", "")


def all_say(reason: str) -> Callable[[list[Json]], bool]:
    return lambda pods: len(pods) == LOW.members and all(said(pod)[0] == reason for pod in pods)


def uids(pods: list[Json]) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def all_ordered(pods: list[Json]) -> bool:
    return len(pods) == LOW.members and all(names.SUSPEND in pod["metadata"]["annotations"] for pod in pods)


def no_orders(pods: list[Json]) -> bool:
    return not any(names.SUSPEND in pod["metadata"]["annotations"] for pod in pods)


def test_training_leaves_its_cards_for_inference_and_runs_on(world: Rig) -> None:
    with Suspender(world), StandInController(world, LOW, HIGH):
        start(world)
        before = train(world)
        world.submit(HIGH)
        world.until_bound(HIGH, timeout_s=60)
        pods = until_pods(world, LOW, "training is away", all_say("Suspended"))
        assert uids(pods) == before, "nobody was evicted"
        assert "makes room for Job default/infer" in said(pods[0])[1]
        assert "1234 MiB of GPU memory are on the host" in said(pods[0])[1]
        group = world.api.get(POD_GROUPS, LOW.name, LOW.namespace)
        assert "8 of 8 pods on 2 nodes, 9872 MiB" in said(group)[1]
        world.check()
        world.end(HIGH)
        pods = until_pods(world, LOW, "training is back", all_say("Resumed"))
        assert no_orders(pods)
        assert uids(pods) == before


def test_newcomers_do_not_overtake_training_that_waits_for_its_cards(world: Rig) -> None:
    large = Gang("large", 1, memory_mib=50000, priority="low")
    small = Gang("small", 1, memory_mib=20000, priority="low")
    with Suspender(world), StandInController(world, LOW, HIGH):
        start(world, "admission", "--suspended-hold-s", "0")
        before = train(world)
        world.submit(HIGH)
        world.until_bound(HIGH, timeout_s=60)
        until_pods(world, LOW, "training is away", all_say("Suspended"))
        world.submit(large)  # six cards are free, but training needs what it would leave
        why = world.until_reason(large, "WaitingForCards")["message"]
        assert "on standby for default/train, suspended for more than 0 s" in why
        world.submit(small)
        world.until_bound(small)
        world.end(HIGH)
        pods = until_pods(world, LOW, "training is back", all_say("Resumed"))
        assert uids(pods) == before
        assert admitted(world.api.get(POD_GROUPS, large.name, large.namespace)) is not None


def test_bare_pods_leave_their_cards_and_are_not_evicted(world: Rig) -> None:
    lone = replace(LOW, name="lone")
    with Suspender(world), StandInController(world, HIGH):
        start(world)
        owner = world.api.create(VOLCANO_JOBS, job(lone))
        world.api.create(POD_GROUPS, podgroup(lone, owner))
        for index in range(lone.members):
            world.api.create(PODS, pod(lone, None, index))
        before = {name: one["metadata"]["uid"] for name, one in world.until_bound(lone).items()}
        until_known(PORT, lone.members)
        world.submit(HIGH)
        world.until_bound(HIGH, timeout_s=60)
        until_pods(world, lone, "they are away", all_say("Suspended"))
        world.end(HIGH)
        assert uids(until_pods(world, lone, "they are back", all_say("Resumed"))) == before


def test_a_node_that_does_not_answer_is_not_waited_for_for_ever(world: Rig) -> None:
    with Suspender(world, silent=True), StandInController(world, LOW, HIGH):
        start(world, "admission", "--suspend-timeout-s", "2")
        before = train(world)
        world.submit(HIGH)
        until_pods(world, LOW, "orders stand", lambda pods: not no_orders(pods))
        world.until_bound(HIGH, timeout_s=60)
        pods = until_pods(world, LOW, "made anew", lambda pods: len(pods) == 8 and no_orders(pods))
        assert not set(uids(pods).values()) & set(before.values()), "evicted, as a whole"
        world.until_reason(LOW, "WaitingForCards")


def test_an_agent_that_tried_in_vain_is_believed_at_once(world: Rig) -> None:
    with Suspender(world, refuses="a process holds a lock"), StandInController(world, LOW, HIGH):
        start(world)
        train(world)
        began = time.monotonic()
        world.submit(HIGH)
        world.until_bound(HIGH, timeout_s=50)
        assert time.monotonic() - began < 55, "sooner than an order's time-out of 60 s"
        until_pods(world, LOW, "evicted", lambda pods: len(pods) == 8 and no_orders(pods))


def test_who_cannot_be_brought_back_is_made_anew_and_queued(world: Rig) -> None:
    with Suspender(world, restore_fails=True) as suspender, StandInController(world, LOW, HIGH):
        start(world)
        before = train(world)
        world.submit(HIGH)
        until_pods(world, LOW, "training is away", all_say("Suspended"))
        world.until_bound(HIGH)
        world.end(HIGH)

        def anew(pods: list[Json]) -> bool:
            fresh = not set(uids(pods).values()) & set(before.values())
            return len(pods) == 8 and fresh and all(pod["spec"].get("nodeName") for pod in pods)

        until_pods(world, LOW, "made anew and placed", anew)
        suspender.restore_fails = False


@pytest.mark.parametrize("moment", ["leaving", "away", "coming back"])
def test_a_new_leader_goes_on_where_the_killed_one_was(world: Rig, moment: str) -> None:
    with Suspender(world, silent=moment == "leaving") as suspender, StandInController(world, LOW, HIGH):
        start(world)
        before = train(world)
        world.submit(HIGH)
        until_pods(world, LOW, "orders stand", all_ordered)
        if moment != "leaving":
            world.until_bound(HIGH)
            until_pods(world, LOW, "training is away", all_say("Suspended"))
        if moment == "coming back":
            suspender.silent = True
            world.end(HIGH)
            until_pods(world, LOW, "orders are off", no_orders)
        world.processes["admission"].kill()
        world.check(settled=False)
        suspender.speak()
        start(world, "next")
        if moment == "leaving":
            world.until_bound(HIGH, timeout_s=60)
        if moment != "coming back":
            world.check()
            world.end(HIGH)
        pods = until_pods(
            world, LOW, "training is back", lambda pods: all_say("Resumed")(pods) and no_orders(pods)
        )
        assert uids(pods) == before


def test_a_user_suspends_and_resumes_a_gang_by_any_of_its_pods(world: Rig) -> None:
    heard: list[str] = []
    with Suspender(world), StandInController(world, LOW):
        start(world)
        before = train(world)
        done = pause.suspend(world.api, "default", member(world, 3), timeout_s=60, progress=heard.append)
        assert done.reached, done
        assert len(done.members) == 8
        other = Gang("other", 8, memory_mib=90000, cores=90)
        world.submit(other)
        world.until_bound(other)  # the cards are free, for anybody
        blocked = pause.resume(world.api, "default", member(world, 0), timeout_s=3, progress=heard.append)
        assert not blocked.reached, "its cards have no room"
        world.end(other)
        done = pause.resume(world.api, "default", member(world, 0), timeout_s=60, progress=heard.append)
        assert done.reached, done
        pods = until_pods(world, LOW, "training is back", all_say("Resumed"))
        assert uids(pods) == before


def test_a_wish_that_cannot_be_met_says_why_and_changes_nothing(world: Rig) -> None:
    with Suspender(world, unable={member(world, 5): "it uses managed memory"}), StandInController(world, LOW):
        start(world)
        train(world, suspendable=7)
        for name in (member(world, 5), member(world, 0)):
            done = pause.suspend(world.api, "default", name, timeout_s=60, progress=lambda _: None)
            assert not done.reached
            assert "it uses managed memory" in done.why
        pods = until_pods(world, LOW, "nobody is paused", no_orders)
        assert not any(names.PAUSE in pod["metadata"]["annotations"] for pod in pods)
