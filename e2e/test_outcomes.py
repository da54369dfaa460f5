"""What the design promises when something goes wrong, on the whole stack: cards, our own processes.

Queues: ``test_outcomes_queues``. Nodes, kubelets and the API server: ``test_outcomes_nodes``.
"""

import json
import re
from typing import Any, Final

import pytest
from outcomes import disturb
from outcomes.submitter import Submitter
from outcomes.workload import DEAF, H20_MIB, Json, Task, container, job, pod, shares
from outcomes.world import World
from stack import webhook
from stack.kit import cards_of, is_gated, is_running
from vc_egpu.kube.resources import NODES, PODS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import Forbidden, KubeError
from vc_egpu.volcano.api.containers import statuses_of
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
FAILS_WHEN_TOLD: Final = "trap exit TERM; until [ -e /tmp/fail ]; do sleep 0.1; done; exit 3"
QUICK_RECOVERY: Final = "defaults: {slotsPerCard: 100, recoveryS: 1}\n"


# --- preemption -----------------------------------------------------------------------------------------


def low(here: World, name: str, replicas: int, *, command: str = DEAF, grace_s: int = 120) -> Json:
    """Training that holds most of each of its cards, and does not hear SIGTERM."""
    task = Task(
        shares(80_000, 100),
        replicas=replicas,
        priority="low",
        command=command,
        more={"terminationGracePeriodSeconds": grace_s},
    )
    return job(name, task, queue=here.queue)


def high(here: World, name: str, replicas: int) -> Json:
    return job(name, Task(shares(60_000, 50), replicas=replicas, priority="high"), queue=here.queue)


def leaving(pods: dict[str, Json]) -> list[str]:
    return [name for name, found in pods.items() if found["metadata"].get("deletionTimestamp")]


def end_deaf(here: World, of: str, *, on: str = "") -> None:
    """Let the containers of what ignores SIGTERM end; ``on``: those of that node."""
    pods = here.pods(of)
    for name in leaving(pods):
        node = pods[name]["spec"].get("nodeName")
        if node and on in ("", node):  # a new one that is still gated has no container
            here.touch(name, "/tmp/done")


def test_a_victim_that_ignores_sigterm_keeps_its_cards_until_it_is_gone(here: World) -> None:
    here.submit(low(here, "deaf", 8))
    here.runs("deaf", 8)
    victims = here.uids("deaf")
    cards = {card for held in here.cards("deaf").values() for card in held}
    here.submit(high(here, "urgent", 2))
    here.waits("urgent", "WaitingForEviction", "8 pods")
    here.until("its victims are told to go", "deaf", lambda pods: len(leaving(pods)) == 8)
    here.gated("urgent", 2)
    rows = here.card_rows()
    for card in cards:
        (sharer,) = rows[card]["sharers"]
        assert (sharer["phase"], rows[card]["used_mib"]) == ("Terminating", 80_000)
    here.check(containers=False)
    end_deaf(here, "deaf")
    here.runs("urgent", 2)
    here.gone("deaf", victims)  # two cards free are enough for high
    here.waits("deaf", "WaitingForCards")
    here.gated("deaf", 8)
    here.delete("vcjob", "urgent")
    here.runs("deaf", 8)
    assert retries(here, "deaf") == 0
    quick_end(here, "deaf")


def test_inference_starts_while_the_rest_of_the_evicted_gang_is_still_on_another_node(here: World) -> None:
    first, second = (node.name for node in here.stack.cluster.nodes)
    here.submit(low(here, "deaf", 8))
    here.runs("deaf", 8)
    pinned = {"nodeSelector": {"kubernetes.io/hostname": first}}
    urgent = Task(shares(60_000, 50), replicas=2, priority="high", more=pinned)
    here.submit(job("urgent", urgent, queue=here.queue))
    here.until("its victims are told to go", "deaf", lambda pods: len(leaving(pods)) == 8)
    here.waits("urgent", "WaitingForEviction", "8 pods")
    end_deaf(here, "deaf", on=first)
    here.runs("urgent", 2, on=first)
    there = [pod["spec"].get("nodeName") for pod in here.pods("deaf").values()]
    assert there.count(second) == 4  # of those on the first node two may still be ending as well
    here.check(containers=False)
    here.delete("vcjob", "deaf", wait=False)
    end_deaf(here, "deaf")


