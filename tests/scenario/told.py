"""What scenarios print: a plan as lines, and who is where."""

from collections.abc import Iterable, Mapping

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    Move,
    Pod,
    PodPhase,
    PodUid,
    ShareClass,
    Snapshot,
    SuspensionState,
    class_of,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason
from vc_egpu.sim.world import World


def story(plan: Plan, world: World) -> list[str]:
    """A plan as lines: who goes, who comes, who waits and why."""
    lines = [f"withdraw {entry.gang}: {entry.why}" for entry in plan.withdrawals]
    lines += [f"ready {entry.gang}" for entry in plan.ready]
    for key, reservation in plan.reservations.items():
        if reservation is not None and reservation.members:
            claimed = [str(share.card) for place in reservation.members.values() for _, share in place.shares]
            lines.append(f"claim {' '.join(claimed)} for {key}")
        elif (known := world.gang(key).reservation) is not None and known.members:
            lines.append(f"claim nothing for {key} any more")
    for key, move in plan.moves.items():
        lines.append(_moved(key, move))
    lines += [f"empty {name}" for name in plan.empties]
    lines += [f"open {name}" for name in plan.opens]
    pods = world.snapshot().pods
    for going in plan.evictions:
        moves = going.cause is Cause.DEFRAGMENTATION
        why = "it has other cards" if moves else "it cannot be brought back"
        lines.append(f"evict {going.gang}, {why}: {_names(pods, going.pods)}")
    lines += [f"suspend {wish.gang} as wished: {_names(pods, wish.pods)}" for wish in plan.suspensions]
    lines += [f"resume {entry.gang}: {_names(pods, entry.pods)}" for entry in plan.resumes]
    names_by_key = {str(pod.uid): pod.name for pod in pods.values()}
    # A member that no Job made is planned by its UID.
    for admission in plan.admissions:
        for eviction in admission.evictions:
            what = "whole" if eviction.whole else "surplus"
            lines.append(
                f"evict {eviction.gang} ({what}) for {admission.gang}: {_names(pods, eviction.pods)}"
            )
        lines += [
            f"suspend {leaving.gang} for {admission.gang}: {_names(pods, leaving.pods)}"
            for leaving in admission.suspensions
        ]
        verb = "hold" if admission.evictions or admission.suspensions else "admit"
        lines.append(f"{verb} {admission.gang}{f' with {admission.choice}' if admission.choice else ''}")
        if admission.rule:
            lines[-1] += f" by {admission.rule}"
        for key, member in admission.members.items():
            places = " ".join(str(share.card) for _, share in member.shares)
            name = names_by_key.get(key, key)
            lines.append(f"  {name} -> {places or 'any node'}")
    lines += [f"choose {choice} for {key}" for key, choice in plan.choices.items()]
    admitted = {
        admission.gang
        for admission in plan.admissions
        if not admission.evictions and not admission.suspensions
    }
    for key, verdict in plan.verdicts.items():
        if (
            key not in admitted
            or verdict.reason is not Reason.ADMITTED
            or verdict.numbers.get("surplus_waiting")
        ):
            lines.append(f"{verdict.reason.value} {key}: {verdict.message}")
    return lines


def _moved(key: str, move: Move) -> str:
    if move.stays:
        return f"{key} stays where it is"
    if not move.places:
        return f"{key} has moved"
    claimed = [str(share.card) for place in move.places.values() for _, share in place.shares]
    why = f"so that {move.whom} fits" if move.whom else f"{move.won_milli} thousandths of a card are won"
    why = f"so that {move.empties} is empty" if move.empties else why
    return f"move {key} to {' '.join(claimed)}, {why}"


def cards(snapshot: Snapshot) -> list[str]:
    """Every card with its sharers."""
    sharers: dict[str, list[str]] = {}
    for pod in snapshot.pods.values():
        if pod.phase not in {PodPhase.PLACED, PodPhase.TERMINATING}:
            continue
        mark = " (terminating)" if pod.phase is PodPhase.TERMINATING else suspension(pod)
        share_class = class_of(pod, snapshot.gangs[str(pod.gang)], ShareClass.UNSET).name.lower()
        for _, share in pod.shares:
            what = "whole" if share.whole else "native" if share.native else f"{share.memory_mib / 1024:g}Gi"
            if share.physical_mib is not None:
                part = "in turns" if share.swap else f"{share.physical_mib / 1024:g}Gi of it on the card"
                what += f" ({part})"
            text = f"{pod.name} {what} {share.cores_percent}c {share_class}{mark}"
            sharers.setdefault(share.card, []).append(text)
    lines = []
    for node in sorted(snapshot.nodes.values(), key=lambda node: node.name):
        for card in node.cards:
            state = "" if card.usable else " ill"
            who = " | ".join(sorted(sharers.get(card.uuid, []))) or "free"
            lines.append(f"{card.uuid} {card.model}{state}: {who}")
    return lines


def suspension(pod: Pod) -> str:
    """In brackets, if there is anything to say of it."""
    if pod.suspend_ordered and pod.suspension is not SuspensionState.SUSPENDED:
        return " (told to leave)"
    return f" ({pod.suspension.value})" if pod.suspension is not SuspensionState.RUNNING else ""


def _names(pods: Mapping[PodUid, Pod], uids: Iterable[PodUid]) -> str:
    return " ".join(sorted(pods[uid].name for uid in uids))
