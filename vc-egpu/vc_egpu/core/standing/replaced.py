"""Which failed members' places are left, where replacements went to others' of their task.

A replacement is placed where there is room, not where the one before it was: what is kept for those still to
come is as many places, but free ones.
"""

import math
from collections.abc import Iterable, Sequence

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.cluster import CardId, Instant, Pod
from vc_egpu.core.model.gangs import GangView


def places_left(view: GangView, unreplaced: Sequence[Pod], lately: Iterable[Pod]) -> list[Pod]:
    """Whose places to keep for the replacements of ``unreplaced``. ``lately``: all that failed a short while
    ago."""
    since = _taken_since(view)
    missing = {pod.uid for pod in unreplaced}
    free: dict[str, list[Pod]] = {}
    for pod in lately:
        if pod.uid not in missing and not _is_taken(pod, since):
            free.setdefault(pod.task, []).append(pod)
    places = []
    for pod in unreplaced:
        others = free.get(pod.task)
        places.append(others.pop() if others and _is_taken(pod, since) else pod)
    return places


def overlap(one: Booking, other: Booking) -> bool:
    """Whether both have a seat on the same card."""
    return one.row == other.row and not {seat.col for seat in one.seats}.isdisjoint(
        seat.col for seat in other.seats
    )


def _taken_since(view: GangView) -> dict[CardId, Instant]:
    """By card, when the youngest of the gang's members on it was made; those of its plan are to come."""
    since: dict[CardId, Instant] = {}
    for pod in view.placed:
        for _, share in pod.shares:
            since[share.card] = max(pod.created, since.get(share.card, pod.created))
    for entry in view.planned:
        since.update((share.card, math.inf) for _, share in entry.placement.shares)
    return since


def _is_taken(failed: Pod, since: dict[CardId, Instant]) -> bool:
    """Whether a member that came after it failed is on one of its cards."""
    finished = failed.finished or 0.0
    return any(since.get(share.card, -math.inf) >= finished for _, share in failed.shares)