def quick_end(here: World, of: str) -> None:
    """End what ignores SIGTERM, so that nobody waits for its grace period."""
    for name, found in here.pods(of).items():
        if is_running(found):
            here.touch(name, "/tmp/done")
    here.delete("vcjob", of, wait=False)


def retries(here: World, name: str) -> int:
    found = here.kit.api.get(VOLCANO_JOBS, name, here.namespace)
    return int((found.get("status") or {}).get("retryCount") or 0)


@pytest.mark.parametrize("who", ["leader", "both"])
def test_the_controller_is_killed_in_the_middle_of_a_preemption(here: World, who: str) -> None:
    """In the cluster, pod and all. Whoever leads next finishes what was begun, and nothing else."""
    here.submit(low(here, "first", 4), low(here, "second", 4))
    here.runs("first", 4)
    here.runs("second", 4)
    before = {name: here.uids(name) for name in ("first", "second")}
    here.submit(high(here, "urgent", 2))
    here.until("the first victim goes", "", leaving)
    controllers = [found["metadata"]["name"] for found in disturb.own_pods(here.stack, "vc-egpu-admission")]
    for name in controllers if who == "both" else [disturb.leader(here.stack)]:
        disturb.kill_pod(here.stack, name)
    here.until("one gang goes as a whole", "", lambda pods: len(leaving(pods)) == 4)
    (victim,) = {re.sub(r"-worker-\d+$", "", name) for name in leaving(here.pods())}
    end_deaf(here, victim)
    here.runs("urgent", 2)
    here.waits(victim, "WaitingForCards")
    here.gated(victim, 4)
    other = "second" if victim == "first" else "first"
    assert here.uids(other) == before[other]
    here.check()
    here.delete("vcjob", "urgent")
    here.runs(victim, 4)
    assert {retries(here, "first"), retries(here, "second")} == {0}
    for name in before:
        quick_end(here, name)
    disturb.wait_own_ready(here.stack)


# --- cards ----------------------------------------------------------------------------------------------


