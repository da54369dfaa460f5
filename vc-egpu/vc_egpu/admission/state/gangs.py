"""A PodGroup, its members and its plan, as one gang of the decision. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.admission.kept.earlier_runs import EarlierRuns
from vc_egpu.admission.state import answers, backoffs
from vc_egpu.admission.state.backoffs import RolledBack
from vc_egpu.admission.state.tally import Tally
from vc_egpu.core.model.cluster import (
    Gang,
    Instant,
    Move,
    Node,
    NodeName,
    PlanInForce,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    Reservation,
    Resources,
    ShareClass,
    plan_key,
)
from vc_egpu.core.model.gangs import OVER
from vc_egpu.core.model.neighbours import NEEDED, SPREAD
from vc_egpu.core.model.plan import Admission
from vc_egpu.core.profiles.table import MOST_LABELS, NO_TRAITS, Traits, Wants
from vc_egpu.volcano.codec import gang_notes, plans
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup, Owner
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.network.bounds import partitions_of, subgroup_of
from vc_egpu.volcano.words import makers
from vc_egpu.volcano.words.annotations import AnnotationError
from vc_egpu.volcano.words.payer import payer


@dataclass(frozen=True, slots=True)
class Template:
    """The pods that a Job will have once its controller makes them; without rows no pod is waited for."""

    rows: tuple[tuple[str, int, PodShape], ...] = ()
    """(task, replicas, shape)"""
    share_class: ShareClass | None = None
    queue: str = ""
    """The Job's, which was checked; empty where it names none."""


NO_TEMPLATE = Template()


@dataclass(slots=True)
class Group:
    """A PodGroup, the plan that stands on it, and the plan that is being written."""

    decoded: DecodedGroup
    plan: PlanRecord | None = None
    plan_problem: str = ""
    booked: PlanRecord | None = None
    outstanding: set[str] = field(default_factory=set)
    """Keys of planned members that have not been carried out."""
    opened: str = ""
    """The note on a roll-back whose nodes are left out no longer."""
    first_since: Instant = 0.0
    """Since when it has been the first of its queue and class that lacks only cards; 0: it is not."""
    claim: Reservation | None = None
    """What is claimed for it, as it stands on the PodGroup or is being written there."""
    move: Move | None = None
    """What stands on the PodGroup of its way to other cards."""
    choosing: str = ""
    """The choice that is being written together with a plan."""
    ours: bool = False
    """It had members that ask for cards, or a plan: of other PodGroups nothing is decided, nor told."""

    @property
    def effective(self) -> PlanRecord | None:
        """The plan that counts."""
        return self.booked or self.plan

    @property
    def waits(self) -> bool:
        """Whether its plan stands and waits for victims."""
        return (
            self.booked is None
            and self.plan is not None
            and self.plan.state == "waiting"
            and bool(self.outstanding)
        )

    @property
    def reservation(self) -> Reservation | None:
        """What the decision is to know of its place in the line."""
        return self.claim or (Reservation(self.first_since) if self.first_since else None)

    def reserve(self, reservation: Reservation | None) -> None:
        """The decision says so; a claim is to be written, or taken off."""
        self.first_since = reservation.since if reservation is not None else 0.0
        self.claim = reservation if reservation is not None and reservation.members else None

    def read_claim(self, nodes: Mapping[NodeName, Node], first_since: Instant = 0.0) -> None:
        """Read the annotation against the present inventory. ``first_since``: where it does not say so."""
        found = gang_notes.decode_reservation(self.decoded.reserved, self.decoded.gang.uid, nodes)
        self.claim = found if found is not None and found.members else None
        self.first_since = found.since if found is not None else first_since

    def read_move(self, nodes: Mapping[NodeName, Node]) -> None:
        """Read the annotation against the present inventory."""
        self.move = gang_notes.decode_move(self.decoded.moved, self.decoded.gang.uid, nodes)

    def read_plan(self, nodes: Mapping[NodeName, Node]) -> None:
        """Read the plan annotation against the present inventory."""
        self.plan, self.plan_problem = None, ""
        text = self.decoded.plan_text
        if not text:
            return
        try:
            plan = plans.decode(text, nodes)
        except AnnotationError as error:
            self.plan_problem = f"malformed: {error}"
            return
        if plan.group_uid != self.decoded.gang.uid:
            self.plan_problem = f"made for another PodGroup ({plan.group_uid})"
            return
        self.plan = plan


@dataclass(frozen=True, slots=True)
class _Rank:
    """What the members of a gang make of it."""

    share_class: ShareClass
    priority_value: int
    queue: QueueName


