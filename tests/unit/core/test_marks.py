"""Equal gangs get one answer; which gangs are equal does not depend on what was decided before."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import Gang, NodeName, Pod
from vc_egpu.core.model.policy import Policy

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


LARGE, SMALL = make.shape(make.H20_MIB, 10, cards=3), make.shape(1024, 10)


@pytest.mark.parametrize(
    ("first", "second", "large"),
    [
        ({"least": 3}, {"least": 2}, (1, 1)),
        ({"blocked_nodes": frozenset({NodeName("n1")})}, {}, (0, 0)),
        ({"least": 2, "min_task_member": {"large": 1}}, {"least": 2}, (1, 1)),
        ({"least": 2}, {"least": 2}, (2, 1)),
        ({"queue": "none"}, {}, (0, 0)),
    ],
    ids=["its minimum", "nodes it may not go to", "a task's minimum", "how many ask for much", "its queue"],
)
def test_what_is_found_for_one_gang_is_not_told_of_one_that_differs_in(
    first: dict[str, Any], second: dict[str, Any], large: tuple[int, int]
) -> None:
    """Three members each, so many of which fit nowhere; the first is refused, the second finds its place."""
    gangs, pods = list[Gang](), list[Pod]()
    for key, gang, count in (("a", first, large[0]), ("b", second, large[1])):
        gangs.append(make.gang(key, created=float(len(gangs)), **gang))
        pods += [*make.pods(key, count, LARGE, "large"), *make.pods(key, 3 - count, SMALL, "small")]
    queues = [make.queue(), make.queue("none", capability={})]
    plan = ask(make.snapshot([make.node("n1", 2)], gangs, pods, queues))
    assert [entry.gang for entry in plan.admissions] == ["b"], plan.verdicts
