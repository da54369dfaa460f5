"""Nodes that are to be empty, so that an autoscaler removes them. They bear our taint and take nothing new.

A node is chosen where all that holds its cards may move, and finds other places on nodes that are in use. It
gets the taint first. Then its gangs claim their new places, as in every move. The node takes work again as
soon as a gang would fit with it, and where it is not empty in time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from vc_egpu.core.model.cluster import Node, NodeName, Pod
from vc_egpu.core.model.findings import Shortage
from vc_egpu.core.model.gangs import GangView, shares_of
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.moving.leaving import Leaving, move_of, place_others
from vc_egpu.core.moving.movable import veto
from vc_egpu.core.placing.measure import CARD_MILLI
from vc_egpu.core.placing.place import place
from vc_egpu.core.standing.reservations import lacks_cards
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Seated, Trial
from vc_egpu.core.waiting import ready, say

LONGEST_S: Final = 1800.0
"""A node on which work is left by then takes work again."""
MOST_HELD: Final = 0.5
"""Nodes with more of their card memory held than this part are not emptied."""
_MOST_TRIED: Final = 8

_Found = list[tuple[Leaving, tuple[Seated, ...]]]


def opens_for(trial: Trial, record: Recorder, ways: Sequence[GangView]) -> tuple[NodeName, ...]:
    """The nodes being emptied with which a gang fits that has found no place: they are opened.

    No other gang goes for it in this decision. ``ways``: the gang with each choice that it has.
    """
    shut = [name for name in trial.index.emptied if name not in trial.policy.moving.stuck]
    if not shut:
        return ()
    with trial.opened(shut):
        for view in ways:
            members = next(ready.cores(view)) or view.waiting[:1]
            seated = place(trial, view, members) if members else None
            if seated:
                used = {trial.ledger.names[entry.row] for entry in seated}
                trial.unseat(seated)
                found = tuple(sorted(name for name in shut if name in used))
                record.opens(found)
                return found
    return ()


def tell(record: Recorder, view: GangView, opened: Sequence[NodeName]) -> None:
    """Say which nodes are opened for it, in place of who does not go for it."""
    found = record.verdicts[view.gang.key].finding
    if isinstance(found, Shortage):
        told = replace(found, opens=tuple(opened), shut=(), no_victims=None, not_reclaimed=None)
        record.waits(view, say.verdict(told))


def review(trial: Trial, record: Recorder, *, complete: bool) -> None:
    """Open the nodes that are not to be empty any more. ``complete``: all gangs had their turn."""
    if not complete:
        return
    moving = trial.policy.moving
    for name in trial.index.emptied:
        since = trial.index.nodes[name].emptied or 0.0
        late = not -CLOCK_SKEW_S <= trial.now - since < LONGEST_S
        if not moving.for_empty or (late and _holders(trial, name)):
            record.opens([name])


def seek(trial: Trial, record: Recorder, most: int) -> None:
    """Let the work of a node that is being emptied claim other places, or choose the next node.

    Nothing is done while any gang lacks cards. ``most``: so many gangs may move at most.
    """
    if any(lacks_cards(verdict) for verdict in record.verdicts.values()):
        return
    held_mib = trial.ledger.memory_used.sum(axis=1)
    used = [name for name, row in trial.ledger.rows.items() if held_mib[row] > 0]
    unused = frozenset(trial.ledger.rows.keys() - set(used))
    open_still = [name for name in used if name in trial.index.emptied]
    for name in open_still:
        found = _elsewhere(trial, name, unused, most)
        if found:
            for one, seated in found:
                won = CARD_MILLI * shares_of(trial.index.pods[uid] for uid in one.pods)
                move = replace(move_of(trial, one, seated, "", won), empties=name)
                record.moves(one.view.gang.key, move)
            _unseat(trial, found)
            return
    if open_still:
        return
    for name in islice(_candidates(trial, used), _MOST_TRIED):
        found = _elsewhere(trial, name, unused, most)
        if found:
            _unseat(trial, found)
            record.empties(name)
            return


def _candidates(trial: Trial, used: Sequence[NodeName]) -> Iterator[NodeName]:
    """Nodes that may be emptied, those with the least work first."""
    ranked = []
    for name in used:
        row, node = trial.ledger.rows[name], trial.index.nodes[name]
        held, has = _held_mib(trial, row), int(trial.ledger.memory_cap[row].sum())
        if held <= MOST_HELD * has and _may_go(node):
            ranked.append((held, name))
    return (name for _, name in sorted(ranked))


def _may_go(node: Node) -> bool:
    closed = node.unschedulable or node.drained or node.stays or bool(node.problem)
    return node.is_up and not closed and node.emptied is None


def _held_mib(trial: Trial, row: int) -> int:
    return int(trial.ledger.memory_used[row].sum())


def _holders(trial: Trial, name: NodeName) -> list[Pod]:
    """The pods that hold cards of the node."""
    pods = (trial.index.pods[uid] for uid in sorted(trial.index.pods_on.get(name, ())))
    return [pod for pod in pods if pod.shares]


def _elsewhere(trial: Trial, name: NodeName, unused: frozenset[NodeName], most: int) -> _Found | None:
    """Other places for all that holds cards of this node, booked; None where any of it has to stay."""
    holders = _holders(trial, name)
    held = sum(share.memory_mib for pod in holders for _, share in pod.shares)
    if not holders or held != _held_mib(trial, trial.ledger.rows[name]):
        return None  # something is to come, or is held by what is gone
    keys = sorted({pod.gang or "" for pod in holders})
    if len(keys) > most or any(key not in trial.index.gangs for key in keys):
        return None
    found: _Found = []
    for key in keys:
        view = trial.index.view(key).without(trial.leaving)
        there = holders if view.gang.single else view.placed
        one = Leaving(view, tuple(pod.uid for pod in there if pod.gang == key))
        seated = _place(trial, one, name, unused) if veto(trial, view) is None else None
        if seated is None:
            _unseat(trial, found)
            return None
        found.append((one, seated))
    return found


def _place(
    trial: Trial, one: Leaving, name: NodeName, unused: frozenset[NodeName]
) -> tuple[Seated, ...] | None:
    """Places on other nodes that are in use."""
    gang = one.view.gang
    away = replace(one.view, gang=replace(gang, blocked_nodes=gang.blocked_nodes | unused | {name}))
    lifted = trial.lift(one.pods)
    seated = place_others(trial, replace(one, view=away))
    trial.put_back(lifted)
    return seated


def _unseat(trial: Trial, found: _Found) -> None:
    for _, seated in found:
        trial.unseat(seated)
