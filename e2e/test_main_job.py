"""The main job on a real cluster, beyond the demo: each story in its own namespace, on real kubelets."""

import json
import urllib.request

import pytest
from outcomes.disturb import card_lines, other_cards, own_pods, wait_all_well
from outcomes.workload import DEAF, H20_MIB, Json, Task, container, deployment, job, pod, shares
from outcomes.world import TIMEOUT_S, World, capability
from prometheus_client.parser import text_string_to_metric_families
from stack.install import Stack
from stack.kit import cards_of, is_gated, is_running, phase
from stack.verify import check_containers
from vc_egpu.kube.resources import NODES, POD_GROUPS
from vc_egpu.volcano.words.annotations import Cards
from vc_egpu.volcano.words.names import CARDS, NODE_MODE_LABEL, native_resource, shared_resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_gang_that_does_not_fit_whole_starts_not_at_all(here: World) -> None:
    here.submit(job("nine", Task(shares(60_000), replicas=9), queue=here.queue))
    assert "8 of 9 members" in here.waits("nine", "WaitingForCards")
    assert not any(p["spec"].get("nodeName") for p in here.gated("nine", 9).values())
    # All cards are free for others while it waits.
    here.submit(job("eight", Task(shares(60_000), replicas=8), queue=here.queue))
    here.runs("eight", 8)
    here.gated("nine", 9)
    here.delete("vcjob", "eight")
    here.waits("nine", "WaitingForCards", "8 of 9 members")


