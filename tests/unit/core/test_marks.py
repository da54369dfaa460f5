"""Equal gangs get one answer; which gangs are equal does not depend on what was decided before."""

from dataclasses import replace

from unit.core import make
from unit.core.asked import HIGH, LOW
from vc_egpu.core.decide import decide
from vc_egpu.core.policy import Policy
from vc_egpu.core.state import ClusterState

WHOLE = make.shape(make.H20_MIB, 100)


def test_a_gang_that_was_to_go_and_stays_is_not_taken_for_one_that_never_ran() -> None:
    """It has two members and two more wait, for which one card is left; the other wants two cards at once."""
    state = ClusterState()
    state.put_queue(make.queue())
    state.put_node(make.node("n1", 3))
    state.put_gang(make.gang("ns/low", share_class=LOW, least=2, created=1.0))
    gated = make.pods("ns/low", 4, WHOLE)
    for pod in (make.placed(gated[0], "n1/0"), make.placed(gated[1], "n1/1"), *gated[2:]):
        state.put_pod(pod)
    state.put_gang(make.gang("ns/high", share_class=HIGH))
    for pod in make.pods("ns/high", 1, replace(WHOLE, asks=(replace(WHOLE.asks[0], cards=3),))):
        state.put_pod(pod)
    plan = decide(state.snapshot(1), Policy(), 100.0)
    assert [entry.gang for entry in plan.admissions[0].evictions] == ["ns/low"]

    for pod in make.pods("ns/high", 1, WHOLE):
        state.remove_pod(pod.uid)
    state.remove_gang("ns/high")
    state.put_gang(make.gang("ns/other", share_class=LOW, least=2))
    for pod in make.pods("ns/other", 2, WHOLE):
        state.put_pod(pod)
    plan = decide(state.snapshot(2), Policy(), 100.0)
    assert [entry.gang for entry in plan.admissions] == ["ns/low"], plan.verdicts["ns/low"].message
    assert plan == decide(replace(state.snapshot(2), index=None), Policy(), 100.0)
