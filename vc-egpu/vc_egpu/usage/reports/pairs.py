"""Off-peak pairs: services that hardly ever work at the same time and fit on one card. Pure.

Candidates of one cluster and model are compared all with all. The pairs that save most are taken first. No
service is in two pairs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from vc_egpu.usage.reports.settings import Settings

HOURS_OF_A_WEEK: Final = 168
_SHOWN: Final = 24
_EXACT: Final = 1e-9

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A service with large shares: who owns it, what it used at most, its hours of work since 1970."""

    key: Key
    """Cluster, namespace, service, container, model."""
    tenant: str
    queue: str
    share_class: str
    memory_used_max_bytes: float
    card_memory_bytes: float
    cards: float
    """Cards that it held at a time, on average."""
    busy: frozenset[int]
    kind: str
    """What its pods are made by, as far as names tell."""
    memory_granted_bytes: float
    """What it asked for last."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two services for one card. ``method``: ``share``, ``spill`` or ``suspension``."""

    one: Candidate
    other: Candidate
    method: str
    spill_bytes: float
    overlap_ratio: float
    """Hours in which both work, of the busy hours of the one that works less."""
    conflicts: tuple[int, ...]
    """These hours, since 1970."""
    saved_card_hours_per_week: float


def candidates_of(rows: Sequence[Mapping[str, Any]], busy: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    """From the tables ``pair_candidates`` and ``pair_busy_hours``."""
    hours: dict[Key, set[int]] = defaultdict(set)
    for row in busy:
        hours[_key(row)].add(row["hour_index"])
    return [
        Candidate(
            key=_key(row),
            tenant=row["tenant"],
            queue=row["queue"],
            share_class=row["class"],
            memory_used_max_bytes=row["memory_used_max_bytes"],
            card_memory_bytes=row["card_memory_bytes"],
            cards=row["active_hours"] / row["hours_seen"],
            busy=frozenset(hours[_key(row)]),
            kind=row["kind"],
            memory_granted_bytes=row["memory_granted_bytes"],
        )
        for row in rows
    ]


def pairs(candidates: Sequence[Candidate], settings: Settings) -> list[Pair]:
    """The pairs that save most, best first."""
    found: list[Pair] = []
    groups: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda candidate: candidate.key):
        groups[candidate.key[0], candidate.key[-1]].append(candidate)
    for group in groups.values():
        found += _matched(group, settings)
    return sorted(found, key=lambda pair: (-pair.saved_card_hours_per_week, pair.one.key, pair.other.key))


def method_of(one: Candidate, other: Candidate, settings: Settings) -> str:
    """How two services fit on one card; empty where they do not.

    Both in the card's memory, or one of class low moved to the host's, or what is too much spilled there.
    """
    card = min(one.card_memory_bytes, other.card_memory_bytes)
    if max(one.memory_used_max_bytes, other.memory_used_max_bytes) > card:
        return ""
    spill = one.memory_used_max_bytes + other.memory_used_max_bytes - card
    if spill <= 0:
        return "share"
    movable = [each.memory_used_max_bytes for each in (one, other) if each.share_class == "low"]
    if movable and min(movable) <= settings.host_memory_bytes:
        return "suspension"
    return "spill" if spill <= settings.host_memory_bytes else ""


def _matched(group: Sequence[Candidate], settings: Settings) -> Iterator[Pair]:
    taken: set[int] = set()
    conflicts = _conflicts(group)
    for first, second in _in_order(group, conflicts, settings.most_overlap_ratio):
        if first in taken or second in taken:
            continue
        one, other = group[first], group[second]
        method = method_of(one, other, settings)
        if method:
            taken |= {first, second}
            yield _pair(one, other, method)


def _conflicts(group: Sequence[Candidate]) -> NDArray[np.float32]:
    """By two candidates: hours in which both are busy."""
    hours = sorted(set[int]().union(*(candidate.busy for candidate in group)))
    places = {hour: place for place, hour in enumerate(hours)}
    busy = np.zeros((len(group), len(hours)), dtype=np.float32)
    for row, candidate in enumerate(group):
        busy[row, [places[hour] for hour in candidate.busy]] = 1
    return np.asarray(busy @ busy.T, dtype=np.float32)


def _in_order(
    group: Sequence[Candidate], conflicts: NDArray[np.float32], most_overlap: float
) -> Iterator[tuple[int, int]]:
    """Pairs whose busy hours overlap little, those that save most first, then those with fewest conflicts."""
    busy = np.array([len(candidate.busy) for candidate in group], dtype=np.float64)
    cards = np.array([candidate.cards for candidate in group])
    first, second = np.triu_indices(len(group), k=1)
    both = conflicts[first, second].astype(np.float64)
    few = both <= most_overlap * np.minimum(busy[first], busy[second]) + _EXACT
    first, second, both = first[few], second[few], both[few]
    saved = np.minimum(cards[first], cards[second])
    for place in np.lexsort((second, first, both, -saved)):
        yield int(first[place]), int(second[place])


def _pair(one: Candidate, other: Candidate, method: str) -> Pair:
    card = min(one.card_memory_bytes, other.card_memory_bytes)
    spill = one.memory_used_max_bytes + other.memory_used_max_bytes - card
    conflicts = tuple(sorted(one.busy & other.busy))
    return Pair(
        one=one,
        other=other,
        method=method,
        spill_bytes=max(spill, 0.0) if method == "spill" else 0.0,
        overlap_ratio=len(conflicts) / min(len(one.busy), len(other.busy)),
        conflicts=conflicts,
        saved_card_hours_per_week=min(one.cards, other.cards) * HOURS_OF_A_WEEK,
    )


def _key(row: Mapping[str, Any]) -> Key:
    return row["cluster"], row["namespace"], row["service"], row["container"], row["model"]
