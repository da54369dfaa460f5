"""Levels of the network on a real API server: labels of nodes, then Volcano's HyperNodes.

Simulated nodes, and our processes beside the cluster with the rights of their own accounts. The cluster
begins without the HyperNode type, and gets it while the admission controller runs: Volcano's own where that
is there, else the one that is generated from our model.
"""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from localcluster.kwok import KwokNode
from outcomes.workload import container, pod_spec
from rigs.admission import wait_ready
from rigs.gangs import admitted
from rigs.volcano_job import volcano_job
from stack.fakes import inventory, offered
from stack.hostmode import MODELS, HostOptions, HostStack
from stack.kit import is_running
from stack.verify import check_invariants
from vc_egpu.cli.doctor import checkup, facts
from vc_egpu.kube.resources import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES
from vc_egpu.volcano.api.crds import crd
from vc_egpu.volcano.api.hypernode import HyperNode
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
Json = dict[str, Any]
NAMESPACE: Final = "near"
CARDS: Final = 2
RACKS: Final = ("a", "a", "b", "b", "c", "c")
"""By node. Racks a and b are in block x, rack c is in block y."""
CRD: Final = "hypernodes.topology.volcano.sh"
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Network:
    """The stack beside six nodes in three racks."""

    stack: HostStack

    def apply(self, *documents: Json) -> str:
        """``kubectl apply``; what it says."""
        text = yaml.safe_dump_all(documents)
        done = self.stack.kit.kubectl("apply", "-n", NAMESPACE, "-f", "-", text_in=text, check=False)
        return str(done.stdout) + str(done.stderr)

    def runs(self, name: str, members: int) -> set[str]:
        """Wait until all members run; the racks that they are in, by the nodes' labels."""

        def there(pods: dict[str, Json]) -> set[str] | None:
            found = [pod for key, pod in pods.items() if key.startswith(f"{name}-") and is_running(pod)]
            return {str(pod["spec"]["nodeName"]) for pod in found} if len(found) == members else None

        nodes = self.stack.kit.until(f"{name} runs", PODS, there, namespace=NAMESPACE, timeout_s=TIMEOUT_S)
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.nodes()}
        return {labels[node]["rack"] for node in nodes}

    def waits(self, name: str, words: str) -> str:
        """Wait until the Job's PodGroup says these words; the whole sentence."""

        def said(groups: dict[str, Json]) -> str | None:
            mine = [group for key, group in groups.items() if key.startswith(f"{name}-")]
            told = admitted(mine[0]) if mine else None
            return str(told["message"]) if told is not None and words in told["message"] else None

        return self.stack.kit.until(
            f"{name} waits: {words}", POD_GROUPS, said, namespace=NAMESPACE, timeout_s=TIMEOUT_S
        )

    def nodes(self) -> list[Json]:
        """All nodes by name."""
        return sorted(self.stack.kit.api.list(NODES).items, key=lambda node: str(node["metadata"]["name"]))

    def end(self, *jobs: str) -> None:
        """Remove Jobs, with their pods."""
        for name in jobs:
            self.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")
        self.stack.kit.until("no pods are left", PODS, lambda pods: not pods or None, namespace=NAMESPACE)

    def metric(self, name: str) -> float:
        """What the admission controller shows."""
        url = f"http://127.0.0.1:{self.stack.ports['admission']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
        return float(value)


def job(name: str, members: int, topology: Json) -> Json:
    template = {"spec": pod_spec(container(limits={names.shared_resource("h20"): 1}), restartPolicy="Never")}
    return volcano_job(name, "near", members, template, networkTopology=topology)


def node(index: int, name: str) -> KwokNode:
    rack = RACKS[index]
    return KwokNode(
        name,
        extended={key: int(amount) for key, amount in offered(CARDS).items()},
        labels={"rack": rack, "block": "y" if rack == "c" else "x"},
        annotations={names.NODE_CARDS: inventory(name, CARDS).encode()},
    )


def hypernode(name: str, tier: int, level: str, *members: Json) -> Json:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "tierName": level, "members": [*members]},
    }


def member(kind: str, **selector: Json) -> Json:
    return {"type": kind, "selector": selector}


