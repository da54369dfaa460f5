"""What must hold at any time, judged from values alone. Recounts everything the slow and plain way.

Nothing here is shared with the ledger or the placement: a mistake made there must not be made again here.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from vc_egpu.core.check.recount import HOLDING, use_by_queue
from vc_egpu.core.layouts.table import Held
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    FULL_CORES_PERCENT,
    Card,
    CardId,
    Gang,
    Mode,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodUid,
    Queue,
    Share,
    ShareClass,
    Snapshot,
    SuspensionState,
    class_of,
    plan_key,
)
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.model.resources import is_model_key

_NOISE: Final = 1e-6
"""100 times 1.15 in floating point is a little less than 115."""


class Rule(Enum):
    """Which invariant is broken."""

    CARD = "no card beyond its rules"
    HOST = "no node beyond its host memory"
    GATE = "no gate lifted before the whole gang has its place"
    CAP = "no cap exceeded by an admission"
    REASON = "no pod gated without a reason"
    VICTIM = "no victim for a plan that does not hold"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant, readable by itself."""

    rule: Rule
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.message} (rule: {self.rule.value})"


@dataclass(slots=True)
class _Seat:
    """Somebody on a card."""

    who: str
    share: Share
    share_class: ShareClass | None
    """None: not known any more; it is left out of what depends on classes."""
    pod: PodUid | None = None
    asleep: bool = False
    """Suspended: it takes nothing of the card but a place among its sharers."""
    waiting_for: frozenset[PodUid] = field(default_factory=frozenset)
    """The victims of the waiting plan that this seat belongs to; empty for a seat that is taken."""


def check(
    snapshot: Snapshot,
    *,
    before: Snapshot | None = None,
    lowered: Collection[str] = (),
    reasons: Mapping[str, Reason] | None = None,
    unnamed_unlimited: bool = False,
) -> list[Violation]:
    """Everything that is wrong with this state of the cluster; empty if nothing is.

    ``before``: an earlier state, to judge the steps in between as well. ``lowered``: queues whose cap was
    lowered, which may be above it. ``reasons``: by gang, the reason that its PodGroup's condition names;
    where given, every gang with gated pods must have one. ``unnamed_unlimited``: queues do not cap
    models that they do not name.
    """
    found = [
        *_cards(snapshot),
        *_hosts(snapshot, before),
        *_gates(snapshot, before),
        *_caps(snapshot, before, lowered, unlimited=unnamed_unlimited),
        *_victims(snapshot),
    ]
    if reasons is not None:
        found += _reasons(snapshot, reasons)
    return found


# --- cards ---------------------------------------------------------------------------------------


def _cards(snapshot: Snapshot) -> Iterable[Violation]:
    seats = _seats(snapshot)
    for node in snapshot.nodes.values():
        for card in node.cards:
            there = seats.get((node.name, card.uuid), [])
            if there:
                yield from _card(node, card, there)


def _seats(snapshot: Snapshot) -> dict[tuple[NodeName, CardId], list[_Seat]]:
    seats: dict[tuple[NodeName, CardId], list[_Seat]] = {}
    carried = {(pod.gang, plan_key(pod), pod.plan_id) for pod in snapshot.pods.values()}
    for pod in snapshot.pods.values():
        if pod.phase in HOLDING and pod.node is not None:
            share_class = _class_of(snapshot, pod)
            for _, share in pod.shares:
                who = f"pod {pod.namespace}/{pod.name}"
                seat = _Seat(who, share, share_class, pod.uid, asleep=_is_asleep(pod))
                seats.setdefault((pod.node, share.card), []).append(seat)
    for gang in snapshot.gangs.values():
        plan = gang.plan
        if plan is None:
            continue
        still_there = frozenset(
            uid for uid in plan.victims if _still_there(snapshot, uid, suspends=uid in plan.suspends)
        )
        for key, member in plan.members.items():
            if member.node is None or (gang.key, key, plan.plan_id) in carried:
                continue
            for _, share in member.shares:
                who = f"planned {gang.key} {key}"
                seat = _Seat(who, share, gang.share_class, None, waiting_for=still_there)
                seats.setdefault((member.node, share.card), []).append(seat)
    node_of = {card.uuid: node.name for node in snapshot.nodes.values() for card in node.cards}
    for card_id, entries in snapshot.held.items():
        for uid, share in entries:
            if uid not in snapshot.pods and card_id in node_of:
                seat = _Seat(f"held for pod {uid}", share, None, uid)
                seats.setdefault((node_of[card_id], card_id), []).append(seat)
    return seats


