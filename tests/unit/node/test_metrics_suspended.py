"""What the agent shows of the containers of suspended pods."""

import pytest
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.words.annotations import CardShare, NodeCards
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation.accounts import Activity
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.suspension.suspender import SuspendedPod
from vc_egpu_node.wall.wall import Account

MIB = 1 << 20


def grant(pod: str, container: str) -> Grant:
    """With one share of a card."""
    return Grant(
        name=f"{pod}-{container}", resource="r", ids=("i",), pod_uid="u", namespace="ns", pod=pod,
        container=container, plan_id="1-1", epoch=1, share_class="low", core_policy="hard", native=False,
        granted_at_s=0.0, shares=(CardShare(uuid="GPU-0", memory_mib=1000, cores=10),),
    )  # fmt: skip


def account(pod: str, container: str, charged_mib: int) -> Account:
    """Of that share."""
    return Account("ns", pod, container, "GPU-0", charged_mib, 0, Activity(), beyond_mib=30)


@pytest.mark.parametrize(
    ("state", "away_mib"),
    [
        (SuspensionState.SUSPENDED, 700.0),
        (SuspensionState.RUNNING, 0.0),
        (SuspensionState.RESUMING, 0.0),
    ],
)
def test_each_container_by_itself(state: SuspensionState, away_mib: float) -> None:
    view = View(
        "n1",
        Observation(),
        NodeCards(),
        isolated=True,
        grants=[grant("p", "main"), grant("p", "side"), grant("other", "main")],
        accounts=[account("p", "main", 700), account("p", "side", 40), account("other", "main", 9)],
        suspensions=[SuspendedPod("ns", "p", state, 12.5, 740)],
        full=True,
    )
    value = Metrics(lambda: view).registry.get_sample_value
    of = {"namespace": "ns", "pod": "p", "container": "main", "uuid": "GPU-0"}
    assert value("egpu_node_container_suspended_seconds_total", of) == 12.5
    assert value("egpu_node_container_suspended_bytes", of) == away_mib * MIB
    side = {**of, "container": "side"}
    assert value("egpu_node_container_suspended_bytes", side) == (40 * MIB if away_mib else 0)
    assert value("egpu_node_container_suspended_seconds_total", {**of, "pod": "other"}) == 0
    assert value("egpu_node_container_memory_beyond_bytes", of) == 30 * MIB


def test_where_nobody_was_suspended_only_the_container_itself_says_so() -> None:
    view = View("n1", Observation(), NodeCards(), grants=[grant("p", "main")])
    families = {family.name: family for family in Metrics(lambda: view).collect()}
    (name,) = (name for name in families if "suspended" in name)
    assert name == "egpu_node_container_suspended_seconds"
    assert [sample.value for sample in families[name].samples] == [0.0]
