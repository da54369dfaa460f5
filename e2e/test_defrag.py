"""Running work moves to other cards on a real API server, so that a gang that waits fits.

Simulated nodes, and our processes next to the cluster with the rights of their own accounts. Two low Jobs
leave two cards free, one on each node. A third Job needs two cards of one node.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from localcluster import ClusterSpec, LocalCluster
from outcomes.workload import container, pod_spec
from rigs.admission import gpu_node, wait_ready
from rigs.volcano_job import ONE_TRY, volcano_job
from stack.hostmode import MODELS, REPOSITORY, HostOptions, HostStack
from stack.identity import service_account_kubeconfig
from stack.kit import is_running
from stack.verify import check_invariants
from vc_egpu.admission.drain import drain
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    CORE_EVENTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import Forbidden
from vc_egpu.volcano.codec.cluster_codec import bears_our_taint
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]
NAMESPACE: Final = "moves"
TIMEOUT_S: Final = 60.0
FLAGS: Final = ("--defrag=waiting", "--defrag-after-s=3", "--min-runtime-s=0", "--defrag-per-hour=20")
H20: Final = names.shared_resource("h20")
EMPTYING: Final = REPOSITORY / "manifests" / "components" / "node-emptying" / "rbac.yaml"


@dataclass(frozen=True)
class Cluster:
    """Two nodes of two cards, and our stack."""

    stack: HostStack

    def apply(self, document: Json) -> None:
        self.stack.kit.kubectl("apply", "-n", NAMESPACE, "-f", "-", text_in=yaml.safe_dump(document))

    def submit(self, name: str, cards: int, priority: str = "low") -> None:
        """A Job of one pod with so many whole cards. It would try again once, if an eviction counted."""
        annotations = {names.PRIORITY: priority} if priority else {}
        pods = pod_spec(container(limits={H20: cards}))
        pods["restartPolicy"] = "Never"
        template = {"metadata": {"annotations": annotations}, "spec": pods}
        self.apply(volcano_job(name, "team", 1, template, **ONE_TRY))

    def runs(self, name: str, but: str = "") -> Json:
        """Wait until the Job's pod runs, another one than ``but``."""

        def there(pods: dict[str, Json]) -> Json | None:
            pod = pods.get(f"{name}-w-0")
            return pod if pod is not None and is_running(pod) and pod["metadata"]["uid"] != but else None

        return self.stack.kit.until(f"{name} runs", PODS, there, namespace=NAMESPACE, timeout_s=TIMEOUT_S)

    def end(self, *names_: str) -> None:
        for name in names_:
            self.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")

    def two_halves(self) -> dict[str, Json]:
        """Jobs ``b`` and ``c`` run on a node each, with a free card next to each of them."""
        for name in ("a", "b", "c"):
            self.submit(name, 1)
            self.runs(name)
        self.end("a")
        found = {name: self.runs(name) for name in ("b", "c")}
        assert len({pod["spec"]["nodeName"] for pod in found.values()}) == 2
        return found

    def note(self, name: str) -> str:
        """What the Job's PodGroup remembers of a move."""
        groups = self.stack.kit.api.list(POD_GROUPS, NAMESPACE).items
        (mine,) = [group for group in groups if group["metadata"]["name"].startswith(f"{name}-")]
        return str((mine["metadata"].get("annotations") or {}).get(names.MOVED, ""))

    def tainted(self) -> set[str]:
        """The nodes that are to be empty."""
        nodes = self.stack.kit.api.list(NODES).items
        return {node["metadata"]["name"] for node in nodes if bears_our_taint(node)}

    def tries(self, name: str) -> int:
        found = self.stack.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
        return int((found.get("status") or {}).get("retryCount") or 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with two_nodes("defrag", FLAGS) as found:
        yield found


@pytest.fixture
def emptying() -> Iterator[Cluster]:
    """The same, with the component ``node-emptying``."""
    with two_nodes("emptying", (*FLAGS, "--defrag-empty-nodes"), EMPTYING) as found:
        yield found


@contextmanager
def two_nodes(name: str, flags: tuple[str, ...], *more: Path) -> Iterator[Cluster]:
    """``more``: documents that are applied, too."""
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=0, services=False, dns=False)) as local:
        local.add_kwok_nodes(2, gpu_node(2))
        ours = HostStack.install(local, HostOptions(flags={"admission": flags}))
        for path in more:
            ours.kit.kubectl("apply", "-f", str(path))
        try:
            ours.start()
            wait_ready(ours.kit, 2)
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            ours.kit.api.create(NAMESPACES, space)
            found = Cluster(ours)
            spec = {"weight": 1, "capability": {H20: "16"}}
            found.apply(
                {
                    "apiVersion": QUEUES.api_version,
                    "kind": "Queue",
                    "metadata": {"name": "team"},
                    "spec": spec,
                }
            )
            ours.kit.until(
                "the queue is open", QUEUES, lambda q: (q["team"].get("status") or {}).get("state")
            )
            yield found
        finally:
            ours.stop()


