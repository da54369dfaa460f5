"""Orders to leave the cards and to come back: written for whole gangs, watched until they are carried out.

:meth:`Suspending.drive` compares what stands on a gang's pods with what was asked for, and writes the
difference. A write can fail, a leader can be killed between two members, an agent may not answer. All of this
ends in the same place: ordered as a whole, or taken back as a whole.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, assert_never

from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.operations import Totals, from_zero
from vc_egpu.admission.execution.outcomes import OrderWrite
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.figures import Figures
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.answers import bears_order, has_room, is_paused, order_of
from vc_egpu.admission.state.gangs import Group
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.suspension.stranded import DEFAULT_AFTER_S, Stranded
from vc_egpu.admission.telling import suspension_words as words
from vc_egpu.admission.telling.reports import Reports, group_reference
from vc_egpu.admission.telling.suspension_reports import SuspensionReports
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import NodeName, PodPhase, PodUid, ShareClass, SuspensionState, class_of
from vc_egpu.core.model.plan import Resume
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.codec.suspension import MAX_WHY, SuspendOrder, is_refused
from vc_egpu.volcano.words import names

DEFAULT_TIMEOUT_S: Final = 60.0
WISH_S: Final = 3.0
"""A wish that no decision has met by then is answered with the reason."""
HALF_S: Final = 5.0
"""A gang that is told to leave in part this long is told to leave as a whole, if it may not come back."""
UNFIT_S: Final = 600.0
"""A gang whose suspension failed is not tried again for this long; a gang that needs its cards evicts it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What pods are told that have to leave their cards for a while."""

    plan_id: str
    """``<lease epoch>-<counter>``."""
    why: str
    cause: Cause
    off_quota: bool = False
    """See :attr:`.cluster.Pod.off_quota`."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """Orders that are being written."""

    pods: frozenset[PodUid]
    order: Order
    since: int


@dataclass(slots=True)
class Suspending:
    """By gang; the conductor's thread owns it. ``clock`` is the conductor's."""

    mirror: Mirror
    executor: Executor
    reports: Reports
    timeout_s: float = DEFAULT_TIMEOUT_S
    counters: Totals = field(default_factory=from_zero)
    stranded_after_s: float = DEFAULT_AFTER_S
    _begun: dict[str, _Begun] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    _writing: dict[PodUid, Cause | None] = field(default_factory=dict)
    """Pods that are written to: the cause of the order, None for one that is taken back."""
    _since: dict[PodUid, float] = field(default_factory=dict)
    """Pods that were told to leave their cards and have not yet, or the other way round, and since when."""
    _reached: set[PodUid] = field(default_factory=set)
    """Pods that left their cards as their present order says: whatever their node says later."""
    _wished: dict[PodUid, float] = field(default_factory=dict)
    """Pods that could leave as a user wishes, and have no order."""
    _half: dict[str, float] = field(default_factory=dict)
    _unfit_until: dict[PodUid, float] = field(default_factory=dict)
    _unreturning_until: dict[PodUid, float] = field(default_factory=dict)
    """Pods whose order could not be taken off: it is tried once more then."""
    telling: SuspensionReports = field(init=False)
    stranded: Stranded = field(init=False)

    def __post_init__(self) -> None:
        self.telling = SuspensionReports(self.mirror, self.executor, self.reports)
        self.stranded = Stranded(self.mirror, self.stranded_after_s)

    def take_over(self, clock: float) -> None:
        """What an earlier leader could not do is not tried again at once: conditions say when that was."""
        for key, members in list(self.mirror.members.items()):
            failed = [(at, pod) for pod in members.values() if (at := words.failed_at(pod)) is not None]
            failed.sort(key=lambda entry: entry[0])
            for at, pod in failed if self._goes_by_itself(key) else failed[-1:]:
                left_s = min(UNFIT_S, at + UNFIT_S - self.telling.wall())
                last = words.stands(pod)
                if last is None or left_s <= 0:
                    continue
                together = self._together(key, pod)
                self.mirror.answers.unfit.update(dict.fromkeys(together, last.message))
                self._unfit_until.update(dict.fromkeys(together, clock + left_s))
                self.mirror.enter_again(together)

    def __bool__(self) -> bool:
        """Whether something is to be looked at again although nothing happens."""
        waits = self._since or self._wished or self._half or self._unfit_until or self._unreturning_until
        return bool(waits or self._begun or self.telling.again or self.mirror.answers.lifting)

    # --- what decisions ask for ------------------------------------------------------------------

    def order(self, key: str, pods: Collection[PodUid], order: Order) -> str:
        """Have these pods of a gang leave their cards; why that cannot be, else an empty text."""
        members = self.mirror.members.get(key, {})
        left = [members[uid] for uid in sorted(pods) if uid in members and _is_placed(members[uid])]
        for pod in left:
            # Its node's answer may be heard before the order on it is seen.
            is_new = not pod.pod.suspend_ordered and pod.pod.uid not in self._writing
            if is_new and not _is_fit(pod):
                return f"pod {pod.pod.name} cannot be suspended: {self._why_not(pod)}"
        if key not in self._begun and any(not pod.pod.suspend_ordered for pod in left):
            logger.info("gang %s: %d pods are suspended: %s", key, len(left), order.why)
            self._begun[key] = _Begun(frozenset(pods), order, int(self.telling.wall()))
            self.mirror.agenda.look_at(key)
        return ""

    def lift(self, key: str, pods: Collection[PodUid], why: str) -> int:
        """Have these pods of a gang come back; their cards are theirs again from now on. Returns how many."""
        members = self.mirror.members.get(key, {})
        lifting = self.mirror.answers.lifting
        known = [uid for uid in sorted(pods) if uid in members and uid not in lifting]
        # An order on its way to the server is taken back as soon as it is known what became of it.
        news = [uid for uid in known if bears_order(members[uid]) or uid in self._writing]
        self._begun.pop(key, None)
        if not news:
            return 0
        logger.info("gang %s: %d pods come back to their cards: %s", key, len(news), why)
        lifting.update(news)
        self.mirror.enter_again(news)
        self.mirror.agenda.look_at(key)
        return len(news)

    def resume(self, resume: Resume) -> None:
        """As the decision says; not while its orders are still being written."""
        if resume.gang not in self._begun:
            self.counters["resumed"] += self.lift(resume.gang, resume.pods, "there is room for it again")

    def left(self, pods: Collection[PodUid]) -> list[DecodedPod]:
        """Those of these pods that have not left their cards yet."""
        found = (self.mirror.pods[uid] for uid in sorted(pods) if uid in self.mirror.pods)
        return [pod for pod in found if _is_placed(pod) and not pod.pod.asleep]

    def give_up(self, key: str, pod: DecodedPod, why: str, clock: float) -> None:
        """It cannot be done for this pod: its gang's orders are taken back (a replica's own order alone).

        It is not tried again for a while. Members that have left their cards already come back when the
        decision finds room for them: another gang may have it by now.
        """
        logger.warning("gang %s: its suspension is given up: %s", key, why)
        members = self._together(key, pod)
        for uid in members:
            self.mirror.answers.unfit[uid] = why
            self._unfit_until[uid] = clock + UNFIT_S
            self._since.pop(uid, None)
        self.lift(key, [uid for uid, member in members.items() if not member.pod.asleep], why)
        self.mirror.enter_again(members)
        self.mirror.agenda.try_all(Why.STAYS)
        self.counters["suspensions_failed"] += 1
        self.figures.came_of(pod, "failed")
        group = self.mirror.groups.get(key)
        if group is not None:
            text = f"{why}; it runs on, and is not suspended for {UNFIT_S / 60:.0f} minutes"
            self.telling.event(
                group_reference(key, group.decoded),
                words.Said("False", words.SUSPEND_FAILED, text),
            )

    def _goes_by_itself(self, key: str) -> bool:
        """Whether each member of a gang goes and comes without the others, as replicas do."""
        group = self.mirror.groups.get(key)
        return group is not None and group.decoded.gang.is_of_replicas

    def _together(self, key: str, pod: DecodedPod) -> dict[PodUid, DecodedPod]:
        """The members that go and come with a pod, itself included."""
        members = self.mirror.members.get(key, {})
        return {pod.pod.uid: pod} if self._goes_by_itself(key) else dict(members)

    # --- what the objects ask for ----------------------------------------------------------------

    def drive(self, key: str, clock: float) -> None:
        """Write what a gang's pods lack, and say what became of them."""
        group = self.mirror.groups.get(key)
        members = self.mirror.members.get(key, {}).values()
        concerned = [pod for pod in members if self._concerns(pod)]
        if group is None or not (concerned or key in self._begun or self.telling.has_more(key, group)):
            return
        for pod in concerned:
            self._watch(pod, clock)
            order = order_of(pod)
            answer = self.mirror.answers.about(pod)
            is_new = pod.pod.suspend_ordered and pod.pod.uid not in self._reached
            if order is not None and is_new and is_refused(order, answer):
                self.give_up(key, pod, f"pod {pod.pod.name}: {answer.reason or 'its node could not'}", clock)
                break
        self._complete(key, group, clock)
        # First what is taken back: an order given meanwhile would count as taken back as well.
        self._take_back(key)
        self._write_orders(key, clock)
        self.telling.tell(key, group, lambda pod: self._about(pod, clock), self._writing)

    def _concerns(self, pod: DecodedPod) -> bool:
        """Whether something is to be done about it, or to be said."""
        if pod.pod.uid in self.mirror.answers.lifting or pod.pod.uid in self._since:
            return True  # also where it has arrived and that was not told: the time that it took ends here
        if pod.pod.phase is not PodPhase.PLACED:
            return False
        if pod.pod.suspension is not SuspensionState.RUNNING or is_paused(pod) or bears_order(pod):
            return True
        last = words.stands(pod)
        return last is not None and last.is_open

    def _watch(self, pod: DecodedPod, clock: float) -> None:
        there = pod.pod.asleep if pod.pod.suspend_ordered else pod.pod.suspension is SuspensionState.RUNNING
        if pod.pod.asleep:
            self._reached.add(pod.pod.uid)
        elif not pod.pod.suspend_ordered:
            self._reached.discard(pod.pod.uid)
        if not _is_placed(pod) or there or pod.pod.uid in self._reached:
            since = self._since.pop(pod.pod.uid, None)
            if since is not None and _is_placed(pod) and there:
                self.figures.came_of(pod, "suspended" if pod.pod.suspend_ordered else "resumed")
        else:
            self._since.setdefault(pod.pod.uid, clock)
        if pod.pod.pause_wished and not pod.pod.suspend_ordered and _is_placed(pod) and _is_fit(pod):
            self._wished.setdefault(pod.pod.uid, clock)
        else:
            self._wished.pop(pod.pod.uid, None)

    def _complete(self, key: str, group: Group, clock: float) -> None:
        """A leader was killed between two members: a gang that lacks some of them gets nowhere."""
        members = self.mirror.members.get(key, {})
        live = [m for m in members.values() if m.pod.shares and _is_placed(m)]
        out = [m for m in live if m.pod.suspend_ordered]
        rest = [m for m in live if not m.pod.suspend_ordered]
        is_half = bool(out) and bool(rest) and len(rest) < group.decoded.gang.min_member
        under_way = key in self._begun or any(bears_order(m) for m in rest) or group.decoded.gang.single
        if not is_half or under_way:
            self._half.pop(key, None)
            return
        order = order_of(out[0])
        is_due = clock - self._half.setdefault(key, clock) >= HALF_S
        if is_due and order is not None and all(_is_fit(m) for m in rest):
            again = Order(order.plan_id, order.why, order.cause, off_quota=order.off_quota)
            self.order(key, [m.pod.uid for m in rest], again)

    def _write_orders(self, key: str, clock: float) -> None:
        begun = self._begun.get(key)
        if begun is None:
            return
        members = self.mirror.members.get(key, {})
        left = [members[uid] for uid in sorted(begun.pods) if uid in members and _is_placed(members[uid])]
        left = [pod for pod in left if not pod.pod.suspend_ordered]
        unfit = next((pod for pod in left if pod.pod.uid not in self._writing and not _is_fit(pod)), None)
        if unfit is not None:
            self.give_up(key, unfit, f"pod {unfit.pod.name}: {self._why_not(unfit)}", clock)
            return
        if not left:
            del self._begun[key]
        for pod in left:
            if not self._is_written(pod.pod.uid):
                order = SuspendOrder(
                    pod_uid=pod.pod.uid,
                    plan_id=begun.order.plan_id,
                    why=begun.order.why[:MAX_WHY],
                    cause=begun.order.cause,
                    since=begun.since,
                    off_quota=begun.order.off_quota,
                )
                self._writing[pod.pod.uid] = begun.order.cause
                self.executor.annotate("suspend", key, pod, {names.SUSPEND: order.encode()})

    def _take_back(self, key: str) -> None:
        lifting = self.mirror.answers.lifting
        for uid, pod in self.mirror.members.get(key, {}).items():
            if self._is_written(uid) or uid in self.mirror.answers.unreturning:
                continue
            if uid in lifting and not bears_order(pod):
                lifting.discard(uid)
            elif uid in lifting or (bears_order(pod) and order_of(pod) is None):
                self._writing[uid] = None
                self.executor.annotate("resume", key, pod, {names.SUSPEND: None})

    def _is_written(self, uid: PodUid) -> bool:
        """Whether a write of ours to the pod is under way: the next is made for what that one leaves."""
        return uid in self._writing or uid in self.telling.under_way

    def done(self, done: OrderWrite, clock: float) -> None:
        """A write ended; what it left is seen by the next :meth:`drive`."""
        cause = self._writing.pop(done.uid, None)
        result = done.result
        match result:
            case Written():
                if done.purpose == "suspend":
                    self.counters["suspend_orders"] += 1
                    pod = self.mirror.pods.get(done.uid)
                    if pod is not None:
                        self.figures.suspended(pod, cause or Cause.PRIORITY)
            case Overtaken() | Later() | Unknown():
                pass
            case Denied(reason=reason):
                self._refused(done, reason, clock)
            case _:
                assert_never(result)
        self.mirror.agenda.look_at(done.gang)

    def _refused(self, done: OrderWrite, reason: str, clock: float) -> None:
        """An order that cannot be written is given up; one that cannot be taken off keeps its pod away."""
        pod = self.mirror.pods.get(done.uid)
        if pod is None:
            return
        if done.purpose == "suspend":
            if done.uid not in self.mirror.answers.unfit:
                why = f"pod {pod.pod.name}: the order cannot be written on it: {reason}"
                self.give_up(done.gang, pod, why, clock)
            return
        why = f"the order to leave its cards cannot be taken off it: {reason}"
        self.mirror.answers.unreturning[done.uid] = why
        self._unreturning_until[done.uid] = clock + UNFIT_S
        self.mirror.enter_again([done.uid])

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self._writing.pop(uid, None)
        self._reached.discard(uid)
        self._since.pop(uid, None)
        self._wished.pop(uid, None)
        self._unfit_until.pop(uid, None)
        self._unreturning_until.pop(uid, None)
        self.telling.gone(uid)

    def forget(self, key: str) -> None:
        """The gang is gone."""
        self._begun.pop(key, None)
        self._half.pop(key, None)
        self.telling.forget(key)

    # --- rules about time ------------------------------------------------------------------------

    def tick(self, clock: float) -> None:
        """Give up what takes too long; let those try again that waited long enough."""
        over = [uid for uid, until in self._unfit_until.items() if until <= clock]
        for uid in over:
            del self._unfit_until[uid]
            self.mirror.answers.unfit.pop(uid, None)
        tried = [uid for uid, until in self._unreturning_until.items() if until <= clock]
        for uid in tried:
            del self._unreturning_until[uid]
            self.mirror.answers.unreturning.pop(uid, None)
        self.mirror.enter_again((*over, *tried))
        for uid in [uid for uid in self._since if self._is_late(uid, clock)]:
            pod = self.mirror.pods.get(uid)
            if pod is None or pod.pod.gang is None:
                del self._since[uid]
            elif pod.pod.suspend_ordered and uid in self._since:
                where = f"pod {pod.pod.name} on node {pod.pod.node}"
                why = f"{where} has not left its cards in {self.timeout_s:.0f} s"
                self.give_up(pod.pod.gang, pod, why, clock)
        self._name_late(clock)
        self.stranded.look(self._reached, clock)
        self.mirror.agenda.look_at(*self._begun, *self._half, *self.telling.again)
        self.telling.again.clear()
        late = [uid for uid in self._since if self._is_late(uid, clock)]
        for uid in (*self.mirror.answers.lifting, *self._wished, *late):
            pod = self.mirror.pods.get(uid)
            if pod is not None and pod.pod.gang is not None:
                self.mirror.agenda.look_at(pod.pod.gang)

    def _name_late(self, clock: float) -> None:
        """Pods that should have come back by now are spared no longer."""
        pods = (self.mirror.pods.get(uid) for uid in self._since if self._is_late(uid, clock))
        late = {pod.pod.uid for pod in pods if pod is not None and not pod.pod.suspend_ordered}
        changed = late ^ self.mirror.answers.late
        self.mirror.answers.late = late
        self.mirror.enter_again(sorted(changed))

    def _is_late(self, uid: PodUid, clock: float) -> bool:
        """Whether the node takes longer than it should."""
        return clock - self._since.get(uid, clock) >= self.timeout_s

    # --- what is said ----------------------------------------------------------------------------

    def _about(self, pod: DecodedPod, clock: float) -> words.Said | None:
        order = order_of(pod)
        why_not = self.mirror.answers.unfit.get(pod.pod.uid, "")
        if is_paused(pod) and not pod.pod.suspendable:
            why_not = self._why_not(pod)
        elif clock - self._wished.get(pod.pod.uid, clock) >= WISH_S:
            why_not = self._why_not_met(pod)
        answer = self.mirror.answers.about(pod)
        if self._is_late(pod.pod.uid, clock):
            more = answer.reason or f"its node takes longer than {self.timeout_s:.0f} s"
            answer = answer.model_copy(update={"reason": more})
        why = "; ".join(filter(None, (order.why if order else "", self.stranded.told_of(pod))))
        return words.of_pod(pod, answer, why, why_not)

    def _why_not_met(self, pod: DecodedPod) -> str:
        """A wish that no decision meets, although the pod itself could leave its cards."""
        others = self.mirror.members.get(pod.pod.gang or "", {}).values()
        for other in others:
            if (
                other.pod.shares
                and _is_placed(other)
                and not other.pod.suspend_ordered
                and not _is_fit(other)
            ):
                return f"pod {other.pod.name} of its gang cannot be suspended: {self._why_not(other)}"
        return self._no_host_memory(other for other in others if _is_placed(other) and other.pod.shares)

    def _no_host_memory(self, members: Iterable[DecodedPod]) -> str:
        """The node of this gang that is shortest of host memory for all its members there."""
        needs: dict[NodeName, list[int]] = {}
        for member in members:
            if member.pod.node is not None and not member.pod.suspend_ordered:
                mib = sum(share.memory_mib for _, share in member.pod.shares)
                needs.setdefault(member.pod.node, []).append(mib)
        if not needs:
            return "its gang has no pods that could leave their cards"
        known = self.mirror.nodes
        aside = {name: known[name].host_memory_mib if name in known else 0 for name in needs}
        name = max(sorted(needs), key=lambda name: sum(needs[name]) - aside[name])
        count = len(needs[name])
        pods = "pod of its gang there needs" if count == 1 else f"{count} pods of its gang there need"
        return (
            f"node {name} sets {aside[name]} MiB of host memory aside, the {pods} {sum(needs[name])} MiB "
            "besides what lies there already"
        )

    def _why_not(self, pod: DecodedPod) -> str:
        if class_of(pod.pod, self.mirror.state.gang(pod.pod.gang or ""), None) is not ShareClass.LOW:
            return "only pods of low priority can be suspended"
        if pod.pod.uid in self.mirror.answers.unfit:
            return self.mirror.answers.unfit[pod.pod.uid]
        if not has_room(pod):
            return "its annotations leave no room for the order"
        if pod.pod.suspension is not SuspensionState.RUNNING:
            return f"it is {pod.pod.suspension.value}"
        return self.mirror.answers.about(pod).reason or "its node's agent gives no reason"


def _is_placed(pod: DecodedPod) -> bool:
    return pod.pod.phase is PodPhase.PLACED


def _is_fit(pod: DecodedPod) -> bool:
    """Whether an order to it can be carried out, as far as it is known."""
    return pod.pod.suspendable and pod.pod.suspension is SuspensionState.RUNNING
