"""Decisions: when the next one is due, and what is left of one that fails or may admit no gang.

A gang for which no decision can be made must not keep all others waiting.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.admission.figures import Figures
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.core.books.state import index_of
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Instant, NodeName, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Mix, Policy
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.profiles.table import Table
from vc_egpu.core.queues.recent import averaged

Decide = Callable[[Snapshot, Policy, Instant, Collection[str] | None], Plan]

MOST_PAUSE_S: Final = 0.2
"""The longest pause between two decisions. A gang that could be admitted waits for it."""
AFTER_FAULT_S: Final = 1.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Decisions:
    """One after the other, with a pause of twice what the last one took: for writes and watches."""

    policy: Policy
    collector: Collector
    how: Decide = decide
    most_pause_s: float = MOST_PAUSE_S
    figures: Figures = field(default_factory=Figures)
    next_at: float = 0.0
    """When the next one is due, on the clock of :meth:`make`."""

    def learned(self, mix: Mix) -> None:
        """What work usually comes, for the decisions from now on."""
        if mix is not self.policy.mix:
            self.policy = replace(self.policy, mix=mix)

    def placed_by(self, profiles: Table) -> None:
        """The operator's table of placement, for the decisions from now on."""
        if profiles != self.policy.profiles:
            self.policy = replace(self.policy, profiles=profiles)

    def cannot_open(self, nodes: frozenset[NodeName]) -> None:
        """Nodes that are being emptied, and from which the API server lets nobody take our taint now."""
        if nodes != self.policy.moving.stuck:
            self.policy = replace(self.policy, moving=replace(self.policy.moving, stuck=nodes))

    def make(
        self, snapshot: Callable[[], Snapshot], only: Collection[str] | None, clock: float
    ) -> tuple[Plan, bool]:
        """Decide now: the plan, and whether something went wrong, so that there is more to decide."""
        began = time.perf_counter()
        with self.collector.held_off():
            seen, now = snapshot(), time.time()
            if self.policy.recent.half_life_s > 0:
                recent = averaged(self.policy.recent, index_of(seen).uses.total, now)
                self.policy = replace(self.policy, recent=recent)
            plan, failed = decide_safely(seen, self.policy, now, only, how=self.how)
        took_s = time.perf_counter() - began
        self.figures.decided(took_s)
        # On an idle cluster the next event is decided at once; in a storm there is time for other things.
        pause_s = AFTER_FAULT_S if failed else min(2 * took_s, self.most_pause_s)
        self.next_at = clock + pause_s
        return plan, failed


def decide_safely(
    snapshot: Snapshot,
    policy: Policy,
    now: Instant,
    only: Collection[str] | None,
    *,
    how: Decide = decide,
) -> tuple[Plan, bool]:
    """The decision, and whether something went wrong, so that there is more to decide.

    After a fault of ours gangs are decided one by one, up to the first that is admitted. The next would be
    decided on a world in which that one is not yet booked. Gangs that fail are logged and left out. What
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
    begun = (*(admission.gang for admission in plan.admissions), *plan.choices)
    verdicts = {**plan.verdicts, **dict.fromkeys(begun, stopped)}
    # Nor does any gang lose its place in the line, or leave its cards for others.
    moves = {key: move for key, move in plan.moves.items() if not move.places}
    evictions = tuple(one for one in plan.evictions if one.cause is not Cause.DEFRAGMENTATION)
    return replace(
        plan,
        admissions=(),
        verdicts=verdicts,
        reservations={},
        choices={},
        resizes=(),
        moves=moves,
        empties=(),
        evictions=evictions,
    )
