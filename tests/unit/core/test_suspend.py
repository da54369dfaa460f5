"""Who is told to leave its cards by a user's wish, who comes back to them, and for whom room is kept."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodUid,
    SuspensionState,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason

WHOLE = make.shape(make.H20_MIB, 50)
QUARTER = make.H20_MIB // 4
WISHED: dict[str, Any] = {"suspendable": True, "pause_wished": True}


def runs(key: str, *cards: str, what: Any = WHOLE, **more: Any) -> list[Pod]:
    """A member on each of these cards."""
    pods = make.pods(key, len(cards), what)
    return [make.placed(pod, card, **more) for pod, card in zip(pods, cards, strict=True)]


def asleep(key: str, order: int, *cards: str, what: Any = WHOLE, **more: Any) -> list[Pod]:
    """The same, suspended; the lower the order, the earlier."""
    state = {"suspend_order": (1, order), "suspended_since": 90.0, "suspension": SuspensionState.SUSPENDED}
    return runs(key, *cards, what=what, **{"suspend_ordered": True, **state, **more})


def decided(
    *pods: Pod,
    host: int = 9,
    cards: int = 4,
    high: Gang | None = None,
    least: int = 1,
    nodes: tuple[str, ...] = ("n1", "n2"),
) -> Plan:
    """Gangs of low priority, as their pods say; the node's host takes so many whole cards' memory."""
    keys = dict.fromkeys(str(pod.gang) for pod in pods if high is None or pod.gang != high.key)
    gangs = [make.gang(key, share_class=LOW, least=least, created=float(at)) for at, key in enumerate(keys)]
    gangs += [high] if high is not None else []
    there = [make.node(name, cards, host_memory_mib=host * make.H20_MIB) for name in nodes]
    return ask(make.snapshot(there, gangs, pods))


# --- wishes ------------------------------------------------------------------------------------------


def told(plan: Plan) -> set[str]:
    return {uid for one in plan.suspensions for uid in one.pods}


def test_a_wish_is_an_order_to_those_that_are_on_cards_and_have_none_yet() -> None:
    (awake,) = runs("g", "n1/0", **WISHED)
    there = replace(asleep("g", 1, "n1/0", "n1/1", **WISHED)[1])
    plain = make.pods("g", 3, make.shape())[2]
    beside = replace(
        make.placed(awake, "n1/2"), uid=plain.uid, name=plain.name, index=2, shares=(), shape=plain.shape
    )
    assert told(decided(awake, there, beside)) == {"g-w-0"}


def test_a_gang_one_of_which_cannot_be_suspended_runs_on() -> None:
    able, other = runs("g", "n1/0", "n1/1", **WISHED)
    assert told(decided(able, other)) == {"g-w-0", "g-w-1"}
    assert not told(decided(able, replace(other, suspendable=False)))


def test_a_gang_one_of_which_had_its_cards_as_high_runs_on() -> None:
    low, high = runs("g", "n1/0", "n1/1", **WISHED)
    assert not told(decided(low, replace(high, runs_as=HIGH)))
    assert told(decided(low, replace(high, runs_as=LOW))) == {"g-w-0", "g-w-1"}


@pytest.mark.parametrize(("host", "leave"), [(0, set()), (1, {"a-w-0"}), (2, {"a-w-0", "b-w-0"})])
def test_no_more_leave_than_the_host_takes(host: int, leave: set[str]) -> None:
    pods = [*runs("a", "n1/0", **WISHED), *runs("b", "n1/1", **WISHED)]
    assert told(decided(*pods, host=host)) == leave


def test_a_gang_for_which_one_of_its_hosts_has_no_room_runs_on() -> None:
    pods = [*runs("g", "n1/0", "n2/0", **WISHED), *asleep("full", 1, "n2/1", **WISHED)]
    assert told(decided(*pods, host=2)) == {"g-w-0", "g-w-1"}
    assert not told(decided(*pods, host=1))


def for_whom(*victims: Pod, suspends: bool) -> tuple[Gang, Pod]:
    """A gang whose plan for its only card waits until these are gone, or suspended."""
    (pod,) = make.pods("high", 1, replace(make.shape(HALF, 20), use_cards=frozenset({CardId("n1/0")})))
    uids = frozenset(victim.uid for victim in victims)
    places = {"w/0": MemberPlacement(NodeName("n1"), make.placed(pod, "n1/0").shares)}
    plan = PlanInForce("1-1", places, uids, 90.0, suspends=uids if suspends else frozenset())
    return make.gang("high", share_class=HIGH, plan=plan), pod


@pytest.mark.parametrize("suspends", [False, True])
def test_who_is_to_leave_for_another_gang_is_not_told_once_more(suspends: bool) -> None:
    first, second = runs("g", "n1/0", "n1/1", **WISHED)
    high, pod = for_whom(first, suspends=suspends)
    plan = decided(first, second, pod, high=high)
    assert plan.verdicts["high"].reason is Reason.WAITING_FOR_EVICTION
    assert told(plan) == (set() if suspends else {"g-w-1"})


# --- the way back ------------------------------------------------------------------------------------


def back(plan: Plan) -> list[str]:
    return [one.gang for one in plan.resumes]


def test_who_was_suspended_first_comes_back_first() -> None:
    """Whatever its name; of a gang the first of its members counts."""
    assert back(decided(*asleep("a", 2, "n1/0"), *asleep("b", 1, "n1/0"))) == ["b"]
    older = [asleep("b", 1, "n1/0")[0], asleep("b", 9, "n1/0", "n1/1")[1]]
    assert back(decided(*asleep("a", 2, "n1/0"), *older, least=2)) == ["b"]


def test_replicas_that_left_at_once_come_back_each_by_itself() -> None:
    """The card of one of them is taken; nobody decides between equals by anything but their place."""
    service = make.gang("g", share_class=LOW, single=True)
    first, second, third = asleep("g", 1, "n1/0", "n1/1", "n1/2")
    plan = decided(first, second, third, *runs("there", "n1/1"), high=service)
    assert [sorted(one.pods) for one in plan.resumes] == [["g-w-0"], ["g-w-2"]]


def test_of_a_job_all_that_left_come_back_together() -> None:
    """Also of those above its minimum; of others' gangs each for itself, once what they need runs."""
    there = runs("there", "n1/1", "n1/3")
    away = [*runs("g", "n1/0"), *asleep("g", 1, "n1/0", "n1/1", "n1/2")[1:]]
    assert back(decided(*away, *there)) == []
    assert back(decided(*away, *there, high=make.gang("g", share_class=LOW, single=True, least=2))) == []
    away.append(replace(away[0], uid=PodUid("g-w-3"), index=3, shares=runs("g", "n2/0")[0].shares))
    away[-1] = replace(away[-1], node=NodeName("n2"))
    assert back(decided(*away, *there, high=make.gang("g", share_class=LOW, single=True, least=2))) == ["g"]


