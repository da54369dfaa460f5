"""What is kept for replacements, and for how long: whatever the clocks of nodes and earlier leaders say."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.books.index import Index
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    Gang,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    ShareClass,
    Snapshot,
    SuspensionState,
)
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import CLOCK_SKEW_S, MAX_BACK_OFF_S, Policy
from vc_egpu.core.model.reasons import Reason

NOW = 100_000.0
WHOLE = make.shape(make.H20_MIB, cpu_milli=10)


def ask(snapshot: Snapshot) -> Plan:
    return decide(snapshot, Policy(), NOW)


def replica(number: int, card: str, **more: Any) -> Pod:
    """A pod that no Job named: its UID is its key in plans."""
    pod = replace(make.pods("ns/job", 1, WHOLE)[0], uid=PodUid(f"replica-{number}"), task="", index=-1)
    return make.placed(pod, card, **more)


def failed(number: int, card: str, finished: float) -> Pod:
    return replace(replica(number, card), phase=PodPhase.FAILED, finished=finished)


def newcomers(*members: Pod, cards: int) -> int:
    """How many of two newcomers find a card beside a running gang and what is kept for it."""
    running = make.gang("ns/job", single=True)
    others = [make.gang(f"ns/new{number}", created=float(number)) for number in range(2)]
    waiting = [pod for gang in others for pod in make.pods(gang.key, 1, WHOLE)]
    snapshot = make.snapshot([make.node("n1", cards)], [running, *others], [*members, *waiting])
    return len(ask(snapshot).admissions)


def test_cards_are_kept_until_the_replacement_is_there() -> None:
    runs, lost = replica(0, "n1/0"), failed(1, "n1/1", NOW - 5)
    assert newcomers(runs, lost, cards=2) == 0
    assert newcomers(runs, lost, replica(2, "n1/2", created=NOW - 4), cards=3) == 1, "it is there"
    assert newcomers(runs, lost, replica(2, "n1/2", created=NOW - 6), cards=3) == 0, "that was there before"


def test_each_replacement_is_one_members() -> None:
    runs, one, two = replica(0, "n1/0"), failed(1, "n1/1", NOW - 9), failed(2, "n1/2", NOW - 5)
    assert newcomers(runs, one, two, replica(3, "n1/3", created=NOW - 4), cards=4) == 1
    assert newcomers(runs, one, two, replica(3, "n1/3", created=NOW - 7), cards=4) == 1
    again = replica(4, "n1/4", created=NOW - 3)
    assert newcomers(runs, one, two, replica(3, "n1/3", created=NOW - 7), again, cards=5) == 2


@pytest.mark.parametrize("ahead_s", [3600.0, 10 * 86400.0])
def test_a_node_whose_clock_is_ahead_keeps_nothing_for_longer(ahead_s: float) -> None:
    runs = replica(0, "n1/0")
    assert newcomers(runs, failed(1, "n1/1", NOW + ahead_s), cards=2) == 1
    assert newcomers(runs, failed(1, "n1/1", NOW + 1), cards=2) == 0, "a second is nothing"


def waiting_gang(**more: Any) -> Snapshot:
    gang = make.gang("ns/g", **more)
    return make.snapshot([make.node("n1", 1)], [gang], make.pods("ns/g", 1, WHOLE))


def test_a_back_off_is_over_when_the_clock_was_set_back() -> None:
    most = MAX_BACK_OFF_S + CLOCK_SKEW_S
    (waits,) = ask(waiting_gang(not_before=NOW + most)).verdicts.values()
    assert waits.reason is Reason.WAITING_FOR_CARDS
    assert ask(waiting_gang(not_before=NOW + most + 1)).admissions, "no roll-back is followed by such a wait"


def planned(created: float) -> Plan:
    """A ready plan of one member of two, for whose pod there is no replacement."""
    gang = make.gang("ns/g", share_class=ShareClass.HIGH, least=1)
    plan = PlanInForce("1-1", {"w/1": MemberPlacement(NodeName("n1"))}, created=created)
    there = make.placed(make.pods("ns/g", 1, WHOLE)[0], "n1/0", plan_id="1-0")
    members: list[Gang] = [replace(gang, plan=plan)]
    return ask(make.snapshot([make.node("n1", 2)], members, [there]))


def test_a_plan_whose_members_are_gone_ends_though_its_leader_was_ahead_of_time() -> None:
    assert not planned(NOW - 5).withdrawals
    assert planned(NOW - 300).withdrawals
    assert not planned(NOW + 5).withdrawals
    assert planned(NOW + 3600).withdrawals


def made_from_template(born: float) -> Plan:
    """A ready plan that waited two minutes for its victims; its controller has made the first of two pods."""
    plan = PlanInForce(
        "1-1",
        {"w/0": MemberPlacement(NodeName("n1")), "w/1": MemberPlacement(NodeName("n1"))},
        created=NOW - 120,
    )
    gang = make.gang("ns/g", share_class=ShareClass.HIGH, least=2, plan=plan, template=(("w", 2, WHOLE),))
    first = replace(make.pods("ns/g", 2, WHOLE)[0], created=born)
    return ask(make.snapshot([make.node("n1", 2)], [gang], [first]))


def test_a_plan_waits_for_pods_that_are_just_being_made() -> None:
    assert not made_from_template(born=NOW - 1).withdrawals
    assert made_from_template(born=NOW - 100).withdrawals, "nobody makes the others"


@pytest.mark.parametrize(
    ("since", "kept"), [(NOW - 10, False), (NOW - 100, True), (NOW + 10, False), (NOW + 3600, True)]
)
def test_room_is_kept_for_who_was_suspended_whatever_its_leaders_clock_said(since: float, kept: bool) -> None:
    low = make.gang("ns/low", share_class=ShareClass.LOW)
    high, new = make.gang("ns/high", share_class=ShareClass.HIGH), make.gang("ns/new")
    most, half = make.shape(make.H20_MIB * 3 // 4), make.shape(make.H20_MIB // 2)
    asleep = make.placed(
        make.pods("ns/low", 1, most)[0],
        "n1/0",
        suspend_ordered=True,
        suspend_order=(1, 1),
        suspended_since=since,
        suspension=SuspensionState.SUSPENDED,
    )
    there = make.placed(make.pods("ns/high", 1, half)[0], "n1/0")
    waiting = make.pods("ns/new", 1, half)
    node = make.node("n1", 1, host_memory_mib=make.H20_MIB)
    plan = ask(make.snapshot([node], [low, high, new], [asleep, there, *waiting]))
    assert bool(plan.admissions) is not kept


def test_gangs_whose_members_failed_long_ago_cost_a_decision_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed pods of Jobs that ended stay for days, by the thousand."""
    keys = [f"ns/old{number}" for number in range(3)]
    old = [replace(failed(0, "n1/0", NOW - 3600), uid=PodUid(key), gang=key) for key in keys]
    lost = failed(9, "n1/1", NOW - 5)
    gangs = [*(make.gang(key) for key in keys), make.gang("ns/job", least=2), make.gang("ns/new")]
    pods = [*old, lost, replica(1, "n1/2"), *make.pods("ns/new", 1, WHOLE)]
    looked_at: list[str] = []
    view = Index.view

    def noting(index: Index, key: str) -> GangView:
        looked_at.append(key)
        return view(index, key)

    monkeypatch.setattr(Index, "view", noting)
    plan = decide(make.snapshot([make.node("n1", 4)], gangs, pods), Policy(), NOW, only={"ns/new"})
    assert plan.admissions[0].members["w/0"].shares[0][1].card != "n1/1", "that is kept"
    assert not set(looked_at) & set(keys)


