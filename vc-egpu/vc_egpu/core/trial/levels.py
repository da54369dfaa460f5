"""The levels of the network, as a decision sees them: which nodes share a rack, a block, a zone.

Tier 0 is one node, tier 1 the lowest level that the cluster names, and so on. Nodes tell their domains
(:attr:`.cluster.Node.domains`). A node that tells none at a tier is in no domain of it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from vc_egpu.core.books.capacity import Need, pods_fitting
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.trial.trial import Trial

_KEPT: Final = "levels"
_MOST_DOMAINS: Final = 8
"""So many domains of a tier are tried: for members of one shape the first will do."""


@dataclass(frozen=True, slots=True)
class Levels:
    """All domains by tier."""

    tiers: tuple[dict[str, Flags], ...]
    """From tier 1 on: name of a domain to its rows."""

    def domains(self, tier: int) -> dict[str, Flags]:
        """The domains of a tier from 1 on; the cluster as a whole has no name, and is none of them."""
        return self.tiers[tier - 1] if 1 <= tier <= len(self.tiers) else {}

    @property
    def highest(self) -> int:
        """The highest tier that has domains."""
        return len(self.tiers)


def levels_of(trial: Trial) -> Levels:
    """The levels of the cluster, read once for each decision."""
    known = trial.scratch.get(_KEPT)
    if isinstance(known, Levels):
        return known
    tiers: list[dict[str, Flags]] = []
    rows = len(trial.ledger.names)
    for row, domains in trial.ledger.domains.items():
        for number, domain in enumerate(domains):
            while len(tiers) <= number:
                tiers.append({})
            if domain:
                tiers[number].setdefault(domain, np.zeros(rows, np.bool_))[row] = True
    levels = Levels(tuple(dict(sorted(tier.items())) for tier in tiers))
    trial.scratch[_KEPT] = levels
    return levels


def present_rows(trial: Trial, view: GangView, leaving_out: Collection[str] = ()) -> set[int]:
    """Where members are, or are planned to be. ``leaving_out``: plan keys of those that are placed again."""
    rows = set(trial.rows_of(view))
    for entry in view.planned:
        node = entry.placement.node
        if node is not None and node in trial.ledger.rows and entry.key not in leaving_out:
            rows.add(trial.ledger.rows[node])
    return rows


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the cluster in which a gang is placed as a whole."""

    mask: Flags
    tier: int
    """Of the domain; above the highest: the whole cluster."""
    last: bool = False
    """Nothing wider comes after it."""


Part = tuple[Need, Flags, int]
"""Members of one shape: what they need, the nodes that may take them, and how many they are."""


def scopes(trial: Trial, view: GangView, parts: Sequence[Part], keys: Collection[str]) -> Iterator[Scope]:
    """Where a gang is tried, the nearest first: one node, one domain of each tier, the whole cluster.

    A gang that has to stay within a tier is tried in no wider one. Domains that lack room for some shape are
    left out. Members that are there already leave the domains that hold all of them. ``keys``: of the members
    to be placed, in a plan.
    """
    levels, bound = levels_of(trial), view.gang.highest_tier
    present = present_rows(trial, view, keys)
    rooms = np.stack([pods_fitting(trial.ledger, need, mask) for need, mask, _ in parts])
    counts = np.array([count for _, _, count in parts], np.int64)
    for tier in range(levels.highest + 1 if bound is None else bound + 1):
        found = list(_domains(levels, tier, rooms, counts, present))
        # The fullest domain that takes all of them: roomy ones are kept for larger gangs.
        found.sort(key=lambda mask: int(rooms[:, mask].sum()))
        for mask in found[:_MOST_DOMAINS]:
            yield Scope(mask, tier)
    if bound is None:
        yield Scope(np.ones(len(trial.ledger.names), np.bool_), levels.highest + 1, last=True)


def _domains(
    levels: Levels, tier: int, rooms: Ints, counts: Ints, present: Collection[int]
) -> Iterator[Flags]:
    """The domains of a tier with room for each shape by itself, which hold all that are there already."""
    if tier:
        for mask in levels.domains(tier).values():
            if all(mask[row] for row in present) and (rooms[:, mask].sum(axis=1) >= counts).all():
                yield mask
        return
    for row in np.flatnonzero((rooms >= counts[:, None]).all(axis=0)).tolist():
        in_some = any(mask[row] for mask in levels.domains(1).values())
        if in_some and all(other == row for other in present):
            mask = np.zeros(rooms.shape[1], np.bool_)
            mask[row] = True
            yield mask


def held_to(trial: Trial, view: GangView, parts: Sequence[Part]) -> Flags | None:
    """Where single members may go of a gang that has to stay within a domain; None: it has no such bound.

    Members that are there already say which domain. Without any it is the one that takes most. Members that
    sit in different domains, since labels have changed, leave no node.
    """
    bound = view.gang.highest_tier
    if bound is None:
        return None
    present = present_rows(trial, view)
    nowhere = np.zeros(len(trial.ledger.names), np.bool_)
    masks = [m for m in levels_of(trial).domains(bound).values() if all(m[row] for row in present)]
    if present or not masks:
        return masks[0] if masks else nowhere
    return max(masks, key=lambda mask: places_in(trial, parts, mask))


def places_in(trial: Trial, parts: Sequence[Part], domain: Flags) -> int:
    """For how many of these members there is room in a domain, each shape by itself."""
    rooms = (int(pods_fitting(trial.ledger, need, mask & domain).sum()) for need, mask, _ in parts)
    return sum(min(room, count) for room, (_, _, count) in zip(rooms, parts, strict=True))