def test_to_a_card_that_its_node_does_not_report_nobody_comes_back() -> None:
    away = asleep("g", 1, "n1/2", "n1/3")
    assert back(decided(*away, least=2)) == ["g"]
    assert back(decided(*away, least=2, cards=3)) == []


def test_who_waits_longer_is_not_overtaken_on_its_own_cards() -> None:
    """One of its two is taken; on the other one nobody runs meanwhile. What others have is theirs."""
    in_the_way = runs("there", "n1/0")
    old, young = asleep("old", 1, "n1/0", "n1/1"), asleep("young", 2, "n1/1")
    plan = decided(*in_the_way, *old, *young, *asleep("other", 3, "n1/2"), least=2)
    assert back(plan) == ["other"]


@pytest.mark.parametrize("suspends", [False, True])
def test_who_waits_longer_is_not_overtaken_while_another_of_it_is_to_leave(suspends: bool) -> None:
    """It comes back later; who left after it comes back to other cards only."""
    (old,) = asleep("old", 1, "n1/1", suspendable=True)
    victim = runs("old", "n1/1", "n1/0", suspendable=True)[1]
    high, pod = for_whom(victim, suspends=suspends)
    young, other = asleep("young", 2, "n1/1"), asleep("other", 3, "n1/2")
    assert back(decided(old, victim, pod, *young, *other, high=high)) == ["other"]


def test_a_gang_stays_away_as_long_as_the_user_of_one_of_it_wishes() -> None:
    first, second = asleep("g", 1, "n1/0", "n1/1")
    assert back(decided(first, second, least=2)) == ["g"]
    assert back(decided(first, replace(second, pause_wished=True, suspendable=True), least=2)) == []


@pytest.mark.parametrize("suspends", [False, True])
def test_who_is_to_leave_for_another_gang_does_not_come_back(suspends: bool) -> None:
    """There would be room for it; but one of it goes, or is on its way to where the other is."""
    small = make.shape(QUARTER, 20)
    away, victim = asleep("g", 1, "n1/1", "n1/0", what=small)
    if suspends:
        victim = runs("g", "n1/1", "n1/0", what=make.shape(make.H20_MIB, 20), suspendable=True)[1]
    high, pod = for_whom(victim, suspends=suspends)
    plan = decided(away, victim, pod, high=high, least=2)
    assert plan.verdicts["high"].reason is Reason.WAITING_FOR_EVICTION
    assert back(plan) == []


