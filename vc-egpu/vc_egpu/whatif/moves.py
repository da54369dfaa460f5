"""Which gangs would move to other cards now, and what that wins. Asked of the live decision, on paper."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Instant, MemberPlacement, Move, Pod, PodPhase, ShareClass, Snapshot
from vc_egpu.core.model.gangs import shares_of
from vc_egpu.core.model.policy import Moving, Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.moving.movable import veto
from vc_egpu.core.trial.trial import Trial
from vc_egpu.whatif.hypothesis import Hypothesis

MOST_SETS: Final = 20
"""Later ones are not looked for."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One gang that would move, or some replicas of it."""

    gang: str
    pods: int
    cards: int
    leaves: tuple[str, ...]
    """Nodes, sorted."""
    goes_to: tuple[str, ...]
    whom: str
    """The gang that fits because of it; empty: less is left over."""
    won_milli: int
    """Thousandths of a card that become of use; all moves for one gang name the same."""
    empties: str = ""
    """The node that is empty then."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What would be done, in its order."""

    moved: tuple[Moved, ...]
    stay: tuple[tuple[str, int], ...]
    """(why, gangs): those that are not high and stay, the most frequent reason first."""
    waiting: int
    """Gangs that wait for cards, and for which nothing moves."""


def moves(snapshot: Snapshot, policy: Policy, now: Instant) -> Moves:
    """The moves until the budget of an hour is spent, or none is worth it.

    Where the policy moves nothing, it is asked as if it moved for gangs that wait, and for less that is left
    over.
    """
    moving = (
        policy.moving if policy.moving.on else replace(policy.moving, for_waiting=True, for_fragments=True)
    )
    cluster = Hypothesis(snapshot, replace(policy, moving=moving), now)
    found: list[Moved] = []
    for _ in range(MOST_SETS):
        plan = cluster.decide()
        begun = {key: move for key, move in plan.moves.items() if move.places}
        for admission in plan.admissions:
            if not admission.evictions and not admission.suspensions:
                cluster.start(admission)  # it needs no move
        for name in plan.empties:
            cluster.state.put_node(replace(cluster.state.node(name), emptied=now))
        if plan.empties:
            continue
        if not begun:
            break
        for key, move in begun.items():
            found.append(_moved(cluster, key, move))
            carry_out(cluster, key, move)
        whom = next(iter(begun.values())).whom
        for admission in cluster.decide({whom}).admissions if whom else ():
            if admission.gang == whom and not admission.evictions:
                cluster.start(admission)
    verdicts = cluster.decide().verdicts.values()
    waiting = sum(1 for verdict in verdicts if verdict.reason is Reason.WAITING_FOR_CARDS)
    return Moves(tuple(found), _stay(snapshot, policy, moving, now), waiting)


def _moved(cluster: Hypothesis, key: str, move: Move) -> Moved:
    pods = [pod for pod in cluster.pods_of(key) if pod.uid in move.pods]
    leaves = {str(pod.node) for pod in pods if pod.shares}
    goes_to = {str(place.node) for place in move.places.values() if place.node is not None}
    nodes = tuple(sorted(leaves)), tuple(sorted(goes_to))
    return Moved(key, len(pods), shares_of(pods), *nodes, move.whom, move.won_milli, move.empties)


def carry_out(cluster: Hypothesis, key: str, move: Move) -> None:
    """The pods are on their new cards at once."""
    places = list(move.places.values())
    for pod in cluster.pods_of(key):
        if pod.uid in move.pods:
            place = next((one for one in places if _is_for(one, pod)), None)
            if place is not None:
                places.remove(place)
                cluster.state.put_pod(replace(pod, node=place.node or pod.node, shares=place.shares))
    gang = cluster.state.gang(key)
    if gang is not None:
        cluster.state.put_gang(replace(gang, move=Move(move.at)))


def _is_for(place: MemberPlacement, pod: Pod) -> bool:
    asked = [(name, share.memory_mib) for name, share in pod.shares]
    return asked == [(name, share.memory_mib) for name, share in place.shares]


def _stay(snapshot: Snapshot, policy: Policy, moving: Moving, now: Instant) -> tuple[tuple[str, int], ...]:
    """Why gangs that run on cards, and are not high, are not moved."""
    trial = Trial(index_of(snapshot), replace(policy, moving=moving), now)
    counts: Counter[str] = Counter()
    for key, gang in snapshot.gangs.items():
        view = trial.index.view(key)
        runs = any(pod.phase is PodPhase.PLACED and pod.shares for pod in view.placed)
        if runs and gang.share_class is not ShareClass.HIGH:
            why = veto(trial, view)
            counts.update([why.value] if why is not None else ())
    trial.close()
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
