"""An operator drains a node on a real API server: its gangs run elsewhere, and no try is counted.

Simulated nodes, and our processes next to the cluster with the rights of their own accounts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml
from localcluster import ClusterSpec, LocalCluster
from outcomes.workload import container, pod_spec
from rigs.admission import gpu_node, wait_ready
from rigs.volcano_job import ONE_TRY, volcano_job
from stack.hostmode import MODELS, HostOptions, HostStack
from stack.kit import is_running
from stack.verify import check_invariants
from vc_egpu.cli.live import drain
from vc_egpu.kube.resources import CONFIG_MAPS, CORE_EVENTS, NAMESPACES, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]
NAMESPACE: Final = "drains"
TIMEOUT_S: Final = 60.0
H20: Final = names.shared_resource("h20")


@dataclass(frozen=True)
class Cluster:
    """Two nodes of four cards, and our stack."""

    stack: HostStack

    def apply(self, document: Json) -> None:
        self.stack.kit.kubectl("apply", "-n", NAMESPACE, "-f", "-", text_in=yaml.safe_dump(document))

    def submit(self, name: str, members: int) -> None:
        """A Job of so many pods with a whole card each. It would try again once, if an eviction counted."""
        pods = pod_spec(container(limits={H20: 1})) | {"restartPolicy": "Never"}
        template = {"metadata": {"annotations": {names.PRIORITY: "high"}}, "spec": pods}
        self.apply(volcano_job(name, "team", members, template, **ONE_TRY))

    def runs(self, name: str, members: int, but: frozenset[str] = frozenset()) -> dict[str, Json]:
        """Wait until all its pods run, none of them of these UIDs."""

        def there(pods: dict[str, Json]) -> dict[str, Json] | None:
            mine = {key: pod for key, pod in pods.items() if key.startswith(f"{name}-w-") and is_running(pod)}
            fresh = {key: pod for key, pod in mine.items() if pod["metadata"]["uid"] not in but}
            return fresh if len(fresh) == members else None

        return self.stack.kit.until(f"{name} runs", PODS, there, namespace=NAMESPACE, timeout_s=TIMEOUT_S)

    def tries(self, name: str) -> int:
        found = self.stack.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
        return int((found.get("status") or {}).get("retryCount") or 0)


def _models() -> Json:
    """The table that an installed stack has in the cluster: what would happen is worked out with it."""
    metadata = {"name": names.MODELS_CONFIG_MAP, "namespace": names.SYSTEM_NAMESPACE}
    data = {"models.yaml": MODELS.read_text()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with LocalCluster.up(ClusterSpec(name="drain", real_nodes=0, services=False, dns=False)) as local:
        local.add_kwok_nodes(2, gpu_node(4))
        ours = HostStack.install(local, HostOptions())
        try:
            ours.start()
            wait_ready(ours.kit, 2)
            ours.kit.api.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            )
            ours.kit.api.create(CONFIG_MAPS, _models(), names.SYSTEM_NAMESPACE)
            found = Cluster(ours)
            spec = {"weight": 1, "capability": {H20: "16"}}
            queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "team"}}
            found.apply({**queue, "spec": spec})
            ours.kit.until(
                "the queue is open", QUEUES, lambda q: (q["team"].get("status") or {}).get("state")
            )
            yield found
        finally:
            ours.stop()


def test_gangs_of_a_drained_node_run_elsewhere_and_come_back_there_when_it_is_over(cluster: Cluster) -> None:
    cluster.submit("one", 2)
    first = cluster.runs("one", 2)
    (node,) = {pod["spec"]["nodeName"] for pod in first.values()}
    told: list[str] = []
    outcome, _ = drain.foretold(cluster.stack.kit.api, node, NAMESPACE)
    assert outcome.order == "would drain"
    assert cluster.runs("one", 2) == cluster.runs("one", 2), "a dry run moves nobody"

    api = cluster.stack.kit.api
    found = drain.run(api, node, undo=False, timeout_s=TIMEOUT_S, progress=told.append)
    assert found.done, (found, told)
    after = cluster.runs("one", 2, but=frozenset(pod["metadata"]["uid"] for pod in first.values()))
    assert node not in {pod["spec"]["nodeName"] for pod in after.values()}
    assert cluster.tries("one") == 0
    cluster.stack.kit.until(
        "events tell why",
        CORE_EVENTS,
        lambda events: (
            any(
                event["reason"] == "Drained" and event["message"] == "an operator drains its node"
                for event in events.values()
            )
            or None
        ),
        namespace=NAMESPACE,
    )
    cluster.submit("two", 2)
    second = cluster.runs("two", 2)
    assert node not in {pod["spec"]["nodeName"] for pod in second.values()}

    cluster.submit("three", 1)
    cluster.stack.kit.until(
        "the third waits, and says why",
        PODS,
        lambda pods: (
            any(
                f"{node} (being drained)" in str(condition.get("message"))
                for key, pod in pods.items()
                if key.startswith("three-")
                for condition in (pod.get("status") or {}).get("conditions") or ()
            )
            or None
        ),
        namespace=NAMESPACE,
        timeout_s=TIMEOUT_S,
    )
    drain.run(api, node, undo=True, timeout_s=TIMEOUT_S, progress=told.append)
    third = cluster.runs("three", 1)
    assert {pod["spec"]["nodeName"] for pod in third.values()} == {node}
    check_invariants(cluster.stack.kit, ModelTable.from_yaml(MODELS.read_text()))
