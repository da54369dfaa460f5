"""Moves: gangs that have claimed other cards leave theirs, so that the gang for which they move fits.

Which gangs may move, and for whom, is found by :mod:`vc_egpu.core.moving`. What was found stands on their
PodGroups, and is read here in the turn of the gang that waits.
"""

from collections.abc import Iterator, Sequence

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Move, Pod, PodPhase, ShareClass
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.room.hunt import Hunt
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial


def hunts(trial: Trial, view: GangView, _members: Sequence[Member]) -> Iterator[Hunt]:
    """One round: the gangs that have claimed other cards for this one."""
    if not (trial.policy.preemption and trial.policy.moving.for_waiting):
        return
    moving = (key for key in trial.index.moving_for(view.gang.key) if still_there(trial, key))
    named = tuple(key for key in moving if trial.claims.has(ClaimKind.MOVE, key))  # others were given up
    if named:
        yield Hunt(Cause.DEFRAGMENTATION, ShareClass.UNSET, named=named)


def members(_trial: Trial, view: GangView, _hunt: Hunt) -> Sequence[Pod]:
    """The members that have claimed other cards; of a gang that has not, all."""
    move = view.gang.move
    if move is None or not move.places:
        return view.placed
    return tuple(pod for pod in view.placed if pod.uid in move.pods)


def still_there(trial: Trial, key: str) -> bool:
    """Whether a gang that has claimed other cards is still on all of its old ones."""
    move = trial.index.gangs[key].move
    return move is not None and bool(move.places) and all(_is_placed(trial, move, key))


def _is_placed(trial: Trial, move: Move, key: str) -> Iterator[bool]:
    for uid in move.pods:
        pod = trial.index.pods.get(uid)
        there = pod is not None and pod.gang == key and pod.phase is PodPhase.PLACED
        yield there and uid not in trial.leaving
