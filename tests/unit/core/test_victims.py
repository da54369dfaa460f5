"""Which members of a gang may go without it."""

from dataclasses import replace

import pytest
from unit.core import make
from vc_egpu.core.cluster import PodUid, ShareClass
from vc_egpu.core.decide import decide
from vc_egpu.core.policy import Policy


@pytest.mark.timeout(60)
def test_members_that_a_task_cannot_spare_are_not_tried_in_all_combinations() -> None:
    """A hundred workers that all have to stay and a few more that need not: any of these few will do."""
    workers, extra = 100, 5
    nodes = [make.node(f"n{number:02}", 8) for number in range(13)] + [make.node("n99", 1)]
    cards = [card.uuid for node in nodes for card in node.cards]
    assert len(cards) == workers + extra
    half = make.shape(make.H20_MIB * 2 // 3, cpu_milli=10)
    low = make.gang("ns/low", share_class=ShareClass.LOW, least=workers, min_task_member={"worker": workers})
    waiting = [*make.pods("ns/low", workers, half, "worker"), *make.pods("ns/low", extra, half, "x")]
    # Those that have to stay are the younger ones.
    running = [make.placed(pod, card) for pod, card in zip(waiting, cards, strict=True)]
    running = [replace(pod, started=9.0) if pod.task == "worker" else pod for pod in running]
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    snapshot = make.snapshot(nodes, [low, high], [*running, *make.pods("ns/high", 1, half)])
    (eviction,) = decide(snapshot, Policy(), 10.0).admissions[0].evictions
    assert eviction.pods <= {PodUid(f"ns/low-x-{number}") for number in range(extra)}
    assert len(eviction.pods) == 1
    assert not eviction.whole


@pytest.mark.parametrize("reported", [True, False])
def test_who_could_not_come_back_to_its_card_is_not_suspended(reported: bool) -> None:
    """A card that its node does not report any more has no room to be counted, and none to come back to."""
    low = make.gang("ns/low", share_class=ShareClass.LOW)
    running = make.placed(
        make.pods("ns/low", 1, make.shape(1000))[0], "n1/1", suspendable=True, pause_wished=True
    )
    node = make.node("n1", 2 if reported else 1, host_memory_mib=1000)
    plan = decide(make.snapshot([node], [low], [running]), Policy(), 10.0)
    assert bool(plan.suspensions) is reported