def _class_of(snapshot: Snapshot, pod: Pod) -> ShareClass | None:
    """The class that it runs with; None: not known any more."""
    return class_of(pod, snapshot.gangs.get(pod.gang or ""), None)


def _still_there(snapshot: Snapshot, uid: PodUid, *, suspends: bool) -> bool:
    pod = snapshot.pods.get(uid)
    if pod is not None:
        return pod.phase in HOLDING and not (suspends and _is_asleep(pod))
    return any(uid == holder for entries in snapshot.held.values() for holder, _ in entries)


def _is_asleep(pod: Pod) -> bool:
    return pod.suspend_ordered and pod.suspension is SuspensionState.SUSPENDED


def _card(node: Node, card: Card, seats: list[_Seat]) -> Iterable[Violation]:
    taken = [seat for seat in seats if not seat.waiting_for]
    yield from _card_rules(node, card, taken)
    waiting = [seat for seat in seats if seat.waiting_for]
    for seat in waiting:
        # A waiting plan may overlap its own victims and no other pod.
        mine = [other for other in waiting if other.waiting_for == seat.waiting_for]
        others = [other for other in taken if other.pod not in seat.waiting_for]
        yield from _card_rules(node, card, [*others, *mine])
    victims = frozenset(uid for seat in waiting for uid in seat.waiting_for)
    if waiting:
        yield from _card_rules(node, card, [seat for seat in seats if seat.pod not in victims])


def _card_rules(node: Node, card: Card, seats: list[_Seat]) -> Iterable[Violation]:
    subject = f"card {card.uuid} of node {node.name}"
    if len(seats) > node.max_sharers:
        everybody = ", ".join(seat.who for seat in seats)
        text = f"{len(seats)} sharers, {node.max_sharers} allowed: {everybody}"
        yield Violation(Rule.CARD, subject, text)
    seats = [seat for seat in seats if not seat.asleep]
    names = ", ".join(seat.who for seat in seats)
    memory_mib = sum(seat.share.memory_mib for seat in seats)
    promised = int(card.memory_mib * node.memory_ratio + _NOISE)
    if memory_mib > promised:
        yield Violation(Rule.CARD, subject, f"{memory_mib} MiB of {promised} MiB are taken by {names}")
    physical_mib = sum(seat.share.on_card_mib for seat in seats)
    if physical_mib > card.memory_mib:
        text = f"{physical_mib} MiB lie on the card, it has {card.memory_mib} MiB: {names}"
        yield Violation(Rule.CARD, subject, text)
    for what, classes in (
        ("high and unset", (ShareClass.HIGH, ShareClass.UNSET)),
        ("unset and low", (ShareClass.UNSET, ShareClass.LOW)),
    ):
        ratio = node.core_ratio if node.ratio_class is None or node.ratio_class in classes else 1.0
        limit = int(FULL_CORES_PERCENT * ratio + _NOISE)
        cores = sum(seat.share.cores_percent for seat in seats if seat.share_class in classes)
        if cores > limit:
            yield Violation(Rule.CARD, subject, f"{what} have {cores} of {limit} cores: {names}")
    yield from _slices(card, seats)
    alone = [seat for seat in seats if seat.share.whole or seat.share.native]
    if alone and len(seats) > 1:
        yield Violation(Rule.CARD, subject, f"{alone[0].who} has the whole card, yet it is shared: {names}")
    if len({seat.share.swap for seat in seats}) > 1:
        yield Violation(Rule.CARD, subject, f"some take turns there, and others do not: {names}")
    if any(seat.share.native != (node.mode is Mode.NATIVE) for seat in seats):
        yield Violation(Rule.CARD, subject, f"offered as {node.mode.value}, taken otherwise: {names}")


