"""The levels of the network, as one decision sees them: where a gang is tried, and where it has to stay.

Start with :func:`scopes`. A *height* counts levels: see :class:`.topology.network.Levels`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import Need, pods_fitting
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.topology.network import Bound, Level, Levels
from vc_egpu.core.trial.trial import Seated, Trial

_MOST_DOMAINS: Final = 8
"""So many domains of a level are tried: for members of one shape the first will do."""
_MOST_UNIONS: Final = 32
"""So many sets of domains are tried for members of several shapes: for one shape counting is enough."""

Part = tuple[Need, Flags, int]
"""Members of one shape: what they need, the nodes that may take them, and how many they are."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Members that are placed with regard to each other: a gang, or one subgroup of it."""

    parts: Sequence[Part]
    bound: Bound | None
    """None: anywhere."""
    present: Sequence[int] = ()
    """Rows where others of it are, or are planned to be."""
    is_near: bool = True
    """The nearer the better; else nothing but the bound counts, and rules between pods say the rest."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the cluster in which all members of a unit are placed."""

    mask: Flags
    height: int
    """That of the domain; above the highest: the whole cluster."""
    last: bool = False
    """Nothing wider comes after it."""


def present_rows(
    trial: Trial, view: GangView, leaving_out: Collection[str] = (), subgroup: tuple[str, ...] = ()
) -> list[int]:
    """Where members are, or are planned to be; of this subgroup alone, where one is named.

    ``leaving_out``: plan keys of those that are placed again.
    """
    rows = dict.fromkeys(trial.seats_near(view.gang.key, subgroup))
    for pod in view.placed:
        row = trial.ledger.rows.get(pod.node) if pod.node is not None else None
        if row is not None and (not subgroup or pod.subgroup == subgroup):
            rows[row] = None
    for entry in view.planned:
        node = entry.placement.node
        its = entry.member.subgroup if entry.member is not None else ()
        if node in trial.ledger.rows and entry.key not in leaving_out and (not subgroup or its == subgroup):
            rows[trial.ledger.rows[node]] = None
    return list(rows)


