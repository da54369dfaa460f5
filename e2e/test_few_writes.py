"""What a gang costs the API server from its submission until it runs, by the audit log."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import orjson
import pytest
from localcluster import ClusterSpec, LocalCluster
from rigs.admission import gpu_node, wait_ready
from stack.hostmode import HostOptions, HostStack
from stack.kit import is_running
from vc_egpu.kube.resources import NAMESPACES, POD_GROUPS, QUEUES, VOLCANO_JOBS, Resource
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]
NAMESPACE: Final = "writes"
GANGS, MEMBERS = 12, 8
SHARE: Final = names.shared_resource("h20")


@pytest.fixture
def stack() -> Iterator[HostStack]:
    with ExitStack() as exits:
        spec = ClusterSpec(name="writes", real_nodes=0, services=False, dns=False, audit=True)
        cluster = exits.enter_context(LocalCluster.up(spec))
        cluster.add_kwok_nodes(12, gpu_node(8))
        ours = HostStack.install(cluster, HostOptions())
        exits.callback(ours.stop)
        ours.start()
        wait_ready(ours.kit, 12)
        made: list[tuple[Resource, Json]] = [
            (NAMESPACES, {"metadata": {"name": NAMESPACE}}),
            (QUEUES, {"metadata": {"name": "q"}, "spec": {"weight": 1, "capability": {SHARE: "1000"}}}),
        ]
        for resource, body in made:
            ours.kit.api.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **body})
        ours.kit.until(
            "the queue is open", QUEUES, lambda found: (found["q"].get("status") or {}).get("state")
        )
        yield ours


def job(name: str) -> Json:
    limits = {SHARE: "1", names.LIMIT_MEMORY: "1000"}
    container = {"name": "c", "image": "none", "resources": {"limits": limits, "requests": {"cpu": "100m"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queue": "q",
            "minAvailable": MEMBERS,
            "tasks": [{"name": "w", "replicas": MEMBERS, "template": template}],
        },
    }


def writes(stack: HostStack) -> Counter[tuple[str, str, str]]:
    """(process, verb, path without the host) of all our writes in the namespace."""
    found: Counter[tuple[str, str, str]] = Counter()
    for line in stack.cluster.audit_log.read_bytes().splitlines():
        entry = orjson.loads(line)
        agent = entry.get("userAgent", "").partition("/")[0]
        path = entry["requestURI"].partition("?")[0]
        if entry.get("stage") == "ResponseComplete" and f"/{NAMESPACE}/" in path and "vc-egpu" in agent:
            found[agent, entry["verb"], path.partition(f"/{NAMESPACE}/")[2]] += 1
    return found


def test_a_gang_costs_few_writes(stack: HostStack) -> None:
    for index in range(GANGS):
        stack.kit.api.create(VOLCANO_JOBS, job(f"g{index}"))
    stack.kit.pods_until(
        "all run",
        NAMESPACE,
        lambda pods: len(pods) == GANGS * MEMBERS and all(map(is_running, pods.values())),
        timeout_s=120,
    )

    def counted(groups: dict[str, Json]) -> bool:
        return all((group.get("status") or {}).get("running") == MEMBERS for group in groups.values())

    stack.kit.until("all are counted", POD_GROUPS, counted, namespace=NAMESPACE)
    found = writes(stack)
    print(found)
    by_admission = {path: n for (agent, _, path), n in found.items() if agent == "vc-egpu-admission"}
    for index in range(GANGS):
        group = next(path for path in by_admission if path.startswith(f"podgroups/g{index}-"))
        assert by_admission[group] == 1, "plan and condition are one write"
        # The phase at once, and the counts when all have started; on a slow machine counts in between.
        assert 1 <= found["vc-egpu-jobs", "patch", group] <= 4
    bound = {path: n for path, n in by_admission.items() if path.startswith("pods/")}
    assert set(bound.values()) == {1}
    assert all(path.endswith("/binding") for path in bound)
    assert len(bound) == GANGS * MEMBERS
    assert by_admission["events"] <= GANGS, "one event for a gang, none for a pod"