def _slices(card: Card, seats: list[_Seat]) -> Iterable[Violation]:
    """Slices of fixed size, and cards on which high does not run over low."""
    subject, names = f"card {card.uuid}", ", ".join(seat.who for seat in seats)
    cores = sum(seat.share.cores_percent for seat in seats)
    if not card.stack and cores > FULL_CORES_PERCENT:
        text = f"{cores} cores are taken together, and high does not run over low here: {names}"
        yield Violation(Rule.CARD, subject, text)
    if not card.stack and sum(seat.share.memory_mib for seat in seats) > card.memory_mib:
        yield Violation(Rule.CARD, subject, f"more memory is taken than the card has, by {names}")
    if card.layout is None:
        return
    cut = [seat for seat in seats if seat.share.slice]
    held = [*card.foreign, *(Held(seat.share.slice, seat.share.start) for seat in cut)]
    wrong = card.layout.misfit(held)
    if wrong:
        yield Violation(Rule.CARD, subject, f"{wrong}: {names}")
    for seat in cut:
        template = card.layout.template(seat.share.slice)
        if template is not None and template.memory_mib != seat.share.memory_mib:
            text = f"{seat.who} is charged {seat.share.memory_mib} MiB for {template.name}"
            yield Violation(Rule.CARD, subject, f"{text}, which has {template.memory_mib}")
    loose = [seat.who for seat in seats if not seat.share.slice and not seat.share.whole]
    if loose or (held and len(cut) < len(seats)):
        text = f"it is cut into slices, and {', '.join(loose) or names} are on it without one"
        yield Violation(Rule.CARD, subject, text)


# --- host memory ---------------------------------------------------------------------------------


def _hosts(snapshot: Snapshot, before: Snapshot | None) -> Iterable[Violation]:
    for victims_gone in (False, True):
        use = host_use(snapshot, victims_gone=victims_gone)
        earlier = host_use(before, victims_gone=victims_gone) if before is not None else {}
        for name, node in snapshot.nodes.items():
            taken = use.get(name, 0)
            # A budget that was lowered below its use stays so until a pod leaves.
            if taken > max(node.host_memory_mib, earlier.get(name, 0)):
                text = f"{taken} MiB of {node.host_memory_mib} MiB of host memory are promised"
                yield Violation(Rule.HOST, f"node {name}", text)


def host_use(snapshot: Snapshot, *, victims_gone: bool) -> dict[NodeName, int]:
    """By node, MiB of host memory that shares may spill to, or lie in or will while suspended.

    ``victims_gone``: once every waiting plan has what it waits for; otherwise as it is, those plans left out.
    """
    use: dict[NodeName, int] = {}
    carried = {(pod.gang, plan_key(pod), pod.plan_id) for pod in snapshot.pods.values()}
    plans = [(gang.key, gang.plan) for gang in snapshot.gangs.values() if gang.plan is not None]
    suspended = {uid for _, plan in plans for uid in plan.suspends if victims_gone}
    evicted = {uid for _, plan in plans for uid in plan.victims if victims_gone} - suspended
    for pod in snapshot.pods.values():
        if pod.phase in HOLDING and pod.node is not None and pod.uid not in evicted:
            moves = pod.suspend_ordered or pod.suspension is not SuspensionState.RUNNING
            for _, share in pod.shares:
                mib = share.memory_mib if moves or pod.uid in suspended else _spilled(share)
                use[pod.node] = use.get(pod.node, 0) + mib
    for gang, plan in plans:
        for key, member in plan.members.items():
            counts = victims_gone or not plan.victims
            if member.node is not None and counts and (gang, key, plan.plan_id) not in carried:
                mib = sum(_spilled(share) for _, share in member.shares)
                use[member.node] = use.get(member.node, 0) + mib
    node_of = {card.uuid: node.name for node in snapshot.nodes.values() for card in node.cards}
    for card_id, entries in snapshot.held.items():
        for uid, share in entries:
            if uid not in snapshot.pods and uid not in evicted and card_id in node_of:
                use[node_of[card_id]] = use.get(node_of[card_id], 0) + _spilled(share)
    return use


