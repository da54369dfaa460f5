"""Plans that are written and not carried out yet: booked once, kept, turned ready or withdrawn."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask, one_gang
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    CardAsk,
    CardId,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    Resources,
    Share,
    Snapshot,
    Taint,
)
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason


def planned(snapshot: Snapshot, *victims: str, created: float = 90.0) -> Snapshot:
    """The snapshot after the plan for ``g`` was written, and nothing else was done."""
    plan = decide(snapshot, Policy(), 0.0, only={"g"})
    (admission,) = [entry for entry in plan.admissions if entry.gang == "g"]
    named = frozenset(PodUid(uid) for uid in victims)
    named |= {uid for eviction in admission.evictions for uid in eviction.pods}
    written = PlanInForce("1-1", dict(admission.members), named, created)
    gang = replace(snapshot.gangs["g"], plan=written)
    return replace(snapshot, gangs={**snapshot.gangs, "g": gang})


def plan_of(snapshot: Snapshot) -> PlanInForce:
    plan = snapshot.gangs["g"].plan
    assert plan is not None
    return plan


def test_a_plan_in_force_is_booked_once() -> None:
    snapshot = planned(one_gang(2, make.shape(HALF, 50), cards=1))
    rival = make.gang("rival", created=1.0)
    both = replace(
        snapshot,
        gangs={**snapshot.gangs, "rival": rival},
        pods={**snapshot.pods, **{p.uid: p for p in make.pods("rival", 1, make.shape(1024, 0))}},
    )
    plan = ask(both)
    assert plan.verdicts["rival"].reason is Reason.WAITING_FOR_CARDS
    assert plan.verdicts["g"].reason is Reason.ADMITTED
    assert not plan.admissions
    carried = dict(both.pods)
    for uid in ("g-w-0", "g-w-1"):
        pod = carried[PodUid(uid)]
        member = plan_of(both).members[f"w/{pod.index}"]
        carried[pod.uid] = replace(
            pod, phase=PodPhase.PLACED, node=member.node, shares=member.shares, plan_id="1-1"
        )
    after = ask(replace(both, pods=carried))
    assert after.verdicts["rival"].numbers["free"] == 0
    assert "g" not in after.verdicts, "all its members carry the plan"


def test_a_ready_plan_is_withdrawn_when_its_card_falls_ill_before_any_gate_fell() -> None:
    snapshot = planned(one_gang(1, cards=1))
    node = make.node("n1", 1)
    ill = replace(node, cards=(replace(node.cards[0], usable=False),))
    plan = ask(replace(snapshot, nodes={ill.name: ill}))
    assert [(entry.gang, entry.plan_id) for entry in plan.withdrawals] == [("g", "1-1")]
    assert "n1/0" in plan.withdrawals[0].why


def test_a_plan_whose_members_are_gone_is_withdrawn_unless_they_may_come_back() -> None:
    snapshot = planned(one_gang(2, cards=2), created=90.0)
    members = plan_of(snapshot).members
    first, second = snapshot.pods.values()
    carried = replace(
        first, phase=PodPhase.PLACED, node=NodeName("n1"), shares=members["w/0"].shares, plan_id="1-1"
    )
    nobody_yet = replace(snapshot, pods={first.uid: first})
    assert ask(nobody_yet, 100.0).withdrawals
    one_carries = replace(snapshot, pods={carried.uid: carried})
    assert not ask(one_carries, 100.0).withdrawals, "its replacement is on the way"
    assert ask(one_carries, 200.0).withdrawals, "not for ever"
    assert second.uid not in ask(one_carries, 200.0).verdicts


@pytest.mark.parametrize("share_class", [HIGH, LOW])
def test_a_plan_holds_beside_others_that_are_beyond_cores_of_which_it_takes_none(share_class: Any) -> None:
    """Of a card it takes memory alone, and cores of another one. The node's ratio was lowered meanwhile."""
    asks = (CardAsk("a", "h20", 1, 1024, 0), CardAsk("b", "h20", 1, HALF, 50))
    (pod,) = make.pods("g", 1, make.shape(asks=asks))
    crowd = [make.placed(other, "n1/0") for other in make.pods("crowd", 2, make.shape(1024, 75))]
    member = MemberPlacement(
        NodeName("n1"), (("a", Share(CardId("n1/0"), 1024, 0)), ("b", Share(CardId("n1/1"), HALF, 50)))
    )
    gang = make.gang("g", share_class=share_class, plan=PlanInForce("1-1", {"w/0": member}, created=90.0))
    gangs = [gang, make.gang("crowd", least=2), make.gang("more")]
    assert not ask(make.snapshot([make.node("n1", 2)], gangs, [pod, *crowd])).withdrawals
    more = make.placed(make.pods("more", 1, make.shape(1024, 75))[0], "n1/1")
    assert ask(make.snapshot([make.node("n1", 2)], gangs, [pod, *crowd, more])).withdrawals


