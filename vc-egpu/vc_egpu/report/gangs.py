"""Which gangs there are and what was decided for them: one row for each gang."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.core.check.recount import HOLDING
from vc_egpu.core.model.cluster import (
    Gang,
    Instant,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.gangs import OVER
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.model.resources import add_to, amounts


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
    asks: Mapping[str, int]
    """What its members ask for that have not got it, by resource name."""
    asks_since: Instant
    """When the first of them was made; of a gang whose pods are still to be made, when its PodGroup was."""

    @property
    def waits(self) -> bool:
        """Whether a decision left it waiting, in whole or in part."""
        return self.exists and self.condition is not None and not self.condition.admitted

    @property
    def is_in(self) -> bool:
        """Whether it is admitted, in whole or in part. A gang that grows beyond its cap is in and waits."""
        return self.exists and (self.holds_cards or (self.condition is not None and self.condition.admitted))


@dataclass(slots=True)
class Members:
    """What the pods of one gang make of it."""

    living: int = 0
    holding: int = 0
    """Members with cards."""
    gated: dict[PodUid, Pod] = field(default_factory=dict)

    def add(self, pod: Pod) -> None:
        """One more."""
        if pod.phase in OVER:
            return
        self.living += 1
        self.holding += bool(pod.shares) and pod.phase in HOLDING
        if pod.phase is PodPhase.GATED:
            self.gated[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        """One that was added, as it was then."""
        if pod.phase in OVER:
            return
        self.living -= 1
        self.holding -= bool(pod.shares) and pod.phase in HOLDING
        self.gated.pop(pod.uid, None)


NO_MEMBERS: Final = Members()


def gangs(snapshot: Snapshot, conditions: Mapping[str, Condition]) -> tuple[GangRow, ...]:
    """All gangs of the snapshot; ``conditions`` are by gang key."""
    members: dict[str, Members] = {}
    for pod in snapshot.pods.values():
        if pod.gang is not None:
            members.setdefault(pod.gang, Members()).add(pod)
    return tuple(
        gang_row(gang, members.get(gang.key, NO_MEMBERS), conditions.get(gang.key))
        for gang in snapshot.gangs.values()
    )


def gang_row(gang: Gang, members: Members, condition: Condition | None) -> GangRow:
    """One gang with its members."""
    gated = members.gated.values()
    return GangRow(
        key=gang.key,
        queue=gang.queue,
        share_class=gang.share_class,
        min_member=gang.min_member,
        created=gang.created,
        plan_id=gang.plan.plan_id if gang.plan is not None else "",
        condition=condition,
        exists=_has_members(single=gang.single, there=members.living > 0),
        holds_cards=members.holding > 0,
        asks=_asks(gang, gated),
        asks_since=min((pod.created for pod in gated), default=gang.created),
    )


def _asks(gang: Gang, gated: Iterable[Pod]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    counts: dict[int, tuple[PodShape, int]] = {}
    for pod in gated:  # pods of one task share their shape
        counts[id(pod.shape)] = pod.shape, counts.get(id(pod.shape), (pod.shape, 0))[1] + 1
    wanted = [(count, shape) for shape, count in counts.values()]
    for count, shape in wanted or [(count, shape) for _, count, shape in gang.template]:
        for resource, amount in amounts(shape).items():
            add_to(total, resource, count * amount)
    return total


def _has_members(*, single: bool, there: bool) -> bool:
    """Whether a gang has a living pod (``there``), or one is to come.

    A Deployment that is scaled to nothing leaves a PodGroup, and so does a batch Job that is suspended. The
    pods of a Volcano Job are always made by its controller.
    """
    return there or not single
