"""Each invariant is broken on purpose, and said to be."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.check.invariants import Rule, check
from vc_egpu.core.model.cluster import (
    CardId,
    MemberPlacement,
    Mode,
    NodeName,
    PlanInForce,
    PodPhase,
    PodUid,
    Share,
    ShareClass,
    Snapshot,
    SuspensionState,
)

M = make.H20_MIB


def running(*members: tuple[ShareClass, int, int, str], **node: Any) -> Snapshot:
    """One gang of one pod for each (class, MiB, cores, card)."""
    gangs, pods = [], []
    for number, (share_class, memory, cores, card) in enumerate(members):
        key = f"g{number}"
        gangs.append(make.gang(key, share_class=share_class))
        pods.append(make.placed(make.pods(key, 1, make.shape(memory, cores))[0], card))
    return make.snapshot([make.node("n1", 2, **node)], gangs, pods)


def rules(snapshot: Snapshot, **more: Any) -> set[Rule]:
    return {violation.rule for violation in check(snapshot, **more)}


def but(snapshot: Snapshot, number: int, *, physical: int | None = None, **more: Any) -> Snapshot:
    """One pod of :func:`running` is otherwise; ``physical``: MiB of its share that lie on the card."""
    uid = PodUid(f"g{number}-w-0")
    pod = snapshot.pods[uid]
    if physical is not None:
        more["shares"] = tuple((name, replace(share, physical_mib=physical)) for name, share in pod.shares)
    return replace(snapshot, pods={**snapshot.pods, uid: replace(pod, **more)})


ORDERED: dict[str, Any] = {"suspend_ordered": True}
ASLEEP: dict[str, Any] = {"suspend_ordered": True, "suspension": SuspensionState.SUSPENDED}


HIGH, UNSET, LOW = ShareClass.HIGH, ShareClass.UNSET, ShareClass.LOW


@pytest.mark.parametrize(
    ("snapshot", "fine"),
    [
        (running((LOW, M // 2, 100, "n1/0"), (HIGH, M // 2, 100, "n1/0")), True),
        (running((LOW, M // 2 + 1, 10, "n1/0"), (HIGH, M // 2, 10, "n1/0")), False),
        (running((LOW, 1, 60, "n1/0"), (LOW, 1, 50, "n1/0")), False),
        (running((UNSET, 1, 60, "n1/0"), (HIGH, 1, 50, "n1/0")), False),
        (running((UNSET, 1, 60, "n1/0"), (LOW, 1, 40, "n1/0"), (HIGH, 1, 40, "n1/0")), True),
        (running((LOW, 1, 1, "n1/0"), (LOW, 1, 1, "n1/0"), max_sharers=1), False),
        (running((LOW, 1, 1, "n1/0"), (LOW, 1, 1, "n1/0"), max_sharers=2), True),
        (running((UNSET, 1, 60, "n1/0"), (LOW, 1, 50, "n1/0")), False),
        (running((LOW, 1, 75, "n1/0"), (LOW, 1, 75, "n1/0"), core_ratio=1.5), True),
        (running((LOW, 1, 75, "n1/0"), (LOW, 1, 76, "n1/0"), core_ratio=1.5), False),
        (running((LOW, 1, 75, "n1/0"), (LOW, 1, 75, "n1/0"), core_ratio=1.5, ratio_class=LOW), True),
        (running((HIGH, 1, 75, "n1/0"), (HIGH, 1, 75, "n1/0"), core_ratio=1.5, ratio_class=LOW), False),
        (running((HIGH, 1, 100, "n1/0"), core_ratio=1.5, ratio_class=LOW), True),
        (running((LOW, 1, 1, "n1/0"), mode=Mode.NATIVE), False),
        (running((LOW, 1666, 0, "n1/0"), (LOW, 1, 0, "n1/0"), memory_ratio=1666.9 / M), False),
        (running((LOW, 1, 57, "n1/0"), (LOW, 1, 58, "n1/0"), core_ratio=1.15), True),
        (running((LOW, 1, 58, "n1/0"), (LOW, 1, 58, "n1/0"), core_ratio=1.1599), False),
    ],
    ids=[
        "overlap in time", "memory", "low cores", "unset and high cores", "all classes", "sharers",
        "as many sharers as may be", "unset and low cores", "more cores than there are", "too many even so",
        "more cores for low", "none for high", "but what there is", "a share of a native card",
        "a part of a MiB is none", "as many cores as are said", "a part of a percent is none",
    ],
)  # fmt: skip
def test_cards(snapshot: Snapshot, fine: bool) -> None:
    assert rules(snapshot) == (set() if fine else {Rule.CARD})


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (running(*[(LOW, 1, 1, "n1/0")] * 2, max_sharers=1), "2 sharers, 1 allowed: {}, {}"),
        (running(*[(LOW, 50000, 1, "n1/0")] * 2), f"100000 MiB of {M} MiB are taken by {{}}, {{}}"),
        (
            running(*[(LOW, 50000, 1, "n1/0")] * 2, memory_ratio=2.0),
            f"100000 MiB lie on the card, it has {M} MiB: {{}}, {{}}",
        ),
        (running(*[(HIGH, 1, 60, "n1/0")] * 2), "high and unset have 120 of 100 cores: {}, {}"),
        (running(*[(LOW, 1, 60, "n1/0")] * 2), "unset and low have 120 of 100 cores: {}, {}"),
        (running(*[(LOW, 1, 1, "n1/0")] * 2, mode=Mode.NATIVE), "offered as native, taken otherwise: {}, {}"),
    ],
)
def test_what_is_wrong_with_a_card_is_said_with_its_numbers(snapshot: Snapshot, message: str) -> None:
    found = [(violation.subject, violation.message) for violation in check(snapshot)]
    said = message.format("pod ns/g0-w-0", "pod ns/g1-w-0")
    assert ("card n1/0 of node n1", said) in found


def test_whole_cards() -> None:
    snapshot = running((LOW, 1, 0, "n1/0"), (HIGH, 1, 0, "n1/0"))
    uid, pod = next(iter(snapshot.pods.items()))
    whole = replace(pod, shares=(("main", replace(pod.shares[0][1], whole=True)),))
    found = check(replace(snapshot, pods={**snapshot.pods, uid: whole}))
    assert [violation.rule for violation in found] == [Rule.CARD]
    assert found[0].subject == "card n1/0 of node n1"
    assert found[0].message.startswith("pod ns/g0-w-0 has the whole card, yet it is shared: pod ")
    assert rules(replace(snapshot, pods={uid: whole})) == set()


def test_memory_beyond_the_card() -> None:
    full = running((LOW, M, 0, "n1/0"), (LOW, M, 0, "n1/0"), memory_ratio=2.0, host_memory_mib=9 * M)
    half = but(but(full, 0, physical=M // 2), 1, physical=M // 2)
    assert rules(half) == set()
    assert rules(but(full, 0, physical=M // 2)) == {Rule.CARD}, "half of it more lies on the card than it has"
    more = running((LOW, M, 0, "n1/0"), (LOW, M + 1, 0, "n1/0"), memory_ratio=2.0, host_memory_mib=9 * M)
    assert rules(but(but(more, 0, physical=1), 1, physical=1)) == {Rule.CARD}, "more than is promised"


def test_who_is_suspended_has_a_place_on_its_card_and_nothing_else() -> None:
    both = running((LOW, M, 100, "n1/0"), (LOW, M, 100, "n1/0"), host_memory_mib=M)
    assert rules(both) == {Rule.CARD}
    assert rules(but(both, 0, **ASLEEP)) == set()
    assert rules(but(both, 0, **ORDERED)) == {Rule.CARD}, "it is still there"
    assert rules(but(both, 0, suspension=SuspensionState.SUSPENDED)) == {Rule.CARD}, "it may come back now"
    alone = running((LOW, M, 100, "n1/0"), (LOW, M, 100, "n1/0"), host_memory_mib=M, max_sharers=1)
    assert rules(but(alone, 0, **ASLEEP)) == {Rule.CARD}


@pytest.mark.parametrize(
    ("pod", "taken"),
    [
        ({}, 0),
        ({"physical": M - 7}, 7),
        ({"physical": M - 1}, 1),
        (ORDERED, M),
        (ASLEEP, M),
        ({"suspension": SuspensionState.RESUMING}, M),
        ({"phase": PodPhase.TERMINATING, "physical": M - 7}, 7),
        ({"phase": PodPhase.FAILED, "physical": M - 7}, 0),
    ],
    ids=["on the card", "spilled", "hardly", "told to leave", "suspended", "coming back", "ending", "ended"],
)
def test_hosts(pod: dict[str, Any], taken: int) -> None:
    def host(memory_mib: int) -> Snapshot:
        return but(running((LOW, M, 0, "n1/0"), memory_ratio=2.0, host_memory_mib=memory_mib), 0, **pod)

    assert rules(host(taken)) == set()
    if taken:
        found = check(host(taken - 1))
        assert {violation.rule for violation in found} == {Rule.HOST}
        said = f"{taken} MiB of {taken - 1} MiB of host memory are promised"
        assert (found[0].subject, found[0].message) == ("node n1", said)
        assert rules(host(taken - 1), before=host(taken - 1)) == set(), "it did not get more"
        assert rules(host(taken - 1), before=but(host(taken - 1), 0, phase=PodPhase.GATED)) >= {Rule.HOST}


def test_hosts_once_a_plan_has_what_it_waits_for() -> None:
    def planned(memory_mib: int, *, suspends: bool = False, physical: int = M // 2) -> Snapshot:
        snapshot = plan_on(
            running((LOW, M, 100, "n1/0"), memory_ratio=2.0, host_memory_mib=memory_mib), "g0-w-0"
        )
        plan = snapshot.gangs["g"].plan
        assert plan is not None
        share = replace(members_planned(snapshot)["w/0"].shares[0][1], physical_mib=physical)
        member = MemberPlacement(NodeName("n1"), (("main", share),))
        plan = replace(plan, members={"w/0": member}, suspends=plan.victims if suspends else frozenset())
        gangs = {**snapshot.gangs, "g": replace(snapshot.gangs["g"], plan=plan)}
        return replace(snapshot, gangs=gangs)

    assert rules(planned(0)) == set(), "who is evicted takes nothing along"
    assert rules(planned(M, suspends=True)) == set()
    # Who is to be suspended takes nothing of the host yet, while who is to be evicted has something there.
    two = running((LOW, M, 0, "n1/0"), (LOW, M, 0, "n1/1"), memory_ratio=2.0, host_memory_mib=M)
    both = plan_on(but(two, 0, physical=M - 7), "g0-w-0", "g1-w-0")
    gang = both.gangs["g"]
    assert gang.plan is not None
    one_sleeps = replace(gang, plan=replace(gang.plan, suspends=frozenset({PodUid("g1-w-0")})))
    assert rules(replace(both, gangs={**both.gangs, "g": one_sleeps})) == set()
    assert rules(planned(M - 1, suspends=True)) == {Rule.HOST}
    assert rules(planned(5, physical=M // 2 - 5)) == set()
    assert rules(planned(4, physical=M // 2 - 5)) == {Rule.HOST}
    # Until its victim is gone that has its memory there, and the plan has none.
    assert rules(but(planned(7, physical=M // 2 - 5), 0, physical=M - 7)) == set()
    assert rules(but(planned(6, physical=M // 2 - 5), 0, physical=M - 7)) == {Rule.HOST}


def test_hosts_of_shares_whose_pod_is_gone() -> None:
    share = Share(CardId("n1/0"), 1024, 0, physical_mib=1000)
    gone = {CardId("n1/0"): ((PodUid("gone"), share),)}
    assert rules(make.snapshot([make.node(memory_ratio=2.0, host_memory_mib=24)], held=gone)) == set()
    assert rules(make.snapshot([make.node(memory_ratio=2.0, host_memory_mib=23)], held=gone)) == {Rule.HOST}
    assert rules(make.snapshot([make.node("other", host_memory_mib=23)], held=gone)) == set(), "of no node"
    there = but(running((LOW, 1024, 0, "n1/0"), memory_ratio=2.0, host_memory_mib=24), 0, physical=1000)
    living = {CardId("n1/0"): ((next(iter(there.pods)), share),)}
    assert rules(replace(there, held=living)) == set(), "it counts once"


def test_hosts_of_victims_and_of_plans_that_are_ready() -> None:
    share = Share(CardId("n1/0"), M // 2, 50, physical_mib=M // 2 - 7)
    ready = PlanInForce("2-0", {"w/0": MemberPlacement(NodeName("n1"), (("main", share),))})
    gang = make.gang("h", share_class=HIGH, plan=ready)

    def world(memory_mib: int, *, held: bool) -> set[Rule]:
        low = running((LOW, M, 0, "n1/1"), memory_ratio=2.0, host_memory_mib=memory_mib)
        waits = plan_on(but(low, 0, physical=M - 7), "g0-w-0")
        if held:  # its object is gone, and its cards are its own still
            left = waits.pods[PodUid("g0-w-0")].shares[0][1]
            pods = {uid: pod for uid, pod in waits.pods.items() if uid != "g0-w-0"}
            waits = replace(waits, pods=pods, held={CardId("n1/1"): ((PodUid("g0-w-0"), left),)})
        return rules(replace(waits, gangs={**waits.gangs, "h": gang}))

    for held in (False, True):
        assert world(14, held=held) == set()
        assert world(13, held=held) == {Rule.HOST}, "the one is there, and the other comes"
    gone = {CardId("n1/0"): ((PodUid("gone"), share),)}
    plan = replace(ready, victims=frozenset({PodUid("gone")}))
    node = make.node(memory_ratio=2.0, host_memory_mib=7)
    assert rules(make.snapshot([node], [replace(gang, plan=plan)], held=gone)) == set(), "one after the other"


def test_native_cards_are_not_shared_and_who_has_ended_holds_none() -> None:
    both = running((LOW, 1, 0, "n1/0"), (HIGH, 1, 0, "n1/0"), mode=Mode.NATIVE)
    for number in range(2):
        pod = both.pods[PodUid(f"g{number}-w-0")]
        both = but(both, number, shares=(("main", replace(pod.shares[0][1], native=True)),))
    assert rules(both) == {Rule.CARD}
    for phase in (PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.GATED):
        assert rules(but(both, 0, phase=phase)) == set()


def test_held_shares_count_where_the_pod_is_gone() -> None:
    snapshot = running((LOW, M, 100, "n1/0"))
    share = Share(CardId("n1/0"), 1024, 0)
    assert rules(replace(snapshot, held={CardId("n1/0"): ((PodUid("gone"), share),)})) == {Rule.CARD}
    living = next(iter(snapshot.pods))
    assert rules(replace(snapshot, held={CardId("n1/0"): ((living, share),)})) == set()


def members_planned(snapshot: Snapshot) -> Mapping[str, MemberPlacement]:
    plan = snapshot.gangs["g"].plan
    assert plan is not None
    return plan.members


def plan_on(snapshot: Snapshot, *victims: str, suspends: bool = False) -> Snapshot:
    """A waiting plan of ``g`` on card n1/0, naming these victims."""
    member = MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/0"), M // 2, 50)),))
    uids = frozenset(PodUid(uid) for uid in victims)
    plan = PlanInForce("1-1", {"w/0": member}, uids, suspends=uids if suspends else frozenset())
    gang = make.gang("g", share_class=HIGH, plan=plan)
    pods = {pod.uid: pod for pod in make.pods("g", 1, make.shape(M // 2, 50))}
    return replace(snapshot, gangs={**snapshot.gangs, "g": gang}, pods={**snapshot.pods, **pods})


def test_a_waiting_plan_overlaps_its_victims_only() -> None:
    snapshot = running((LOW, M, 100, "n1/0"), (LOW, M, 100, "n1/1"))
    assert rules(plan_on(snapshot, "g0-w-0")) == set()
    assert rules(plan_on(snapshot, "g1-w-0")) == {Rule.CARD}
    assert rules(plan_on(snapshot)) == {Rule.CARD}, "a ready plan overlaps nobody"
    for share_class, fine in ((HIGH, False), (UNSET, False), (LOW, True)):
        cores = rules(plan_on(running((share_class, 1, 60, "n1/0"))))
        assert cores == (set() if fine else {Rule.CARD}), "its cores are those of high priority"


def test_a_waiting_plan_waits_until_its_victims_are_off_their_cards() -> None:
    snapshot = running((LOW, M, 100, "n1/0"), host_memory_mib=M)
    uid = PodUid("g0-w-0")
    share = snapshot.pods[uid].shares[0][1]
    gone = replace(snapshot, pods={}, held={CardId("n1/0"): ((uid, share),)})
    assert rules(plan_on(gone, uid)) == set(), "its cards are held still"
    both = replace(gone, held={CardId("n1/1"): ((PodUid("other"), share),), **gone.held})
    assert rules(plan_on(both, uid)) == set(), "and another's on another card"
    other = replace(snapshot, pods={}, held={CardId("n1/0"): ((PodUid("other"), share),)})
    assert rules(plan_on(other, uid)) == {Rule.CARD}, "whom it waits for is gone, somebody else is there"
    assert rules(plan_on(but(snapshot, 0, phase=PodPhase.TERMINATING), uid)) == set()
    # Once its victim is off the card, who is there besides is in the way.
    crowd = running((LOW, M, 0, "n1/0"), (LOW, M, 0, "n1/0"), host_memory_mib=M)
    for ended in (PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.GATED):
        assert rules(plan_on(but(crowd, 0, phase=ended), uid)) == {Rule.CARD}
        assert rules(plan_on(but(snapshot, 0, phase=ended), uid)) == set()
    asleep = but(crowd, 0, **ASLEEP)
    assert rules(asleep) == set()
    assert rules(plan_on(asleep, uid, "g1-w-0")) == set(), "it waits for the other one"
    assert rules(plan_on(asleep, uid, suspends=True)) == {Rule.CARD}
    assert rules(plan_on(asleep, uid)) == {Rule.CARD}, "the other one is no victim"
    single = but(running((LOW, M, 0, "n1/0"), host_memory_mib=M, max_sharers=1), 0, **ASLEEP)
    assert rules(plan_on(single, uid)) == set(), "it is evicted: its place is free once it is gone"
    assert rules(plan_on(single, uid, suspends=True)) == {Rule.CARD}, "it comes back to its place"


def test_waiting_plans_do_not_overlap_each_other() -> None:
    snapshot = running((LOW, M, 100, "n1/0"), (LOW, M, 100, "n1/1"))
    first = plan_on(snapshot, "g0-w-0")
    plan = first.gangs["g"].plan
    assert plan is not None

    def two(memory_mib: int, *victims: str) -> Snapshot:
        member = MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/0"), memory_mib, 50)),))
        other = replace(plan, members={"w/0": member}, victims=frozenset(PodUid(uid) for uid in victims))
        second = make.gang("h", share_class=HIGH, plan=other)
        return replace(first, gangs={**first.gangs, "h": second})

    for victims in (("g0-w-0",), ("g0-w-0", "g1-w-0")):
        assert rules(two(M // 2, *victims)) == set()
        assert rules(two(M // 2 + 1, *victims)) == {Rule.CARD}
    assert rules(two(M // 2, "g1-w-0")) == {Rule.CARD}, "who is on its card goes for another one's sake"


def test_waiting_plans_side_by_side_take_what_their_own_victims_leave() -> None:
    first = plan_on(running(*[(LOW, M // 2, 50, "n1/0")] * 2), "g0-w-0")
    plan = first.gangs["g"].plan
    assert plan is not None

    def both(*victims: str) -> set[Rule]:
        other = replace(plan, victims=frozenset(PodUid(uid) for uid in victims))
        gangs = {**first.gangs, "h": make.gang("h", share_class=HIGH, plan=other)}
        return rules(replace(first, gangs=gangs))

    assert both("g1-w-0") == set()
    assert both("g0-w-0") == {Rule.CARD}, "one leaves room for one"
    large = plan_on(running((LOW, M - 1, 0, "n1/0"), (LOW, M, 0, "n1/1")), "g1-w-0")
    tiny = MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/0"), 1, 0)),))
    small = PlanInForce("2-1", {"w/0": tiny}, frozenset({PodUid("g0-w-0")}))
    gangs = {**large.gangs, "h": make.gang("h", share_class=HIGH, plan=small)}
    assert rules(replace(large, gangs=gangs)) == {Rule.CARD}, "whom the small one waits for is there"


def test_members_without_cards_do_not_hide_those_with_some() -> None:
    planned = plan_on(running((LOW, M, 100, "n1/0")), "g9-w-0")
    gang = planned.gangs["g"]
    assert gang.plan is not None
    members = {"launcher/0": MemberPlacement(None), **gang.plan.members}
    plan = replace(gang.plan, members=members)
    assert rules(replace(planned, gangs={**planned.gangs, "g": replace(gang, plan=plan)})) == {Rule.CARD}


def test_a_plan_that_its_pod_carries_counts_once() -> None:
    planned = plan_on(running())
    member = members_planned(planned)["w/0"]
    share = replace(member.shares[0][1], memory_mib=M, physical_mib=M - 7)
    gang = planned.gangs["g"]
    assert gang.plan is not None
    plan = replace(gang.plan, members={"w/0": replace(member, shares=(("main", share),))})
    runs = make.placed(planned.pods[PodUid("g-w-0")], "n1/0", plan_id="1-1", shares=(("main", share),))
    snapshot = make.snapshot([make.node(host_memory_mib=7)], [replace(gang, plan=plan)], [runs])
    assert rules(snapshot) == set()
    of_another_plan = replace(runs, plan_id="1-0")
    assert rules(replace(snapshot, pods={runs.uid: of_another_plan})) == {Rule.CARD, Rule.HOST}


def test_victims_are_of_low_priority() -> None:
    snapshot = running(*[(UNSET, 1, 1, "n1/0")] * 6)
    named = [f"g{number}-w-0" for number in range(6)]
    found = [str(violation) for violation in check(plan_on(snapshot, *named))]
    rule = "is not of low priority (rule: no victim for a plan that does not hold)"
    told = [f"gang g: its victim {uid} of g{number} {rule}" for number, uid in enumerate(named)]
    assert found == told, "the same order each time"


def test_victims_are_for_high_priority() -> None:
    snapshot = plan_on(running((LOW, M, 100, "n1/0")), "g0-w-0")
    assert rules(snapshot) == set()
    unset = replace(snapshot.gangs["g"], share_class=UNSET)
    assert rules(replace(snapshot, gangs={**snapshot.gangs, "g": unset})) == {Rule.VICTIM}


def test_victims_belong_to_gangs() -> None:
    snapshot = plan_on(running((LOW, M, 100, "n1/0")), "g0-w-0")
    found = check(but(snapshot, 0, gang=None))
    assert [str(violation) for violation in found if "no gang's" in violation.message]


def test_who_is_told_to_leave_is_not_of_high_priority() -> None:
    for share_class, broken in ((LOW, set()), (UNSET, set()), (HIGH, {Rule.VICTIM})):
        snapshot = running((share_class, M, 100, "n1/0"), host_memory_mib=M)
        assert rules(but(snapshot, 0, **ORDERED)) == broken
