"""The core against brute force, on seeded small clusters.

Asserted over all cases: of gangs whose members are alike none is refused that the oracle places without
preemption; of mixed gangs fewer than 1 in 100; caps are never broken; nobody is evicted where nobody has
to be; the cost of victims is the oracle's least in 95 percent of cases and never above twice it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
import seeds
from property import brute, generate
from property import brute_rounds as rounds
from property import brute_search as search
from vc_egpu.core.check import invariants
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    Gang,
    PlanInForce,
    Pod,
    PodPhase,
    Snapshot,
    SuspensionState,
    plan_key,
)
from vc_egpu.core.model.plan import Admission, Eviction, Plan, Suspension
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason

NOW = 2000.0
_NOUNS = {Cause.PRIORITY: "preemptions", Cause.RECLAIM: "reclaims"}


@dataclass
class Tally:
    """What was seen, over all cases."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Gangs that fit and were refused all the same."""


def judge(case: generate.Case, seed: int, tally: Tally) -> None:
    """Let the gangs of one case ask one after the other, and compare each answer with brute force."""
    snapshot = case.snapshot
    for key in case.asking:
        gang = snapshot.gangs[key]
        waiting = [pod for pod in snapshot.pods.values() if pod.gang == key and pod.phase is PodPhase.GATED]
        plan = decide(snapshot, Policy(), NOW, only=[key])
        admission = next((entry for entry in plan.admissions if entry.gang == key), None)
        kind = "alike" if case.alike[key] else "mixed"
        tally.counts[f"{kind} asked"] += 1
        tally.counts["with rules between pods"] += any(pod.shape.neighbours.marks for pod in waiting)
        free = search.placeable(snapshot, gang, waiting)
        where = f"seed {seed}, {key} ({kind})"
        tally.counts["spread and placeable"] += free and bool(waiting[0].shape.neighbours.spreads)
        if free:
            _when_free(admission, plan, kind, where, tally)
        else:
            _when_full(snapshot, gang, admission, where, tally)
        if admission is not None:
            snapshot = carry_out(snapshot, admission)
            for violation in invariants.check(snapshot, before=case.snapshot):
                tally.faults.append(f"{where}: {violation}")
            if admission.evictions or admission.suspensions:
                break  # the oracle knows no plans that wait
        elif plan.verdicts[key].reason is Reason.ADMITTED:
            tally.faults.append(f"{where}: admitted without an admission")


def _when_free(admission: Admission | None, plan: Plan, kind: str, where: str, tally: Tally) -> None:
    tally.counts[f"{kind} placeable"] += 1
    if admission is None:
        tally.counts[f"{kind} refused"] += 1
        tally.refused.append(f"{where}: {_message(plan)}")
        if kind == "alike":
            tally.faults.append(f"{where}: refused, but it fits: {_message(plan)}")
    elif admission.evictions or admission.suspensions:
        tally.faults.append(f"{where}: {admission.evictions} {admission.suspensions}, but it fits without")


def _message(plan: Plan) -> str:
    return "; ".join(verdict.message for verdict in plan.verdicts.values())


def _when_full(snapshot: Snapshot, gang: Gang, admission: Admission | None, where: str, tally: Tally) -> None:
    waiting = [pod for pod in snapshot.pods.values() if pod.gang == gang.key]
    least = rounds.least(snapshot, gang, waiting, NOW)
    if least is None:
        if admission is not None:
            tally.faults.append(f"{where}: makes room where there is none to make")
        return
    number, (late, wanted) = least
    kind = _kind(snapshot, gang, waiting, number)
    tally.counts[f"{kind} possible"] += 1
    if admission is None:
        tally.counts[f"{kind} missed"] += 1
        return
    cost = cost_of(snapshot, admission)
    tally.counts[kind] += 1
    evicted, asleep = going(snapshot, admission)
    if search.order(snapshot, evicted, asleep, NOW) != late:
        tally.faults.append(f"{where}: gangs go that have just begun, or go often; others would do")
    tally.counts["of such as have just begun, or go often"] += late[1] > 0
    tally.counts["by suspension alone"] += not admission.evictions
    tally.counts["by both"] += bool(admission.evictions and admission.suspensions)
    tally.counts[f"{kind} at least cost"] += cost == wanted
    tally.counts["with a silent node"] += any(not node.ready for node in snapshot.nodes.values())
    if cost[0] > 2 * wanted[0] or (cost[0] == wanted[0] and cost[1] > 2 * wanted[1]):
        tally.faults.append(f"{where}: victims cost {cost}, {wanted} would do ({kind})")
    _victims_are_fair(snapshot, gang, admission, where, tally)


