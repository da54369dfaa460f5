"""What the agent shows of containers: what was granted, what was used, and how long they waited for whom."""

from collections.abc import Callable

import pytest
from vc_egpu.volcano.annotations import NodeCards
from vc_egpu_node.accounts import Activity
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.monitor import Observation
from vc_egpu_node.wall import Account

LABELS = {"namespace": "ns", "pod": "p", "container": "main", "uuid": "GPU-0"}
ACTIVITY = Activity(busy_s=12.5, units=700, longest_s=0.03, held_s=4.0, capped_s=2.0)


def shown(*accounts: Account, isolated: bool = True) -> Callable[[str], float | None]:
    """By family, the value for the container of :data:`LABELS`."""
    view = View("n1", Observation(), NodeCards(), isolated=isolated, accounts=accounts)
    registry = Metrics(lambda: view).registry
    return lambda name: registry.get_sample_value(f"egpu_node_container_{name}", LABELS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_charged_mib", 500.0),
        ("memory_managed_mib", 20.0),
        ("compute_used_seconds_total", 12.5),
        ("held_seconds_total", 4.0),
        ("capped_seconds_total", 2.0),
        ("units_total", 700.0),
        ("longest_unit_seconds", 0.03),
    ],
)
def test_what_a_container_did_on_its_card(name: str, value: float) -> None:
    account = Account("ns", "p", "main", "GPU-0", charged_mib=500, managed_mib=20, activity=ACTIVITY)
    assert shown(account)(name) == value


def test_without_the_library_nobody_counts() -> None:
    family = shown(isolated=False)
    assert family("held_seconds_total") is None
