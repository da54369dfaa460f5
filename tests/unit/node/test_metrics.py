"""What the agent shows of containers: what was granted, what was used, and how long they waited for whom."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from unit.node.granted import grant
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.words.annotations import NodeCards
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.admission import Why
from vc_egpu_node.isolation.accounts import Activity
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.suspension.suspender import SuspendedPod
from vc_egpu_node.wall.offences import ACTIONS, Offence
from vc_egpu_node.wall.wall import Account

LABELS = {"namespace": "ns", "pod": "p", "container": "main", "uuid": "GPU-0"}
MIB = 1 << 20
ACTIVITY = Activity(busy_s=12.5, units=700, longest_s=0.03, held_s=4.0, capped_s=2.0)


def shown(*accounts: Account, isolated: bool = True) -> Callable[[str], float | None]:
    """By family, the value for the container of :data:`LABELS`."""
    held = replace(grant("g", ("GPU-0", 1000, 10)), namespace="ns", pod="p", container="main")
    view = View(
        "n1", Observation(), NodeCards(), isolated=isolated, accounts=accounts, grants=[held], full=True
    )
    registry = Metrics(lambda: view).registry

    def value(name: str) -> float | None:
        name, _, cause = name.partition("/")
        labels = {**LABELS, "cause": cause} if cause else LABELS
        return registry.get_sample_value(f"egpu_node_container_{name}", labels)

    return value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_charged_bytes", 500.0 * MIB),
        ("memory_managed_bytes", 20.0 * MIB),
        ("compute_used_seconds_total", 12.5),
        ("launch_wait_seconds_total/class", 4.0),
        ("launch_wait_seconds_total/share", 2.0),
        ("units_total", 700.0),
        ("longest_unit_seconds", 0.03),
    ],
)
def test_what_a_container_did_on_its_card(name: str, value: float) -> None:
    account = Account("ns", "p", "main", "GPU-0", charged_mib=500, managed_mib=20, activity=ACTIVITY)
    assert shown(account)(name) == value


def test_without_the_library_nobody_counts() -> None:
    family = shown(isolated=False)
    assert family("launch_wait_seconds_total/class") is None


def test_a_name_that_two_pods_had_is_one_series() -> None:
    """A StatefulSet's pod is deleted with force: its successor starts before the first one has let go. Two
    values for one series are a fault of the target to Prometheus, and neither is counted."""
    late, early = (
        replace(grant(name, ("GPU-0", mib, 10)), pod="web-0", granted_at_s=at_s)
        for name, mib, at_s in (("b", 2000, 60.0), ("a", 1000, 5.0))
    )
    activity = replace(ACTIVITY, units=1)
    accounts = [
        Account("ns", "web-0", "main", "GPU-0", charged_mib=10, managed_mib=0, activity=ACTIVITY),
        Account("ns", "web-0", "main", "GPU-0", charged_mib=20, managed_mib=0, activity=activity),
    ]
    suspended = [
        SuspendedPod("ns", "web-0", SuspensionState.SUSPENDED, 5.0, 10),
        SuspendedPod("ns", "web-0", SuspensionState.RUNNING, 1.0, 0),
    ]
    view = View(
        "n1", Observation(), NodeCards(), isolated=True, grants=[late, early], accounts=accounts,
        suspensions=suspended, now_s=100.0, full=True,
    )  # fmt: skip
    registry = Metrics(lambda: view).registry
    series = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in registry.collect()
        for sample in family.samples
    ]
    assert len(set(series)) == len(series)
    labels = {**LABELS, "namespace": late.namespace, "pod": "web-0", "container": late.container}
    assert registry.get_sample_value("egpu_node_container_memory_granted_bytes", labels) == 2000 * MIB
    assert registry.get_sample_value("egpu_node_container_share_seconds_total", labels) == 40
    assert registry.get_sample_value("egpu_node_container_memory_charged_bytes", labels) == 20 * MIB
    assert registry.get_sample_value("egpu_node_container_units_total", labels) == 1
    of_pod = {"namespace": "ns", "pod": "web-0"}
    assert registry.get_sample_value("egpu_node_pod_suspended_seconds_total", of_pod) == 1
    of_pod["state"] = "suspended"
    assert registry.get_sample_value("egpu_node_pod_suspension_state", of_pod) is None


def test_every_offence_is_counted_from_zero() -> None:
    """A total that first appears as one has not grown, to who asks how much: no alert for the first."""
    metrics = Metrics(lambda: View("n1", Observation(), NodeCards()))

    def total(offence: Offence, action: str) -> float | None:
        labels = {"offence": offence.value, "action": action}
        return metrics.registry.get_sample_value("egpu_node_offences_total", labels)

    assert {total(offence, action) for offence in Offence for action in ACTIONS} == {0.0}
    metrics.offence(Offence.OVER_GRANT, "killed")
    assert total(Offence.OVER_GRANT, "killed") == 1.0


def test_every_refusal_is_counted_from_zero() -> None:
    """Many containers that are refused at once were no growth otherwise: their total began with the first."""
    metrics = Metrics(lambda: View("n1", Observation(), NodeCards()))

    def total(why: Why) -> float | None:
        labels = {"call": "PreStartContainer", "reason": why.value}
        return metrics.registry.get_sample_value("egpu_node_refusals_total", labels)

    assert {total(why) for why in Why} == {0.0}
    metrics.observe("PreStartContainer", 0.1, Why.NO_PLAN.value)
    assert total(Why.NO_PLAN) == 1.0