def test_every_card_is_shared_to_the_brim_and_no_further(here: World) -> None:
    here.submit(job("quarters", Task(shares(H20_MIB // 4, 25), replicas=32), queue=here.queue))
    here.runs("quarters", 32)
    counts = [row["used_mib"] for row in here.card_rows().values()]
    assert counts == [H20_MIB] * 8
    here.submit(job("more", Task(shares(1)), queue=here.queue))
    here.waits("more", "WaitingForCards")


def test_a_deployment_is_admitted_pod_by_pod(here: World) -> None:
    queue = here.add_queue("three", capability=capability(shares=3))
    here.submit(deployment("web", 5, shares(20_000, 20), queue=queue, priority="high"))
    here.runs("web", 3)
    assert not any("managedFields" in p["metadata"] for p in here.pods("web").values()), "nobody applies them"
    here.waits("web", "WaitingForQuota", "3 of 5")
    before = here.uids("web")
    here.scale("web", 3)
    here.until("the two that waited are gone", "web", lambda pods: len(pods) == 3)
    assert here.uids("web") < before
    assert all(is_running(p) for p in here.pods("web").values()), "those that ran were the ones to stay"


def test_a_deleted_job_counts_until_its_pods_are_gone(here: World) -> None:
    """They hold their cards until they end, which may take minutes; their Job and PodGroup go at once."""
    queue = here.add_queue("two", capability=capability(shares=2))
    slow = Task(shares(1000), replicas=2, command=DEAF, more={"terminationGracePeriodSeconds": 120})
    here.submit(job("slow", slow, queue=queue))
    pods = here.runs("slow", 2)
    here.submit(job("next", Task(shares(1000), replicas=2), queue=queue))
    here.waits("next", "WaitingForQuota", "0 of 2 left")
    group = here.group_of("slow")["metadata"]["name"]
    here.delete("vcjob", "slow")
    here.kit.until(
        "its PodGroup is gone", POD_GROUPS, lambda groups: group not in groups, namespace=here.namespace
    )
    # Whoever has judged this one knows that the PodGroup is gone.
    here.submit(job("last", Task(shares(1000), replicas=2), queue=queue))
    here.waits("last", "WaitingForQuota", "0 of 2 left")
    assert all(map(is_gated, here.pods("next").values()))
    assert set(here.pods("slow")) == set(pods), "they are still there"
    here.delete("vcjob", "last")  # if it was made in the same second it may come before the other
    for name in pods:
        here.touch(name, "/tmp/done")
    here.runs("next", 2)


def test_a_bare_pod_runs_and_frees_its_card_when_it_ends(here: World) -> None:
    script = "until [ -e /tmp/done ]; do sleep 0.1; done"
    containers = [container(limits=shares(), command=script)]
    here.submit(pod("alone", queue=here.queue, containers=containers))
    (card,) = cards_of(here.runs("alone", 1)["alone"])
    assert "managedFields" in here.pods("alone")["alone"]["metadata"], "it may be applied again"
    row = here.card_rows()[card]
    assert [(s["pod"], s["container"]) for s in row["sharers"]] == [(f"{here.namespace}/alone", "main")]
    assert (row["used_mib"], row["cores_high_percent"]) == (H20_MIB, 100)
    here.touch("alone", "/tmp/done")
    here.until("it ends", "alone", lambda pods: phase(pods["alone"]) == "Succeeded")
    assert here.card_rows()[card]["sharers"] == []


def test_members_without_cards_belong_to_the_gang(here: World) -> None:
    """Tasks with GPUs and with CPU only: none runs while the cards are missing, all run together."""
    here.submit(job("filler", Task(shares(), replicas=8), queue=here.queue))
    here.runs("filler", 8)
    tasks = (
        Task(shares(50_000, 50), replicas=2),
        Task(name="driver", replicas=1),
        Task(name="loader", replicas=2),
    )
    here.submit(job("mixed", *tasks, queue=here.queue))
    here.waits("mixed", "WaitingForCards")
    here.gated("mixed", 5)
    here.delete("vcjob", "filler")
    running = here.runs("mixed", 5)
    with_cards = {name for name, found in running.items() if cards_of(found)}
    assert with_cards == {"mixed-worker-0", "mixed-worker-1"}
    for name in sorted(running.keys() - with_cards):
        assert here.inside(name, 'printf %s "${EGPU_CARDS-none}"') == "none"


def test_two_containers_of_a_pod_have_their_own_cards(here: World) -> None:
    containers = [
        container("first", shares(30_000, 30, cards=2)),
        container("second", shares(10_000, 10)),
        container("beside"),
    ]
    here.submit(pod("twins", queue=here.queue, containers=containers))
    found = here.runs("twins", 1)["twins"]
    cards = Cards.decode(found["metadata"]["annotations"][CARDS]).containers
    assert {name: len(shares) for name, shares in cards.items()} == {"first": 2, "second": 1}
    assert len({share.uuid for share in cards["first"]}) == 2, "two different cards in one container"
    for name in ("first", "second"):
        seen = json.loads(here.inside("twins", 'printf %s "$EGPU_CARDS"', name))
        assert [entry["memoryMiB"] for entry in seen] == [share.memory_mib for share in cards[name]]
    assert here.inside("twins", 'printf %s "${EGPU_CARDS-none}"', "beside") == "none"
    assert check_containers(here.stack.cluster, here.kit, here.namespace) == 2


def test_members_with_several_cards_get_different_ones_on_one_node(here: World) -> None:
    here.submit(job("wide", Task(shares(cards=4), replicas=2), queue=here.queue))
    running = here.runs("wide", 2)
    nodes = {found["spec"]["nodeName"] for found in running.values()}
    assert len(nodes) == 2
    assert len({card for found in running.values() for card in cards_of(found)}) == 8


def test_whole_cards_in_native_mode(here: World) -> None:
    """A node's cards under the other name: native Jobs go there, shared ones do not, and back again."""
    node = here.stack.cluster.nodes[1].name
    queue = here.add_queue("native", capability=capability(shares=8, native=8))

    def offers(native: int) -> None:
        def check(nodes: dict[str, Json]) -> bool:
            allocatable = nodes[node]["status"]["allocatable"]
            shared = int(allocatable.get(shared_resource("h20"), 0))
            return int(allocatable.get(native_resource("h20"), 0)) == native and (shared > 0) == (native == 0)

        here.kit.until(f"{node} offers {native} native cards", NODES, check, timeout_s=TIMEOUT_S)

    here.kit.kubectl("label", "node", node, f"{NODE_MODE_LABEL}=native")
    try:
        offers(4)
        limits = {native_resource("h20"): 2}
        here.submit(job("native", Task(limits, replicas=2), queue=queue))
        running = here.runs("native", 2, on=node)
        assert len({card for found in running.values() for card in cards_of(found)}) == 4
        here.submit(job("shared", Task(shares(), replicas=5), queue=queue))
        here.waits("shared", "WaitingForCards", "4 of 5 members")
        here.check()
        here.delete("vcjob", "shared")
        here.delete("vcjob", "native")
    finally:
        here.kit.kubectl("label", "node", node, f"{NODE_MODE_LABEL}-")
        offers(0)


UNITS = {
    "v100-32g": (shares(model="v100-32g", percentage=50, cores=10), 16384),
    "a100-40g": (shares(model="a100-40g", percentage=30, cores=20), 12288),
    "h20": (shares("4k", 30), 4000),
}
"""Model (the pod has its name): what is asked, and the MiB that it is."""


def test_units_are_the_same_wherever_they_are_shown(here: World) -> None:
    """Annotation, CDI file, container, both levels of metrics and the CLI."""
    queue = here.add_queue("units", capability={shared_resource(model): 4 for model in UNITS})
    node = here.stack.cluster.nodes[1]
    products = (("Tesla V100-SXM2-32GB", 32768), ("NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA H20", H20_MIB))
    cards = [card_lines(f"GPU-units-{i}", name, mib, i) for i, (name, mib) in enumerate(products)]
    with other_cards(here.stack, node, "driver=570.124.06\ncuda=12080\n" + "".join(cards)):
        for model, (limits, _) in UNITS.items():
            wait_offered(here.stack, node.name, model)
            here.submit(pod(model, limits, queue=queue))
        for model in UNITS:
            here.runs(model, 1)
        here.check()
        shown = metrics_of_all(here)
        rows = here.card_rows()
        for model, (_, memory_mib) in UNITS.items():
            found = here.pods(model)[model]
            (share,) = Cards.decode(found["metadata"]["annotations"][CARDS]).containers["main"]
            assert share.memory_mib == memory_mib
            (inside,) = json.loads(here.inside(model, 'printf %s "$EGPU_CARDS"'))
            assert (inside["uuid"], inside["memoryMiB"]) == (share.uuid, memory_mib)
            (sharer,) = rows[share.uuid]["sharers"]
            assert (sharer["memory_mib"], rows[share.uuid]["used_mib"]) == (memory_mib, memory_mib)
            assert shown["egpu_share_memory_bytes", model] == memory_mib << 20
            assert shown["egpu_node_container_memory_granted_bytes", model] == memory_mib << 20
            assert f"{memory_mib} MiB" in here.why(model)
        for model in UNITS:
            here.delete("pod", model)
    wait_all_well(here.stack)


def wait_offered(stack: Stack, node: str, model: str) -> None:
    """Until the kubelet of a node offers shares of a model."""
    stack.kit.until(
        f"{node} offers {model}",
        NODES,
        lambda nodes: int(nodes[node]["status"]["allocatable"].get(shared_resource(model), 0)) > 0,
        timeout_s=TIMEOUT_S,
    )


def metrics_of_all(here: World) -> dict[tuple[str, str], float]:
    """(family, pod of the test) to value: of the admission controller and of every agent."""
    found: dict[tuple[str, str], float] = {}
    token = here.reader_token()
    pages = (("vc-egpu-admission", "9446/metrics/shares"), ("vc-egpu-node-agent", "9445/metrics"))
    for name, page in pages:
        for one in own_pods(here.stack, name):
            url = f"http://{one['status']['podIP']}:{page}"
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                for family in text_string_to_metric_families(answer.read().decode()):
                    for sample in family.samples:
                        if sample.labels.get("namespace") == here.namespace:
                            found[sample.name, sample.labels["pod"]] = sample.value
    return found
