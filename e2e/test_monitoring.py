"""A real Prometheus scrapes the installed stack: `manifests/monitoring/` as an operator applies it."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from boards.every import BOARDS
from localcluster import toolchain
from localcluster.api import wait_until
from localcluster.errors import LocalClusterError
from outcomes import disturb
from outcomes.workload import H20_MIB, Task, job, shares
from outcomes.world import World
from rigs.prometheus import Prometheus, prometheus
from stack.install import NAMESPACE, Stack
from vc_egpu.kube.resources import PODS

pytestmark = pytest.mark.cluster
_SHARES = 'egpu_share_memory_bytes{queue="%s"}'

NEEDS_MORE = {
    "Cards that take nothing",  # all are well
    "Pods evicted and suspended, by cause",
    "Launches wait",  # without the library no launch waits
    "Launches wait, the 20 longest",
    "Used, deserved, guarantee",  # the queue of this story has a cap alone
    "Power",  # the fake driver tells none
    "Temperature",
}
"""Panels that may have nothing to show while one gang runs and one waits."""


@pytest.fixture(scope="module")
def scraped(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus has read each process of ours once, and judged each rule."""
    try:
        toolchain.program("prometheus")
    except LocalClusterError as error:
        pytest.skip(str(error))
    with prometheus(stack, tmp_path_factory.mktemp("prometheus")) as found:
        wait_until("every process is scraped", lambda: set(found.targets()) == _ours(stack), 30)
        wait_until("every target answers", lambda: not any(found.targets().values()), 30)
        wait_until(
            "every rule was judged", lambda: all(rule["health"] != "unknown" for rule in found.rules()), 30
        )
        yield found


def _ours(stack: Stack) -> set[str]:
    return {pod["metadata"]["name"] for pod in stack.kit.api.list(PODS, NAMESPACE).items}


def _silent(scraped: Prometheus, chosen: dict[str, str]) -> set[str]:
    """Panels that show nothing, with these values of the boards' variables."""

    def shows(expression: str) -> bool:
        found = scraped.query(re.sub(r"\$(\w+)", lambda name: chosen[name[1]], expression))
        assert len(found) < 1000, expression
        return bool(found)

    panels = [panel for board in BOARDS for panel in board.panels]
    return {one.title for one in panels if not any(shows(query.expression) for query in one.queries)}


def test_each_process_is_scraped_with_the_rights_that_we_say_it_takes(
    stack: Stack, scraped: Prometheus
) -> None:
    assert scraped.targets() == dict.fromkeys(_ours(stack), "")
    nodes = {one["metric"]["instance"] for one in scraped.query("egpu_node_problem")}
    assert nodes == {node.name for node in stack.cluster.nodes}
    sees = {one["metric"]["instance"]: one["value"][1] for one in scraped.query("egpu_node_sees_processes")}
    assert sees == dict.fromkeys(nodes, "1"), "what containers use is told, and without any component"


def test_rules_can_be_judged_and_a_cluster_that_is_well_raises_none(scraped: Prometheus) -> None:
    rules = scraped.rules()
    assert len(rules) >= 20
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    wait_until("no alert", lambda: not scraped.query("ALERTS"), 60)


def test_every_panel_of_every_board_has_something_to_show(here: World, scraped: Prometheus) -> None:
    """While one gang runs and one waits."""
    here.submit(job("runs", Task(shares(1024), replicas=2), queue=here.queue))
    here.runs("runs", 2)
    here.submit(job("waits", Task(shares(H20_MIB // 2), replicas=17), queue=here.queue))
    wait_until("the shares are scraped", lambda: bool(scraped.query(_SHARES % here.queue)), 60)
    share = scraped.query(_SHARES % here.queue)[0]["metric"]
    assert share["namespace"] == here.namespace, "the tenant's, not that of the scraped pod"
    chosen = {name: share[name] for name in ("queue", "node", "uuid", "namespace", "gang")}
    with contextlib.suppress(LocalClusterError):
        wait_until("every panel shows something", lambda: not _silent(scraped, chosen) - NEEDS_MORE, 60)
    assert _silent(scraped, chosen) - NEEDS_MORE == set()
    (used,) = scraped.query(f'egpu_queue_used{{queue="{here.queue}", resource="volcano.sh/vgpu-h20"}}')
    assert float(used["value"][1]) == 2
    shown_pods = {one["metric"]["pod"] for one in scraped.query("egpu_share_memory_bytes")}
    assert shown_pods >= set(here.cards("runs"))


def test_an_ill_card_raises_its_alert_and_is_told_of_no_more_once_it_is_well(
    stack: Stack, scraped: Prometheus
) -> None:
    node = stack.cluster.nodes[0]
    state = disturb.read_cards(node)
    uuid = f"GPU-{node.name}-2"

    def raised() -> list[dict[str, Any]]:
        return [one["metric"] for one in scraped.query('ALERTS{alertname="VcEgpuCardIll"}')]

    try:
        stack.set_cards(node, disturb.with_fault(state, uuid))
        wait_until("the alert begins", lambda: bool(raised()), 60)
        (alert,) = raised()
        assert (alert["uuid"], alert["instance"], alert["index"]) == (uuid, node.name, "2")
    finally:
        stack.set_cards(node, state)
        disturb.restart_agent(stack, node)
    wait_until("the alert is over", lambda: not raised(), 90)
