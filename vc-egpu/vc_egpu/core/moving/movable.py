"""Vetoes: why a gang is not moved to other cards."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from vc_egpu.core.model.cluster import Pod, QueueName, ShareClass, SuspensionState
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.policy import CLOCK_SKEW_S, MOVED_AGAIN_S
from vc_egpu.core.moving import pauses
from vc_egpu.core.queues import caps
from vc_egpu.core.room.lateness import Lateness, lateness
from vc_egpu.core.trial.silent_nodes import is_on_a_silent_node
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import ready

_AN_HOUR_S: Final = 3600.0


class Veto(StrEnum):
    """Why a gang stays where it is."""

    CLASS = "it is not of low priority, and no user calls it restartable"
    MOVED = "it was moved within the last day"
    GIVEN_UP = "a move of it was given up lately"
    FRESH = "it began less than its minimum run time ago"
    OFTEN = "it was evicted for others several times within the last hour"
    PROTECTED = "a PodDisruptionBudget allows no disruption of it"
    BARE = "no controller makes its pods again"
    UNSETTLED = "not all of its members run"
    NO_CARDS = "it holds no cards"
    CAPS = "its queue would not take it again now"
    NODE = "its node does not answer"


def veto(trial: Trial, view: GangView) -> Veto | None:
    """The first reason not to move this gang; None where it may be moved."""
    return next((word for word, stays in _CHECKS if stays(trial, view)), None)


def movable(trial: Trial) -> Iterator[GangView]:
    """All gangs that may be moved, by key."""
    restartable = (key for key, gang in trial.index.gangs.items() if gang.restartable)
    for key in sorted({*trial.index.low_gangs, *restartable}):
        view = trial.index.view(key).without(trial.leaving)
        if veto(trial, view) is None:
            yield view


def left_in_budget(trial: Trial) -> int:
    """How many more gangs may be moved within this hour. Those that have ended since count, too."""
    moves = trial.index.all_moves()
    spent = sum(1 for move in moves if not move.stays and _within(trial, move.at, _AN_HOUR_S))
    return max(0, trial.policy.moving.per_hour - spent)


def was_moved(trial: Trial, view: GangView) -> bool:
    """Whether the gang was moved within the last day, or moves now."""
    move = view.gang.move
    if move is None or move.stays:
        return False
    return bool(move.places) or _within(trial, move.at, MOVED_AGAIN_S)


def _within(trial: Trial, at: float, span_s: float) -> bool:
    """An instant far in the future was dated by a wrong clock, and counts for nothing."""
    return -CLOCK_SKEW_S <= trial.now - at < span_s


def _may_restart(trial: Trial, view: GangView, pod: Pod) -> bool:
    runs_as = trial.index.class_of(pod)
    if view.gang.share_class is ShareClass.HIGH or runs_as is ShareClass.HIGH:
        return False
    return view.gang.restartable or (runs_as is ShareClass.LOW and view.gang.share_class is ShareClass.LOW)


def _is_unsettled(trial: Trial, view: GangView) -> bool:
    others = (*view.waiting, *view.foreign_gated, *view.terminating, *view.planned, *view.failed)
    if not view.placed or others:
        return True
    return any(
        pod.uid in trial.suspending or pod.suspend_ordered or pod.suspension is not SuspensionState.RUNNING
        for pod in view.placed
    )


def _not_taken_again(trial: Trial, view: GangView) -> bool:
    """Whether its queue would let it wait once it has left its cards."""
    queue = view.gang.queue
    if _is_fifo(trial, queue) or ready.which_closed(trial, queue) is not None:
        return True  # one that waits there may be first
    charges = [charge for pod in view.placed if (charge := trial.charge_of(pod.uid)) is not None]
    if len(charges) < len(view.placed):
        return True  # it counts in no queue, which cannot be tried
    for name, amounts in charges:
        trial.charge(name, amounts, -1)
    ask: dict[str, int] = {}
    for _, amounts in charges:
        for resource, amount in amounts.items():
            ask[resource] = ask.get(resource, 0) + amount
    limit = caps.check(trial, queue, ask, unnamed_unlimited=trial.policy.unnamed_model_unlimited)
    for name, amounts in charges:
        trial.charge(name, amounts)
    return limit is not None


def _is_fifo(trial: Trial, queue: QueueName) -> bool:
    entry = trial.queues.get(queue)
    return entry is not None and entry.fifo


_CHECKS: Final[tuple[tuple[Veto, Callable[[Trial, GangView], bool]], ...]] = (
    (Veto.CLASS, lambda trial, view: any(not _may_restart(trial, view, pod) for pod in view.placed)),
    (Veto.MOVED, was_moved),
    (Veto.GIVEN_UP, lambda trial, view: pauses.rests(view.gang.move, trial.now)),
    (Veto.PROTECTED, lambda _, view: any(pod.protected for pod in view.placed)),
    (Veto.BARE, lambda _, view: any(pod.bare for pod in view.placed)),
    (Veto.UNSETTLED, _is_unsettled),
    (Veto.NO_CARDS, lambda _, view: not any(pod.shares for pod in view.placed)),
    (Veto.NODE, lambda trial, view: any(is_on_a_silent_node(p, trial.index.nodes) for p in view.placed)),
    (Veto.FRESH, lambda trial, view: lateness(trial, view) is Lateness.FRESH),
    (Veto.OFTEN, lambda trial, view: lateness(trial, view) is Lateness.OFTEN),
    (Veto.CAPS, _not_taken_again),
)
"""Cheap ones first."""