def waiting_plan(what: PodShape | None = None, allocatable: Resources | None = None) -> Snapshot:
    train = make.gang("train", share_class=LOW, least=1)
    infer = make.gang("g", share_class=HIGH, least=1)
    low = make.placed(make.pods("train", 1, make.shape(make.H20_MIB, 100))[0], "n1/0")
    pods = [low, *make.pods("g", 1, what or make.shape(HALF, 50))]
    node = make.node("n1", 1)
    node = replace(node, allocatable=allocatable or node.allocatable)
    return planned(make.snapshot([node], [train, infer], pods))


def test_a_waiting_plan_turns_ready_when_its_victims_are_gone_and_not_before() -> None:
    snapshot = waiting_plan()
    victim = snapshot.pods[PodUid("train-w-0")]
    assert plan_of(snapshot).victims == {victim.uid}
    for phase, ready in ((PodPhase.PLACED, False), (PodPhase.TERMINATING, False), (PodPhase.FAILED, True)):
        pods = {**snapshot.pods, victim.uid: replace(victim, phase=phase)}
        plan = ask(replace(snapshot, pods=pods))
        assert [entry.gang for entry in plan.ready] == (["g"] if ready else []), phase
    gone = {uid: pod for uid, pod in snapshot.pods.items() if uid != victim.uid}
    assert ask(replace(snapshot, pods=gone)).ready
    held = {CardId("n1/0"): ((victim.uid, Share(CardId("n1/0"), make.H20_MIB, 100)),)}
    plan = ask(replace(snapshot, pods=gone, held=held))
    assert not plan.ready, "the agent has not released it yet"
    assert plan.verdicts["g"].reason is Reason.WAITING_FOR_EVICTION


def test_a_plan_made_from_a_template_waits_for_its_pods() -> None:
    what = make.shape(HALF, 50)
    gang = make.gang("g", least=2, template=(("w", 2, what),))
    snapshot = make.snapshot([make.node("n1", 1)], [gang])
    written = planned(snapshot, created=90.0)
    assert set(plan_of(written).members) == {"w/0", "w/1"}
    assert not ask(written).withdrawals
    first = make.pods("g", 1, what)
    assert not ask(replace(written, pods={p.uid: p for p in first})).withdrawals, "the second is on its way"


def test_members_in_a_plan_without_a_node_need_none() -> None:
    gang = make.gang("g", least=1, plan=PlanInForce("1-1", {"w/0": MemberPlacement(None)}))
    plan = ask(make.snapshot([make.node()], [gang], make.pods("g", 1, make.shape())))
    assert not plan.withdrawals
    assert plan.verdicts["g"].reason is Reason.ADMITTED


# --- making room -------------------------------------------------------------------------------------


def test_the_room_of_victims_that_are_still_there_is_not_free() -> None:
    snapshot = waiting_plan()
    rival = make.gang("rival", created=1.0)
    pods = {pod.uid: pod for pod in make.pods("rival", 1, make.shape(HALF, 50))}
    both = replace(snapshot, gangs={**snapshot.gangs, "rival": rival}, pods={**snapshot.pods, **pods})
    for only in (None, {"rival"}):
        plan = decide(both, Policy(), 100.0, only)
        assert plan.verdicts["g"].reason is Reason.WAITING_FOR_EVICTION
        assert plan.verdicts["rival"].reason is Reason.WAITING_FOR_CARDS


