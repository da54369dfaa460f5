"""Pods without cards, which the kube-scheduler binds, race with our gangs for the last cpu of the same nodes.

We bind at the same moment, so a node's last cpu may be given away twice. Its kubelet refuses the later pod.
"""

import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode
from prometheus_client.parser import text_string_to_metric_families
from rigs.admission import wait_ready
from rigs.gangs import admitted
from rigs.refusing_kubelets import RefusingKubelets
from stack.fakes import inventory, offered
from stack.hostmode import HostOptions, HostStack
from stack.kit import is_gated, is_running
from stack.verify import check_invariants
from vc_egpu.kube.resources import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]
Json = dict[str, Any]
NAMESPACE, QUEUE = "race", "race"
NODE_COUNT, NODE_CPU = 30, 8
GANGS, MEMBERS, MEMBER_MILLI = 30, 4, 1500
PLAIN, PLAIN_MILLI = 300, 400
"""What all ask for together is a quarter more than the nodes have."""
CAP: Final = 100
"""In shares: five gangs more want in."""


@dataclass(frozen=True)
class Race:
    """The stack beside a cluster of small nodes, whose kubelets refuse what does not fit."""

    stack: HostStack
    kubelets: RefusingKubelets

    def counted(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The samples of one metric of the admission controller, by their labels."""
        url = f"http://127.0.0.1:{self.stack.ports['admission']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }


def node(_index: int, name: str) -> KwokNode:
    cards = 8
    return KwokNode(
        name,
        cpu=NODE_CPU,
        extended={key: int(amount) for key, amount in offered(cards).items()},
        annotations={names.NODE_CARDS: inventory(name, cards).encode()},
    )


@pytest.fixture
def race() -> Iterator[Race]:
    spec = ClusterSpec(name="race", real_nodes=0, services=False, dns=False)
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster.up(spec))
        cluster.add_kwok_nodes(NODE_COUNT, node)
        ours = HostStack.install(cluster, HostOptions())
        stack.callback(ours.stop)
        ours.start()
        kit = ours.kit
        wait_ready(kit, NODE_COUNT)
        queue = names.shared_resource("h20")
        for resource, body in (
            (NAMESPACES, {"metadata": {"name": NAMESPACE}}),
            (QUEUES, {"metadata": {"name": QUEUE}, "spec": {"weight": 1, "capability": {queue: str(CAP)}}}),
        ):
            kit.api.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **body})
        kit.until("the queue is open", QUEUES, lambda found: (found[QUEUE].get("status") or {}).get("state"))
        cpu_milli = {one["metadata"]["name"]: NODE_CPU * 1000 for one in kit.api.list(NODES).items}
        yield Race(ours, stack.enter_context(RefusingKubelets(kit.api, cpu_milli)))


def plain(index: int) -> Json:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": f"{PLAIN_MILLI}m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"plain-{index}", "namespace": NAMESPACE},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def gang(index: int) -> Json:
    limits = {names.shared_resource("h20"): "1", names.LIMIT_MEMORY: "1000"}
    requests = {"cpu": f"{MEMBER_MILLI}m"}
    container = {"name": "c", "image": "none", "resources": {"limits": limits, "requests": requests}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    task = {"name": "w", "replicas": MEMBERS, "template": template}
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": f"gang-{index}", "namespace": NAMESPACE},
        "spec": {"queue": QUEUE, "minAvailable": MEMBERS, "maxRetry": 3, "tasks": [task]},
    }


def how_they_are(pods: Mapping[str, Json]) -> Counter[str]:
    """How many gangs are whole, wait whole, or are half or on their way."""
    found: Counter[str] = Counter()
    for index in range(GANGS):
        members = [pod for name, pod in pods.items() if name.startswith(f"gang-{index}-w-")]
        if len(members) == MEMBERS and all(map(is_running, members)):
            found["whole"] += 1
        elif len(members) == MEMBERS and all(map(is_gated, members)):
            found["waits"] += 1
        else:
            found["half"] += 1
    return found


def test_every_gang_ends_whole_or_waiting_and_costs_nobody_anything(race: Race) -> None:
    kit, api = race.stack.kit, race.stack.kit.api
    with ThreadPoolExecutor(12) as pool:
        # Both kinds come at the same time; the first nodes are full after a moment.
        work = [pool.submit(api.create, PODS, plain(index)) for index in range(PLAIN)]
        work[10:10] = [pool.submit(api.create, VOLCANO_JOBS, gang(index)) for index in range(GANGS)]
        made = {str(done.result()["metadata"]["uid"]) for done in work}

    def settled(pods: dict[str, Json]) -> Counter[str] | None:
        ways = how_they_are(pods)
        refused = [pod for pod in pods.values() if pod["metadata"]["uid"] in race.kubelets.refused]
        ours = [pod for pod in refused if names.MANAGED_LABEL in (pod["metadata"].get("labels") or {})]
        return ways if not ways["half"] and not ours else None

    ways = kit.pods_until("every gang is whole or waits", NAMESPACE, settled, timeout_s=240)
    print(f"gangs: {dict(ways)}; {len(race.kubelets.refused)} pods were refused")

    def say_why(groups: dict[str, Json]) -> bool | None:
        said = [admitted(group) or {} for group in groups.values()]
        waiting = [one for one in said if one.get("status") == "False" and one.get("message")]
        return len(waiting) >= ways["waits"] or None

    kit.until("those that wait say why", POD_GROUPS, say_why, namespace=NAMESPACE)
    pods = {pod["metadata"]["name"]: pod for pod in api.list(PODS, NAMESPACE).items}
    there = {pod["metadata"]["uid"] for name, pod in pods.items() if name.startswith("plain-")}
    assert len(there & made) == PLAIN, "a pod of the kube-scheduler went"
    assert not [pod for name, pod in pods.items() if name.startswith("plain-") and "deletionTimestamp" in pod]
    evicted = race.counted("egpu_pods_evicted_total")
    assert evicted[(("cause", "priority"),)] == 0
    assert ways["whole"] >= 1
    assert sum(MEMBERS for _ in range(ways["whole"])) <= CAP
    check_invariants(kit, ModelTable.from_yaml(Path(race.stack.options.models).read_text()))
    retries = [
        (job.get("status") or {}).get("retryCount", 0) for job in api.list(VOLCANO_JOBS, NAMESPACE).items
    ]
    assert not any(retries), "a refusal is no failure of the program"
    ours = [name for name in race.kubelets.refused.values() if name.startswith("gang-")]
    counted = race.counted("egpu_kubelet_refusals_total")[(("lacked", "cpu"),)]
    assert (counted > 0) is bool(ours)
    assert counted <= len(ours)
