"""Moves that have begun: other cards are claimed, the gang leaves its old ones, and comes to the new ones.

A move is a claim on the gang's PodGroup first. While the gang is still on its old cards, the claim may be
given up. Then nothing has happened, and a mark of it stays (:mod:`.pauses`). After that the claim stands
until the gang has its new place, or too long a time has passed.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import Assignment, Need
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import MemberPlacement, Move, PodUid, plan_key
from vc_egpu.core.model.gangs import GangView, Member, PlannedMember
from vc_egpu.core.model.plan import Eviction
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.room.moves import still_there
from vc_egpu.core.trial import recheck
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.levels import why_apart
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Seated, Trial

LONGEST_S: Final = 900.0
"""A gang that has not come to its new place by then waits as others do."""
_STARTS_S: Final = 60.0
"""A gang that has not begun to leave by then stays."""


def book(trial: Trial) -> None:
    """Keep the new places of gangs that are on their way, before places are kept that may be elsewhere."""
    for key, move in trial.index.moves_under_way():
        view = trial.index.view(key)
        if not still_there(trial, key) and _is_going(trial, view, move):
            _claim(trial, view, move)


def review(trial: Trial, record: Recorder) -> None:
    """Each other move that has begun: keep its claim, let the gang go, note that it came, or give it up."""
    for key, move in trial.index.moves_under_way():
        view = trial.index.view(key)
        if still_there(trial, key):
            _still_there(trial, record, view, move)
        elif not _is_going(trial, view, move):
            come = Move(move.at, whom=move.whom, won_milli=move.won_milli, empties=move.empties)
            record.moves(key, come)


def close(trial: Trial, record: Recorder) -> None:
    """After all turns: what no gang makes use of is given up. Gangs leave a node that is to be empty."""
    for key, move in trial.index.moves_under_way():
        if not still_there(trial, key) or not (move.whom or move.empties):
            continue
        useless = record.decided(move.whom) and not trial.leaving.keys() & move.pods
        if move.empties:
            useless = record.is_opened(move.empties) or not trial.claims.has(ClaimKind.MOVE, key)
        if useless:
            record.moves(key, move.give_up(trial.now))
            _drop(trial, key)
        elif move.empties:
            _leaves(trial, record, trial.index.view(key), move)


def _still_there(trial: Trial, record: Recorder, view: GangView, move: Move) -> None:
    late = not -CLOCK_SKEW_S <= trial.now - move.at < _STARTS_S
    wanted = not move.whom or (move.whom in trial.index.gangs and not trial.index.view(move.whom).runs)
    if move.empties and move.empties not in trial.index.emptied:
        wanted = False  # the node takes work again
    if not (late or not trial.policy.preemption or not trial.policy.moving.on) and wanted:
        bookings = _bookings(trial, view, move)
        lifted = trial.lift(move.pods)
        # The gang that waits fits elsewhere now. What is kept for queues is sought again each time.
        aside = [*own_claims(trial, move.whom), *trial.claims.of(ClaimKind.GUARANTEE)]
        with trial.without(aside):
            fits = _has_room(trial, view, _entries(trial, view, move))
        trial.put_back(lifted)
        if fits and len(bookings) == sum(1 for place in move.places.values() if place.node is not None):
            _book(trial, view, move, bookings)
            if not (move.whom or move.empties):
                _leaves(trial, record, view, move)
            return
    record.moves(view.gang.key, move.give_up(trial.now))


def _leaves(trial: Trial, record: Recorder, view: GangView, move: Move) -> None:
    trial.leaving.update(dict.fromkeys(sorted(move.pods)))
    whole = {pod.uid for pod in view.placed} <= move.pods
    record.evicts(Eviction(view.gang.key, move.pods, whole, Cause.DEFRAGMENTATION))


def _is_going(trial: Trial, view: GangView, move: Move) -> bool:
    return bool(trial.leaving.keys() & move.pods) or _is_on_its_way(trial, view, move)


def _is_on_its_way(trial: Trial, view: GangView, move: Move) -> bool:
    if not -CLOCK_SKEW_S <= trial.now - move.at < LONGEST_S:
        return False
    fresh = [pod for pod in view.placed if pod.uid not in move.pods]
    if view.planned or any(pod.shares == place.shares for pod in fresh for place in move.places.values()):
        return False  # it came
    return bool(view.gang.single or view.terminating or view.waiting or view.missing or not fresh)


def _claim(trial: Trial, view: GangView, move: Move) -> None:
    bookings = _bookings(trial, view, move)
    if bookings:
        _book(trial, view, move, bookings)


def _book(trial: Trial, view: GangView, move: Move, bookings: dict[str, Booking]) -> None:
    counts = dict(move.counts)
    for uid in move.pods:
        for resource, amount in (trial.charge_of(uid) or (None, {}))[1].items():
            if resource in counts:
                counts[resource] -= amount  # it counts there still
    claim = Claim(
        view.gang.key,
        ClaimKind.MOVE,
        bookings,
        move.at,
        yields_above=view.gang.share_class,
        counts_in=view.gang.queue,
        counts={resource: amount for resource, amount in counts.items() if amount > 0},
    )
    trial.claims.add(claim)
    trial.book(claim)


def _drop(trial: Trial, key: str) -> None:
    for claim in trial.claims.take(ClaimKind.MOVE, key):
        trial.unbook(claim)


def _bookings(trial: Trial, view: GangView, move: Move) -> dict[str, Booking]:
    """What its members take there; without those whose node or card takes nothing now."""
    found: dict[str, Booking] = {}
    for entry in _entries(trial, view, move):
        booking = recheck.booking_of(trial, view, entry)
        if booking is None or len(booking.seats) < len(entry.placement.shares):
            continue
        if not recheck.why_closed(trial, view, entry):
            found[entry.key] = booking
    return found


def _entries(trial: Trial, view: GangView, move: Move) -> list[PlannedMember]:
    """Its new places, each with a member that takes as much."""
    members = [*view.waiting, *leaving_members(trial, view, move.pods)]
    needs = [(member, trial.need(member, view.gang)) for member in members]

    def takes(place: MemberPlacement) -> Member | None:
        return next((member for member, need in needs if _suits(need, place)), None)

    return [PlannedMember(key, place, takes(place)) for key, place in move.places.items()]


def leaving_members(trial: Trial, view: GangView, pods: Collection[PodUid]) -> list[Member]:
    """Those of the gang's pods that are still there, as members that look for a place."""
    found = [pod for pod in (*view.placed, *view.terminating) if pod.uid in pods]
    ids = trial.index.shape_ids
    return [Member(plan_key(pod), pod.task, ids[pod.uid], pod.shape, subgroup=pod.subgroup) for pod in found]


