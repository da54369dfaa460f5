"""Deciding when a decision itself fails: a gang that nobody can decide must not keep all others waiting.

And what is left of a decision while the operator admits nobody.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import Instant, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason, Verdict

Decide = Callable[[Snapshot, Policy, Instant, Collection[str] | None], Plan]

logger = logging.getLogger(__name__)


def decide_safely(
    snapshot: Snapshot,
    policy: Policy,
    now: Instant,
    only: Collection[str] | None,
    *,
    how: Decide = decide,
) -> tuple[Plan, bool]:
    """The decision, and whether something went wrong, so that there is more to decide.

    After a fault of ours gangs are decided one by one, up to the first that is admitted (the next would be
    decided on a world in which that one is not yet booked); those that fail are logged and left out. What
    concerns plans in force and suspended gangs is found with each of them, so the last one's plan has it.
    """
    try:
        return how(snapshot, policy, now, only), False
    except Exception:
        logger.exception("a decision failed; gangs are decided one by one")
    plan, verdicts = Plan(snapshot.revision), dict[str, Verdict]()
    for key in sorted(snapshot.gangs if only is None else only):
        try:
            plan = how(snapshot, policy, now, {key})
        except Exception:
            logger.exception("gang %s cannot be decided", key)
            continue
        verdicts.update(plan.verdicts)
        if plan.admissions:
            break
    return replace(plan, verdicts=verdicts), True


def without_admissions(plan: Plan) -> Plan:
    """The operator stopped admitting: what is planned or suspended goes on, nothing new is planned."""
    stopped = Verdict(Reason.WAITING_FOR_GATE, "admitting is stopped by the operator")
    verdicts = {**plan.verdicts, **{admission.gang: stopped for admission in plan.admissions}}
    return replace(plan, admissions=(), verdicts=verdicts)
