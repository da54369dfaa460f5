"""Volcano's controllers without its scheduler: our Job controller counts in its place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode
from rigs.admission import wait_ready
from rigs.gangs import admitted
from rigs.volcano_job import volcano_job
from stack.fakes import inventory, offered
from stack.hostmode import HostOptions, HostStack
from stack.verify import check_invariants
from vc_egpu.kube.resources import NAMESPACES, POD_GROUPS, QUEUES, VOLCANO_JOBS, Resource
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from volcano.processes import Volcano, VolcanoProcesses

pytestmark = [pytest.mark.cluster, pytest.mark.volcano, pytest.mark.timeout(600)]
Json = dict[str, Any]
LAB = "lab"
SHARE = names.shared_resource("h20")


@pytest.fixture
def stack(volcano: Volcano) -> Iterator[HostStack]:
    spec = ClusterSpec(name="counts", real_nodes=0, services=False, dns=False)
    with LocalCluster.up(spec) as cluster:
        cluster.add_kwok_nodes(2, node)
        options = HostOptions(overlay="volcano-counts")
        ours = HostStack.install(cluster, options, volcano)
        ours.start()
        wait_ready(ours.kit, 2)
        VolcanoProcesses.of(cluster, volcano, "own").start(scheduler=False, webhook=False)
        make(ours, NAMESPACES, {"metadata": {"name": LAB}})
        for name, cap in (("root", {}), ("default", {}), (LAB, {SHARE: "4"})):
            make(ours, QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1, "capability": cap}})
        try:
            yield ours
            ours.check_alive()
            check_invariants(ours.kit, ModelTable.from_yaml(Path(options.models).read_text()))
        finally:
            ours.stop()


def node(_index: int, name: str) -> KwokNode:
    extended = {key: int(amount) for key, amount in offered(4).items()}
    return KwokNode(name, extended=extended, annotations={names.NODE_CARDS: inventory(name, 4).encode()})


def make(stack: HostStack, resource: Resource, body: Json) -> None:
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    stack.kit.api.create(resource, {**head, **body})


def train(name: str, members: int) -> Json:
    limits = {SHARE: "1", names.LIMIT_MEMORY: "1000"}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return volcano_job(name, LAB, members, template)


def test_podgroups_and_queues_tell_what_runs_and_what_waits(stack: HostStack) -> None:
    kit = stack.kit

    def group(name: str, found: dict[str, Json]) -> Json | None:
        return next((one for key, one in found.items() if key.startswith(f"{name}-")), None)

    def used(found: dict[str, Json]) -> int:
        return int(((found[LAB].get("status") or {}).get("allocated") or {}).get(SHARE, 0))

    def runs(found: dict[str, Json]) -> bool | None:
        status = (group("first", found) or {}).get("status") or {}
        return (status.get("phase"), status.get("running")) == ("Running", 3) or None

    def waits(found: dict[str, Json]) -> bool | None:
        second = group("second", found)
        said = (admitted(second) or {}) if second is not None else {}
        return said.get("reason") == "WaitingForQuota" or None

    def second_runs(found: dict[str, Json]) -> bool | None:
        return ((group("second", found) or {}).get("status") or {}).get("phase") == "Running" or None

    kit.api.create(VOLCANO_JOBS, train("first", 3), LAB)
    kit.until("the PodGroup says that its gang runs", POD_GROUPS, runs, namespace=LAB)
    kit.until("the queue says what it uses", QUEUES, lambda found: used(found) == 3 or None)
    kit.api.create(VOLCANO_JOBS, train("second", 2), LAB)
    kit.until("the second one waits for the cap", POD_GROUPS, waits, namespace=LAB)
    second = group("second", {one["metadata"]["name"]: one for one in kit.api.list(POD_GROUPS, LAB).items})
    assert second is not None
    assert second["status"]["phase"] in {"Pending", "Inqueue"}
    assert used({queue["metadata"]["name"]: queue for queue in kit.api.list(QUEUES).items}) == 3

    kit.api.delete(VOLCANO_JOBS, "first", LAB)
    kit.until("the second one runs", POD_GROUPS, second_runs, namespace=LAB)
    kit.until("the queue uses what is left", QUEUES, lambda found: used(found) == 2 or None)
    queue = kit.api.get(QUEUES, LAB)
    assert queue["status"]["state"] == "Open", "Volcano's controllers keep the state"
