"""Whose turn it is on cards that several pods take in turns. Pure.

A member has its cards whole, or not at all: two whose cards meet are never there together. One leaves only
for another that waits, and not before it has stayed its time. The one that has waited longest comes next, so
that members which all work take turns of that length.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Place(Enum):
    """Where a member's memory is."""

    CARD = "card"
    LEAVING = "leaving"
    AWAY = "away"
    COMING = "coming"
    LOST = "lost"
    """It could not be brought back: it takes no more turns."""


@dataclass(frozen=True, slots=True)
class Member:
    """One pod."""

    uid: str
    name: str
    """For people."""
    cards: frozenset[str]
    memory_mib: int
    """The most that it may hold on its cards. It needs as much of the host unless it is on them."""
    place: Place
    since_s: float
    """When it got there, on the caller's clock."""
    wanted_s: float | None = None
    """Since when it waits for its cards; None: it idles, or has them."""
    active: bool = False
    """It worked lately."""
    bound: str = ""
    """Why it cannot leave its cards now; empty: it can."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The node's figures."""

    min_stay_s: float
    host_mib: int
    """Host memory that all members together may take."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is due now."""

    leave: frozenset[str] = frozenset()
    come: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()
    """For whom those leave."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By UID of a member that waits: for what."""


_HOLDS = frozenset({Place.CARD, Place.LEAVING, Place.COMING})


def turn(members: Sequence[Member], rules: Rules, now_s: float) -> Turn:
    """Tell members to leave and to come. The same members in any order give the same answer."""
    leave, come, served, reasons = set[str](), set[str](), set[str](), dict[str, str]()
    claimed: dict[str, Member] = {}
    host_mib = sum(one.memory_mib for one in members if one.place is not Place.CARD)
    for one in _waiting(members):
        older = next((claimed[card] for card in sorted(one.cards) if card in claimed), None)
        for card in one.cards:
            claimed.setdefault(card, one)
        if older is not None:
            reasons[one.uid] = f"{older.name} waits longer for the same card"
            continue
        there = [other for other in members if other.place in _HOLDS and other.cards & one.cards]
        there.sort(key=lambda other: other.uid)
        if not there:
            come.add(one.uid)
            continue
        staying = [other for other in there if other.place is Place.CARD]
        needs_mib = host_mib + sum(other.memory_mib for other in staying if other.uid not in leave)
        reasons[one.uid] = _kept(there, rules, now_s) or _no_host(needs_mib, rules)
        if not reasons[one.uid]:
            reasons[one.uid] = f"{there[0].name} leaves the card for it"
            leave.update(other.uid for other in staying)
            served.add(one.uid)
            host_mib = needs_mib
    return Turn(frozenset(leave), frozenset(come), frozenset(served), reasons)


def _waiting(members: Iterable[Member]) -> list[Member]:
    """The one that waits longest first. One whose cards nobody else takes waits for nothing."""
    everyone = list(members)
    away = [one for one in everyone if one.place is Place.AWAY]
    wanting = [one for one in away if one.wanted_s is not None or _is_alone(one, everyone)]
    return sorted(wanting, key=lambda one: (one.since_s if one.wanted_s is None else one.wanted_s, one.uid))


def _is_alone(one: Member, members: Iterable[Member]) -> bool:
    return not any(other.uid != one.uid and other.cards & one.cards for other in members)


def _kept(there: Sequence[Member], rules: Rules, now_s: float) -> str:
    """Why those that are there do not leave now; empty: they do."""
    for other in there:
        if other.place is Place.COMING:
            return f"{other.name} is coming to the card"
        if other.place is Place.LEAVING:
            continue
        # Never longer than that: the clock may have been set back.
        if now_s - other.since_s < rules.min_stay_s and other.since_s <= now_s + rules.min_stay_s:
            stay = f"{rules.min_stay_s:g} s"
            if other.active:
                return f"{other.name} works on the card, and both want it: they take turns of {stay}"
            return f"{other.name} idles on the card, and stays there for {stay} at least"
        if other.bound:
            return f"{other.name} cannot leave the card: {other.bound}"
    if all(other.place is Place.LEAVING for other in there):
        return f"{there[0].name} is leaving the card"
    return ""


def _no_host(needs_mib: int, rules: Rules) -> str:
    if needs_mib <= rules.host_mib:
        return ""
    return (
        f"a hand-over needs {needs_mib} MiB of host memory for all that are away, "
        f"and {rules.host_mib} MiB are set aside"
    )
