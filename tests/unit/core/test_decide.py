"""Decisions about one thing each; whole stories are in tests/scenario."""

from dataclasses import replace

import pytest
from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask, one_gang, only_reason
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    CardAsk,
    CardId,
    Gang,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Resources,
    Share,
    ShareClass,
    Snapshot,
    Taint,
)
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason


def test_only_the_gangs_named_are_tried() -> None:
    gangs = [make.gang("a"), make.gang("b")]
    pods = [*make.pods("a", 1, make.shape(1024, 0)), *make.pods("b", 1, make.shape(1024, 0))]
    plan = decide(make.snapshot([make.node()], gangs, pods), Policy(), 0.0, only={"b", "no-such-gang"})
    assert [entry.gang for entry in plan.admissions] == ["b"]
    assert set(plan.verdicts) == {"b"}


def test_a_gang_too_large_to_plan_is_told_the_limit() -> None:
    plan = ask(one_gang(5), max_gang_members=4)
    assert plan.verdicts["g"].reason is Reason.EXCEEDS_CAP
    assert plan.verdicts["g"].message == "has 5 members; a gang may have 4 at most"


def test_members_that_succeeded_count_towards_the_minimum() -> None:
    snapshot = one_gang(2)
    pods = list(snapshot.pods.values())
    done = replace(pods[0], phase=PodPhase.SUCCEEDED)
    plan = ask(replace(snapshot, pods={done.uid: done, pods[1].uid: pods[1]}))
    assert set(plan.admissions[0].members) == {"w/1"}


def test_finished_gangs_get_no_verdict() -> None:
    snapshot = one_gang(1)
    pods = {uid: replace(pod, phase=PodPhase.FAILED) for uid, pod in snapshot.pods.items()}
    assert ask(replace(snapshot, pods=pods)).verdicts == {}


def test_blocked_nodes_are_left_out_and_named() -> None:
    plan = ask(one_gang(1, blocked_nodes=frozenset({NodeName("n1")})))
    assert plan.verdicts["g"].reason is Reason.WAITING_FOR_CARDS
    assert "n1 (refused a member lately)" in plan.verdicts["g"].message


def test_a_node_with_a_problem_takes_no_shares_but_plain_pods() -> None:
    node = make.node("n1", problem="its inventory is garbage")
    gang = make.gang("g", least=1)
    with_card = make.snapshot([node], [gang], make.pods("g", 1, make.shape(1024, 0)))
    without = make.snapshot([node], [gang], make.pods("g", 1, make.shape()))
    assert only_reason(ask(with_card)) is Reason.WAITING_FOR_CARDS
    assert only_reason(ask(without)) is Reason.ADMITTED


def test_cards_by_uuid_and_by_model() -> None:
    chosen = make.shape(1024, 0, use_cards=frozenset({CardId("n1/1")}))
    avoided = make.shape(1024, 0, avoid_cards=frozenset({CardId("n1/0"), CardId("n1/1")}))
    other_model = make.shape(1024, 0, avoid_models=frozenset({"h20"}))
    plan = ask(one_gang(1, chosen))
    assert plan.admissions[0].members["w/0"].shares[0][1].card == "n1/1"
    assert only_reason(ask(one_gang(1, avoided))) is Reason.WAITING_FOR_CARDS
    assert not ask(one_gang(1, other_model)).admissions
    for models, admitted in (({"h20", "t4"}, True), ({"t4"}, False)):
        named = make.shape(1024, 0, use_models=frozenset(models))
        assert bool(ask(one_gang(1, named)).admissions) is admitted
    behind = replace(
        one_gang(1, chosen), nodes={node.name: node for node in (make.node("n0", 0), make.node("n1", 2))}
    )
    assert ask(behind).admissions, "whatever nodes without cards there are"


def test_a_pod_with_two_containers_gets_cards_for_both() -> None:
    asks = (CardAsk("a", "h20", 1, HALF, 50), CardAsk("b", "h20", 1, make.H20_MIB, 0))
    plan = ask(one_gang(1, make.shape(asks=asks)))
    shares = dict(plan.admissions[0].members["w/0"].shares)
    assert shares["a"].card != shares["b"].card, "beside a full card's memory nothing fits"


def test_host_ports_are_taken_once_per_node() -> None:
    what = make.shape(1024, 0, host_ports=(("", "TCP", 8080),))
    assert only_reason(ask(one_gang(2, what))) is Reason.WAITING_FOR_CARDS
    assert only_reason(ask(one_gang(1, what))) is Reason.ADMITTED


