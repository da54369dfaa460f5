"""Rows of a small cluster: training and inference on one card, gangs that wait, a queue that is gone."""

from collections import Counter
from dataclasses import replace

import pytest
from property import generate
from vc_egpu.core.check import recount
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    MemberPlacement,
    Node,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Resources,
    Share,
    ShareClass,
    Snapshot,
    SuspensionState,
)
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.report.cards import CardRow, HostRow, cards, hosts
from vc_egpu.report.gangs import Condition, condition_of, gangs
from vc_egpu.report.queues import by_reason, queues, waiting
from vc_egpu.report.shares import by_card, shares

A, B = CardId("GPU-a"), CardId("GPU-b")
TEAM, ORG = QueueName("team"), QueueName("org")
WAITS = condition_of(Verdict(Reason.WAITING_FOR_CARDS, "no card is free", {"asked": 1}))
ADMITTED = condition_of(Verdict(Reason.ADMITTED, "1 member placed"))


def pod(name: str, gang: str, share: Share | None, **changes: object) -> Pod:
    ask = CardAsk("main", "h20", 1, share.memory_mib if share else 1000, share.cores_percent if share else 10)
    made = Pod(
        PodUid(f"uid-{name}"),
        "ml",
        name,
        PodShape((ask,)),
        PodPhase.PLACED if share else PodPhase.GATED,
        NodeName("n1") if share else None,
        f"ml/{gang}",
        "w",
        0,
        (("main", share),) if share else (),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def gang(name: str, share_class: ShareClass, queue: QueueName = TEAM, **changes: object) -> Gang:
    made = Gang(f"ml/{name}", f"uid-{name}", queue, share_class, 0, 1, 5.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def cluster(*pods: Pod, gang_of: tuple[Gang, ...] = (), **node: object) -> Snapshot:
    known = (gang("train", ShareClass.LOW), gang("infer", ShareClass.HIGH), *gang_of)
    host = Node(
        NodeName("n1"),
        Resources(),
        cards=(Card(A, 0, "h20", 98304), Card(B, 1, "h20", 98304, usable=False)),
        host_memory_mib=50_000,
    )
    return Snapshot(
        1,
        {host.name: replace(host, **node)},  # type: ignore[arg-type]
        {one.uid: one for one in pods},
        {one.key: one for one in known},
        {ORG: Queue(ORG), TEAM: Queue(TEAM, ORG, capability={"volcano.sh/vgpu-h20": 4})},
    )


def rows_of(snapshot: Snapshot) -> tuple[CardRow, ...]:
    return cards(snapshot, shares(snapshot))


TRAIN = pod("train-0", "train", Share(A, 61440, 100))
INFER = pod("infer-0", "infer", Share(A, 30720, 50, physical_mib=20480))


def test_a_card_and_those_who_share_it() -> None:
    shared, free = rows_of(cluster(TRAIN, INFER))
    assert [(row.pod, row.share_class, row.queue, row.model) for row in shared.shares] == [
        ("train-0", ShareClass.LOW, TEAM, "h20"),
        ("infer-0", ShareClass.HIGH, TEAM, "h20"),
    ]
    assert (shared.sharers, shared.allocated_mib, shared.free_mib) == (2, 81920, 16384)
    assert (shared.cores_percent, shared.cores_high_percent, shared.cores_low_percent) == (150, 50, 100)
    assert (shared.cores_offered_percent, shared.cores_free_percent) == (100, 0)
    assert (shared.takes_shares, free.takes_shares, free.shares, free.free_mib) == (True, False, (), 98304)


def test_a_share_without_a_class_counts_on_both_sides() -> None:
    (row, _) = rows_of(cluster(pod("x", "unknown", Share(A, 1000, 30))))
    assert (row.shares[0].share_class, row.shares[0].queue) == (None, None)
    assert (row.cores_high_percent, row.cores_low_percent) == (30, 30)


def test_a_share_that_has_left_its_card_takes_nothing_there() -> None:
    away = replace(TRAIN, suspend_ordered=True, suspension=SuspensionState.SUSPENDED)
    snapshot = cluster(away, INFER)
    (row, _) = rows_of(snapshot)
    assert (row.sharers, row.suspended, row.suspended_mib, row.allocated_mib) == (1, 1, 61440, 20480)
    assert (row.cores_percent, row.cores_low_percent) == (50, 0)
    assert row.shares[0].occupies_mib == 0
    assert hosts(snapshot, rows_of(snapshot)) == (HostRow(NodeName("n1"), 50_000, 10240, 61440),)


@pytest.mark.parametrize(
    ("changes", "booked"),
    [
        ({"suspend_ordered": True}, True),
        ({"suspension": SuspensionState.RESUMING}, True),
        ({"suspendable": True}, False),
    ],
)
def test_memory_is_booked_on_the_host_from_the_order_until_the_pod_runs(
    changes: dict[str, object], *, booked: bool
) -> None:
    (row,) = shares(cluster(replace(TRAIN, **changes)))  # type: ignore[arg-type]
    assert (row.booked_on_host, row.asleep) == (booked, False)
    assert row.could_be_suspended is (not booked)


def test_a_share_lasts_from_placement_until_its_pod_is_over() -> None:
    phases = {phase: shares(cluster(replace(TRAIN, phase=phase))) for phase in PodPhase}
    assert {phase for phase, found in phases.items() if found} == {PodPhase.PLACED, PodPhase.TERMINATING}


def test_a_share_on_a_card_that_no_node_reports_is_still_a_row() -> None:
    (row,) = shares(cluster(pod("x", "train", Share(CardId("GPU-gone"), 1, 1))))
    assert (row.model, list(by_card([row]))) == ("", ["GPU-gone"])


def test_cards_of_a_node_that_takes_nothing_say_why() -> None:
    (row, _) = rows_of(cluster(problem="the agent is away"))
    assert (row.takes_shares, row.problem) == (False, "the agent is away")


def test_a_ratio_for_one_class_is_none_for_those_without() -> None:
    assert rows_of(cluster(core_ratio=1.5))[0].cores_offered_percent == 150
    assert rows_of(cluster(core_ratio=1.5, ratio_class=ShareClass.LOW))[0].cores_offered_percent == 100


# --- gangs and queues ----------------------------------------------------------------------------


def test_gangs_wait_are_in_or_both() -> None:
    grows, asleep = gang("grows", ShareClass.UNSET), gang("asleep", ShareClass.UNSET, single=True)
    snapshot = cluster(
        TRAIN, INFER, pod("g-0", "grows", Share(B, 1, 1)), pod("g-1", "grows", None), gang_of=(grows, asleep)
    )
    said = {"ml/train": WAITS, "ml/infer": ADMITTED, "ml/grows": WAITS, "ml/asleep": WAITS}
    rows = {row.key: row for row in gangs(snapshot, said)}
    assert {key: (row.waits, row.is_in) for key, row in rows.items()} == {
        "ml/train": (True, True),
        "ml/infer": (False, True),
        "ml/grows": (True, True),
        "ml/asleep": (False, False),
    }
    assert rows["ml/train"].condition == Condition(
        admitted=False, reason="WaitingForCards", message="no card is free", numbers={"asked": 1}
    )


def test_a_gang_without_a_decision_neither_waits_nor_is_in() -> None:
    (row, _) = gangs(cluster(), {})
    assert (row.condition, row.waits, row.is_in) == (None, False, False)


def test_a_queue_and_those_who_wait_in_it() -> None:
    lost = gang("lost", ShareClass.LOW, QueueName("gone"))
    snapshot = cluster(TRAIN, INFER, gang_of=(lost,))
    rows = gangs(snapshot, {"ml/train": WAITS, "ml/infer": ADMITTED, "ml/lost": WAITS})
    org, team = queues(snapshot, recount.use_by_queue(snapshot), rows)
    assert team.used["volcano.sh/vgpu-h20-memory"] == org.used["volcano.sh/vgpu-h20-memory"] == 92160
    assert (team.parent, team.capability, team.admitted) == (ORG, {"volcano.sh/vgpu-h20": 4}, 2)
    assert team.waiting == {("WaitingForCards", ShareClass.LOW): 1}
    assert (org.waiting, org.admitted) == ({}, 0)
    assert waiting(rows).keys() == {TEAM, "gone"}
    both = {("b", ShareClass.LOW): 1, ("a", ShareClass.LOW): 2, ("b", ShareClass.HIGH): 3}
    assert list(by_reason(both).items()) == [("a", 2), ("b", 4)]


def test_a_plan_counts_before_its_pods_have_their_cards() -> None:
    placement = MemberPlacement(NodeName("n1"), (("main", Share(B, 1000, 10)),))
    planned = gang("planned", ShareClass.UNSET, plan=PlanInForce("1-1", {"w/0": placement}))
    snapshot = cluster(pod("p-0", "planned", None), gang_of=(planned,))
    assert recount.use_by_queue(snapshot)[TEAM]["volcano.sh/vgpu-h20"] == 1
    assert shares(snapshot) == ()
    (row,) = (row for row in gangs(snapshot, {}) if row.key == "ml/planned")
    assert (row.plan_id, row.holds_cards) == ("1-1", False)


@pytest.mark.parametrize("seed", range(40))
def test_shares_of_a_queue_add_up_to_what_it_uses(seed: int) -> None:
    """Others show counts that do not match their pods."""
    snapshot = generate.case(seed).snapshot
    rows = shares(snapshot)
    counted: Counter[tuple[str, str]] = Counter((str(row.queue), row.model) for row in rows)
    used = recount.own_use(snapshot)
    for queue in snapshot.queues:
        for model in generate.MEMORY:
            amounts = used.get(queue, {})
            names = (f"volcano.sh/vgpu-{model}", f"volcano.sh/gpu-{model}")
            assert counted[queue, model] == sum(amounts.get(name, 0) for name in names)
    on_cards = sum(row.allocated_mib for row in cards(snapshot, rows))
    assert on_cards == sum(row.occupies_mib for row in rows)