def scopes(trial: Trial, unit: Unit) -> Iterator[Scope]:
    """Where a unit is tried, the nearest first: one node, one domain of each level, the whole cluster.

    One that is bound is tried in no wider one. Domains that lack room for some shape are left out. Members
    that are there already leave the domains that hold all of them.
    """
    levels = trial.ledger.network.levels()
    top = levels.highest + 1 if unit.bound is None else levels.height(unit.bound)
    if top is None:
        return
    asked = _Asked.of(trial, unit)
    several = unit.is_near and len(unit.parts) > 1
    for height in range(0 if unit.is_near else top, min(top, levels.highest) + 1):
        found = _domains(levels.at(height), unit, asked) if height else _nodes(trial, levels, unit, asked)
        if height > 1 and several:
            yield from _unions(levels.at(height - 1), height, found, asked)
        yield from (Scope(mask, height) for mask in found)
    if unit.bound is None:
        everywhere = np.ones(asked.rooms.shape[1], np.bool_)
        if levels.highest and several:
            yield from _unions(levels.at(levels.highest), levels.highest + 1, [everywhere], asked)
        yield Scope(everywhere, levels.highest + 1, last=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the shapes of a unit find, each by itself."""

    rooms: Ints
    """By shape and row: how many of its members fit."""
    counts: Ints
    """By shape: how many there are."""

    @classmethod
    def of(cls, trial: Trial, unit: Unit) -> "_Asked":
        rooms = np.stack([pods_fitting(trial.ledger, need, mask) for need, mask, _ in unit.parts])
        return cls(rooms, np.array([count for _, _, count in unit.parts], np.int64))

    def by_domain(self, level: Level, mask: Flags | None = None) -> Ints:
        """By shape and domain: how many of its members fit, on these rows alone."""
        return np.stack([level.sums(np.where(mask, r, 0) if mask is not None else r) for r in self.rooms])

    def enough(self, places: Ints) -> Flags:
        """By domain: whether each shape finds places for all its members."""
        return np.asarray((places >= self.counts[:, None]).all(axis=0), np.bool_)


def _nodes(trial: Trial, levels: Levels, unit: Unit, asked: _Asked) -> list[Flags]:
    """Nodes with room for each shape by itself, which hold all that are there already.

    The one that is filled best comes first: roomy ones are kept for larger gangs. So it is with domains.
    """
    reach = levels.highest if unit.bound is None else levels.height(unit.bound)
    if not reach:
        return []
    rows = np.flatnonzero(asked.enough(asked.rooms) & (levels.at(reach).numbers >= 0))
    if unit.present:
        rows = rows[rows == unit.present[0]] if len(set(unit.present)) == 1 else rows[:0]
    order = np.lexsort((trial.index.ranks()[rows], asked.rooms[:, rows].sum(axis=0)))
    return [np.arange(asked.rooms.shape[1]) == row for row in rows[order][:_MOST_DOMAINS].tolist()]


def _domains(level: Level, unit: Unit, asked: _Asked) -> list[Flags]:
    places = asked.by_domain(level)
    numbers = np.flatnonzero(asked.enough(places))
    if unit.present:
        holding = level.holding(unit.present)
        numbers = numbers[numbers == (-1 if holding is None else holding)]
    order = np.argsort(places[:, numbers].sum(axis=0), kind="stable")
    return [level.mask(number) for number in numbers[order][:_MOST_DOMAINS].tolist()]


def _unions(below: Level, height: int, within: Sequence[Flags], asked: _Asked) -> Iterator[Scope]:
    """Few domains of the next lower level that have room together, the fewest first."""
    found: list[tuple[int, int, Flags]] = []
    for mask in within:
        places = asked.by_domain(below, mask)
        total = places.sum(axis=0)
        some = sorted(np.flatnonzero(total).tolist(), key=lambda number: -int(total[number]))
        before = len(found)
        for size in range(2, len(some)):
            for chosen in islice(combinations(some, size), 4 * _MOST_UNIONS):
                together = places[:, list(chosen)].sum(axis=1)
                if (together >= asked.counts).all():
                    found.append((size, int(together.sum()), mask & np.isin(below.numbers, chosen)))
            if len(found) - before >= _MOST_UNIONS:
                break
    found.sort(key=lambda each: each[:2])
    yield from (Scope(mask, height) for _, _, mask in found[:_MOST_UNIONS])


# --- where single members may go -----------------------------------------------------------------


def held_to(trial: Trial, unit: Unit) -> Flags | None:
    """Where single members of a unit may go that has to stay within a domain; None: it has no such bound.

    Members that are there already say which domain. Without any it is the one that takes most. Members that
    sit in different domains, since the network was described otherwise, leave no node.
    """
    if unit.bound is None:
        return None
    levels = trial.ledger.network.levels()
    height, nowhere = levels.height(unit.bound), np.zeros(len(trial.ledger.names), np.bool_)
    if not height:
        return nowhere
    level = levels.at(height)
    if unit.present:
        holding = level.holding(unit.present)
        return level.mask(holding) if holding is not None else nowhere
    places = places_by_domain(trial, level, unit.parts)
    return level.mask(int(places.argmax())) if len(places) else nowhere


def places_by_domain(trial: Trial, level: Level, parts: Sequence[Part]) -> Ints:
    """By domain: for how many of these members it has room, each shape by itself."""
    total = np.zeros(len(level.names), np.int64)
    for need, mask, count in parts:
        total += np.minimum(level.sums(pods_fitting(trial.ledger, need, mask)), count)
    return total


def why_apart(trial: Trial, view: GangView, more: Sequence[Seated] = ()) -> str:
    """Whether members are, or would be, further apart than they may be; empty if they are not.

    Asked of a plan that is not carried out: the network may be described otherwise since. ``more``: members
    that are to be seated as well.
    """
    gang = view.gang
    if not gang.is_bound:
        return ""
    rows = [*present_rows(trial, view), *(entry.row for entry in more)]
    if gang.bound is not None and _apart(trial, gang.bound, rows):
        return f"its members would be in no one domain of {gang.bound.text}"
    members = [entry.member for entry in view.planned if entry.member is not None]
    members += [entry.member for entry in more]
    for name in dict.fromkeys(member.subgroup for member in members if member.subgroup):
        bound = gang.subgroups.get(name[0])
        rows = present_rows(trial, view, subgroup=name)
        rows += [entry.row for entry in more if entry.member.subgroup == name]
        if bound is not None and _apart(trial, bound, rows):
            return f"subgroup {' '.join(name)} would be in no one domain of {bound.text}"
    return ""


def _apart(trial: Trial, bound: Bound, rows: Sequence[int]) -> bool:
    levels = trial.ledger.network.levels()
    height = levels.height(bound)
    return bool(rows) and (not height or levels.at(height).holding(rows) is None)