def _spilled(share: Share) -> int:
    return share.spilled_mib


# --- gates ---------------------------------------------------------------------------------------


def _gates(snapshot: Snapshot, before: Snapshot | None) -> Iterable[Violation]:
    for pod in snapshot.pods.values():
        gang = snapshot.gangs.get(pod.gang or "")
        if gang is None or pod.phase is not PodPhase.PLACED:
            continue
        subject = f"pod {pod.namespace}/{pod.name}"
        if wrong := _otherwise_than_asked(snapshot, pod):
            yield Violation(Rule.GATE, subject, wrong)
        if gang.plan is not None and pod.plan_id == gang.plan.plan_id and gang.plan.victims:
            text = (
                f"its gate fell while its plan {gang.plan.plan_id} waits for {len(gang.plan.victims)} victims"
            )
            yield Violation(Rule.GATE, subject, text)
    members: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.values():
        key = pod.gang or ""
        if key in snapshot.gangs:
            members.setdefault(key, []).append(pod)
    for key, pods in members.items():
        yield from _gang_gates(snapshot.gangs[key], pods, before)


def _otherwise_than_asked(snapshot: Snapshot, pod: Pod) -> str:
    """Each container has as many cards of its model as it asks for, different ones; empty if they have."""
    asked = sum(ask.cards for ask in pod.shape.asks)
    seats = [(container, share.card) for container, share in pod.shares]
    if asked and len(seats) != asked:
        return f"asks for {asked} shares and has {len(seats)}"
    if len(set(seats)) < len(seats):
        return "has two shares of one container on one card"
    node = snapshot.nodes.get(pod.node or NodeName(""))
    models = {card.uuid: card.model for card in node.cards} if node is not None else {}
    wanted = {(ask.container, ask.model) for ask in pod.shape.asks}
    other = [card for name, card in seats if card in models and (name, models[card]) not in wanted]
    return f"has card {other[0]} and asks for no {models[other[0]]}" if asked and other else ""


def _gang_gates(gang: Gang, pods: list[Pod], before: Snapshot | None) -> Iterable[Violation]:
    """A gang that started did so with its minimum: judged where this step, or a plan, shows the start."""
    started = [pod for pod in pods if pod.phase is PodPhase.PLACED]
    if not started:
        return
    planned = gang.plan.members if gang.plan is not None else ()
    counted = {key: key.rpartition("/")[0] for key in planned}
    counted |= {plan_key(pod): pod.task for pod in pods if pod.phase is not PodPhase.GATED}
    fresh_start = gang.plan is not None and any(pod.plan_id == gang.plan.plan_id for pod in started)
    if before is not None:
        ran_before = any(
            pod.gang == gang.key and pod.phase in HOLDING | {PodPhase.FAILED, PodPhase.SUCCEEDED}
            for pod in before.pods.values()
        )
        fresh_start = fresh_start or not ran_before
    minimums = {task: count for task, count in gang.min_task_member.items() if count > 0}
    wanted = [("members", len(counted), gang.min_member)]
    if sum(minimums.values()) <= gang.min_member:
        tasks = list(counted.values())
        wanted += [(f"members of task {task}", tasks.count(task), least) for task, least in minimums.items()]
    for what, there, least in wanted if fresh_start else ():
        if there < least:
            text = f"{len(started)} gates fell with {there} of {least} {what} placed or planned"
            yield Violation(Rule.GATE, f"gang {gang.key}", text)


# --- caps ----------------------------------------------------------------------------------------


def _caps(
    snapshot: Snapshot, before: Snapshot | None, lowered: Collection[str], *, unlimited: bool
) -> Iterable[Violation]:
    use = use_by_queue(_without_those_that_make_quota(snapshot))
    earlier = use_by_queue(before) if before is not None else None
    for queue in snapshot.queues.values():
        uses = use.get(queue.name, {})
        for resource, cap in sorted(_limits(snapshot, queue, uses, unlimited=unlimited).items()):
            used = _counted(queue, resource, uses)
            if used <= cap or queue.name in lowered:
                continue
            if earlier is not None and used <= _counted(queue, resource, earlier.get(queue.name, {})):
                continue
            yield Violation(Rule.CAP, f"queue {queue.name}", f"uses {used} of {cap} {resource}")


