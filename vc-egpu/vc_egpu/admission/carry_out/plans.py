"""Plans on PodGroups: written, turned ready, given the pods that they are for, and taken away."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.execution import steps, writes
from vc_egpu.admission.execution.outcomes import GroupWrite
from vc_egpu.admission.execution.results import Denied, Unknown, Written
from vc_egpu.admission.state.gangs import Group, plan_for
from vc_egpu.core.model.cluster import Instant, Move, PodUid, Reservation
from vc_egpu.core.model.plan import Admission, Plan
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.model.words import why_moved
from vc_egpu.volcano import room
from vc_egpu.volcano.codec import gang_notes, plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord, PlanTooLargeError
from vc_egpu.volcano.words import names

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ready:
    plan_id: str
    waited_s: float
    asked_at: float | None


@dataclass(slots=True)
class Plans:
    """One write for a gang at a time: see :meth:`.work.Work.is_free`."""

    work: Work
    authority: steps.Authority
    dropped: set[str] = field(default_factory=set)
    """Ids of own plans whose write failed and may still happen."""
    asked_at: float | None = None
    """When the first event came that asked for the decision that is carried out now; monotonic seconds."""
    _made: int = 0
    _ready: dict[str, "_Ready"] = field(default_factory=dict)
    """Plans without victims that are being written, by gang."""

    def next_id(self) -> str:
        """An id for a plan or an order, never given before."""
        self._made += 1
        return plans.plan_id(self.authority.epoch, self._made)

    def admit(self, admission: Admission, verdict: Verdict, now: Instant) -> str | None:
        """Write a gang's plan; returns why that cannot be done, None where it cannot be done now."""
        key, mirror = admission.gang, self.work.mirror
        group = mirror.groups.get(key)
        if group is None or group.outstanding or not self.work.is_free(key):
            return None
        record = plan_for(admission, group, mirror.members.get(key, {}), self.next_id(), now)
        refusal = self._write(key, group, record, verdict, now, choice=admission.choice)
        if not refusal and admission.rule:
            self.work.figures.placed(admission.rule)
        if not refusal and record.state == "ready":
            self._note_ready(key, record.plan_id, record.members.values(), now, self.asked_at)
        return refusal

    def turn_ready(self, key: str, plan_id: str, now: Instant) -> None:
        """The victims of a plan are gone: its gates may fall."""
        group = self.work.mirror.groups.get(key)
        if group is None or group.plan is None or group.plan.plan_id != plan_id:
            return
        if self.work.is_free(key):
            rule = f", by the placement rule {group.plan.rule}" if group.plan.rule else ""
            text = f"{len(group.plan.members)} members have their cards{rule}"
            verdict = Verdict(Reason.ADMITTED, text)
            self._write(key, group, group.plan.ready(), verdict, now)
            self._note_ready(key, group.plan.plan_id, group.plan.members.values(), now, None)

    def choose(self, key: str, choice: str) -> None:
        """Write which option the pods of a gang are made with, before any of it is planned."""
        group = self.work.mirror.groups.get(key)
        if group is None or group.outstanding:
            return
        if not self.work.is_free(key):
            self.work.pass_over(key)
            return
        self.work.count("chosen")
        body = writes.group_patch(group.decoded, annotations={names.CHOICE: choice})
        self.work.write("choice", key, group, body)

    def _write(
        self, key: str, group: Group, record: PlanRecord, verdict: Verdict, now: Instant, *, choice: str = ""
    ) -> str:
        try:
            nodes = self.work.mirror.nodes
            body = writes.plan_patch(group.decoded, record, verdict, nodes, now, choice=choice)
        except PlanTooLargeError as error:
            return str(error)
        if no_room := _no_room(group, body["metadata"]["annotations"][names.PLAN]):
            return no_room
        if choice:
            self.work.count("chosen")
        self.work.mirror.book(key, record, choice)
        self.work.write("plan", key, group, body, record.plan_id)
        logger.info("gang %s: plan %s: %s", key, record.plan_id, verdict.message)
        return ""

    def bind(self, key: str, group: Group, plan: PlanRecord, uids: Mapping[str, PodUid]) -> None:
        """Name the pods in a plan that was made from a template."""
        members = {
            k: replace(member, uid=uids[k]) if k in uids else member for k, member in plan.members.items()
        }
        record = replace(plan, members=members)
        body = writes.group_patch(
            group.decoded, annotations={names.PLAN: plans.encode(record, self.work.mirror.nodes)}
        )
        self.work.mirror.book(key, record)
        self.work.write("plan", key, group, body, record.plan_id)

    def strip(self, key: str, group: Group, why: str, rolled_back: str | None = None) -> None:
        """Take the plan off a PodGroup."""
        logger.info("gang %s: plan removed: %s", key, why)
        self.work.write("strip", key, group, writes.strip_patch(group.decoded, rolled_back))

    def note(self, plan: Plan) -> None:
        """What PodGroups are to remember from now on, besides plans."""
        for key, choice in plan.choices.items():
            self.choose(key, choice)
        for key, reservation in plan.reservations.items():
            self.reserve(key, reservation)
        for key, move in plan.moves.items():
            self.move(key, move)

    def reserve(self, key: str, reservation: Reservation | None) -> None:
        """Remember a gang's place in the line, and write what is claimed for it onto its PodGroup."""
        mirror = self.work.mirror
        group = mirror.groups.get(key)
        if group is None:
            return
        if reservation is not None and reservation.members and not self.work.is_free(key):
            return  # the next decision says so again
        mirror.reserve(key, reservation)
        text = self._reserved(group, reservation)
        if text != group.decoded.reserved and self.work.is_free(key):
            body = writes.group_patch(group.decoded, annotations={names.RESERVED: text or None})
            self.work.write("reserve", key, group, body)

    def _reserved(self, group: Group, reservation: Reservation | None) -> str:
        """The text of a claim; empty where there is none, or no room for it: the next leader makes one."""
        if reservation is None or not reservation.members:
            return ""
        try:
            text = gang_notes.encode_reservation(reservation, group.decoded.gang.uid, self.work.mirror.nodes)
        except (PlanTooLargeError, KeyError):
            return ""
        taken = group.decoded.annotation_bytes + len(group.decoded.plan_text)
        return text if room.fits(taken, names.RESERVED, text) else ""

    def move(self, key: str, move: Move) -> None:
        """Write which cards are claimed for a gang that moves, or that it has come or stays."""
        group = self.work.mirror.groups.get(key)
        if group is None or not self.work.is_free(key):
            return  # the next decision says so again
        try:
            text = gang_notes.encode_move(move, group.decoded.gang.uid, self.work.mirror.nodes)
        except (PlanTooLargeError, KeyError):
            return
        taken = group.decoded.annotation_bytes + len(group.decoded.plan_text)
        if text == group.decoded.moved or not room.fits(taken, names.MOVED, text):
            return
        logger.info("gang %s: %s", key, _moving(move))
        self.work.figures.moved(group.decoded.gang.queue, move)
        body = writes.group_patch(group.decoded, annotations={names.MOVED: text})
        self.work.write("move", key, group, body)

    def enqueue(self, key: str, group: Group) -> None:
        """Let the Job's controller make the pods. One that did not notice is told once more."""
        if self.work.is_free(key):
            unheard = group.decoded.phase == steps.ENQUEUED
            self.work.count("enqueued_again" if unheard else "enqueued")
            phase = steps.PENDING if unheard else steps.ENQUEUED
            self.work.write("enqueue", key, group, writes.group_patch(group.decoded, phase=phase))

    def done(self, done: GroupWrite) -> None:
        """A write to a PodGroup ended."""
        self.work.ended(done)
        if done.purpose == "reserve" and not isinstance(done.result, Written | Denied):
            self.work.mirror.read_claim_again(done.gang)
        if done.purpose == "plan":
            self._count_ready(done)
            self._note_drop(done)
            self.work.mirror.unbook(done.gang)
        self.work.go_on(done)

    def _note_ready(
        self, key: str, plan_id: str, members: Iterable[PlannedMember], now: Instant, asked_at: float | None
    ) -> None:
        """For the metrics: since when the gang had all members that the plan names."""
        mirror = self.work.mirror
        pods = [mirror.pods[one.uid].pod.created for one in members if one.uid in mirror.pods]
        complete = max(pods, default=mirror.groups[key].decoded.gang.created)
        self._ready[key] = _Ready(plan_id, now - complete, asked_at)

    def _count_ready(self, done: GroupWrite) -> None:
        """The gang is admitted once its plan stands; a plan that is written again is the same one."""
        ready = self._ready.get(done.gang)
        if ready is None or ready.plan_id != done.plan_id:
            return
        del self._ready[done.gang]
        gang = self.work.mirror.state.gang(done.gang)
        if done.error is not None or gang is None:
            return
        self.work.figures.admitted(gang.queue, gang.share_class, ready.waited_s)
        if ready.asked_at is not None:
            self.work.figures.reacted(time.monotonic() - ready.asked_at)

    def _note_drop(self, done: GroupWrite) -> None:
        """A plan whose write failed may turn up all the same: it is void then."""
        group = self.work.mirror.groups.get(done.gang)
        written = group is not None and group.plan is not None and group.plan.plan_id == done.plan_id
        if not written and (done.error is None or isinstance(done.result, Unknown)):
            self.dropped.add(done.plan_id)


def _moving(move: Move) -> str:
    if move.stays:
        return "it stays on its cards"
    if not move.places:
        return "it has moved"
    return f"other cards are claimed for it, {why_moved(move.whom, move.empties)}"


def _no_room(group: Group, plan: str) -> str:
    """Why this plan does not fit on the PodGroup; empty if it does."""
    taken = group.decoded.annotation_bytes
    if room.fits(taken, names.PLAN, plan):
        return ""
    return (
        f"its plan of {len(plan)} bytes does not fit on its PodGroup: the other annotations there take "
        f"{taken} bytes, and Kubernetes allows {room.MAX_BYTES} in all"
    )
