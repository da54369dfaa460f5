"""The decision, asked about small clusters."""

from dataclasses import replace
from typing import Any

from unit.core import make
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    PodShape,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason

HALF = make.H20_MIB // 2
LOW, HIGH = ShareClass.LOW, ShareClass.HIGH


def ask(snapshot: Snapshot, now: float = 100.0, **policy: Any) -> Plan:
    """What is decided at that time, in seconds, under a policy of which these fields differ."""
    return decide(snapshot, replace(Policy(), **policy), now)


def only_reason(plan: Plan) -> Reason:
    """Why, where one gang was decided about."""
    (verdict,) = plan.verdicts.values()
    return verdict.reason


def one_gang(count: int = 2, what: PodShape | None = None, cards: int = 2, **more: Any) -> Snapshot:
    """A gang of so many pods that wants a half of a card each, and one node."""
    gang = make.gang("g", **{"least": count, **more})
    return make.snapshot(
        [make.node("n1", cards)], [gang], make.pods("g", count, what or make.shape(HALF, 10))
    )