def their_crd() -> Json:
    """Volcano's own where it is named, else ours."""
    folder = os.environ.get("VOLCANO_CRD_DIR")
    if not folder:
        return crd(HyperNode)
    found: Json = yaml.safe_load((Path(folder) / "topology.volcano.sh_hypernodes.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    spec = ClusterSpec(name="levels", real_nodes=0, services=False, dns=False)
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster.up(spec))
        cluster.add_kwok_nodes(len(RACKS), node)
        options = HostOptions(flags={"admission": ["--network-levels=rack,block"]})
        ours = HostStack.install(cluster, options)
        stack.callback(ours.stop)
        ours.kit.kubectl("delete", "crd", CRD, "--wait=true")
        ours.start()
        wait_ready(ours.kit, len(RACKS))
        body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        ours.kit.api.create(NAMESPACES, body)
        found = Network(ours)
        caps = {"weight": 1, "capability": {names.shared_resource("h20"): "100"}}
        found.apply(
            {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "near"}, "spec": caps}
        )
        ours.kit.until("the queue is open", QUEUES, lambda q: (q["near"].get("status") or {}).get("state"))
        yield found


def tier_one_waits_and_tier_two_starts(network: Network, by: Json) -> None:
    """Six members: a rack has four cards, block x has eight. ``by``: the two tiers, as a Job names them."""
    network.apply(job("rack", 6, {"mode": "hard", **by["rack"]}))
    said = network.waits("rack", "places for 4 of 6")
    assert "the cluster has places for all of it" in said
    network.apply(job("block", 6, {"mode": "hard", **by["block"]}))
    assert network.runs("block", 6) == {"a", "b"}
    network.apply(job("four", 4, {"mode": "hard", **by["rack"]}))
    assert network.runs("four", 4) == {"c"}
    network.waits("rack", "places for")
    check_invariants(network.stack.kit, ModelTable.from_yaml(MODELS.read_text()))
    network.end("block", "four", "rack")


def test_by_labels_on_a_cluster_without_the_type(network: Network) -> None:
    refused = network.apply(job("tierless", 2, {"mode": "hard"}))
    assert "spec.networkTopology.highestTierAllowed" in refused
    tier_one_waits_and_tier_two_starts(
        network, {"rack": {"highestTierAllowed": 1}, "block": {"highestTierName": "block"}}
    )
    network.apply(job("soft", 6, {"mode": "soft"}))
    assert network.runs("soft", 6) == {"a", "b"}, "one block has room for all"
    network.end("soft")


def test_the_type_comes_later_and_hypernodes_say_it(network: Network) -> None:
    """Members by name, by pattern and by labels. What is wrong is named, and does no harm."""
    kit = network.stack.kit
    network.apply(job("far", 6, {"mode": "hard", "highestTierName": "row"}))
    network.waits("far", "no node tells of one")
    kit.kubectl("apply", "--server-side", "-f", "-", text_in=yaml.safe_dump(their_crd()))
    kit.kubectl("wait", "--for=condition=Established", "crd", CRD, "--timeout=60s")
    first, second, third, fourth = (str(node["metadata"]["name"]) for node in network.nodes()[:4])
    network.apply(
        hypernode("leaf-a", 1, "row", *(member("Node", exactMatch={"name": one}) for one in (first, second))),
        hypernode("leaf-b", 1, "row", member("Node", regexMatch={"pattern": f"^({third}|{fourth})$"})),
        hypernode("leaf-c", 1, "row", member("Node", labelMatch={"matchLabels": {"rack": "c"}})),
        hypernode(
            "spine",
            4,
            "hall",
            *(member("HyperNode", exactMatch={"name": leaf}) for leaf in ("leaf-a", "leaf-b", "lost")),
        ),
        hypernode("circle", 2, "odd", member("HyperNode", exactMatch={"name": "circle"})),
    )
    network.waits("far", "the roomiest (leaf-a) has places for 4 of 6")
    wait_until("two are wrong", lambda: network.metric("egpu_hypernodes_wrong") == 2, TIMEOUT_S)
    network.end("far")
    tier_one_waits_and_tier_two_starts(
        network, {"rack": {"highestTierName": "row"}, "block": {"highestTierAllowed": 4}}
    )
    told = [finding.text for finding in checkup.examine(facts.read(kit.api)) if finding.topic == "network"]
    assert told == [
        "HyperNode circle: it is left out: it is a member of itself, with itself",
        "HyperNode spine: its member lost is not there",
    ]
