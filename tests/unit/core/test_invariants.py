"""Each invariant is broken on purpose, and said to be."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.cluster import (
    CardId,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    QueueName,
    Share,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.invariants import Rule, check
from vc_egpu.core.reasons import Reason

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
    ],
    ids=["overlap in time", "memory", "low cores", "unset and high cores", "all classes", "sharers"],
)
def test_cards(snapshot: Snapshot, fine: bool) -> None:
    assert rules(snapshot) == (set() if fine else {Rule.CARD})


def test_whole_cards() -> None:
    snapshot = running((LOW, 1, 0, "n1/0"), (HIGH, 1, 0, "n1/0"))
    uid, pod = next(iter(snapshot.pods.items()))
    whole = replace(pod, shares=(("main", replace(pod.shares[0][1], whole=True)),))
    found = check(replace(snapshot, pods={**snapshot.pods, uid: whole}))
    assert [violation.rule for violation in found] == [Rule.CARD]
    assert "pod ns/g0-w-0 has the whole card, yet it is shared" in str(found[0])


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


def plan_on(snapshot: Snapshot, *victims: str) -> Snapshot:
    """A waiting plan of ``g`` on card n1/0, naming these victims."""
    member = MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/0"), M // 2, 50)),))
    plan = PlanInForce("1-1", {"w/0": member}, frozenset(PodUid(uid) for uid in victims))
    gang = make.gang("g", share_class=HIGH, plan=plan)
    pods = {pod.uid: pod for pod in make.pods("g", 1, make.shape(M // 2, 50))}
    return replace(snapshot, gangs={**snapshot.gangs, "g": gang}, pods={**snapshot.pods, **pods})


def test_a_waiting_plan_overlaps_its_victims_only() -> None:
    snapshot = running((LOW, M, 100, "n1/0"), (LOW, M, 100, "n1/1"))
    assert rules(plan_on(snapshot, "g0-w-0")) == set()
    assert rules(plan_on(snapshot, "g1-w-0")) == {Rule.CARD}
    assert rules(plan_on(snapshot)) == {Rule.CARD}, "a ready plan overlaps nobody"


def test_victims_are_of_low_priority() -> None:
    snapshot = running((UNSET, M, 100, "n1/0"))
    assert Rule.VICTIM in rules(plan_on(snapshot, "g0-w-0"))


def test_gates() -> None:
    snapshot = plan_on(running((LOW, M, 100, "n1/0")), "g0-w-0")
    pod = snapshot.pods[PodUid("g-w-0")]
    member = members_planned(snapshot)["w/0"]
    fell = replace(pod, phase=PodPhase.PLACED, node=member.node, shares=member.shares, plan_id="1-1")
    assert Rule.GATE in rules(replace(snapshot, pods={**snapshot.pods, pod.uid: fell})), "victims are there"

    pair = make.snapshot([make.node()], [make.gang("g", least=2)], make.pods("g", 2, make.shape(1024, 0)))
    first, second = pair.pods.values()
    half = replace(pair, pods={first.uid: make.placed(first, "n1/0"), second.uid: second})
    assert rules(half, before=pair) == {Rule.GATE}, "half a gang has started"
    assert rules(half) == set(), "without history a gang that lost a member looks the same"
    both = replace(pair, pods={p.uid: make.placed(p, "n1/0") for p in (first, second)})
    assert rules(both, before=pair) == set()


def test_a_pod_without_its_shares() -> None:
    pod: Pod = replace(make.pods("g", 1, make.shape(1024, 0))[0], phase=PodPhase.PLACED, node=NodeName("n1"))
    assert rules(make.snapshot([make.node()], [make.gang("g")], [pod])) == {Rule.GATE}


def test_caps() -> None:
    cap = {"volcano.sh/vgpu-h20": 1}
    queues = [
        make.queue("org", capability=cap),
        make.queue("all", parent=QueueName("org"), capability={"volcano.sh/vgpu-h20": 5}),
    ]
    snapshot = running((LOW, 1024, 1, "n1/0"), (LOW, 1024, 1, "n1/0"))
    snapshot = replace(snapshot, queues={queue.name: queue for queue in queues})
    found = check(snapshot)
    assert [str(violation) for violation in found] == [
        "queue org: uses 2 of 1 volcano.sh/vgpu-h20 (rule: no cap exceeded by an admission)"
    ]
    assert rules(snapshot, lowered={"org"}) == set()
    assert rules(snapshot, before=snapshot) == set(), "it did not get more"


def test_reasons() -> None:
    snapshot = make.snapshot([make.node()], [make.gang("g")], make.pods("g", 1, make.shape(1024, 0)))
    assert rules(snapshot, reasons={}) == {Rule.REASON}
    assert rules(snapshot, reasons={"g": Reason.WAITING_FOR_CARDS}) == set()