def own_claims(trial: Trial, key: str) -> list[Claim]:
    """What is reserved for the gang for which others move."""
    return [claim for claim in trial.claims.of(ClaimKind.RESERVATION) if claim.gang == key]


def _has_room(trial: Trial, view: GangView, entries: Iterable[PlannedMember]) -> bool:
    """Whether all of them find room next to what is booked. On other cards of their nodes too much may be
    booked: a claim is also made where others still run."""
    added: list[Booking] = []
    try:
        for entry in entries:
            if recheck.why_not(trial, view, entry):
                return False
            booking = recheck.booking_of(trial, view, entry)
            if booking is not None:
                trial.ledger.add(booking)
                added.append(booking)
        return True
    finally:
        for booking in added:
            trial.ledger.remove(booking)


# --- the way to the new place ----------------------------------------------------------------------


def seat(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[Seated, ...]:
    """Those of the members, booked, that find what is claimed for them still free. In the gang's own turn."""
    move = view.gang.move
    if move is None or not move.places or trial.now - move.at >= LONGEST_S:
        return ()
    left = dict(move.places)
    seated: list[Seated] = []
    for member in members:
        need = trial.need_in(view, member)
        for key in sorted(left, key=lambda key: (key != member.key, key)):
            found = _seated(trial, view, member, need, left[key])
            if found is not None:
                seated.append(found)
                del left[key]
                break
    if why_apart(trial, view, seated):
        trial.unseat(seated)
        return ()
    return tuple(seated)


def _seated(
    trial: Trial, view: GangView, member: Member, need: Need, place: MemberPlacement
) -> Seated | None:
    if place.node is None or not need.uses_cards or not _suits(need, place):
        return None
    if recheck.why_not(trial, view, PlannedMember(member.key, place, member)):
        return None
    row = trial.ledger.rows[place.node]
    columns = trial.ledger.columns[row]
    cols = iter([columns[share.card] for _, share in place.shares])
    assignment: Assignment = tuple(tuple(next(cols) for _ in range(ask.ask.cards)) for ask in need.asks)
    return trial.seat(member, need, row, assignment)


def _suits(need: Need, place: MemberPlacement) -> bool:
    """Whether the place is for a pod that asks for this."""
    asked = [(ask.ask.container, ask.memory_mib, ask.ask.cores_percent) for ask in need.asks
             for _ in range(ask.ask.cards)]  # fmt: skip
    return asked == [(name, share.memory_mib, share.cores_percent) for name, share in place.shares]