def _rank_of(group: Group, tally: Tally, template: Template, carried: Iterable[ShareClass] = ()) -> _Rank:
    """``carried``: as what those members run for which the plan in force has been carried out.

    A plan is carried out to its end as what it was made for: who is left becomes no more than was booked.
    """
    gang = group.decoded.gang
    named = gang.share_class if template.share_class is None else template.share_class
    share_class, priority_value = tally.rank(named)
    queue = QueueName(payer(gang.queue, (template.queue, *tally.queues())))
    return _Rank(min((share_class, *carried)), priority_value, queue)


def gang_of(
    group: Group,
    members: Mapping[PodUid, DecodedPod],
    tally: Tally,
    template: Template,
    traits: Traits = NO_TRAITS,
) -> Gang:
    """The gang with what its members and its plan say now. ``tally``: of these members."""
    rank = _rank_of(group, tally, template, _carried_as(group, members))
    retry = backoffs.decode(group.decoded.rolled_back)
    opened = group.opened == group.decoded.rolled_back
    plan = group.effective
    in_force = None
    if plan is not None and group.outstanding:
        in_force = PlanInForce(
            plan_id=plan.plan_id,
            members={k: plan.members[k].placement for k in group.outstanding},
            victims=plan.victims,
            created=plan.created,
            suspends=plan.suspends,
            cause=plan.cause,
            accounts=plan.accounts,
            relieves=plan.relieves,
            rule=plan.rule,
        )
    return replace(
        group.decoded.gang,
        queue=rank.queue,
        share_class=rank.share_class,
        priority_value=rank.priority_value,
        plan=in_force,
        blocked_nodes=frozenset() if opened else retry.nodes,
        not_before=retry.until,
        most_per_node=0 if opened else retry.most,
        spares_since=0.0 if _has_arrived(group, members, retry) else retry.spared,
        takes_free_room=retry.kubelet and not opened,
        template=template.rows,
        partitions=partitions_of(group.decoded.subgroups, [task for task, _, _ in template.rows]),
        reservation=group.reservation,
        move=group.move,
        choice=group.choosing or group.decoded.gang.choice,
        traits=traits,
    )


def traits_of(group: Group, members: Mapping[PodUid, DecodedPod], asked: Wants, runs: EarlierRuns) -> Traits:
    """What rules of placement ask about a gang."""
    if asked.nothing:
        return NO_TRAITS
    labels = {(key, str(group.decoded.labels[key])) for key in asked.labels if key in group.decoded.labels}
    maker, pods_labels = group.decoded.owner, dict[str, str]()
    for uid in sorted(members) if asked.of_members or maker is None else ():
        member = members[uid]
        if maker is None or maker.uid == uid:  # the pod's own PodGroup, or one that nobody owns
            maker = member.owner
        pods_labels = pods_labels or dict(member.labels)
        labels |= {(key, member.labels[key]) for key in asked.labels if key in member.labels}
    namespace = group.decoded.gang.key.partition("/")[0]
    habit = runs.of(namespace, maker)
    return asked.traits(_kind_of(maker, pods_labels), labels, habit.words, habit.uses_points)


_REPLICA_SET: Final = "ReplicaSet"


def _kind_of(maker: Owner | None, labels: Mapping[str, str]) -> str:
    """As rules name it: ``Deployment`` stands for its ReplicaSets, ``Pod`` for a pod that nothing makes."""
    if maker is None:
        return "Pod"
    if maker.is_volcano_job:
        return "VolcanoJob"
    return "Deployment" if makers.deployment_behind(maker.kind, maker.name, labels) else maker.kind


def may_have_other_traits(known: Gang | None, now: DecodedPod | None, asked: Wants) -> bool:
    """Whether a member that came or changed says more of its gang than is known: by a label, or by the
    Deployment behind its ReplicaSet."""
    if known is None or now is None or asked.nothing:
        return False
    if asked.owner and known.traits.owner == _REPLICA_SET and _kind_of(now.owner, now.labels) != _REPLICA_SET:
        return True
    has = set(known.traits.labels)
    return len(has) < MOST_LABELS and any(
        (key, now.labels[key]) not in has for key in asked.labels if key in now.labels
    )


def _has_arrived(group: Group, members: Mapping[PodUid, DecodedPod], retry: RolledBack) -> bool:
    """Whether the scheduler has bound a plan made after the roll-back. A refused plan is taken off."""
    plan = group.plan
    if not retry.spared or plan is None or group.outstanding or plan.created <= retry.at:
        return False
    return all(m.bound for m in members.values() if m.pod.phase is PodPhase.PLACED)