def test_members_that_came_after_the_plan_were_not_tried_yet() -> None:
    """Nobody said that there is no room for them: the next decision looks at them, once the plan is out."""
    snapshot = planned(one_gang(2, make.shape(1024, 1), cards=1))
    later = make.pods("g", 5, make.shape(1024, 1))[2:]
    grown = replace(snapshot, pods={**snapshot.pods, **{pod.uid: pod for pod in later}})
    verdict = ask(grown).verdicts["g"]
    assert verdict.reason is Reason.ADMITTED
    assert verdict.message == "2 members placed; 3 above the minimum are tried next"


@pytest.mark.parametrize("taken", [False, True])
def test_a_waiting_plan_is_given_up_when_what_it_needs_beside_cards_is_taken(taken: bool) -> None:
    """Or its victims would go for a gang that no scheduler can bind there."""
    nic = Resources(1000, scalars={"rdma/hca": 1})
    has_one = Resources(64000, 256 * make.GIB, 0, 110, {"rdma/hca": 1})
    snapshot = waiting_plan(make.shape(HALF, 50, requests=nic), has_one)
    node = NodeName("n1")
    other = Pod(PodUid("x"), "ns", "x", PodShape(requests=nic), PodPhase.PLACED, node)
    plan = ask(replace(snapshot, pods={**snapshot.pods, other.uid: other}) if taken else snapshot)
    whys = [entry.why for entry in plan.withdrawals]
    assert whys == (["node n1 has no room for it any more"] if taken else [])


def with_rival(snapshot: Snapshot, what: PodShape) -> Snapshot:
    """Somebody else of the same queue asks for a place, later."""
    pods = {pod.uid: pod for pod in make.pods("rival", 1, what)}
    gangs = {**snapshot.gangs, "rival": make.gang("rival", created=1.0)}
    return replace(snapshot, gangs=gangs, pods={**snapshot.pods, **pods})


@pytest.mark.parametrize(("cap", "kept", "rival"), [(3, True, True), (2, True, False), (1, False, False)])
def test_a_waiting_plan_has_what_its_queue_allowed_once(cap: int, *, kept: bool, rival: bool) -> None:
    """Training and the plan use two; what the cap leaves another may have, and no more."""
    snapshot = with_rival(waiting_plan(), make.shape(1024, 0))
    queues = {QueueName("all"): make.queue(capability={"volcano.sh/vgpu-h20": cap})}
    plan = ask(replace(snapshot, queues=queues))
    why = [entry.why for entry in plan.withdrawals]
    assert why == ([] if kept else [f"the cap on volcano.sh/vgpu-h20 of the queue all is {cap} now"])
    reason = plan.verdicts["rival"].reason
    assert (reason in {Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_CAP}) is not rival


@pytest.mark.parametrize("phase", [PodPhase.PLACED, PodPhase.TERMINATING])
def test_a_plan_that_is_not_needed_any_more_is_given_up_while_its_victims_are_whole(phase: PodPhase) -> None:
    """A node came that has room. Once one of them goes nothing is gained by it."""
    snapshot = waiting_plan()
    victim = replace(snapshot.pods[PodUid("train-w-0")], phase=phase)
    nodes = {**snapshot.nodes, NodeName("n2"): make.node("n2", 1)}
    both = with_rival(
        replace(snapshot, nodes=nodes, pods={**snapshot.pods, victim.uid: victim}), make.shape(HALF, 0)
    )
    plan = ask(both)
    whole = phase is PodPhase.PLACED
    assert [entry.why for entry in plan.withdrawals] == ["it fits without an eviction now"] * whole
    (admission,) = plan.admissions
    assert admission.gang == "rival", "nothing is left booked of what was tried"


