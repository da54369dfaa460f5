"""Gangs that would leave their cards: whether and where they find others, and the claim that says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.books.capacity import places_up_to
from vc_egpu.core.model.cluster import Move, PodUid
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.resources import add_to
from vc_egpu.core.moving import pauses, underway
from vc_egpu.core.placing.place import place
from vc_egpu.core.trial.trial import Seated, Trial

_EFFORT: Final = 600
_OTHER: Final = "other places"


@dataclass(frozen=True, slots=True)
class Leaving:
    """Part of a gang, or all of it, that would go."""

    view: GangView
    pods: tuple[PodUid, ...]


def has_other(trial: Trial, view: GangView) -> bool:
    """Whether each kind of its members by itself finds other places as things are: asked once per kind."""
    members = underway.leaving_members(trial, view, {pod.uid for pod in view.placed})
    if view.gang.single:
        members = members[:1]
    kinds: dict[int, list[Member]] = {}
    for member in members:
        kinds.setdefault(member.shape_id, []).append(member)
    return all(_finds_places(trial, view, alike) for alike in kinds.values())


def _finds_places(trial: Trial, view: GangView, alike: Sequence[Member]) -> bool:
    need = trial.need_in(view, alike[0])
    kind = (alike[0].shape_id, need.share_class, need.side)
    mark = (_OTHER, *kind, view.gang.blocked_nodes, need.packed, len(alike))
    known = trial.scratch.get(str(mark))
    if not isinstance(known, bool):
        mask = trial.mask(view.gang, need.shape)
        known = places_up_to(trial.ledger, need, mask, len(alike)) == len(alike)
        trial.scratch[str(mark)] = known
    return known


def place_others(trial: Trial, one: Leaving) -> tuple[Seated, ...] | None:
    """Places for what leaves, booked; it is off the ledger already."""
    members = underway.leaving_members(trial, one.view, set(one.pods))
    return place(trial, one.view.without(set(one.pods)), members, effort=_EFFORT)


def move_of(trial: Trial, one: Leaving, seated: Sequence[Seated], whom: str, won_milli: int) -> Move:
    """The claim of these places. ``whom``: the gang that fits then; ``won_milli``: what becomes of use."""
    counts: dict[str, int] = {}
    for uid in one.pods:
        for resource, amount in (trial.charge_of(uid) or (None, {}))[1].items():
            add_to(counts, resource, amount)
    places = {entry.member.key: trial.placement(entry) for entry in seated}
    before = pauses.given_up(one.view.gang.move, trial.now)
    return Move(trial.now, places, frozenset(one.pods), whom, counts, won_milli, before)
