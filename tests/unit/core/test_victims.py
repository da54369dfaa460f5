"""Which members of a gang may go without it."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    CardId,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodUid,
    Share,
    ShareClass,
    SuspensionState,
)
from vc_egpu.core.model.policy import Policy


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


@pytest.mark.parametrize("why", ["protected", "bare"])
@pytest.mark.parametrize("suspendable", [True, False])
def test_one_member_that_must_not_go_keeps_its_whole_gang(why: str, suspendable: bool) -> None:
    """Whoever evicts the others evicts the gang: a budget would be broken, or a pod lost for good."""
    low = make.gang("ns/low", share_class=ShareClass.LOW, least=2)
    members = make.pods("ns/low", 2, make.shape(60000))
    running = [
        make.placed(pod, f"n1/{number}", suspendable=suspendable) for number, pod in enumerate(members)
    ]
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    asking = make.pods("ns/high", 1, make.shape(60000))

    def room(*there: Pod, host_memory_mib: int = 2 * make.H20_MIB) -> tuple[bool, bool]:
        """(somebody is evicted, somebody is suspended) for the gang that asks."""
        nodes = [make.node("n1", 2, host_memory_mib=host_memory_mib)]
        admissions = decide(make.snapshot(nodes, [low, high], [*there, *asking]), Policy(), 10.0).admissions
        return any(one.evictions for one in admissions), any(one.suspensions for one in admissions)

    assert room(*running) == (not suspendable, suspendable)
    must_stay: dict[str, Any] = {why: True}
    # A bare pod may be suspended, which loses nothing.
    still = (False, suspendable and why == "bare")
    assert room(replace(running[0], **must_stay), running[1]) == still
    assert room(running[0], replace(running[1], **must_stay)) == still
    assert room(*running, host_memory_mib=0) == (True, False)
    assert room(replace(running[0], **must_stay), running[1], host_memory_mib=0) == (False, False)


@pytest.mark.parametrize("youngest", [0, 1, 2])
def test_of_members_above_the_minimum_the_youngest_goes(youngest: int) -> None:
    low = make.gang("ns/low", share_class=ShareClass.LOW, least=2)
    running = [
        make.placed(pod, f"n1/{number}", started=9.0 if number == youngest else float(number))
        for number, pod in enumerate(make.pods("ns/low", 3, make.shape(60000)))
    ]
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    asking = make.pods("ns/high", 1, make.shape(60000))
    snapshot = make.snapshot([make.node("n1", 3)], [low, high], [*running, *asking])
    (eviction,) = decide(snapshot, Policy(), 10.0).admissions[0].evictions
    assert eviction.pods == {running[youngest].uid}


@pytest.mark.parametrize("gangs", [1, 9])
def test_of_members_above_the_minimum_one_goes_whose_going_helps(gangs: int) -> None:
    """The youngest are where the gang that asks does not go. Of nine not all choices are tried."""
    low = [make.gang(f"ns/{number}", share_class=ShareClass.LOW) for number in range(gangs)]
    running = [
        make.placed(pod, f"n{pod.index}/{number}", started=pod.index + number / 10)
        for number, gang in enumerate(low)
        for pod in make.pods(gang.key, 2, make.shape(60000))
    ]
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    asking = make.pods("ns/high", 1, make.shape(60000, node_selector=(("zone", "a"),)))
    nodes = [make.node("n0", gangs, labels={"zone": "a"}), make.node("n1", gangs)]
    plan = decide(make.snapshot(nodes, [*low, high], [*running, *asking]), Policy(), 10.0)
    (eviction,) = plan.admissions[0].evictions
    assert eviction.pods == {PodUid(f"ns/{gangs - 1}-w-0")}, "the youngest"
    assert not eviction.whole


@pytest.mark.parametrize(("guaranteed", "go"), [(0, 2), (1, 0)])
def test_who_may_go_alone_may_not_go_together(guaranteed: int, go: int) -> None:
    """Each leaves its queue what that is guaranteed; both are needed."""
    low = [make.gang(f"ns/{name}", share_class=ShareClass.LOW) for name in "ab"]
    running = [
        make.placed(make.pods(gang.key, 1, make.shape(60000))[0], f"n1/{number}")
        for number, gang in enumerate(low)
    ]
    high = make.gang("ns/high", share_class=ShareClass.HIGH, queue="other")
    asking = make.pods("ns/high", 1, make.shape(60000, cards=2))
    queues = [make.queue(guarantee={"volcano.sh/vgpu-h20": guaranteed}), make.queue("other")]
    plan = decide(make.snapshot([make.node()], [*low, high], [*running, *asking], queues), Policy(), 10.0)
    assert sum(len(one.evictions) for one in plan.admissions) == go


def test_a_gang_that_lacks_members_goes_whole() -> None:
    """Two of three run: no one of them is more than it needs."""
    low = make.gang("ns/low", share_class=ShareClass.LOW, least=3)
    first, second, third = make.pods("ns/low", 3, make.shape(60000))
    running = [make.placed(first, "n1/0"), make.placed(second, "n1/1")]
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    asking = make.pods("ns/high", 1, make.shape(60000))
    snapshot = make.snapshot([make.node("n1", 2)], [low, high], [*running, third, *asking])
    (eviction,) = decide(snapshot, Policy(), 10.0).admissions[0].evictions
    assert (len(eviction.pods), eviction.whole) == (2, True)


def test_of_more_candidates_than_are_looked_at_the_cheapest_are_first() -> None:
    gangs = [
        make.gang("ns/a", share_class=ShareClass.LOW, least=2),
        make.gang("ns/b", share_class=ShareClass.LOW),
    ]
    running = [
        *(make.placed(pod, f"n1/{pod.index}") for pod in make.pods("ns/a", 2, make.shape(60000))),
        *(make.placed(pod, "n1/2") for pod in make.pods("ns/b", 1, make.shape(60000))),
    ]
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    snapshot = make.snapshot(
        [make.node("n1", 3)], [*gangs, high], [*running, *make.pods("ns/high", 1, make.shape(60000))]
    )
    plan = decide(snapshot, Policy(max_victim_candidates=1), 10.0)
    assert [entry.gang for entry in plan.admissions[0].evictions] == ["ns/b"]


def test_a_gang_is_nobodys_victim_while_its_plan_is_carried_out() -> None:
    """Its gates fall one after the other: who evicted those that fell would have the others follow them."""
    first, second = make.pods("ns/low", 2, make.shape(60000))
    plan = PlanInForce(
        "1-1",
        {
            f"w/{number}": MemberPlacement(
                NodeName("n1"), (("main", Share(CardId(f"n1/{number}"), 60000, 0)),)
            )
            for number in range(2)
        },
    )
    low = make.gang("ns/low", share_class=ShareClass.LOW, least=2, plan=plan)
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    asking = make.pods("ns/high", 1, make.shape(60000))

    def evicted(*there: Pod) -> bool:
        snapshot = make.snapshot([make.node("n1", 2)], [low, high], [*there, *asking])
        return any(one.evictions for one in decide(snapshot, Policy(), 10.0).admissions)

    fell = make.placed(first, "n1/0", plan_id="1-1")
    assert not evicted(fell, second)
    assert evicted(fell, make.placed(second, "n1/1", plan_id="1-1"))


def test_nobody_has_to_go_where_somebody_is_about_to_leave_its_cards_anyway() -> None:
    """It was told to as its user wished; until its node says that it has, others are not told as well."""
    gangs = [make.gang(f"ns/{name}", share_class=ShareClass.LOW) for name in "ab"]
    wished, other = (
        make.placed(make.pods(gang.key, 1, make.shape(60000))[0], card, suspendable=True)
        for gang, card in zip(gangs, ("n1/0", "n1/1"), strict=True)
    )
    high = make.gang("ns/high", share_class=ShareClass.HIGH)
    asking = make.pods("ns/high", 1, make.shape(60000))
    node = make.node("n1", 2, host_memory_mib=2 * make.H20_MIB)

    def asked(**told: Any) -> tuple[bool, bool]:
        """(it is admitted, somebody is told to leave for it)."""
        pods = [replace(wished, pause_wished=bool(told), **told), other, *asking]
        plan = decide(make.snapshot([node], [*gangs, high], pods), Policy(), 10.0, only=["ns/high"])
        entries = plan.admissions
        return bool(entries), any(one.evictions or one.suspensions for one in entries)

    assert asked() == (True, True)
    assert asked(suspend_ordered=True) == (False, False)
    assert asked(suspend_ordered=True, suspension=SuspensionState.SUSPENDING) == (False, False)
    assert asked(suspend_ordered=True, suspension=SuspensionState.SUSPENDED) == (True, False)


@pytest.mark.parametrize(("guaranteed", "goes"), [(1, True), (2, False)])
def test_who_is_suspended_is_not_counted_twice_against_a_guarantee(guaranteed: int, goes: bool) -> None:
    """One share of the queue is in use. The suspended one, whose cpu is wanted, takes no more with it."""
    what = make.shape(1000, cpu_milli=4000)
    gangs = [make.gang(key, share_class=ShareClass.LOW) for key in ("ns/runs", "ns/sleeps")]
    gangs.append(make.gang("ns/high", share_class=ShareClass.HIGH, queue="other"))
    away: dict[str, Any] = {
        "suspend_ordered": True,
        "suspended_since": 1.0,
        "suspension": SuspensionState.SUSPENDED,
    }
    zone = (("zone", "a"),)
    pods = [
        make.placed(make.pods("ns/runs", 1, what)[0], "n2/0"),
        make.placed(make.pods("ns/sleeps", 1, what)[0], "n1/0", **away),
        *make.pods("ns/high", 1, make.shape(1000, cpu_milli=4000, node_selector=zone)),
    ]
    nodes = [
        make.node("n1", 1, cpu_milli=4000, host_memory_mib=9000, labels=dict(zone)),
        make.node("n2", 1),
    ]
    queues = [make.queue(guarantee={"volcano.sh/vgpu-h20": guaranteed}), make.queue("other")]
    plan = decide(make.snapshot(nodes, gangs, pods, queues), Policy(), 10.0)
    evicted = [entry.gang for admission in plan.admissions for entry in admission.evictions]
    assert evicted == (["ns/sleeps"] if goes else [])
