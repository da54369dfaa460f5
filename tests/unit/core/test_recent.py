"""What queues had lately orders them, where that is switched on."""

from dataclasses import replace

import pytest
from unit.core import make
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import Queue, QueueName
from vc_egpu.core.model.policy import Policy, RecentUse
from vc_egpu.core.model.resources import MICROCARDS, PARTS_PREFIX
from vc_egpu.core.queues.recent import averaged

H20 = "volcano.sh/vgpu-h20"
A, B = QueueName("a"), QueueName("b")


def used(cards: int) -> dict[str, int]:
    return {PARTS_PREFIX + H20: cards * MICROCARDS, H20: cards}


def test_use_counts_half_as_much_after_a_half_life() -> None:
    begun = averaged(RecentUse(3600.0, at=0.0), {A: used(8)}, 0.0)
    assert begun.parts == {}, "it has just begun"
    long = averaged(begun, {}, 1e6)
    assert long.parts[A][H20] == pytest.approx(8 * MICROCARDS)
    hour = averaged(long, {B: used(2)}, 1e6 + 3600)
    assert hour.parts[A][H20] == pytest.approx(4 * MICROCARDS)
    after = averaged(hour, {}, 1e6 + 7200)
    assert after.parts[A][H20] == pytest.approx(2 * MICROCARDS)
    assert after.parts[B][H20] == pytest.approx(1 * MICROCARDS)
    assert averaged(after, {}, 1e9).parts == {}, "nothing stays for ever"


def test_a_clock_that_was_set_back_changes_no_average() -> None:
    before = RecentUse(3600.0, 1e6, {A: {H20: 5.0}}, {A: {H20: 9}})
    assert averaged(before, {}, 0.0).parts == {A: {H20: 5.0}}


def test_nothing_is_averaged_unless_it_is_switched_on() -> None:
    off = RecentUse()
    assert averaged(off, {A: used(8)}, 5.0) is off


@pytest.mark.parametrize(("recent", "first"), [({}, "a"), ({A: {H20: 4.0 * MICROCARDS}}, "b")])
def test_the_queue_that_had_less_lately_comes_first(
    recent: dict[QueueName, dict[str, float]], first: str
) -> None:
    state = ClusterState({"h20": make.H20_MIB})
    state.put_node(make.node("n1", 1))
    for name in (A, B):
        state.put_queue(Queue(name, capability={H20: 8}, deserved={H20: 4}))
        gang = make.gang(f"ns/{name}", queue=name, created=1.0 if name == A else 2.0)
        state.put_gang(gang)
        for pod in make.pods(gang.key, 1, make.shape(make.H20_MIB, 100)):
            state.put_pod(pod)
    policy = replace(Policy(), recent=RecentUse(3600.0, 0.0, recent))
    plan = decide(state.snapshot(1), policy, 10.0)
    assert [admission.gang for admission in plan.admissions] == [f"ns/{first}"]