def test_a_plan_for_which_somebody_would_only_be_suspended_is_given_up_in_those_words() -> None:
    snapshot = waiting_plan()
    plan = plan_of(snapshot)
    gang = replace(snapshot.gangs["g"], plan=replace(plan, suspends=plan.victims))
    nodes = {name: replace(node, host_memory_mib=make.H20_MIB) for name, node in snapshot.nodes.items()}
    nodes[NodeName("n2")] = make.node("n2", 1)
    train = replace(snapshot.pods[PodUid("train-w-0")], suspendable=True)
    there = replace(
        snapshot, gangs={**snapshot.gangs, "g": gang}, nodes=nodes, pods={**snapshot.pods, train.uid: train}
    )
    assert [entry.why for entry in ask(there).withdrawals] == ["it fits without a suspension now"]
    told = replace(train, suspend_ordered=True)
    assert not ask(replace(there, pods={**there.pods, told.uid: told})).withdrawals, "it has begun"


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, ""),
        ({"unschedulable": True}, "node n1 is closed to it now"),
        ({"problem": "its inventory is garbage"}, "node n1 takes nothing now"),
        ({"taints": (Taint("dedicated", "", "NoSchedule"),)}, "node n1 is closed to it now"),
        ({"max_sharers": 1}, "the cards of node n1 have no room for it any more"),
        ({"core_ratio": 0.19}, "the cards of node n1 have no room for it any more"),
        ({"core_ratio": 0.2}, ""),
        ({"memory_ratio": 0.9}, "the cards of node n1 have no room for it any more"),
        ({"allocatable": Resources(1999, 256 * make.GIB, 0, 110)}, "node n1 has no room for it any more"),
        ({"allocatable": Resources(2000, 256 * make.GIB, 0, 2)}, ""),
        ({"allocatable": Resources(2000, 256 * make.GIB, 0, 1)}, "node n1 has no room for it any more"),
    ],
)
def test_a_ready_plan_is_given_up_once_its_node_has_no_room_for_all_of_it(
    now: dict[str, Any], why: str
) -> None:
    """Two members, half of the one card and ten of its cores each; no gate has fallen yet."""
    snapshot = planned(one_gang(2, cards=1))
    node = replace(snapshot.nodes[NodeName("n1")], **now)
    plan = ask(replace(snapshot, nodes={node.name: node}))
    assert [entry.why for entry in plan.withdrawals] == ([why] if why else [])


def test_or_once_its_node_is_gone_or_has_refused_one_of_it() -> None:
    snapshot = planned(one_gang(2, cards=1))
    assert [one.why for one in ask(replace(snapshot, nodes={})).withdrawals] == ["node n1 is gone"]
    gang = replace(snapshot.gangs["g"], blocked_nodes=frozenset({NodeName("n1")}))
    (withdrawal,) = ask(replace(snapshot, gangs={"g": gang})).withdrawals
    assert withdrawal.why == "node n1 refused a member"


def test_cores_of_which_it_takes_none_are_not_its_concern() -> None:
    snapshot = planned(one_gang(2, make.shape(1024, 0), cards=1))
    busy = make.placed(make.pods("busy", 1, make.shape(1024, 90))[0], "n1/0")
    node = replace(snapshot.nodes[NodeName("n1")], core_ratio=0.5)
    there = replace(snapshot, nodes={node.name: node}, pods={**snapshot.pods, busy.uid: busy})
    assert not ask(replace(there, gangs={**there.gangs, "busy": make.gang("busy")})).withdrawals


def test_a_ready_plan_that_held_is_looked_at_again_when_its_node_changes() -> None:
    """Of the many that are being carried out those are passed over of which nothing has changed."""
    state = ClusterState()
    state.put_queue(make.queue())
    nodes = {name: make.node(name, 1) for name in ("n1", "n2")}
    for node in nodes.values():
        state.put_node(node)
    (pod,) = make.pods("g", 1, make.shape(HALF, 10))
    state.put_pod(pod)

    def planned_on(plan_id: str, card: str) -> None:
        share = Share(CardId(card), HALF, 10)
        place = MemberPlacement(NodeName(card.partition("/")[0]), (("main", share),))
        state.put_gang(make.gang("g", plan=PlanInForce(plan_id, {"w/0": place})))

    def given_up() -> list[str]:
        return [entry.why for entry in decide(state.snapshot(1), Policy(), 100.0).withdrawals]

    planned_on("1-1", "n1/0")
    state.put_node(replace(nodes["n2"], unschedulable=True))
    assert given_up() == given_up() == [], "that one is none of its business"
    planned_on("1-2", "n2/0")
    assert given_up() == ["node n2 is closed to it now"], "another plan, on that one"
    planned_on("1-3", "n1/0")
    assert given_up() == []
    state.put_node(replace(nodes["n1"], cards=(replace(nodes["n1"].cards[0], usable=False),)))
    assert given_up() == ["card n1/0 of node n1 takes nothing now"]
    state.put_node(nodes["n1"])
    assert given_up() == []