def _without_those_that_make_quota(snapshot: Snapshot) -> Snapshot:
    """As it will be once the victims of waiting plans have left the caps in which they make room."""
    going = {
        uid
        for gang in snapshot.gangs.values()
        if gang.plan is not None and gang.plan.relieves is not None
        for uid in gang.plan.victims
    }
    if not going:
        return snapshot
    return replace(snapshot, pods={uid: pod for uid, pod in snapshot.pods.items() if uid not in going})


def _counted(queue: Queue, resource: str, uses: Mapping[str, int]) -> int:
    """Where the queue names a key for low shares, these count there and not in the cards and cores."""
    cores = resource.endswith("-cores")
    low = f"{resource.removesuffix('-cores')}-low{'-cores' if cores else ''}"
    aside = low in queue.capability and not resource.endswith(("-low", "-low-cores", "-memory"))
    return uses.get(resource, 0) - (uses.get(low, 0) if aside else 0)


def _limits(snapshot: Snapshot, queue: Queue, used: Iterable[str], *, unlimited: bool) -> dict[str, int]:
    """What the queue allows: none of a model that it does not name. One above others may leave it to them."""
    speaks = any(map(is_model_key, queue.capability))
    speaks = speaks or all(other.parent != queue.name for other in snapshot.queues.values())
    unnamed = [] if unlimited or not speaks else [resource for resource in used if is_model_key(resource)]
    return {**dict.fromkeys(unnamed, 0), **queue.capability}


# --- victims and reasons -------------------------------------------------------------------------


def _victims(snapshot: Snapshot) -> Iterable[Violation]:
    for told in snapshot.pods.values():
        if told.suspend_ordered and _class_of(snapshot, told) is ShareClass.HIGH:
            text = "is told to leave its cards, and is of high priority"
            yield Violation(Rule.VICTIM, f"pod {told.namespace}/{told.name}", text)
    for gang in snapshot.gangs.values():
        plan = gang.plan
        if plan is None or not plan.victims:
            continue
        takes_back = plan.cause in {Cause.RECLAIM, Cause.GUARANTEE, Cause.DEFRAGMENTATION}
        if not takes_back and gang.share_class is not ShareClass.HIGH:
            yield Violation(Rule.VICTIM, f"gang {gang.key}", "has victims without being of high priority")
        for uid in sorted(plan.victims):
            pod = snapshot.pods.get(uid)
            wrong = _wrong_victim(snapshot, gang, plan.cause, pod) if pod is not None else ""
            if wrong:
                yield Violation(Rule.VICTIM, f"gang {gang.key}", wrong)


def _wrong_victim(snapshot: Snapshot, gang: Gang, cause: Cause, pod: Pod) -> str:
    """Why the pod may not go for this gang; empty if it may."""
    owner = snapshot.gangs.get(pod.gang) if pod.gang is not None else None
    if owner is None:
        return f"its victim {pod.namespace}/{pod.name} is no gang's"
    share_class = _class_of(snapshot, pod)
    if cause is Cause.DEFRAGMENTATION and owner.restartable and share_class is not ShareClass.HIGH:
        return ""
    if cause is not Cause.RECLAIM:
        low = share_class is ShareClass.LOW
        return "" if low else f"its victim {pod.uid} of {pod.gang} is not of low priority"
    if share_class is ShareClass.HIGH:
        return f"its victim {pod.uid} of {pod.gang} is of high priority"
    return f"takes {pod.uid} back from its own queue" if owner.queue == gang.queue else ""


def _reasons(snapshot: Snapshot, reasons: Mapping[str, Reason]) -> Iterable[Violation]:
    for pod in snapshot.pods.values():
        if pod.gang is not None and pod.phase is PodPhase.GATED and pod.gang not in reasons:
            subject = f"pod {pod.namespace}/{pod.name}"
            yield Violation(Rule.REASON, subject, f"waits, and its gang {pod.gang} carries no reason")