def test_pods_of_others_take_their_room_on_the_node() -> None:
    snapshot = one_gang(1, make.shape(1024, 0, cpu_milli=2000), cards=1)
    node = make.node("n1", 1, cpu_milli=4000)
    other = Pod(
        PodUid("x"), "kube-system", "x", PodShape(requests=Resources(3000)), PodPhase.PLACED, node.name
    )
    full = replace(snapshot, nodes={node.name: node}, pods={**snapshot.pods, other.uid: other})
    verdict = ask(full).verdicts["g"]
    assert verdict.reason is Reason.WAITING_FOR_CARDS
    assert "but their nodes lack cpu" in verdict.message
    assert verdict.numbers["free_cards_only"] == 96


@pytest.mark.parametrize(
    ("lacks", "word"),
    [
        (Resources(1900, 9 << 30, 9 << 30, 110), "cpu"),
        (Resources(64000, 1 << 30, 9 << 30, 110), "memory"),
        (Resources(64000, 9 << 30, 1 << 30, 110), "disk"),
        (Resources(64000, 9 << 30, 9 << 30, 1), "room for another pod"),
        (Resources(64000, 9 << 30, 9 << 30, 110), "rdma/hca"),
    ],
)
def test_what_is_short_beside_cards_is_named(lacks: Resources, word: str) -> None:
    """Of all that two members ask for, each but one is there in plenty."""
    has = {"rdma/hca": 1 if word == "rdma/hca" else 9}
    node = make.node("n1", 2, allocatable=replace(lacks, scalars=has))
    asks = Resources(1000, 1 << 30, 1 << 30, scalars={"rdma/hca": 1})
    snapshot = one_gang(2, make.shape(HALF, 10, requests=asks))
    verdict = ask(replace(snapshot, nodes={node.name: node})).verdicts["g"]
    assert verdict.message.endswith(f". Cards for 2 are free, but their nodes lack {word}")


@pytest.mark.parametrize(
    ("slots", "port", "word"),
    [(1, 8080, "slots of volcano.sh/vgpu-h20"), (9, 80, "host port 80"), (9, 8080, "")],
)
def test_slots_and_ports_that_are_short_are_named(slots: int, port: int, word: str) -> None:
    node = make.node("n1", 2, slots={"volcano.sh/vgpu-h20": slots})
    shape = make.shape(HALF, 10)
    other = Pod(
        PodUid("x"), "ns", "x", replace(shape, host_ports=(("", "TCP", 80),)), PodPhase.PLACED, node.name
    )
    snapshot = one_gang(1, replace(shape, host_ports=(("", "TCP", port),)))
    pods = {**snapshot.pods, other.uid: other}
    verdict = ask(replace(snapshot, nodes={node.name: node}, pods=pods)).verdicts["g"]
    end = f". Cards for 1 are free, but their nodes lack {word}" if word else "1 member placed"
    assert verdict.message.endswith(end)


def test_members_without_cards_are_told_what_is_short_and_of_no_cards() -> None:
    shut = make.node("n2", 1, taints=(Taint("dedicated", "", "NoSchedule"),), cpu_milli=9000)
    full = make.node("n3", 1, taints=(Taint("dedicated", "", "NoSchedule"),))
    nodes = [make.node("n1", 1, cpu_milli=4000), shut, full]
    launchers = make.pods("g", 2, make.shape(cpu_milli=8000))
    plan = ask(make.snapshot(nodes[:1], [make.gang("g", least=2)], launchers))
    told = "asks for 2 members without cards, 8000 milli-CPU each; none of 2 members would find a place now"
    assert plan.verdicts["g"].message == f"{told}. The nodes lack cpu"
    other = Pod(PodUid("x"), "ns", "x", PodShape(requests=Resources(63000)), PodPhase.PLACED, full.name)
    plan = ask(make.snapshot(nodes[1:], [make.gang("g", least=2)], [*launchers, other]))
    assert plan.verdicts["g"].message == f"{told}. Nodes with room that do not take it: n2 (taint dedicated)"