def test_a_card_that_falls_ill_takes_nothing_new_and_comes_back(here: World) -> None:
    node = here.stack.cluster.nodes[1]
    state = disturb.read_cards(node)
    with disturb.node_policy(here.stack, QUICK_RECOVERY):
        disturb.restart_agent(here.stack, node)
        policies = ({"event": "PodFailed", "action": "RestartJob"},)
        task = Task(shares(H20_MIB // 2), command=FAILS_WHEN_TOLD, more=only_on(node.name))
        here.submit(job("runs", task, queue=here.queue, policies=policies))
        before = here.runs("runs", 1)
        (card,) = cards_of(next(iter(before.values())))
        try:
            here.stack.set_cards(node, disturb.with_fault(state, card))
            disturb.wait_inventory(
                here.stack, node.name, f"{card} is ill", lambda found: ill(found) == {card}
            )
            here.submit(job("halves", Task(shares(H20_MIB // 2), replicas=15), queue=here.queue))
            here.waits("halves", "WaitingForCards", "14 of 15 members")
            assert here.uids("runs") == {found["metadata"]["uid"] for found in before.values()}
            assert f"card {card} of node {node.name} is ill" in here.why("runs")
            assert here.card_rows()[card]["state"].startswith("ill")
            assert any(card in text for text in here.warnings("takes nothing new"))
            # It fails there: its successor comes up on another card.
            (name,) = before
            here.touch(name, "/tmp/fail")
            here.gone("runs", {found["metadata"]["uid"] for found in before.values()})
            assert cards_of(next(iter(here.runs("runs", 1).values()))) != [card]
        finally:
            here.stack.set_cards(node, state)
        disturb.wait_inventory(here.stack, node.name, "all are well again", lambda found: not ill(found))
        here.runs("halves", 15)
    disturb.restart_agent(here.stack, node)


AFTER_A_WORD: Final = "until [ -e /tmp/go ]; do sleep 0.1; done"


def test_a_sidecar_that_does_not_get_its_card_brings_its_gang_back(here: World) -> None:
    """Its card falls ill between the plan and its start: the agent refuses it, and the kubelet says so in
    ``initContainerStatuses`` alone."""
    first = container("fetch", command=AFTER_A_WORD)  # an ordinary init container holds the sidecar back
    side = {**container("side", limits=shares(H20_MIB // 2)), "restartPolicy": "Always"}
    more = {"initContainers": [first, side], "containers": [container()]}
    with disturb.node_policy(here.stack, QUICK_RECOVERY):
        restart_agents(here)
        here.submit(job("besides", Task(more=more, replicas=2), queue=here.queue))
        before = here.until("its first steps run", "besides", lambda pods: fetching(pods, 2))
        of_one = before["besides-worker-0"]
        (card,) = cards_of(of_one)
        node = next(one for one in here.stack.cluster.nodes if one.name == of_one["spec"]["nodeName"])
        state = disturb.read_cards(node)
        try:
            here.stack.set_cards(node, disturb.with_fault(state, card))
            disturb.wait_inventory(
                here.stack, node.name, f"{card} is ill", lambda found: ill(found) == {card}
            )
            for name in before:
                here.touch(name, "/tmp/go", container="fetch")
            uids = {found["metadata"]["uid"] for found in before.values()}
            here.gone("besides", uids)
            assert here.warnings("rolled back: .*not started for 30 s: .*PreStartContainer")
            again = here.until("they come again", "besides", lambda pods: fetching(pods, 2))
            assert uids.isdisjoint(found["metadata"]["uid"] for found in again.values())
            assert all(cards_of(found) != [card] for found in again.values())
            for name in again:
                here.touch(name, "/tmp/go", container="fetch")
            here.runs("besides", 2)
        finally:
            here.stack.set_cards(node, state)
        disturb.wait_inventory(here.stack, node.name, "all are well again", lambda found: not ill(found))
    restart_agents(here)


def restart_agents(here: World) -> None:
    """An agent that starts reads its policy at once, others after the kubelet's delay."""
    for node in here.stack.cluster.nodes:
        disturb.restart_agent(here.stack, node)


def fetching(pods: dict[str, Json], members: int) -> dict[str, Json] | None:
    """The pods that run their first init container, if so many do."""
    found = {
        name: pod
        for name, pod in pods.items()
        if not pod["metadata"].get("deletionTimestamp")
        and any(one["name"] == "fetch" and "running" in one["state"] for one in statuses_of(pod["status"]))
    }
    return found if len(found) == members else None


def only_on(node: str) -> Json:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def ill(found: Any) -> set[str]:
    return {card.uuid for card in found.cards if not card.healthy}


GARBAGE: Final = {
    "two cards of one name": "card=GPU-same\nname=NVIDIA H20\nmemory_mib=98304\n" * 2,
    "an absurd size": "card=GPU-huge\nname=NVIDIA H20\nmemory_bytes=18446744073709551615\n",
    "no sense at all": "error=999\ncard=\nname=\nmemory_mib=-1\n",
}


@pytest.mark.parametrize("story", GARBAGE)
def test_a_node_that_reports_garbage_takes_nothing_and_says_why(here: World, story: str) -> None:
    """Its driver says nonsense; what runs there goes on."""
    node = here.stack.cluster.nodes[1]
    here.submit(job("runs", Task(shares(10_000), more=only_on(node.name)), queue=here.queue))
    before = here.runs("runs", 1)
    uids = {found["metadata"]["uid"] for found in before.values()}
    with disturb.other_cards(here.stack, node, "driver=570.124.06\ncuda=12080\n" + GARBAGE[story]):
        disturb.wait_inventory(here.stack, node.name, "it takes nothing", takes_nothing)
        here.submit(job("five", Task(shares(), replicas=5), queue=here.queue))
        here.waits("five", "WaitingForCards", "4 of 5 members")
        found = disturb.inventory(here.stack, node.name)
        assert found.problem or all(card.reason for card in found.cards if not card.offered)
        assert here.uids("runs") == uids
        here.delete("vcjob", "five")
    disturb.wait_all_well(here.stack)
    assert here.uids("runs") == uids


def takes_nothing(found: Any) -> bool:
    return bool(found.problem) or not [card for card in found.cards if card.healthy and card.offered]


def test_a_malformed_inventory_annotation_counts_for_nothing(here: World) -> None:
    node = here.stack.cluster.nodes[1]
    agent = disturb.agent_processes(node)
    agent.freeze()
    try:
        garbage = {"metadata": {"annotations": {names.NODE_CARDS: '{"version":1,"cards":[{"uuid":"'}}}
        here.kit.api.patch(NODES, node.name, garbage)
        here.submit(job("five", Task(shares(), replicas=5), queue=here.queue))
        here.waits("five", "WaitingForCards", "4 of 5 members")
        notes = json.loads(here.stack.egpu("cards", "-o", "json"))["notes"]
        assert any(node.name in note and names.NODE_CARDS in note for note in notes), notes
    finally:
        agent.thaw()
    here.runs("five", 5)
    disturb.wait_all_well(here.stack)


def test_the_agent_is_killed_while_containers_start(here: World) -> None:
    """A container starts with its own cards, or not yet: the members of the gang all come up in the end."""
    here.submit(job("burst", Task(shares(H20_MIB // 8), replicas=16), queue=here.queue))
    first = here.until(
        "the first starts", "burst", lambda pods: next(filter(is_running, pods.values()), None)
    )
    node = here.stack.cluster.node(first["spec"]["nodeName"])
    disturb.agent_processes(node).kill()
    here.runs("burst", 16, timeout_s=180)
    here.check()
    disturb.wait_own_ready(here.stack)


def test_agents_are_replaced_while_gangs_come(here: World) -> None:
    """A node whose agent leaves takes nothing until the next one is there: no kubelet refuses a pod."""
    with Submitter(here) as submitter:
        for node in here.stack.cluster.nodes:
            disturb.restart_agent(here.stack, node)
        during = submitter.done
        here.until("one more is done", "", lambda _: submitter.done > during or submitter.failures)
    assert submitter.failures == []
    assert here.warnings("rolled back") == []


# --- the webhook ----------------------------------------------------------------------------------------


def test_with_the_webhook_down_the_policies_hold_and_others_notice_nothing(here: World) -> None:
    here.submit(job("runs", Task(shares(10_000)), queue=here.queue))
    here.runs("runs", 1)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    gated = Task(shares(), replicas=9, more={"volumes": [claim]})
    here.submit(job("waits", gated, queue=here.queue))
    here.waits("waits", "WaitingForCards")
    with disturb.webhook_down(here.stack):
        with pytest.raises(KubeError, match=r"pods\.egpu\.volcano\.sh"):
            here.kit.api.create(PODS, in_namespace(here, pod("new", shares(10_000), queue=here.queue)))
        here.apply(pod("plain", {}, queue=None))
        policies_hold(here)
        with webhook.uninstalled(here.stack.kit.kubectl):
            slips_through_nothing(here)
        here.runs("plain", 1)
        here.runs("runs", 1)
    here.submit(job("after", Task(shares(10_000)), queue=here.queue))
    here.runs("after", 1)


def in_namespace(here: World, document: Json) -> Json:
    document["metadata"]["namespace"] = here.namespace
    return document


def policies_hold(here: World) -> None:
    """Changes of what is ours: the policies alone judge them, with or without the webhook."""
    waiting = next(name for name, found in here.pods("waits").items() if is_gated(found))
    edits: dict[str, Json] = {
        "schedulingGates": {"op": "remove", "path": "/spec/schedulingGates"},
        names.CARDS: {"op": "add", "path": "/metadata/annotations/egpu.volcano.sh~1cards", "value": "{}"},
    }
    for word, edit in edits.items():
        with pytest.raises(Forbidden, match=re.escape(word)):
            here.kit.api.patch(PODS, waiting, [edit], here.namespace, kind="json")


def slips_through_nothing(here: World) -> None:
    """Pods that the webhook would have completed are not let in without it."""
    managed = in_namespace(here, pod("slip", shares(10_000), queue=here.queue))
    forged = in_namespace(here, pod("slip", {}, queue=None, annotations={names.CARDS: "{}"}))
    for document in (managed, forged):
        # The API server may ask the old configuration for a moment: then it is refused in its name.
        with pytest.raises(KubeError, match=r"vc-egpu-pods-create|pods\.egpu\.volcano\.sh"):
            here.kit.api.create(PODS, document)
    assert "slip" not in here.pods()
