"""Suspended pods whose cards were gone for too long: their gang is made anew elsewhere."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Pod, ShareClass, Snapshot, SuspensionState
from vc_egpu.core.model.plan import Eviction
from vc_egpu.core.model.policy import Policy

ASLEEP: dict[str, Any] = {
    "suspend_ordered": True, "suspend_order": (1, 1), "suspension": SuspensionState.SUSPENDED,
}  # fmt: skip


def world(*, single: bool = False, **second: Any) -> Snapshot:
    """Two members asleep on a node; the second one's card is no more among its cards."""
    pods = make.pods("g", 2, make.shape(30000, 30))
    asleep = [make.placed(pods[i], f"n1/{i}", **ASLEEP) for i in range(2)]
    members = [asleep[0], replace(asleep[1], **second)]
    known = make.gang("g", share_class=ShareClass.LOW, least=1 if single else 2, single=single)
    return make.snapshot([make.node(cards=1, host_memory_mib=200000)], [known], members)


def evicted(snapshot: Snapshot) -> tuple[Eviction, ...]:
    evictions = decide(snapshot, Policy(), 1000.0).evictions
    assert all(one.cause is Cause.NODE for one in evictions)
    return evictions


def uids(snapshot: Snapshot, *numbers: int) -> frozenset[str]:
    pods: list[Pod] = list(snapshot.pods.values())
    return frozenset(pods[number].uid for number in numbers)


def test_nobody_goes_before_it_is_known_for_long() -> None:
    assert evicted(world()) == ()


def test_the_whole_gang_goes() -> None:
    there = world(stranded=True)
    assert [(one.pods, one.whole) for one in evicted(there)] == [(uids(there, 0, 1), True)]


def test_of_replicas_only_the_one_goes() -> None:
    there = world(single=True, stranded=True)
    assert [(one.pods, one.whole) for one in evicted(there)] == [(uids(there, 1), False)]


@pytest.mark.parametrize("why", ["bare", "pause_wished"])
def test_who_stays(why: str) -> None:
    """Nobody would make it anew; or somebody wishes it to wait, and a new one would not."""
    assert evicted(world(stranded=True, **{why: True})) == ()
