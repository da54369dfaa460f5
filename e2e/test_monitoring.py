"""A real Prometheus scrapes the installed stack: `manifests/monitoring/` as an operator applies it."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from localcluster import toolchain
from localcluster.api import wait_until
from localcluster.errors import LocalClusterError
from outcomes import disturb
from outcomes.workload import H20_MIB, Task, job, shares
from outcomes.world import World
from rigs.prometheus import MONITORING, Prometheus, prometheus
from stack.install import NAMESPACE, Stack
from vc_egpu.kube.resources import PODS

pytestmark = pytest.mark.cluster

QUIET = {
    "Gangs that wait, by reason",
    "Memory used by containers / granted",
    "Queues: used of cap",
    "Webhook reviews, p99",
    "What the leader does",
    "Who shares which card",
}
"""Panels that have nothing to show until something has happened, or run."""


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


def _panels() -> dict[str, list[str]]:
    """Expressions of each panel of the dashboard."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in panels}


def _silent(scraped: Prometheus) -> set[str]:
    """Panels that show nothing."""
    return {title for title, asked in _panels().items() if not any(map(scraped.query, asked))}


def test_each_process_is_scraped_with_the_rights_that_we_say_it_takes(
    stack: Stack, scraped: Prometheus
) -> None:
    assert scraped.targets() == dict.fromkeys(_ours(stack), "")
    nodes = {one["metric"]["instance"] for one in scraped.query("egpu_node_problem")}
    assert nodes == {node.name for node in stack.cluster.nodes}


def test_rules_can_be_judged_and_a_cluster_that_is_well_raises_none(scraped: Prometheus) -> None:
    rules = scraped.rules()
    assert len(rules) >= 20
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    wait_until("no alert", lambda: not scraped.query("ALERTS"), 60)


def test_every_panel_of_the_dashboard_has_something_to_show(here: World, scraped: Prometheus) -> None:
    """While one gang runs and one waits."""
    assert _silent(scraped) <= QUIET
    here.submit(job("runs", Task(shares(1024), replicas=2), queue=here.queue))
    here.runs("runs", 2)
    here.submit(job("waits", Task(shares(H20_MIB // 2), replicas=17), queue=here.queue))
    with contextlib.suppress(LocalClusterError):
        wait_until("every panel shows something", lambda: not _silent(scraped), 60)
    assert _silent(scraped) == set()
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
