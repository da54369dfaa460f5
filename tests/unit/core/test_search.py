"""The bounded search: what it may take for the same."""

from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.model.cluster import CardAsk


def test_nodes_that_oversubscribe_for_others_are_not_the_same() -> None:
    """A high share that may spill takes all of its memory of the card where only low ones spill."""
    percent = make.H20_MIB // 100
    nodes = [
        make.node("n1", 1, memory_ratio=2.0, ratio_class=LOW, host_memory_mib=10**6),
        make.node("n2", 1, memory_ratio=2.0, host_memory_mib=10**6),
    ]
    spills = make.shape(asks=(CardAsk("main", "h20", 1, 40 * percent, 0, spill=True),))
    pods = [
        *make.pods("g", 1, spills, "spills"),
        *make.pods("g", 4, make.shape(30 * percent), "large"),
        *make.pods("g", 3, make.shape(20 * percent), "small"),
    ]
    plan = ask(make.snapshot(nodes, [make.gang("g", share_class=HIGH, least=8)], pods))
    assert [admission.members["spills/0"].node for admission in plan.admissions] == ["n2"]