def test_a_share_that_an_agent_still_holds_is_taken() -> None:
    snapshot = one_gang(1, make.shape(HALF, 0), cards=1)
    held = {CardId("n1/0"): ((PodUid("gone"), Share(CardId("n1/0"), HALF + 1024, 10)),)}
    assert only_reason(ask(replace(snapshot, held=held))) is Reason.WAITING_FOR_CARDS
    living = {CardId("n1/0"): ((next(iter(snapshot.pods)), Share(CardId("n1/0"), HALF + 1024, 10)),)}
    assert only_reason(ask(replace(snapshot, held=living))) is Reason.ADMITTED, (
        "a living pod counts by itself"
    )


# --- making room -------------------------------------------------------------------------------------


def test_no_preemption_where_it_is_switched_off_or_not_for_high() -> None:
    train = make.gang("train", share_class=LOW)
    low = make.placed(make.pods("train", 1, make.shape(make.H20_MIB, 100))[0], "n1/0")
    for share_class, policy, evicts in (
        (HIGH, True, True),
        (HIGH, False, False),
        (ShareClass.UNSET, True, False),
    ):
        infer = make.gang("g", share_class=share_class)
        snapshot = make.snapshot(
            [make.node("n1", 1)], [train, infer], [low, *make.pods("g", 1, make.shape(HALF, 50))]
        )
        plan = ask(snapshot, preemption=policy)
        assert bool(plan.admissions) is evicts


def test_victims_of_one_gang_are_not_counted_on_by_the_next() -> None:
    train = make.gang("train", share_class=LOW)
    low = make.placed(make.pods("train", 1, make.shape(make.H20_MIB, 100))[0], "n1/0")
    gangs = [train, make.gang("a", share_class=HIGH), make.gang("b", share_class=HIGH, created=1.0)]
    pods = [low, *make.pods("a", 1, make.shape(HALF + 1, 50)), *make.pods("b", 1, make.shape(HALF + 1, 50))]
    plan = ask(make.snapshot([make.node("n1", 1)], gangs, pods))
    assert [entry.gang for entry in plan.admissions] == ["a"]
    assert plan.verdicts["b"].reason is Reason.WAITING_FOR_CARDS
    small = [low, pods[1], *make.pods("b", 1, make.shape(1024, 10))]
    plan = ask(make.snapshot([make.node("n1", 1)], gangs, small))
    assert "already leaving" in plan.verdicts["b"].message


def test_ties_cost_fewer_gangs_then_least_run_time() -> None:
    def cluster(*running: tuple[str, tuple[str, ...], float]) -> Snapshot:
        gangs = [make.gang(key, share_class=LOW, least=len(cards)) for key, cards, _ in running]
        pods: list[Pod] = []
        for key, cards, started in running:
            gated = make.pods(key, len(cards), make.shape(make.H20_MIB, 100))
            pods += [make.placed(pod, card, started=started) for pod, card in zip(gated, cards, strict=True)]
        gangs.append(make.gang("g", share_class=HIGH, least=2))
        pods += make.pods("g", 2, make.shape(HALF + 1, 50))
        return make.snapshot([make.node("n1", 4)], gangs, pods)

    plan = ask(cluster(("a", ("n1/0",), 50.0), ("b", ("n1/1",), 50.0), ("c", ("n1/2", "n1/3"), 0.0)))
    assert [entry.gang for entry in plan.admissions[0].evictions] == ["c"], "one gang rather than two"
    plan = ask(cluster(("a", ("n1/0", "n1/1"), 10.0), ("c", ("n1/2", "n1/3"), 20.0)))
    assert [entry.gang for entry in plan.admissions[0].evictions] == ["c"], "the younger one has less to lose"