def may_spare(group: Group, known: Gang, now: DecodedPod | None) -> bool:
    """Whether a member that changed so may say otherwise whether others go for its gang."""
    if known.spares_since:
        return now is None or now.bound
    is_on_its_way = now is not None and now.pod.phase is PodPhase.PLACED and not now.bound
    return is_on_its_way and bool(group.decoded.rolled_back)


def _carried_as(group: Group, members: Mapping[PodUid, DecodedPod]) -> set[ShareClass]:
    """As what those members run that were let go for the plan of which others are still outstanding."""
    plan = group.effective if group.outstanding else None
    if plan is None:
        return set()
    let_go = (members.get(planned.uid) for planned in plan.members.values())
    pods = [found.pod for found in let_go if found is not None and found.pod.plan_id == plan.plan_id]
    return {pod.runs_as for pod in pods if pod.runs_as is not None}


def is_another(group: Group, tally: Tally, template: Template, known: Gang) -> bool:
    """Whether what members say makes another gang of it than is known; not whether its plan does."""
    rank = _rank_of(group, tally, template)
    if known.plan is not None and rank.share_class >= known.share_class:
        return rank.queue != known.queue  # until its plan is carried out it rises to nothing
    return rank != _Rank(known.share_class, known.priority_value, known.queue)


def called(group: Group, members: Iterable[DecodedPod]) -> str:
    """What people call a gang: ``Deployment infer/chat``, by what makes its pods; else its PodGroup."""
    key, owner = group.decoded.gang.key, group.decoded.owner
    if owner is None:
        return f"gang {key}"
    labels = next((member.labels for member in members if member.owner == owner), {})
    return makers.called(key.partition("/")[0], owner.kind, owner.name, labels)


def as_planned(decoded: DecodedPod, group: Group | None, refused: str = "") -> DecodedPod:
    """A member without cards carries no annotation: being ungated is its plan id.

    ``refused``: why the API server lets us not write to it.
    """
    decoded = _in_subgroup(as_owned(decoded, group, refused), group)
    pod = decoded.pod
    if pod.shape.asks or pod.shape.options or decoded.waiting or group is None:
        return decoded
    plan = group.effective
    if plan is None or pod.plan_id == plan.plan_id:
        return decoded
    planned = any(member.uid == pod.uid for member in plan.members.values())
    return replace(decoded, pod=replace(pod, plan_id=plan.plan_id)) if planned else decoded


def _in_subgroup(decoded: DecodedPod, group: Group | None) -> DecodedPod:
    """The PodGroup says which members have to be near each other, by their labels."""
    name = subgroup_of(group.decoded.subgroups, decoded.labels) if group is not None else ()
    if name == decoded.pod.subgroup:
        return decoded
    return replace(decoded, pod=replace(decoded.pod, subgroup=name))


def as_owned(decoded: DecodedPod, group: Group | None, refused: str = "") -> DecodedPod:
    """What keeps a pod from being a member: its own words, its PodGroup's owner, or a refused write.

    A pod that came before its PodGroup is no member of another owner's PodGroup.
    Its own PodGroup has no owner, or belongs to what makes the pod, or to the pod (the leader of a set).
    """
    said = decoded.words.problem if decoded.words is not None else decoded.problem
    if not decoded.group_unseen and not refused and said == decoded.problem:
        return decoded
    owner = group.decoded.owner if group is not None and decoded.group_unseen else None
    theirs = ""
    if owner is not None and owner.uid not in {decoded.pod.uid, decoded.owner.uid if decoded.owner else ""}:
        theirs = (
            f"its PodGroup came after it and belongs to {owner.kind} {owner.name!r}, not to what makes it"
        )
    problem = "; ".join(text for text in (said, theirs, refused) if text)
    return decoded if problem == decoded.problem else replace(decoded, problem=problem)


def plan_for(
    admission: Admission, group: Group, members: Mapping[PodUid, DecodedPod], plan_id: str, now: Instant
) -> PlanRecord:
    """What is to be written for an admission: with victims it waits for them."""
    uids = uids_by_key(members)
    suspends = frozenset(uid for suspension in admission.suspensions for uid in suspension.pods)
    victims = suspends | {uid for eviction in admission.evictions for uid in eviction.pods}
    return PlanRecord(
        plan_id=plan_id,
        group_uid=group.decoded.gang.uid,
        state="waiting" if victims else "ready",
        members={k: PlannedMember(p, uids.get(k, plans.NO_UID)) for k, p in admission.members.items()},
        victims=victims,
        suspends=suspends,
        cause=admission.cause,
        accounts=admission.accounts,
        relieves=admission.relieves,
        rule=admission.rule,
        created=now,
        costly=bool(victims) or _is_in_debt(group, members),
    )


