"""Whether a planned member still finds its place as planned, before anything irreversible is done for it."""

from collections.abc import Container

import numpy as np

from vc_egpu.core.books.between import Rules
from vc_egpu.core.books.booking import Booking, takes_side
from vc_egpu.core.books.capacity import Need, by_number, port_conflict
from vc_egpu.core.books.ledger import Flags
from vc_egpu.core.model.gangs import GangView, PlannedMember
from vc_egpu.core.trial.trial import Trial


def why_not(trial: Trial, view: GangView, entry: PlannedMember) -> str:
    """Why the member cannot have its place any more; empty if it can, or if it has no node of its own.

    The member's own booking, and those of the victims it waits for, must be off the trial's ledger.
    """
    if entry.placement.node is None:
        return ""
    return why_closed(trial, view, entry) or _cards(trial, view, entry) or _rest(trial, view, entry)


def booking_of(trial: Trial, view: GangView, entry: PlannedMember) -> Booking | None:
    """What the member takes on its node; None where it has none."""
    if entry.placement.node is None:
        return None
    shape = entry.member.shape if entry.member is not None else None
    shares = [share for _, share in entry.placement.shares]
    several = view.gang.is_of_several
    return trial.ledger.booking(entry.placement.node, shape, shares, view.gang.share_class, several=several)


def why_closed(trial: Trial, view: GangView, entry: PlannedMember) -> str:
    """Why the member's node or its cards take nothing now; whether there is room is not asked. Cheap."""
    why = _node(trial, view, entry)
    if why or entry.member is None or entry.placement.node is None:
        return why
    row = trial.ledger.rows[entry.placement.node]
    if trial.index.mask(entry.member.shape)[row]:
        return ""
    return f"node {entry.placement.node} is closed to it now"


def _node(trial: Trial, view: GangView, entry: PlannedMember) -> str:
    name = entry.placement.node
    node = trial.index.nodes.get(name) if name is not None else None
    if node is None:
        return f"node {name} is gone"
    if not node.offers_cards:
        return f"node {name} takes nothing now"
    if name in view.gang.blocked_nodes and not view.gang.most_per_node:
        return f"node {name} refused a member"
    usable = {card.uuid for card in node.cards if card.usable}
    ill = [share.card for _, share in entry.placement.shares if share.card not in usable]
    return f"card {ill[0]} of node {name} takes nothing now" if ill else ""


def _cards(trial: Trial, view: GangView, entry: PlannedMember) -> str:
    booking = booking_of(trial, view, entry)
    if booking is None or _cards_take(trial, booking):
        return ""
    return f"the cards of node {entry.placement.node} have no room for it any more"


def _cards_take(trial: Trial, booking: Booking) -> bool:
    trial.ledger.add(booking)
    try:
        return cards_hold(trial, booking) and host_holds(trial, booking)
    finally:
        trial.ledger.remove(booking)


def host_holds(trial: Trial, booking: Booking) -> bool:
    """Whether the node's host memory has room for what this booking, which is in the ledger, may spill."""
    row = booking.row
    takes_none = not any(seat.host_mib for seat in booking.seats)
    return takes_none or bool(trial.ledger.host_used[row] <= trial.ledger.host_cap[row])


def cards_hold(trial: Trial, booking: Booking) -> bool:
    """Whether no card of this booking, which is in the ledger, is beyond what concerns it."""
    ledger, row = trial.ledger, booking.row
    cols = sorted({seat.col for seat in booking.seats})
    memory = ledger.memory_used[row, cols] <= ledger.memory_cap[row, cols]
    physical = ledger.physical_used[row, cols] <= ledger.physical_cap[row, cols]
    high = ledger.high_cores[row, cols] <= ledger.high_cap[row]
    low = ledger.low_cores[row, cols] <= ledger.low_cap[row]
    sharers = ledger.sharers[row, cols]
    awake = sharers - ledger.asleep[row, cols]
    crowd = (sharers <= ledger.max_sharers[row]) & ledger.side_by_side(ledger.alone[row, cols], awake)
    # A sum that is too high on a card of which this member takes no cores is not its concern.
    high |= ~_taken(cols, {seat.col for seat in booking.seats if seat.high})
    low |= ~_taken(cols, {seat.col for seat in booking.seats if seat.low})
    if ledger.apart:
        sides = {(seat.col, seat.side) for seat in booking.seats}
        crowd &= all(takes_side(int(ledger.sides[row, col]), side) for col, side in sides)
    return bool((memory & physical & crowd & high & low).all())


def _taken(cols: list[int], some: Container[int]) -> Flags:
    return np.array([col in some for col in cols], np.bool_)


def _is_far(trial: Trial, view: GangView, need: Need, row: int) -> bool:
    """Whether the pods that it needs near it have gone. Other members of its plan are still to come."""
    needs = set(need.shape.neighbours.needs)
    others = (entry.member.shape for entry in view.planned if entry.member is not None)
    if not needs or any(not needs.isdisjoint(shape.neighbours.selected_by) for shape in others):
        return False
    return not bool(Rules(trial.ledger, need, np.array([row])).near().all())


def _rest(trial: Trial, view: GangView, entry: PlannedMember) -> str:
    row = trial.ledger.rows.get(entry.placement.node) if entry.placement.node is not None else None
    if entry.member is None or row is None:
        return ""
    need = trial.need(entry.member, view.gang)
    ledger = trial.ledger
    free = (ledger.cap[row] - ledger.used[row]).tolist()
    full = any(request and amount < request for amount, request in zip(free, need.requests, strict=True))
    full = full or any(ledger.scalar_free(name, row) < request for name, request in need.scalars)
    full = full or ledger.marks.reach(row, need.limits) or _is_far(trial, view, need, row)
    if full or port_conflict(ledger, row, by_number(need.ports)):
        return f"node {entry.placement.node} has no room for it any more"
    return ""
