"""Where a gang that waits gets its cards soonest: where the fewest have to leave, and early."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from vc_egpu.core.model.cluster import MemberPlacement
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.placing.place import groups_of, place
from vc_egpu.core.standing.tenants import Lift, Tenant, lifted, tenants
from vc_egpu.core.trial.trial import Trial

_MOST_NODES: Final = 128
"""Where there are more nodes the emptiest ones are looked at."""
_MOST_GIVEN_BACK: Final = 64
"""Among more tenants it is not sought which of them need not leave: each test places the whole gang."""


def soonest(trial: Trial, view: GangView, members: Sequence[Member]) -> Mapping[str, MemberPlacement] | None:
    """Places for all of these once some have left; None where they never fit.

    Nothing is booked afterwards. Members without cards have no place of their own.
    """
    listed = tenants(trial, _rows(trial, view, members))
    with lifted(trial) as lift:
        gone = _enough(trial, view, members, listed, lift)
        if gone is None:
            return None
        if len(gone) <= _MOST_GIVEN_BACK:
            _give_back(trial, view, members, gone[::-1], lift)
        seated = place(trial, view, members, known=True)
        if seated is None:
            return None
        placements = {entry.member.key: trial.placement(entry) for entry in seated}
        trial.unseat(seated)
    return {key: placement for key, placement in placements.items() if placement.node is not None}


def _rows(trial: Trial, view: GangView, members: Sequence[Member]) -> list[int]:
    """The nodes that are looked at: those that take any of the members at all."""
    ledger = trial.ledger
    open_to_them = np.zeros(len(ledger.names), np.bool_)
    for group in groups_of(trial, view, members):
        for ask in group.need.asks:
            open_to_them |= group.mask & ledger.rows_with(ask.kind)
    rows = np.flatnonzero(open_to_them)
    if len(rows) > _MOST_NODES:
        free = (ledger.sharers[rows] == 0).sum(axis=1) - (ledger.kind[rows] < 0).sum(axis=1)
        rows = rows[np.lexsort((trial.index.ranks()[rows], -free))][: max(_MOST_NODES, 2 * len(members))]
    found: list[int] = rows.tolist()
    return found


def _fits(trial: Trial, view: GangView, members: Sequence[Member]) -> bool:
    seated = place(trial, view, members, effort=0)
    if seated is None:
        return False
    trial.unseat(seated)
    return True


def _enough(
    trial: Trial, view: GangView, members: Sequence[Member], listed: Sequence[Tenant], lift: Lift
) -> list[Tenant] | None:
    """The first ones that are enough, each time twice as many; None where all of them are not."""
    count, step = 0, 1
    while not _fits(trial, view, members):
        if count == len(listed):
            return None
        for tenant in listed[count : count + step]:
            lift.take(tenant)
        count, step = min(len(listed), count + step), step * 2
    return list(listed[:count])


def _give_back(
    trial: Trial, view: GangView, members: Sequence[Member], gone: Sequence[Tenant], lift: Lift
) -> None:
    """Give back as many as possible, first ones first; by halves, so that few tests do."""
    if not gone:
        return
    for tenant in gone:
        lift.give_back(tenant)
    if _fits(trial, view, members):
        return
    for tenant in gone:
        lift.take(tenant)
    if len(gone) > 1:
        half = len(gone) // 2
        _give_back(trial, view, members, gone[:half], lift)
        _give_back(trial, view, members, gone[half:], lift)