def _is_in_debt(group: Group, members: Mapping[PodUid, DecodedPod]) -> bool:
    """Whether others went for an earlier plan some of whose members have not arrived yet."""
    on_their_way = any(m.pod.phase is PodPhase.PLACED and not m.bound for m in members.values())
    return group.plan is not None and group.plan.costly and on_their_way


def uids_by_key(members: Mapping[PodUid, DecodedPod]) -> dict[str, PodUid]:
    """The members that a new plan can name, by their key in it: those that wait for us alone.

    Where several have one key it is the one that decisions see.
    """
    waiting = ((uid, members[uid]) for uid in sorted(members) if members[uid].pod.phase is PodPhase.GATED)
    return {
        plan_key(m.pod): uid
        for uid, m in waiting
        if not m.problem and not m.pod.other_gates and not m.pod.shape.is_open
    }


def planned_as(group: Group, uid: PodUid) -> list[str]:
    """Under which keys the plan that is being carried out still names this pod."""
    plan = group.effective
    return [key for key in group.outstanding if plan is not None and plan.members[key].uid == uid]


def to_review(before: DecodedPod | None, now: DecodedPod | None, group: Group) -> set[NodeName]:
    """Nodes that were planned for a pod that asks for something else now, or came after its plan.

    Others may add node selectors and tolerations to pods while they are gated. One that was let go asks for
    something else as well, the node that it was pinned to: nothing is left to be looked at.
    """
    if now is None or now.pod.phase is not PodPhase.GATED or not group.outstanding:
        return set()
    if before is not None and before.pod.shape == now.pod.shape:
        return set()
    planned = group.effective.members.get(plan_key(now.pod)) if group.effective is not None else None
    node = planned.placement.node if planned is not None else None
    return {node} if node is not None else set()


def planned_otherwise(before: Gang | None, now: Gang) -> set[NodeName]:
    """Nodes that were planned for the gang when it was of another class: it may not fit there as this one."""
    if now.plan is None or before is None or before.share_class is now.share_class:
        return set()
    return {member.node for member in now.plan.members.values() if member.node is not None}


def may_help(before: DecodedPod, now: DecodedPod) -> bool:
    """Whether a decision may come out differently; a pod that goes where it was planned helps no gang."""
    if (before.pod.phase, now.pod.phase) == (PodPhase.GATED, PodPhase.PLACED):
        return False
    return (
        before.pod.phase is not now.pod.phase
        or before.problem != now.problem
        or before.share_class != now.share_class
        or before.pod.other_gates != now.pod.other_gates
        or before.pod.shape != now.pod.shape
        or before.pod.resize != now.pod.resize
        or before.pod.protected != now.pod.protected
        or before.pod.subgroup != now.pod.subgroup
    )


def is_one_more(now: DecodedPod, group: Group | None, members: Mapping[PodUid, DecodedPod]) -> bool:
    """Whether a pod that came changes nothing about its gang but how many it still waits for.

    Pods come one by one: to decide about the gang at each of them, before it is complete, does not help.
    """
    if group is None or group.effective is not None:
        return False
    if not 1 < len(members) < group.decoded.gang.min_member:
        return False
    first = (PodPhase.GATED, "", now.share_class, now.priority_value)
    return all((m.pod.phase, m.problem, m.share_class, m.priority_value) == first for m in members.values())


def draws(before: DecodedPod | None, now: DecodedPod) -> bool:
    """Whether pods that want to be near this one, or are spread with it, may find another place now."""
    rules = now.pod.shape.neighbours.selected_by
    if not any(rule[:1] in {NEEDED, SPREAD} for rule in rules):
        return False
    if before is None or before.pod.shape.neighbours.selected_by != rules:
        return now.pod.node is not None
    return (before.pod.node, before.pod.phase) != (now.pod.node, now.pod.phase)


def frees(before: DecodedPod | None, now: DecodedPod | None) -> bool:
    """Whether room came back, or may: the pod is gone, over, smaller, may be evicted now, or suspended."""
    if before is None:
        return False
    if now is None:
        return True
    return (
        (now.pod.phase in OVER and before.pod.phase not in OVER)
        or _shrank(before.pod.shape.requests, now.pod.shape.requests)
        or (bool(before.pod.shares) and before.pod.shares != now.pod.shares)
        or (before.pod.protected and not now.pod.protected)
        or answers.seen(before.pod) != answers.seen(now.pod)
    )


def _shrank(before: Resources, now: Resources) -> bool:
    """While it runs a pod can be resized in these."""
    return now.cpu_milli < before.cpu_milli or now.memory_bytes < before.memory_bytes
