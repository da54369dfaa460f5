"""Finding moves: at the end of a decision that tried all gangs, with all that it admitted booked.

For a gang that waits for cards alone: the cheapest gangs without which it fits, where each of them fits
elsewhere next to it. Without such a gang: one move by which less is left over in pieces, by the score that
placement has. What is found is only a claim of other cards. One set of moves is under way at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Move, PodUid, ShareClass
from vc_egpu.core.model.gangs import GangView, shares_of
from vc_egpu.core.model.policy import OURS
from vc_egpu.core.moving import emptying, pauses, underway
from vc_egpu.core.moving.leaving import Leaving, has_other, move_of, place_others
from vc_egpu.core.moving.movable import left_in_budget, movable, veto
from vc_egpu.core.placing.measure import CARD_MILLI
from vc_egpu.core.placing.outlook import Outlook, outlook_of
from vc_egpu.core.placing.policies import goes_by
from vc_egpu.core.placing.scores import OURS_RULE
from vc_egpu.core.queues import caps
from vc_egpu.core.room.hunt import Hunt
from vc_egpu.core.room.preempt import make_room_by
from vc_egpu.core.standing import lending
from vc_egpu.core.standing.reservations import lacks_cards
from vc_egpu.core.trial.profiles import profile_of
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Seated, Trial
from vc_egpu.core.waiting import ready

_MOST_WAITING: Final = 2
"""For so many gangs that wait moves are sought in one decision."""
_TURN_S: Final = 5.0
"""So long the same ones come first."""
_MOST_SETS: Final = 4
"""So many sets of gangs are tried for each of them."""
_MOST_ROWS: Final = 64
"""On so many of the nodes that leave most over gangs are tried, and so many gangs on all of them."""
_MOST_TRIED: Final = 24


def seek(trial: Trial, record: Recorder, *, complete: bool) -> None:
    """Claim other cards for gangs that are worth to be moved. ``complete``: all gangs had their turn."""
    moving = trial.policy.moving
    if (
        not (complete and moving.on and trial.policy.preemption)
        or record.any_moves
        or trial.index.moves_under_way()
    ):
        return
    left = left_in_budget(trial)
    if not left:
        return
    if moving.for_waiting:
        waiting = _waiting(trial, record)
        pool = [view.gang.key for view in movable(trial) if has_other(trial, view)] if waiting else []
        if any(_for_gang(trial, record, view, pool, left) for view in waiting):
            return
    chosen = trial.policy
    scores = OURS in {chosen.binpack, *chosen.profiles.policies} and bool(chosen.mix.classes)
    if moving.for_fragments and moving.is_time(trial.now) and scores:
        _for_fragments(trial, record)
    if moving.for_empty and moving.is_time(trial.now) and not record.any_moves:
        emptying.seek(trial, record, left)


# --- for a gang that waits -------------------------------------------------------------------------


def _waiting(trial: Trial, record: Recorder) -> list[GangView]:
    """Some of those that wait long for cards alone."""
    found = []
    rest = pauses.resting(trial)
    for key, verdict in record.verdicts.items():
        gang = trial.index.gangs.get(key)
        if gang is None or not lacks_cards(verdict) or gang.takes_free_room or gang.spares_since:
            continue
        if key in rest:
            continue
        if trial.now - gang.created >= trial.policy.moving.after_s:
            view = trial.index.view(key)
            if not view.placed and view.waiting:
                found.append(view)
    # Searches are few in one decision, so others come first in a later one.
    turn = int(trial.now / _TURN_S) % max(1, len(found))
    return [*found[turn:], *found[:turn]][:_MOST_WAITING]


def _is_enough_free(trial: Trial, view: GangView) -> bool:
    """Whether as much is free of each kind of card as the gang asks for, wherever it is."""
    ledger = trial.ledger
    asked: dict[int, int] = {}
    for member in next(ready.cores(view)):
        for ask in trial.need(member, view.gang).asks:
            asked[ask.kind] = asked.get(ask.kind, 0) + ask.cards * ask.memory_mib
    free = np.maximum(ledger.memory_cap - ledger.memory_used, 0)
    return all(int(free[(ledger.kind == kind) & ledger.usable].sum()) >= mib for kind, mib in asked.items())


def _for_gang(trial: Trial, record: Recorder, view: GangView, pool: list[str], most: int) -> bool:
    members = next(ready.cores(view))
    ask = trial.amounts_of(members, view.gang.share_class)
    unlimited = trial.policy.unnamed_model_unlimited
    if not members or caps.check(trial, view.gang.queue, ask, unnamed_unlimited=unlimited) is not None:
        return False
    named = [key for key in pool if key != view.gang.key]
    for _ in range(_MOST_SETS):
        trial.effort.begin_turn()
        with lending.aside(trial, view):  # what others lend it they do not lend to those that move for it
            hunt = Hunt(Cause.DEFRAGMENTATION, ShareClass.UNSET, named=tuple(named))
            may_fit = bool(named) and _is_enough_free(trial, view)
            room = make_room_by(trial, view, members, hunt) if may_fit else None
        if room is None:
            return False
        leaving = [Leaving(trial.index.view(e.gang), tuple(sorted(e.pods))) for e in room.evictions]
        try:
            with trial.without(underway.own_claims(trial, view.gang.key)):
                stuck = _elsewhere(trial, record, view, leaving) if len(leaving) <= most else ""
        finally:
            trial.unseat(room.seated)
        if stuck is None:
            return True
        if not stuck:
            return False  # more gangs than may be moved now
        named.remove(stuck)
    return False


def _elsewhere(trial: Trial, record: Recorder, view: GangView, leaving: list[Leaving]) -> str | None:
    """Find other places for all of these, next to the gang, which is booked. None: they are claimed.

    Otherwise the gang that finds none. None gets the place of another one of them: that one is still there
    when the claims are looked at next.
    """
    moved: list[tuple[Leaving, tuple[Seated, ...]]] = []
    try:
        for one in sorted(leaving, key=lambda one: (-len(one.pods), one.view.gang.key)):
            lifted = trial.lift(one.pods)
            seated = place_others(trial, one)
            trial.put_back(lifted)
            if seated is None:
                return one.view.gang.key
            moved.append((one, seated))
        for one, seated in moved:
            won = sum(CARD_MILLI * ask.cards for m in view.waiting for ask in m.shape.asks)
            record.moves(one.view.gang.key, move_of(trial, one, seated, view.gang.key, won))
        return None
    finally:
        for _, seated in moved:
            trial.unseat(seated)


# --- for less that is left over --------------------------------------------------------------------


def _for_fragments(trial: Trial, record: Recorder) -> None:
    """Claim the place of the one move that wins most for each card that moves, where that is enough."""
    outlook = outlook_of(trial, OURS_RULE)
    before = outlook.fragments(trial)
    worst = np.argsort(-before, kind="stable")[:_MOST_ROWS].tolist()
    best: tuple[float, str, Move] | None = None
    for one in _on(trial, [row for row in worst if before[row] > 0]):
        found = _won(trial, outlook, int(before.sum()), one)
        if found is not None and (best is None or (-found[0], found[1]) < (-best[0], best[1])):
            best = found
    if best is not None and best[0] >= trial.policy.moving.least_won_milli:
        record.moves(best[1], best[2])


def _on(trial: Trial, rows: Sequence[int]) -> Iterator[Leaving]:
    """Gangs on these nodes that may move and go by that score, first those of the first node. Replicas go
    one by one."""
    index, seen, count = trial.index, set[PodUid](), 0
    for row in rows:
        name = trial.ledger.names[row]
        for uid in sorted(index.pods_on.get(name, ())) if name is not None else ():
            pod = index.pods[uid]
            if uid in seen or not pod.shares or pod.gang is None or pod.gang not in index.gangs:
                continue
            view = index.view(pod.gang).without(trial.leaving)
            part = (uid,) if view.gang.single else tuple(one.uid for one in view.placed)
            seen.update(part)
            scored = goes_by(OURS, trial.policy, profile_of(trial, view))
            if scored and veto(trial, view) is None and has_other(trial, view):
                yield Leaving(view, part)
                count += 1
            if count == _MOST_TRIED:
                return


def _won(trial: Trial, outlook: Outlook, before: int, one: Leaving) -> tuple[float, str, Move] | None:
    """What is won for each card that moves; None where it finds no place on other nodes."""
    pods = [trial.index.pods[uid] for uid in one.pods]
    gang = one.view.gang
    old = {pod.node for pod in pods if pod.node is not None and pod.shares}
    away = replace(one.view, gang=replace(gang, blocked_nodes=gang.blocked_nodes | old))
    lifted = trial.lift(one.pods)
    seated = place_others(trial, replace(one, view=away))
    try:
        if seated is None:
            return None
        won = before - int(outlook.fragments(trial).sum())
        if won <= 0:
            return None
        return won / shares_of(pods), one.view.gang.key, move_of(trial, one, seated, "", won)
    finally:
        trial.unseat(seated or ())
        trial.put_back(lifted)
