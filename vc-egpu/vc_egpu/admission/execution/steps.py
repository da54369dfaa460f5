"""What has to be done next about the plan on a PodGroup, given what the API server shows. Pure.

There is no separate recovery. A leader asks the same question after it wrote a plan, when it retries a failed
write, and when it took over after a crash. The answer depends on nothing but the objects::

    plan on the PodGroup                        next step
    ------------------------------------------  ----------------------------------------------------
    unreadable, for another PodGroup, void      strip it (no gate falls for it)
    some nodes are not what they were           strip it; what was carried out keeps its cards
    too few of its members are left, none out   strip it
    waiting                                     evict its victims (the decision says when it is ready)
    ready, members still gated                  carry them out: pin, cards, gate
    ready, all carried out                      nothing; it stays as a record
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from vc_egpu.admission.state.gangs import Group, uids_by_key
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.core.model.gangs import short_of, task_of
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.codec.pod_codec import DecodedPod

ENQUEUED: Final = "Inqueue"
PENDING: Final = "Pending"


@dataclass(frozen=True, slots=True)
class Strip:
    """Remove the plan from the PodGroup."""

    why: str


@dataclass(frozen=True, slots=True)
class Carry:
    """Pin, give cards and lift the gate of these pods."""

    members: tuple[tuple[str, DecodedPod, PlannedMember], ...]


@dataclass(frozen=True, slots=True)
class BindToPods:
    """The pods of a plan made from a template exist now: name them in it before any gate falls."""

    uids: Mapping[str, PodUid]


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Let the Job's controller make the pods."""


@dataclass(frozen=True, slots=True)
class Evict:
    """The plan waits for these pods to go."""

    victims: frozenset[PodUid]


Step = Strip | Carry | BindToPods | Enqueue | Evict | None


@dataclass(frozen=True, slots=True)
class Authority:
    """Whose plans count: this leader's own, and those that it found when it took over."""

    epoch: int
    adopted: Set[str] = frozenset()
    dropped: Set[str] = frozenset()
    """Own plans whose write failed: should they turn up all the same, they are void."""

    def is_void(self, plan_id: str) -> bool:
        """Whether a plan of this id must not be followed."""
        if plan_id in self.dropped:
            return True
        return plans.epoch_of(plan_id) != self.epoch and plan_id not in self.adopted


def next_step(group: Group, members: Mapping[PodUid, DecodedPod], authority: Authority) -> Step:
    """See the module. ``members`` are the gang's pods by UID."""
    why = _unusable(group, authority)
    if why:
        return Strip(why)
    plan = group.plan
    if plan is None or not group.outstanding:
        return None
    if plan.state == "waiting":
        return Evict(plan.victims)
    unbound = [key for key in group.outstanding if plan.members[key].uid == plans.NO_UID]
    if unbound:
        return _bind(group, unbound, members)
    carried = [m for m in members.values() if m.pod.plan_id == plan.plan_id]
    if not carried and _too_few(group, members):
        return Strip("some of its pods were replaced before their gates fell")
    return Carry(
        tuple(
            (key, members[plan.members[key].uid], plan.members[key])
            for key in sorted(group.outstanding)
            if plan.members[key].uid in members
        )
    )


def _unusable(group: Group, authority: Authority) -> str:
    """Why no gate may fall for the plan as it stands; empty if it may, or if there is no plan."""
    plan = group.plan
    if group.plan_problem:
        return f"the plan is {group.plan_problem}"
    if plan is not None and authority.is_void(plan.plan_id):
        return f"plan {plan.plan_id} is void: an earlier leader wrote it after this one took over"
    if plan is not None and plan.lost:
        return f"{len(plan.lost)} members were planned on cards that are not there any more"
    return ""


def _too_few(group: Group, members: Mapping[PodUid, DecodedPod]) -> bool:
    counted = {PodPhase.PLACED, PodPhase.SUCCEEDED}
    elsewhere = [member.pod.task for member in members.values() if member.pod.phase in counted]
    return short_of(group.decoded.gang, [*elsewhere, *map(task_of, group.outstanding)]) is not None


def _bind(group: Group, unbound: list[str], members: Mapping[PodUid, DecodedPod]) -> Step:
    by_key = uids_by_key(members)
    if all(key in by_key for key in unbound):
        return BindToPods({key: by_key[key] for key in unbound})
    return Enqueue() if group.decoded.phase in {"", "Pending"} else None