def test_many_candidates_leave_nobody_evicted_in_vain() -> None:
    gangs: list[Gang] = []
    pods: list[Pod] = []
    for number in range(60):
        key = f"low-{number:02d}"
        size = 1 + number % 3
        gangs.append(make.gang(key, share_class=LOW, least=size))
        for pod in make.pods(key, size, make.shape(make.H20_MIB // 3, 30)):
            spot = (len(pods)) // 3
            pods.append(make.placed(pod, f"n{spot // 4}/{spot % 4}", started=float(number)))
    nodes = [make.node(f"n{i}", 4) for i in range(len(pods) // 12 + 1)]
    infer = make.gang("g", share_class=HIGH, least=6)
    asking = make.pods("g", 6, make.shape(make.H20_MIB * 2 // 3, 50))
    full = nodes[: len(pods) // 12]
    on_full = [pod for pod in pods if pod.node in {node.name for node in full}]
    snapshot = make.snapshot(full, [*gangs, infer], [*on_full, *asking])
    (admission,) = [entry for entry in ask(snapshot).admissions if entry.gang == "g"]
    assert admission.evictions
    for left_out in admission.evictions:
        gone = {uid for entry in admission.evictions if entry is not left_out for uid in entry.pods}
        rest = {uid: pod for uid, pod in snapshot.pods.items() if uid not in gone}
        plan = ask(replace(snapshot, pods=rest), preemption=False)
        assert all(entry.gang != "g" for entry in plan.admissions), f"{left_out.gang} went in vain"


@pytest.mark.parametrize("created", [95.0, 30.0])
def test_cards_of_a_failed_member_are_kept_for_a_while(created: float) -> None:
    runs = make.gang("runs", least=2)
    pods = make.pods("runs", 2, make.shape(make.H20_MIB, 100))
    alive = make.placed(pods[0], "n1/0")
    failed = make.placed(pods[1], "n1/1", phase=PodPhase.FAILED, finished=created)
    rival = make.gang("g", share_class=HIGH)
    snapshot = make.snapshot(
        [make.node("n1", 2)], [runs, rival], [alive, failed, *make.pods("g", 1, make.shape(HALF, 50))]
    )
    plan = ask(snapshot, 100.0)
    kept = created > 40.0
    assert bool(plan.admissions) is not kept
    without_object = replace(snapshot, pods={u: p for u, p in snapshot.pods.items() if u != failed.uid})
    plan = ask(replace(without_object, kept={failed.uid: failed}), 100.0)
    assert bool(plan.admissions) is not kept


def test_a_replacement_is_not_carried_out_once_another_member_has_gone() -> None:
    plan = PlanInForce(
        "1-2", {"w/0": MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/0"), HALF, 10)),))}
    )
    gang = make.gang("g", least=2, plan=plan)
    pods = make.pods("g", 2, make.shape(HALF, 10))
    both_gated = make.snapshot([make.node()], [gang], pods)
    assert ask(both_gated).withdrawals[0].why == "1 of 2 members are there"
    running = make.placed(pods[1], "n1/1", plan_id="1-1")
    assert not ask(make.snapshot([make.node()], [gang], [pods[0], running])).withdrawals


def test_a_mixed_gang_is_placed_where_no_order_of_its_tasks_would_do() -> None:
    """Two cards of 100, four members of 30 and four of 20: only two of each on either card."""
    percent = make.H20_MIB // 100
    large, small = make.shape(30 * percent, 0), make.shape(20 * percent, 0)
    pods = [*make.pods("g", 4, large, task="large"), *make.pods("g", 4, small, task="small")]
    plan = ask(make.snapshot([make.node("n1", 2)], [make.gang("g", least=8)], pods))
    members = plan.admissions[0].members
    on_first = [
        key.partition("/")[0] for key, member in members.items() if member.shares[0][1].card == "n1/0"
    ]
    assert sorted(on_first) == ["large", "large", "small", "small"]


@pytest.mark.parametrize(
    ("gone_by", "waits"), [(None, True), (90.0, True), (10.0, False), (604_900.0, False)]
)
def test_pods_gone_long_ago_or_only_next_week_are_not_waited_for(gone_by: float | None, waits: bool) -> None:
    ending, train = make.gang("ending"), make.gang("train", share_class=LOW)
    pods = [
        make.placed(make.pods("ending", 1, make.shape(make.H20_MIB, 100))[0], "n1/0",
                    phase=PodPhase.TERMINATING, gone_by=gone_by),
        make.placed(make.pods("train", 1, make.shape(make.H20_MIB, 100))[0], "n1/1"),
        *make.pods("g", 1, make.shape(HALF, 50)),
    ]  # fmt: skip
    infer = make.gang("g", share_class=HIGH)
    plan = ask(make.snapshot([make.node("n1", 2)], [ending, train, infer], pods), 100.0)
    assert bool(plan.admissions) is not waits


def test_evicted_surplus_keeps_no_cards() -> None:
    train = make.gang("train", share_class=LOW, least=1)
    pods = make.pods("train", 2, make.shape(make.H20_MIB, 100))
    stays = make.placed(pods[0], "n1/0")
    killed = make.placed(pods[1], "n1/1", phase=PodPhase.FAILED, finished=99.0)
    snapshot = make.snapshot(
        [make.node("n1", 2)],
        [train, make.gang("g")],
        [stays, killed, *make.pods("g", 1, make.shape(HALF, 50))],
    )
    assert ask(snapshot, 100.0).admissions
