"""An operator drains a node on a real API server: its gangs run elsewhere, and no try is counted.

Simulated nodes, and our processes next to the cluster with the rights of their own accounts.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from rigs.one_team import H20, NAMESPACE, TIMEOUT_S, OneTeam, one_team
from vc_egpu.cli.live import drain
from vc_egpu.kube.resources import CORE_EVENTS, PODS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
ONE_CARD: Final = {H20: 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneTeam]:
    """Two nodes of four cards."""
    with one_team("drain", nodes=2, cards=4, caps={H20: "16"}) as stack:
        yield OneTeam(stack)


def test_gangs_of_a_drained_node_run_elsewhere_and_come_back_there_when_it_is_over(cluster: OneTeam) -> None:
    cluster.make("one", ONE_CARD, members=2, priority="high")
    first = cluster.all_run("one", 2)
    (node,) = {pod["spec"]["nodeName"] for pod in first.values()}
    told: list[str] = []
    outcome, _ = drain.foretold(cluster.stack.kit.api, node, NAMESPACE)
    assert outcome.order == "would drain"
    assert cluster.all_run("one", 2) == cluster.all_run("one", 2), "a dry run moves nobody"

    api = cluster.stack.kit.api
    found = drain.run(api, node, undo=False, timeout_s=TIMEOUT_S, progress=told.append)
    assert found.done, (found, told)
    after = cluster.all_run("one", 2, but=frozenset(pod["metadata"]["uid"] for pod in first.values()))
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
    cluster.make("two", ONE_CARD, members=2, priority="high")
    second = cluster.all_run("two", 2)
    assert node not in {pod["spec"]["nodeName"] for pod in second.values()}

    cluster.make("three", ONE_CARD, members=1, priority="high")
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
    third = cluster.all_run("three", 1)
    assert {pod["spec"]["nodeName"] for pod in third.values()} == {node}
    cluster.check_invariants()
