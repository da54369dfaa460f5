"""No gate falls before the whole gang has its place: each rule of it is broken on purpose, and said to be."""

from dataclasses import replace
from typing import Any

from unit.core import make
from unit.core.test_invariants import HIGH, LOW, M, members_planned, plan_on, rules, running
from vc_egpu.core.check.invariants import Rule, check
from vc_egpu.core.model.cluster import (
    CardAsk,
    CardId,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    Share,
    Snapshot,
)


def test_gates() -> None:
    snapshot = plan_on(running((LOW, M, 100, "n1/0")), "g0-w-0")
    pod = snapshot.pods[PodUid("g-w-0")]
    member = members_planned(snapshot)["w/0"]
    fell = replace(pod, phase=PodPhase.PLACED, node=member.node, shares=member.shares, plan_id="1-1")
    found = [str(one) for one in check(replace(snapshot, pods={**snapshot.pods, pod.uid: fell}))]
    assert (
        "pod ns/g-w-0: its gate fell while its plan 1-1 waits for 1 victims "
        "(rule: no gate lifted before the whole gang has its place)"
    ) in found

    pair = make.snapshot([make.node()], [make.gang("g", least=2)], make.pods("g", 2, make.shape(1024, 0)))
    first, second = pair.pods.values()
    half = replace(pair, pods={first.uid: make.placed(first, "n1/0"), second.uid: second})
    assert rules(half, before=pair) == {Rule.GATE}, "half a gang has started"
    assert rules(half) == set(), "without history a gang that lost a member looks the same"
    both = replace(pair, pods={p.uid: make.placed(p, "n1/0") for p in (first, second)})
    assert rules(both, before=pair) == set()


def test_gates_of_a_gang_that_ran_before() -> None:
    """Its members come back one by one, unless a plan shows that it starts anew."""
    first, second = make.pods("g", 2, make.shape(1024, 0))
    other = make.placed(make.pods("other", 1, make.shape(1024, 0))[0], "n1/1")
    gang = make.gang("g", least=2)

    def world(*pods: Pod, plan: PlanInForce | None = None) -> Snapshot:
        gangs = [replace(gang, plan=plan), make.gang("other")]
        return make.snapshot([make.node()], gangs, [*pods, other])

    runs = make.placed(first, "n1/0")
    assert rules(world(first, second), before=world(first, second)) == set(), "nobody has started"
    assert rules(world(runs, second), before=world(first, second)) == {Rule.GATE}, "others ran, it did not"
    for ended in (PodPhase.TERMINATING, PodPhase.FAILED, PodPhase.SUCCEEDED):
        before = world(runs, replace(second, phase=ended))
        assert rules(world(runs, second), before=before) == set(), "it heals"
    member = MemberPlacement(NodeName("n1"), runs.shares)
    again = replace(runs, plan_id="2-0")
    failed = replace(first, uid=PodUid("before"), phase=PodPhase.FAILED)
    before = world(failed, first, second)
    half = PlanInForce("2-0", {"w/0": member})
    assert rules(world(again, second, plan=half), before=before) == {Rule.GATE}, "it begins anew with half"
    both = PlanInForce("2-0", {"w/0": member, "w/1": member})
    assert rules(world(again, second, plan=both), before=before) == set(), "the other's place is planned"
    healed = world(runs, replace(second, phase=PodPhase.PLACED, node=NodeName("n1"), shares=runs.shares,
                                 plan_id="3-0"), plan=PlanInForce("3-0", {"w/1": member}))  # fmt: skip
    assert rules(healed, before=before) == set(), "the plan brings back what it lacks"
    three = {"g": replace(healed.gangs["g"], min_member=3), "other": healed.gangs["other"]}
    assert rules(replace(healed, gangs=three), before=before) == {Rule.GATE}, "not all that it lacks"
    lost = world(runs, second, plan=half)
    assert rules(lost, before=lost) == set(), "nobody started by that plan"
    surplus = PlanInForce("2-0", {"w/1": member}, frozenset({PodUid("gone")}))
    high = world(runs, second, plan=surplus)
    high = replace(high, gangs={**high.gangs, "g": replace(high.gangs["g"], share_class=HIGH)})
    assert rules(high, before=world(runs, second)) == set(), "a plan that waits is for those that are to come"