def _kind(snapshot: Snapshot, gang: Gang, waiting: list[Pod], number: int) -> str:
    """What the victims of this round go for."""
    for shapes in search.core_choices(gang, waiting):
        found = list(rounds.distinct(rounds.rounds(snapshot, gang, shapes)))
        if number < len(found):
            quota = found[number].frees_quota
            return "preemptions in caps" if quota else f"{_NOUNS[found[number].cause]}"
    raise AssertionError("no such round")


def going(snapshot: Snapshot, admission: Admission) -> tuple[list[Pod], list[Pod]]:
    """Who is evicted, and who is suspended."""
    evicted = [snapshot.pods[uid] for eviction in admission.evictions for uid in eviction.pods]
    asleep = [snapshot.pods[uid] for entry in admission.suspensions for uid in entry.pods]
    return evicted, asleep


def cost_of(snapshot: Snapshot, admission: Admission) -> search.Cost:
    evicted, asleep = going(snapshot, admission)
    return search.cards_of(evicted), search.cards_of(asleep)


def _victims_are_fair(
    snapshot: Snapshot, preemptor: Gang, admission: Admission, where: str, tally: Tally
) -> None:
    waiting = [p for p in snapshot.pods.values() if p.gang == preemptor.key]
    chosen = [pod.shape for pod in waiting if plan_key(pod) in admission.members]
    evicted, asleep = _pods(snapshot, admission.evictions), _pods(snapshot, admission.suspensions)
    allowed = [
        one
        for one in rounds.rounds(snapshot, preemptor, chosen)
        if one.cause is admission.cause and _are_of(snapshot, admission, one)
    ]
    if not any(one.may_go([*evicted, *asleep]) for one in allowed):
        tally.faults.append(f"{where}: {sorted(pod.uid for pod in (*evicted, *asleep))} may not be victims")
        return
    if not search.guarantees_hold(snapshot, preemptor, [*evicted, *asleep]):
        tally.faults.append(f"{where}: a queue falls below its guarantee")
    if not search.hosts_hold(snapshot, asleep):
        tally.faults.append(f"{where}: a host has no room for what is suspended")
    quota = allowed[0].frees_quota
    for left_out in _going(admission):
        gone = [pod for pod in evicted if pod.uid not in left_out.pods]
        away = [pod for pod in asleep if pod.uid not in left_out.pods]
        if rounds.fits(snapshot, preemptor, chosen, gone, away, frees_quota=quota):
            tally.faults.append(f"{where}: {left_out.gang} need not have gone")


def _going(admission: Admission) -> tuple[Eviction | Suspension, ...]:
    return (*admission.evictions, *admission.suspensions)


def _pods(snapshot: Snapshot, going: Iterable[Eviction | Suspension]) -> list[Pod]:
    return [snapshot.pods[uid] for entry in going for uid in sorted(entry.pods)]


def _are_of(snapshot: Snapshot, admission: Admission, one: rounds.Round) -> bool:
    """Whether this round may take all of these, whole or by members above the minimum."""
    for entry in _going(admission):
        gang, able = snapshot.gangs[entry.gang], one.members.get(entry.gang, [])
        going = tuple(pod for pod in able if pod.uid in entry.pods)
        options = search.suspension_options if isinstance(entry, Suspension) else None
        parts = options(snapshot, gang, able) if options else search.victim_options(gang, able)
        if len(going) < len(entry.pods) or going not in parts:
            return False
    return True


def case(seed: int, *, shares: bool = False) -> generate.Case:
    """The generated case, as far as the oracle understands it."""
    found = generate.case(seed, shares=shares)
    return replace(found, snapshot=search.without_idle_guarantees(found.snapshot))


