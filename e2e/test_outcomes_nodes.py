"""What the design promises when nodes, kubelets or the API server go away, on the whole stack."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from localcluster import RealNode
from outcomes import disturb
from outcomes.workload import H20_MIB, Json, Task, deployment, job, shares, stateful_set
from outcomes.world import World
from stack.install import Stack
from stack.kit import cards_of, is_running
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.api.containers import statuses_of
from vc_egpu_node.containers.processes import own_pid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
QUICK_TO_LEAVE: Final = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in ("not-ready", "unreachable")
]
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=gone:NoExecute"


# --- the API server -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("away_s", "frozen"),
    [
        (8, False),
        pytest.param(30, False, marks=pytest.mark.long),
        pytest.param(30, True, marks=pytest.mark.long),
    ],
)
def test_the_api_server_is_away(here: World, away_s: int, frozen: bool) -> None:
    """Nothing is killed, and everything that was under way goes on afterwards."""
    here.submit(job("runs", Task(shares(H20_MIB // 2), replicas=12), queue=here.queue))
    here.submit(deployment("web", 2, shares(H20_MIB // 2), queue=here.queue))
    here.runs("runs", 12)
    here.runs("web", 2)
    here.submit(job("waits", Task(shares(H20_MIB // 2), replicas=4), queue=here.queue))
    here.waits("waits", "WaitingForCards", "2 of 4")
    before, restarts, cards = here.uids(""), here.restarts(), here.cards("")
    inside = containers(here.stack)
    with disturb.api_server_away(here.stack, frozen=frozen):
        threading.Event().wait(away_s)  # the time that it is away is what is tested
        assert containers(here.stack) == inside, "a container was ended while the API server was away"
    here.kit.until("it answers again", NODES, bool, timeout_s=60)
    assert containers(here.stack) == inside
    disturb.wait_all_well(here.stack)
    assert (here.uids(""), here.cards("")) == (before, cards)
    assert here.restarts() == restarts
    here.eventually(lambda: here.scale("web", 0))
    here.runs("waits", 4)
    here.submit(job("new", Task(shares(1000), replicas=2), queue=here.queue))
    here.waits("new", "WaitingForCards")
    here.delete("vcjob", "runs")
    here.runs("new", 2)


def containers(stack: Stack) -> set[int]:
    """First processes of test containers that live on the nodes, without asking the API server."""
    # Only the first: their shells fork ten times a second, and what is forked is a shell until it execs.
    shells = {pid for node in stack.cluster.nodes for pid in disturb.processes_of(node, "sh", "-c").pids}
    return {pid for pid in shells if _is_first(pid)}


def _is_first(pid: int) -> bool:
    with suppress(OSError):
        return own_pid(Path(f"/proc/{pid}/status").read_text(encoding="utf-8")) == 1
    return False


# --- a kubelet, a node ------------------------------------------------------------------------------------


@contextmanager
def brought_back(stack: Stack, node: RealNode) -> Iterator[None]:
    """Whatever was done to a node: its kubelet runs again at the end, without taint, with all cards."""
    try:
        yield
    finally:
        stack.kit.kubectl("taint", "node", node.name, OUT_OF_SERVICE.split("=")[0] + "-", check=False)
        if not node.kubelet.alive():
            node.start_kubelet()
        disturb.wait_all_well(stack, timeout_s=300)


def on_one_node(here: World, node: RealNode) -> None:
    """A gang "gang" of two whole cards and a Deployment "web" of one on ``node``, free to go elsewhere."""
    (other,) = [one for one in here.stack.cluster.nodes if one.name != node.name]
    selector = {"nodeSelector": {"kubernetes.io/hostname": other.name}}
    here.submit(job("filler", Task(shares(), replicas=4, more=selector), queue=here.queue))
    here.runs("filler", 4, on=other.name)
    here.submit(job("gang", Task(shares(), replicas=2), queue=here.queue))
    here.submit(deployment("web", 1, shares(), queue=here.queue, tolerations=QUICK_TO_LEAVE))
    here.runs("gang", 2, on=node.name)
    here.runs("web", 1, on=node.name)
    here.delete("vcjob", "filler")
    here.until("the filler is gone", "filler", lambda pods: not pods)


def is_at_rest(pods: dict[str, Json]) -> bool:
    return all(map(is_running, pods.values()))


def test_a_dead_kubelet_holds_its_cards_and_its_gang_moves_once_the_node_is_out_of_service(
    here: World,
) -> None:
    node = here.stack.cluster.nodes[1]
    with brought_back(here.stack, node):
        kubelet_dies(here, node)
        gang = here.uids("gang")
        here.kit.kubectl("taint", "node", node.name, OUT_OF_SERVICE)
        here.gone("gang", gang, timeout_s=180)
        moved = here.runs("gang", 2, timeout_s=180)
        assert node.name not in {found["spec"]["nodeName"] for found in moved.values()}
        here.check(containers=False)
    here.runs("gang", 2)


@pytest.mark.long
def test_pods_of_a_stateful_set_wait_for_their_node_and_move_once_it_is_out_of_service(here: World) -> None:
    """Under their names: on a node that is only silent they may still run, so nobody makes them twice."""
    node, other = here.stack.cluster.nodes[1], here.stack.cluster.nodes[0]
    selector = {"nodeSelector": {"kubernetes.io/hostname": other.name}}
    here.submit(job("filler", Task(shares(), replicas=4, more=selector), queue=here.queue))
    here.runs("filler", 4, on=other.name)
    here.submit(stateful_set("store", 2, shares(), queue=here.queue))
    here.runs("store", 2, on=node.name)
    here.delete("vcjob", "filler")
    here.until("the filler is gone", "filler", lambda pods: not pods)
    before = here.uids("store")
    with brought_back(here.stack, node):
        node.kill_kubelet()
        disturb.wait_not_ready(here.stack, node.name)
        assert here.uids("store") == before
        assert f"node {node.name} is not ready" in here.why("store")
        here.kit.kubectl("taint", "node", node.name, OUT_OF_SERVICE)
        here.gone("store", before, timeout_s=180)
        moved = here.runs("store", 2, on=other.name, timeout_s=180)
        assert set(moved) == {"store-0", "store-1"}
        here.check(containers=False)
    here.runs("store", 2, on=other.name)


@pytest.mark.long
def test_a_gang_stays_when_the_node_comes_back(here: World) -> None:
    node = here.stack.cluster.nodes[1]
    with brought_back(here.stack, node):
        kubelet_dies(here, node)
        gang = here.uids("gang")
    here.runs("gang", 2, on=node.name)
    assert here.uids("gang") == gang
    here.until("nothing is on its way out any more", "", is_at_rest)
    assert "not ready" not in here.why("gang")


@pytest.mark.long
def test_a_node_that_is_deleted_frees_its_cards_and_its_gang_comes_first(here: World) -> None:
    """The gang's replacements go before others that wait for the same cards."""
    node = here.stack.cluster.nodes[1]
    on_one_node(here, node)
    here.submit(job("greedy", Task(shares(), replicas=6), queue=here.queue))
    here.waits("greedy", "WaitingForCards")
    gang = here.uids("gang")
    with brought_back(here.stack, node):
        node.kill_kubelet()
        here.kit.kubectl("delete", "node", node.name, "--wait=false")
        here.gone("gang", gang, timeout_s=240)
        here.runs("gang", 2, timeout_s=180)
        here.runs("web", 1, timeout_s=180)
        here.gated("greedy", 6)
        here.check(containers=False)
    here.waits("greedy", "WaitingForCards")