def test_what_is_kept_for_a_gang_is_not_in_its_own_way_when_room_is_made_for_it() -> None:
    """Of its two cards one is ill; another has to be freed beside the one that is kept for it. Somebody else,
    for whom nobody can go, was tried before it in the same decision."""
    pair = make.shape(make.H20_MIB, cards=2, cpu_milli=10)
    first, second = make.pods("ns/g", 2, pair)
    lost = make.placed(first, "n1/0", "n1/1", phase=PodPhase.FAILED, finished=NOW - 5)
    node = make.node("n1", 5)
    cards = tuple(replace(card, usable=card.index != 1) for card in node.cards)
    vain = make.pods("ns/vain", 2, make.shape(make.H20_MIB, cards=5))
    members = [
        make.placed(second, "n1/3", "n1/4"),
        replace(lost, uid=PodUid("lost")),
        first,
        make.placed(make.pods("ns/low", 1, WHOLE)[0], "n1/2"),
        make.placed(vain[0], "n2/0", "n2/1", "n2/2", "n2/3", "n2/4"),
        vain[1],
    ]
    gangs = [
        make.gang("ns/vain", share_class=ShareClass.HIGH, least=2),
        make.gang("ns/g", share_class=ShareClass.HIGH, least=2, created=1.0),
        make.gang("ns/low", share_class=ShareClass.LOW),
    ]
    plan = ask(make.snapshot([replace(node, cards=cards), make.node("n2", 5)], gangs, members))
    (admission,) = plan.admissions
    assert admission.gang == "ns/g"
    assert [entry.gang for entry in admission.evictions] == ["ns/low"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("back", [0, 1])
def test_of_two_that_failed_the_other_one_finds_its_card_whichever_is_replaced_first(
    back: int, *, named: bool
) -> None:
    """The first one goes where there is room, not where it was; a newcomer waits for the card left over."""
    pods = make.pods("ns/job", 3, WHOLE)
    if not named:
        pods = [replace(pod, task="", index=-1) for pod in pods]
    stays = make.placed(pods[2], "n1/2")
    lost = [
        make.placed(pod, f"n1/{at}", uid=PodUid(f"lost-{at}"), phase=PodPhase.FAILED, finished=NOW - 9 + at)
        for at, pod in enumerate(pods[:2])
    ]
    gangs = [make.gang("ns/job", share_class=ShareClass.HIGH, single=not named), make.gang("ns/new")]
    again = replace(pods[back], created=NOW - 2)
    there: list[Pod] = [stays, *lost, *make.pods("ns/new", 1, WHOLE)]
    first = ask(make.snapshot([make.node("n1", 3)], gangs, [*there, again]))
    (admission,) = first.admissions
    assert admission.gang == "ns/job", "the other card is kept"
    ((_, share),) = next(iter(admission.members.values())).shares
    carried = make.placed(again, share.card, created=NOW - 2)
    assert not ask(make.snapshot([make.node("n1", 3)], gangs, [*there, carried])).admissions, "still is"
    last = replace(pods[1 - back], created=NOW - 1)
    (admission,) = ask(make.snapshot([make.node("n1", 3)], gangs, [*there, carried, last])).admissions
    assert admission.gang == "ns/job"


@pytest.mark.parametrize("first", ["ns/a", "ns/z"])
def test_what_is_kept_for_a_gang_is_room_for_it_whoever_asked_before(first: str) -> None:
    """Both lack members, and room is to be made for both; for one of them there is none, whoever goes."""
    high: dict[str, Any] = {"share_class": ShareClass.HIGH}
    job, low = make.gang("ns/job", least=3, **high), make.gang("ns/low", share_class=ShareClass.LOW)
    members = make.pods("ns/job", 3, WHOLE)
    nowhere = make.shape(make.H20_MIB, cards=3, cpu_milli=10)
    other = make.gang(first, least=2, created=-1.0 if first == "ns/a" else 1.0, **high)
    its = make.pods(first, 2, nowhere)
    lost = replace(
        make.placed(members[1], "n1/0"), uid=PodUid("lost"), phase=PodPhase.FAILED, finished=NOW - 5
    )
    pods = [
        make.placed(members[0], "n2/0"), lost, *members[1:],
        make.placed(make.pods("ns/low", 1, WHOLE)[0], "n1/1"),
        make.placed(replace(its[0], shape=WHOLE), "n2/1"), its[1],
    ]  # fmt: skip
    plan = ask(make.snapshot([make.node("n1", 2), make.node("n2", 2)], [job, low, other], pods))
    assert [entry.gang for entry in plan.admissions] == ["ns/job"]
    assert [entry.gang for entry in plan.admissions[0].evictions] == ["ns/low"]