def carry_out(snapshot: Snapshot, admission: Admission) -> Snapshot:
    """The snapshot after the executor: placed at once, or planned and its victims leaving."""
    evicted = frozenset(uid for eviction in admission.evictions for uid in eviction.pods)
    suspends = frozenset(uid for entry in admission.suspensions for uid in entry.pods)
    victims = evicted | suspends
    plan = PlanInForce(
        "1-1",
        dict(admission.members),
        victims,
        NOW,
        suspends,
        admission.cause,
        admission.accounts,
        admission.relieves,
    )
    pods = dict(snapshot.pods)
    for uid in evicted:
        pods[uid] = replace(pods[uid], phase=PodPhase.TERMINATING)
    for uid in suspends:
        pods[uid] = replace(pods[uid], suspend_ordered=True, suspension=SuspensionState.SUSPENDING)
    if not victims:
        nodes, klass = brute.world(snapshot), snapshot.gangs[admission.gang].share_class
        for uid, pod in snapshot.pods.items():
            member = admission.members.get(plan_key(pod)) if pod.gang == admission.gang else None
            if member is not None:
                node = member.node or next(
                    n.node.name for n in nodes if brute.node_takes(n, pod.shape, klass)
                )
                pods[uid] = replace(
                    pod, phase=PodPhase.PLACED, node=node, shares=member.shares, plan_id="1-1", started=NOW
                )
    gang = replace(snapshot.gangs[admission.gang], plan=plan if victims else None)
    return replace(snapshot, pods=pods, gangs={**snapshot.gangs, gang.key: gang})


@pytest.mark.timeout(1800)
def test_fresh_decisions_agree_with_brute_force(oracle_cases: int) -> None:
    """Without the proportions: among so few cases they are chance."""
    tally = Tally()
    for seed in seeds.fresh(oracle_cases // 4):
        judge(case(seed), seed, tally)
    assert not tally.faults, "\n".join(tally.faults[:20])
    assert tally.counts["alike refused"] == 0


@pytest.mark.timeout(1800)
def test_what_queues_deserve_is_taken_back_as_brute_force_does(
    oracle_cases: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    for seed in range(oracle_cases):
        judge(case(seed, shares=True), seed, tally)
    for seed in seeds.fresh(oracle_cases // 8):
        judge(case(seed, shares=True), seed, tally)
    counts = tally.counts
    with capsys.disabled():
        print(f"\nreclaim, {oracle_cases} clusters: {dict(sorted(counts.items()))}")
    assert not tally.faults, "\n".join(tally.faults[:20])
    assert counts["reclaims missed"] == 0, "every queue below its share gets what it could take back"
    assert counts["reclaims at least cost"] * 100 >= 95 * counts["reclaims"]
    assert counts["reclaims"] * 25 >= oracle_cases, "too few to prove anything"


@pytest.mark.timeout(1800)
def test_decisions_agree_with_brute_force(oracle_cases: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for seed in range(oracle_cases):
        judge(case(seed), seed, tally)
    counts = tally.counts
    with capsys.disabled():
        print(f"\noracle, {oracle_cases} clusters: {dict(sorted(counts.items()))}")
    assert not tally.faults, "\n".join(tally.faults[:20])
    assert counts["alike refused"] == 0
    refused = "\n".join(tally.refused[:20])
    assert counts["mixed refused"] * 100 < counts["mixed placeable"], refused
    for kind in ("preemptions", "preemptions in caps", "reclaims"):
        assert counts[f"{kind} at least cost"] * 100 >= 95 * counts[kind]
        assert counts[f"{kind} missed"] * 100 <= counts[f"{kind} possible"]
    # A generator that never gets to the interesting cases would prove nothing.
    assert counts["alike placeable"] * 7 >= oracle_cases
    assert counts["mixed placeable"] * 9 >= oracle_cases
    assert counts["preemptions"] * 10 >= oracle_cases
    assert counts["with a silent node"] * 50 >= oracle_cases
    assert counts["with rules between pods"] * 4 >= oracle_cases
    assert counts["spread and placeable"] * 100 >= oracle_cases
    assert counts["of such as have just begun, or go often"] * 100 >= oracle_cases
    assert counts["by suspension alone"] * 50 >= oracle_cases
