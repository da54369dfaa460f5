"""Claims of gangs that wait long: what they take, how few there are, and that nobody waits for ever."""

import random
from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    CardAsk,
    CardId,
    Gang,
    MemberPlacement,
    NodeName,
    PodPhase,
    QueueName,
    Reservation,
    Share,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.standing import reservations
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial
from vc_egpu.sim.world import World

NOW = 1000.0
WHOLE = make.shape(asks=(CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),))
STREAMS = 12


def share(card: str) -> Share:
    return Share(CardId(card), make.H20_MIB, 100, whole=True)


def waiting(**more: Any) -> Snapshot:
    """Two cards: one has a pod of gang a, the other is free. Gang large has waited for both since 0."""
    gangs = [make.gang("ns/a"), make.gang("ns/large", least=2, reservation=Reservation(0.0), **more)]
    running = make.placed(make.pods("ns/a", 1, WHOLE)[0], "n1/0")
    return make.snapshot([make.node()], gangs, [running, *make.pods("ns/large", 2, WHOLE)])


def reserved(snapshot: Snapshot, now: float = NOW, policy: Policy | None = None) -> Snapshot:
    """After a decision about all gangs: what it says of reservations stands on them."""
    plan = decide(snapshot, policy or Policy(), now)
    changed = {key: replace(snapshot.gangs[key], reservation=r) for key, r in plan.reservations.items()}
    return replace(snapshot, gangs={**snapshot.gangs, **changed})


def claim_of(snapshot: Snapshot, key: str = "ns/large") -> Reservation | None:
    return snapshot.gangs[key].reservation


def test_the_time_begins_when_a_gang_is_first() -> None:
    snapshot = waiting()
    snapshot = replace(snapshot, gangs={k: replace(g, reservation=None) for k, g in snapshot.gangs.items()})
    assert claim_of(reserved(snapshot)) == Reservation(NOW)
    assert claim_of(reserved(reserved(snapshot), NOW + 299.0)) == Reservation(NOW)
    claim = claim_of(reserved(reserved(snapshot), NOW + 300.0))
    assert claim is not None
    assert (claim.since, claim.claimed, len(claim.members)) == (NOW, NOW + 300.0, 2)


def test_no_claim_is_made_where_it_is_switched_off() -> None:
    never = Policy(reserve_after_s=float("inf"))
    assert claim_of(reserved(waiting(), policy=never)) == Reservation(0.0)


def test_a_decision_about_some_gangs_knows_nobody_to_be_first() -> None:
    assert not decide(waiting(), Policy(), NOW, only=["ns/large"]).reservations


def test_a_time_far_in_the_future_begins_again() -> None:
    snapshot = waiting()
    gang = replace(snapshot.gangs["ns/large"], reservation=Reservation(NOW + 5000.0))
    assert claim_of(reserved(replace(snapshot, gangs={**snapshot.gangs, gang.key: gang}))) == Reservation(NOW)


def test_the_ledger_is_as_before_a_claim_once_it_is_taken_back() -> None:
    index = fresh_index(reserved(waiting()))
    trial = Trial(index, Policy(), NOW)
    before = trial.ledger.copy()
    reservations.book(trial)
    (claim,) = trial.claims.of(ClaimKind.RESERVATION)
    assert claim.cards == 2
    assert claim.waits_for == ("ns/a",)
    assert (trial.ledger.sharers == [[2, 1] + [0] * 6] + [[0] * 8] * 15).all()
    assert trial.ledger.memory_used[0, 0] == make.H20_MIB, "what leaves is not counted twice"
    trial.unbook(claim)
    assert (trial.ledger.sharers == before.sharers).all()
    assert (trial.ledger.used == before.used).all()


@pytest.mark.parametrize("lost", ["card", "member", "node", "cordoned"])
def test_a_claim_that_cannot_hold_is_made_once_more(lost: str) -> None:
    snapshot = reserved(waiting())
    other = make.node("n2", 2)
    nodes = {NodeName("n1"): snapshot.nodes[NodeName("n1")], other.name: other}
    pods = dict(snapshot.pods)
    match lost:
        case "card":
            nodes[NodeName("n1")] = make.node("n1", 1)
        case "member":
            pods = {uid: pod for uid, pod in pods.items() if pod.name != "ns/large-w-1"}
            pods |= {pod.uid: pod for pod in make.pods("ns/large", 1, WHOLE, "x")}
        case "node":
            pods = {uid: pod for uid, pod in pods.items() if pod.gang != "ns/a"}
            del nodes[NodeName("n1")]
        case "cordoned":
            nodes[NodeName("n1")] = replace(nodes[NodeName("n1")], unschedulable=True)
    taken = [make.placed(pod, f"n2/{at}") for at, pod in enumerate(make.pods("ns/a", 2, WHOLE, "late"))]
    pods |= {pod.uid: pod for pod in taken}
    changed = reserved(replace(snapshot, nodes=nodes, pods=pods))
    claim = claim_of(changed)
    assert claim is not None
    assert claim.since == 0.0, "it keeps its place in the line"
    claimed = {share.card for place in claim.members.values() for _, share in place.shares}
    assert len(claimed) == 2
    assert all(place.node in changed.nodes for place in claim.members.values())


