"""A gang that cannot be decided keeps nobody else waiting."""

from collections.abc import Collection

from unit.admission.build import TABLE, added, group, node, pod, queue
from vc_egpu.admission.deciding import decide_safely
from vc_egpu.admission.mirror import Mirror
from vc_egpu.core.cluster import Instant, Snapshot
from vc_egpu.core.decide import decide
from vc_egpu.core.plan import Plan
from vc_egpu.core.policy import Policy


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


def test_where_nobody_can_be_decided_nothing_is_done() -> None:
    plan, more = decide_safely(world("a").snapshot(), Policy(), 1e9, None, how=poisoned)
    assert (plan.admissions, dict(plan.verdicts), more) == ((), {}, True)