def test_a_pod_without_its_shares() -> None:
    pod: Pod = replace(make.pods("g", 1, make.shape(1024, 0))[0], phase=PodPhase.PLACED, node=NodeName("n1"))
    assert rules(make.snapshot([make.node()], [make.gang("g")], [pod])) == {Rule.GATE}
    other = replace(pod, uid=PodUid("other"), gang=None)
    assert rules(make.snapshot([make.node()], [make.gang("g")], [other, pod])) == {Rule.GATE}
    assert rules(make.snapshot([make.node()], [make.gang("g")], [other])) == set(), "somebody else's"


def test_a_pod_whose_shares_are_not_what_it_asks_for() -> None:
    """Each container has different cards, and of its model."""
    mixed = make.node("n1", 4)
    mixed = replace(mixed, cards=(*mixed.cards[:3], replace(mixed.cards[3], model="t4", memory_mib=15360)))
    asks = (CardAsk("a", "h20", 2, 1024, 10), CardAsk("b", "t4", 1, 1024, 10))
    pod = make.pods("g", 1, make.shape(asks=asks))[0]

    def on(*seats: str, node: str | None = "n1") -> list[str]:
        shares = tuple((seat[0], Share(CardId(f"n1/{seat[1]}"), 1024, 10)) for seat in seats)
        there = NodeName(node) if node is not None else None
        placed = replace(pod, phase=PodPhase.PLACED, node=there, shares=shares)
        return [str(found) for found in check(make.snapshot([mixed], [make.gang("g")], [placed]))]

    def wrong(text: str) -> list[str]:
        return [f"pod ns/g-w-0: {text} (rule: no gate lifted before the whole gang has its place)"]

    assert on("a0", "a1", "b3") == []
    assert on("a0", "a0", "b3") == wrong("has two shares of one container on one card")
    assert on("a0", "a3", "b3") == wrong("has card n1/3 and asks for no t4")
    assert on("a0", "a1", "b2") == wrong("has card n1/2 and asks for no h20")
    assert on("a0", "a1") == wrong("asks for 3 shares and has 2")
    assert on("a0", "a1", "b9") == [], "of a card that its node does not report nobody knows the model"
    assert on("a0", "a3", "b3", node="gone") == on("a0", "a3", "b3", node=None) == []
    pod = replace(pod, shape=make.shape())
    assert on("a0", "a3") == [], "nobody knows any more what it asked for"


def test_gates_before_each_tasks_minimum_is_there() -> None:
    small = make.shape(1024, 0)
    workers, (master,) = make.pods("g", 3, small), make.pods("g", 1, small, "master")
    placed = [make.placed(pod, "n1/0", plan_id="2-0") for pod in workers]
    member = MemberPlacement(NodeName("n1"), placed[0].shares)

    def world(*pods: Pod, least: int = 3, planned: tuple[str, ...] = (), **minimums: int) -> Snapshot:
        plan = PlanInForce("2-0", dict.fromkeys(planned, member)) if planned else None
        gang = make.gang("g", least=least, min_task_member=minimums, plan=plan)
        return make.snapshot([make.node()], [gang], pods)

    before = world(*workers, master)
    assert rules(world(*placed, master), before=before) == set()
    found = check(world(*placed, master, master=1, w=2), before=before)
    assert [str(violation) for violation in found] == [
        "gang g: 3 gates fell with 0 of 1 members of task master placed or planned "
        "(rule: no gate lifted before the whole gang has its place)"
    ]
    there = make.placed(master, "n1/1", plan_id="2-0")
    assert rules(world(*placed[:2], workers[2], there, master=1, w=2), before=before) == set()
    assert rules(world(*placed[:1], *workers[1:], there, least=2, w=2), before=before) == {Rule.GATE}
    both: dict[str, Any] = {"master": 1, "w": 3}
    assert rules(world(*placed, master, **both), before=before) == set(), "together more than the gang's own"
    assert rules(world(*placed, master, **both, other=-1), before=before) == set(), "as without the odd one"
    assert rules(world(*placed, master, least=4, **both), before=before) == {Rule.GATE}
    assert rules(world(*placed, master, master=1, w=2, other=-1), before=before) == {Rule.GATE}
    assert rules(world(*placed, master, master=1, w=2), before=world(*placed, master)) == set(), "it ran"
    assert rules(world(*placed, master, planned=("w/9",), master=1)) == {Rule.GATE}, "it starts"
    assert rules(world(*placed, master, planned=("master/0",), master=1)) == set()