def for_high(plan: Plan) -> tuple[set[str], set[str]]:
    """Who is suspended and who is evicted for the gang that asks."""
    (admission,) = plan.admissions
    suspended: set[str] = {uid for one in admission.suspensions for uid in one.pods}
    return suspended, {uid for one in admission.evictions for uid in one.pods}


@pytest.mark.parametrize(("host", "goes"), [(2, ({"low-w-0"}, set())), (1, (set(), {"low-w-0"}))])
def test_who_is_suspended_already_has_its_memory_on_the_host(
    host: int, goes: tuple[set[str], set[str]]
) -> None:
    pods = [*asleep("away", 1, "n1/0"), *runs("low", "n1/0", suspendable=True), *make.pods("high", 1, WHOLE)]
    high = make.gang("high", share_class=HIGH)
    assert for_high(decided(*pods, host=host, cards=1, nodes=("n1",), high=high)) == goes


def test_who_may_only_be_suspended_is_suspended_beside_those_that_are_evicted() -> None:
    """A bare pod, which nobody would make anew, and one that cannot be suspended."""
    bare, other = runs("bare", "n1/0", suspendable=True, bare=True), runs("other", "n1/1")
    high = make.gang("high", share_class=HIGH)
    asking = make.pods("high", 1, make.shape(make.H20_MIB, 50, cards=2))
    plan = decided(*bare, *other, *asking, cards=2, nodes=("n1",), high=high)
    assert for_high(plan) == ({"bare-w-0"}, {"other-w-0"})


def test_members_without_cards_are_not_told_to_leave_any() -> None:
    """A launcher waits beside its workers."""
    worker, launcher = runs("low", "n1/0", "n1/0", suspendable=True)
    launcher = replace(launcher, shares=(), shape=make.shape())
    high = make.gang("high", share_class=HIGH)
    plan = decided(worker, launcher, *make.pods("high", 1, WHOLE), cards=1, nodes=("n1",), high=high, least=2)
    assert for_high(plan) == ({"low-w-0"}, set())


def test_members_without_cards_need_no_room_on_their_hosts() -> None:
    """One waits on a node whose budget was lowered below what is suspended there already."""
    worker, launcher = runs("low", "n1/0", "n2/0", suspendable=True)
    launcher = replace(launcher, shares=(), shape=make.shape())
    full = asleep("full", 1, "n2/0", "n2/0", pause_wished=True)
    wished = [replace(pod, pause_wished=True) for pod in (worker, launcher)]
    assert told(decided(*wished, *full, host=1, cards=1, least=2)) == {"low-w-0"}
    high = make.gang("high", share_class=HIGH)
    asking = make.pods("high", 1, replace(WHOLE, use_cards=frozenset({CardId("n1/0")})))
    plan = decided(worker, launcher, *full, *asking, host=1, cards=1, high=high, least=2)
    assert for_high(plan) == ({"low-w-0"}, set())


# --- who cannot come back ----------------------------------------------------------------------------


LOST: dict[str, Any] = {"suspension": SuspensionState.FAILED}


def test_cards_of_a_gang_that_is_lost_are_waited_for() -> None:
    """All of it goes in any case, so that nobody else has to."""
    asleep_one, awake = asleep("lost", 1, "n1/0", "n1/1", **LOST)
    awake = replace(awake, suspend_ordered=False, suspension=SuspensionState.RUNNING)
    other = runs("other", "n1/2", "n1/3")
    asking = make.pods("high", 1, make.shape(make.H20_MIB, 60, cards=2))
    high = make.gang("high", share_class=HIGH)
    plan = decided(asleep_one, awake, *other, *asking, nodes=("n1",), high=high, least=2)
    assert [(one.gang, one.whole) for one in plan.evictions] == [("lost", True)]
    assert plan.evictions[0].cause is Cause.ROLLBACK
    assert not plan.admissions
    assert "once 2 pods already leaving are gone" in plan.verdicts["high"].message


def test_a_lost_pod_that_nobody_would_make_anew_keeps_no_other_from_going() -> None:
    bare = asleep("a", 1, "n1/0", bare=True, **LOST)
    plan = decided(*bare, *asleep("b", 2, "n1/1", **LOST))
    assert [one.gang for one in plan.evictions] == ["b"]


def test_a_lost_pod_that_leaves_for_another_gang_is_not_evicted_once_more() -> None:
    (lost,) = asleep("lost", 1, "n1/0", **LOST)
    high, pod = for_whom(lost, suspends=False)
    assert decided(lost, pod, high=high).evictions == ()


# --- room that is kept -------------------------------------------------------------------------------