def test_a_gang_that_waited_starts_after_one_move(cluster: Cluster) -> None:
    before = cluster.two_halves()
    cluster.submit("large", 2, priority="")
    large = cluster.runs("large")
    stayed = {
        name: pod
        for name, pod in before.items()
        if cluster.runs(name)["metadata"]["uid"] == pod["metadata"]["uid"]
    }
    (moved,) = before.keys() - stayed.keys()
    after = cluster.runs(moved, but=before[moved]["metadata"]["uid"])
    assert after["spec"]["nodeName"] != before[moved]["spec"]["nodeName"]
    assert large["spec"]["nodeName"] == before[moved]["spec"]["nodeName"]
    assert {cluster.tries(name) for name in ("b", "c", "large")} == {0}
    cluster.stack.kit.until(
        "an event tells of the move",
        CORE_EVENTS,
        lambda events: any(event["reason"] == "Moved" for event in events.values()) or None,
        namespace=NAMESPACE,
    )
    cluster.stack.kit.until(
        "its PodGroup remembers that it came",
        POD_GROUPS,
        lambda _: ((text := cluster.note(moved)) != "" and '"claim"' not in text) or None,
        namespace=NAMESPACE,
    )
    check_invariants(cluster.stack.kit, ModelTable.from_yaml(MODELS.read_text()))
    cluster.end("b", "c", "large")


def test_a_leader_that_dies_during_a_move_is_followed_by_one_that_ends_it(cluster: Cluster) -> None:
    before = cluster.two_halves()
    cluster.submit("large", 2, priority="")
    cluster.stack.kit.until(
        "other cards are claimed",
        POD_GROUPS,
        lambda _: any(cluster.note(name) for name in ("b", "c")) or None,
        namespace=NAMESPACE,
        timeout_s=TIMEOUT_S,
    )
    cluster.stack.processes["admission"].kill()
    cluster.stack.start("admission")
    cluster.runs("large")
    after = {name: cluster.runs(name) for name in ("b", "c")}
    uids = {name: pod["metadata"]["uid"] for name, pod in before.items()}
    gone = [name for name, pod in after.items() if pod["metadata"]["uid"] != uids[name]]
    assert len(gone) == 1
    assert after[gone[0]]["spec"]["nodeName"] != before[gone[0]]["spec"]["nodeName"]
    assert {cluster.tries(name) for name in ("b", "c", "large")} == {0}
    check_invariants(cluster.stack.kit, ModelTable.from_yaml(MODELS.read_text()))
    cluster.end("b", "c", "large")


def test_a_node_is_emptied_and_takes_work_again_once_a_gang_needs_it(emptying: Cluster) -> None:
    kit = emptying.stack.kit
    before = emptying.two_halves()
    kit.until("a node is to be empty", NODES, lambda _: emptying.tainted() or None, timeout_s=TIMEOUT_S)
    (empty,) = emptying.tainted()
    (moved,) = (name for name, pod in before.items() if pod["spec"]["nodeName"] == empty)
    after = emptying.runs(moved, but=before[moved]["metadata"]["uid"])
    assert after["spec"]["nodeName"] != empty
    assert emptying.tries(moved) == 0
    kit.until(
        "its PodGroup remembers for which node it moved",
        POD_GROUPS,
        lambda _: ((text := emptying.note(moved)) != "" and '"claim"' not in text) or None,
        namespace=NAMESPACE,
    )
    assert f'"empties":"{empty}"' in emptying.note(moved)
    emptying.stack.processes["admission"].kill()
    emptying.stack.start("admission")
    assert emptying.tainted() == {empty}, "the next leader leaves it empty"
    emptying.submit("large", 2, priority="high")
    large = emptying.runs("large")
    assert large["spec"]["nodeName"] == empty
    assert emptying.tainted() == set()
    unmoved = {name: emptying.runs(name)["metadata"]["uid"] for name in before}
    assert unmoved[moved] == after["metadata"]["uid"], "no gang goes where an empty node is opened"
    check_invariants(kit, ModelTable.from_yaml(MODELS.read_text()))

    # Its account writes this taint and nothing else, and takes it off before removal.
    account = service_account_kubeconfig(emptying.stack.cluster, "vc-egpu-system", "vc-egpu-admission")
    api = ApiConnection.connect(account)
    theirs = [{"key": "theirs", "effect": "NoSchedule"}]
    for wrong in ({"spec": {"unschedulable": True}}, {"metadata": {"labels": {"a": "b"}}}):
        with pytest.raises(Forbidden, match="writes one taint"):
            api.patch(NODES, empty, wrong)
    evicts = [{"key": names.EMPTIED, "value": "1", "effect": "NoExecute"}]
    for taints in (theirs, evicts):
        with pytest.raises(Forbidden, match="with NoSchedule alone"):
            api.patch(NODES, empty, {"spec": {"taints": taints}})
    emptying.stack.processes["admission"].kill()
    kit.kubectl("taint", "node", empty, f"{names.EMPTIED}=1:NoSchedule", "theirs=1:NoSchedule")
    assert drain(api) == 0
    assert [taint["key"] for taint in kit.api.get(NODES, empty)["spec"]["taints"]] == ["theirs"]
    api.close()
