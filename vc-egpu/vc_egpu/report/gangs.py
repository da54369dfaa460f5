"""Which gangs there are and what was decided for them: one row for each gang."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vc_egpu.core.check.recount import HOLDING
from vc_egpu.core.model.cluster import Instant, PodPhase, QueueName, ShareClass, Snapshot, has_members
from vc_egpu.core.model.reasons import Reason, Verdict

_OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})


@dataclass(frozen=True, slots=True)
class Condition:
    """What was decided for a gang, as it stands on its PodGroup or comes from a decision."""

    admitted: bool
    reason: str
    message: str = ""
    numbers: Mapping[str, int | str] = field(default_factory=dict)
    since: str = ""
    """When this came about, as the API server writes times; empty where it is not known."""


def condition_of(verdict: Verdict) -> Condition:
    """A verdict of this process."""
    admitted = verdict.reason is Reason.ADMITTED
    return Condition(admitted, verdict.reason.value, verdict.message, verdict.numbers)


@dataclass(frozen=True, slots=True)
class GangRow:
    """One gang."""

    key: str
    """``namespace/name`` of its PodGroup."""
    queue: QueueName
    share_class: ShareClass
    min_member: int
    created: Instant
    plan_id: str
    """The plan in force; empty without one."""
    condition: Condition | None
    """None: no decision named this gang yet."""
    exists: bool
    """It has a living pod, or one is to come: a Deployment that is scaled to nothing has neither."""
    holds_cards: bool
    """One of its members has cards."""

    @property
    def waits(self) -> bool:
        """Whether a decision left it waiting, in whole or in part."""
        return self.exists and self.condition is not None and not self.condition.admitted

    @property
    def is_in(self) -> bool:
        """Whether it is admitted, in whole or in part. A gang that grows beyond its cap is in and waits."""
        return self.exists and (self.holds_cards or (self.condition is not None and self.condition.admitted))


def gangs(snapshot: Snapshot, conditions: Mapping[str, Condition]) -> tuple[GangRow, ...]:
    """All gangs of the snapshot; ``conditions`` are by gang key."""
    living: set[str | None] = set()
    holding: set[str | None] = set()
    for pod in snapshot.pods.values():
        if pod.phase not in _OVER:
            living.add(pod.gang)
            if pod.shares and pod.phase in HOLDING:
                holding.add(pod.gang)
    return tuple(
        GangRow(
            key=gang.key,
            queue=gang.queue,
            share_class=gang.share_class,
            min_member=gang.min_member,
            created=gang.created,
            plan_id=gang.plan.plan_id if gang.plan is not None else "",
            condition=conditions.get(gang.key),
            exists=has_members(single=gang.single, there=gang.key in living),
            holds_cards=gang.key in holding,
        )
        for gang in snapshot.gangs.values()
    )
