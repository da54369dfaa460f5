"""A gang that cannot be decided keeps nobody else waiting."""

from collections.abc import Collection
from dataclasses import replace

from unit.admission.build import TABLE, added, group, node, pod, queue
from vc_egpu.admission.decision import decide_safely
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Instant, PodUid, Snapshot
from vc_egpu.core.model.plan import Eviction, Plan
from vc_egpu.core.model.policy import Policy

LOST = Eviction("default/lost", frozenset({PodUid("lost-0")}), whole=True, cause=Cause.ROLLBACK)


ONLY = {"default/a", "default/gone", "default/c"}


def world(*names: str) -> Mirror:
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    for name in names:
        mirror.apply("podgroups", added(group(name, members=1)))
        mirror.apply("pods", added(pod(f"{name}-w-0", gang=name)))
    return mirror


def poisoned(snapshot: Snapshot, policy: Policy, now: Instant, only: Collection[str] | None = None) -> Plan:
    if only is None or "default/a" in only:
        raise ArithmeticError("a fault of ours")
    return decide(snapshot, policy, now, only)


def test_without_a_fault_there_is_one_decision() -> None:
    plan, more = decide_safely(world("a", "b").snapshot(), Policy(), 1e9, None)
    assert [admission.gang for admission in plan.admissions] == ["default/a", "default/b"]
    assert more is False


def test_the_others_are_decided_one_by_one() -> None:
    plan, more = decide_safely(world("a", "b", "c").snapshot(), Policy(), 1e9, None, how=poisoned)
    assert [admission.gang for admission in plan.admissions] == ["default/b"]
    assert more is True


def broken(snapshot: Snapshot, policy: Policy, now: Instant, only: Collection[str] | None = None) -> Plan:
    """Finds a gang that could not come back from its suspension, besides who waits."""
    plan = poisoned(snapshot, policy, now, only)
    return replace(plan, evictions=(LOST,))


def test_a_gang_that_could_not_come_back_is_evicted_all_the_same() -> None:
    waiting = world("a")
    waiting.apply("podgroups", added(group("b", members=2)))
    waiting.apply("pods", added(pod("b-w-0", gang="b")))
    plan, more = decide_safely(waiting.snapshot(), Policy(), 1e9, None, how=broken)
    assert (plan.admissions, plan.evictions, more) == ((), (LOST,), True)


def test_what_concerns_no_gang_that_waits_keeps_those_from_nothing() -> None:
    """It is found anew for each of them; an eviction that a budget forbids would be for ever."""
    plan, _ = decide_safely(world("a", "b", "c").snapshot(), Policy(), 1e9, ONLY, how=broken)
    assert [admission.gang for admission in plan.admissions] == ["default/c"]
    assert plan.evictions == (LOST,)


def test_where_nobody_can_be_decided_nothing_is_done() -> None:
    plan, more = decide_safely(world("a").snapshot(), Policy(), 1e9, None, how=poisoned)
    assert (plan.admissions, dict(plan.verdicts), more) == ((), {}, True)