def kept(*pods: Pod, cards: int = 1, high: Gang | None = None) -> tuple[int | str | None, ...]:
    """Memory, cores and cards that are kept, and for whom, as a newcomer is told that would fit without."""
    asking = make.pods("new", 1, make.shape(100))
    plan = decided(*pods, *asking, cards=cards, nodes=("n1",), high=high)
    numbers = plan.verdicts["new"].numbers
    return tuple(numbers.get(f"kept_{what}") for what in ("mib", "cores", "cards", "for"))


def test_room_is_kept_on_a_card_for_who_has_waited_there_longest() -> None:
    """As much as it lacks there beside what those of high priority give back; not for who left lately."""
    high = runs("high", "n1/0", what=make.shape(QUARTER + 1000, 10), runs_as=HIGH)
    in_the_way = runs("there", "n1/0", what=make.shape(2 * QUARTER + 1, 10))
    old = asleep("old", 2, "n1/0", "n1/0", what=make.shape(QUARTER, 20))
    old = [replace(old[0], suspended_since=0.0), old[1]]
    young = asleep("young", 3, "n1/0", what=make.shape(QUARTER, 90), suspended_since=1.0)
    late = asleep("late", 1, "n1/0", what=make.shape(QUARTER, 90), suspended_since=95.0)
    assert kept(*high, *in_the_way, *old, *young, *late) == (QUARTER - 1000, 40, 1, "old")


@pytest.mark.parametrize(("since", "for_whom"), [(40.0, "old"), (40.5, None), (160.0, None), (160.5, "old")])
def test_a_minute_after_it_was_suspended_and_not_before(since: float, for_whom: str | None) -> None:
    """Or at once where that is told to be in the future, by a clock that was wrong."""
    in_the_way = runs("there", "n1/0", what=make.shape(3 * QUARTER, 10))
    old = asleep("old", 1, "n1/0", what=make.shape(QUARTER + 1, 20), suspended_since=since)
    assert kept(*in_the_way, *old)[3] == for_whom


def test_room_is_kept_while_another_of_the_gang_is_told_to_leave() -> None:
    """For a gang that gets its plan in the same decision: the one that sleeps has waited no less for it."""
    (away,) = asleep("g", 1, "n1/0", suspended_since=0.0, suspendable=True)
    victim = runs("g", "n1/0", "n1/1", suspendable=True)[1]
    asking = make.pods("high", 1, replace(make.shape(HALF, 60), use_cards=frozenset({CardId("n1/1")})))
    pods, high = (away, victim, *asking), make.gang("high", share_class=HIGH)
    plan = decided(*pods, cards=2, nodes=("n1",), high=high)
    assert for_high(plan) == ({"g-w-1"}, set())
    assert kept(*pods, cards=2, high=high) == (make.H20_MIB, 50, 1, "g")


@pytest.mark.parametrize("suspends", [False, True])
def test_room_is_kept_while_a_plan_waits_for_another_of_the_gang(suspends: bool) -> None:
    (away,) = asleep("g", 1, "n1/1", suspended_since=0.0, suspendable=True)
    victim = runs("g", "n1/1", "n1/0", suspendable=True)[1]
    high, pod = for_whom(victim, suspends=suspends)
    assert kept(away, victim, pod, cards=2, high=high) == (make.H20_MIB, 50, 1, "g")


def test_room_is_kept_on_cards_that_a_plan_takes_less_what_is_planned() -> None:
    """Its other victim takes long to leave. What the plan takes comes from the high: it counts once."""
    away = asleep("old", 1, "n1/0", what=make.shape(3 * QUARTER, 20), suspended_since=0.0, suspendable=True)
    in_the_way, victim = runs("there", "n1/0", what=make.shape(QUARTER, 10)), runs("slow", "n1/1")
    high, pod = for_whom(*away, suspends=True)
    assert high.plan is not None
    both = frozenset(entry.uid for entry in (*away, *victim))
    high = replace(high, plan=replace(high.plan, victims=both))
    assert kept(*away, *in_the_way, *victim, pod, cards=2, high=high) == (QUARTER, 20, 1, "old")


def test_no_room_is_kept_for_those_that_are_evicted() -> None:
    """Others of their gang, which stay, keep theirs."""
    stays, goes = asleep("g", 1, "n1/1", "n1/0", what=make.shape(HALF, 20), suspended_since=0.0)
    high, pod = for_whom(goes, suspends=False)
    in_the_way = runs("there", "n1/0", "n1/1", what=make.shape(HALF, 10))
    assert kept(stays, goes, *in_the_way, pod, cards=2, high=high) == (HALF, 20, 1, "g")
    assert kept(goes, *in_the_way, pod, cards=2, high=high) == (None, None, None, None)