def kubelet_dies(here: World, node: RealNode) -> None:
    """Up to where its Deployment's replica runs elsewhere and its gang is held, and says so."""
    on_one_node(here, node)
    gang, web = here.uids("gang"), here.uids("web")
    node.kill_kubelet()
    disturb.wait_not_ready(here.stack, node.name)
    here.until(
        "the Deployment's replacement runs elsewhere",
        "web",
        lambda pods: any(
            is_running(found) and found["spec"]["nodeName"] != node.name for found in pods.values()
        ),
    )
    assert here.uids("gang") == gang, "the gang waits for its node: its pods are not gone"
    assert f"node {node.name} is not ready" in here.why("gang")
    held = {card for pods in ("gang", "web") for found in here.pods(pods).values() for card in cards_of(found)
            if found["metadata"]["uid"] in gang | web}  # fmt: skip
    rows = here.card_rows()
    assert len(held) == 3
    assert all(rows[card]["sharers"] for card in held), (
        "cards of a silent node are held until its pods are gone"
    )
    here.submit(job("new", Task(shares(), replicas=4), queue=here.queue))
    here.waits("new", "WaitingForCards", "3 of 4")
    here.delete("vcjob", "new")


def running_containers(found: Json) -> set[str]:
    """IDs of a pod's containers that run, as far as its kubelet has said; none where one of them does not."""
    statuses = statuses_of(found["status"])
    if any("running" not in status["state"] for status in statuses):
        return set()
    return {str(status["containerID"]) for status in statuses}


def test_after_a_reboot_containers_have_their_own_cards_or_do_not_start(here: World) -> None:
    node = here.stack.cluster.nodes[1]
    policies = (
        {"event": "PodFailed", "action": "RestartTask"},
        {"event": "PodEvicted", "action": "RestartTask"},
    )
    here.submit(job("gang", Task(shares(H20_MIB // 2), replicas=8), queue=here.queue, policies=policies))
    here.submit(deployment("web", 4, shares(H20_MIB // 4), queue=here.queue))
    here.runs("gang", 8)
    here.runs("web", 4)
    before = {found["metadata"]["uid"]: running_containers(found) for found in here.pods().values()}
    with brought_back(here.stack, node):
        node.reboot(timeout_s=180)

    def started_since(pods: dict[str, Json]) -> bool:
        """What the kubelet said before the reboot stands in the API server until it says something new."""
        old = [
            found
            for found in pods.values()
            if found["metadata"]["uid"] in before and found["spec"].get("nodeName") == node.name
        ]
        # Not by the time: a start within the second before the reboot would count as one after it.
        running = (
            (before[found["metadata"]["uid"]], running_containers(found))
            for found in old
            if is_running(found)
        )
        return all(now and not now & then for then, now in running)

    here.until("the node's pods are those of after the reboot", "", started_since, timeout_s=240)
    here.runs("gang", 8, timeout_s=240)
    here.runs("web", 4, timeout_s=240)
    here.check()