def test_hostile_members_of_a_claim_are_none() -> None:
    odd = MemberPlacement(NodeName("n1"), (("main", share("n1/0")), ("main", share("nowhere/7"))))
    snapshot = waiting()
    gang = replace(snapshot.gangs["ns/large"], reservation=Reservation(NOW, NOW, {"w/0": odd, "x/9": odd}))
    index = fresh_index(replace(snapshot, gangs={**snapshot.gangs, gang.key: gang}))
    trial = Trial(index, Policy(), NOW)
    reservations.book(trial)
    assert not trial.claims.of(ClaimKind.RESERVATION)


def test_gangs_that_never_fit_keep_no_other_from_its_claim() -> None:
    queues = [make.queue(f"q{number}") for number in range(6)]
    large = [make.gang(f"ns/g{number}", queue=f"q{number}", least=3) for number in range(5)]
    last = make.gang("ns/last", queue="q5", least=2, created=9.0)
    gangs = [replace(gang, reservation=Reservation(0.0)) for gang in (*large, last)]
    waits = [pod for gang in gangs for pod in make.pods(gang.key, gang.min_member, WHOLE)]
    running = make.placed(make.pods("ns/a", 1, WHOLE)[0], "n1/0")
    snapshot = make.snapshot(
        [make.node()], [make.gang("ns/a", queue="q0"), *gangs], [running, *waits], queues
    )
    for turn in range(6):
        snapshot = reserved(snapshot, NOW + 5.0 * turn)
    claim = claim_of(snapshot, "ns/last")
    assert claim is not None
    assert len(claim.members) == 2


def stream(rng: random.Random, policy: Policy) -> float:
    """Single cards keep coming, each for some minutes. How long a gang of a whole node waits."""
    world = World(policy, {"h20": make.H20_MIB})
    for number in range(2):
        world.put_node(make.node(f"n{number}", 4, labels={"number": str(number)}))
    world.put_queue(make.queue())
    ends: dict[str, float] = {}
    born, began, one = 0, 0.0, (("w", 1, WHOLE),)
    for step in range(400):
        world.tick(15.0)
        for key in [key for key, end in ends.items() if end <= world.now]:
            world.finish(key)
            del ends[key]
        while sum(pod.phase is PodPhase.GATED for pod in world.snapshot().pods.values()) < 8:
            key = f"ns/one{born}"
            born += 1
            world.submit(Gang(key, key, QueueName("all"), ShareClass.UNSET, 0, 1, world.now), one)
        if step == 20:
            large = Gang("ns/large", "large", QueueName("all"), ShareClass.UNSET, 0, 4, world.now)
            world.submit(large, (("w", 4, replace(WHOLE, node_selector=(("number", "0"),))),))
            began = world.now
        before = world.snapshot()
        world.apply(world.decide())
        world.check(before)
        for pod in world.snapshot().pods.values():
            if pod.phase is PodPhase.PLACED and str(pod.gang).startswith("ns/one"):
                ends.setdefault(str(pod.gang), world.now + rng.uniform(60.0, 600.0))
        if step > 20 and all(pod.phase is PodPhase.PLACED for pod in world.pods_of("ns/large")):
            return world.now - began
    return float("inf")


def test_single_cards_that_keep_coming_do_not_keep_a_large_gang_waiting_for_ever() -> None:
    waits_s = [stream(random.Random(seed), Policy()) for seed in range(STREAMS)]
    # First the eight that are older start, then it is first for five minutes, then the longest runs end.
    assert max(waits_s) <= 600.0 + 300.0 + 600.0
    without_s = [stream(random.Random(seed), Policy(reserve_after_s=float("inf"))) for seed in range(2)]
    assert min(without_s) > max(waits_s), "it would have started anyway"
