"""Reservations: a gang that waits long for cards alone claims those that will serve it soonest.

Without that a gang of many whole cards never starts while single cards keep coming. It is the first of its
queue and class for :attr:`.policy.Policy.reserve_after_s`, and then has a claim. Gangs of a higher class take
no notice. Others use the claimed cards only if they are known to end in time, or if they are low and will
leave. The claim moves when a better place frees, and stands on the PodGroup.
"""

import math
from collections.abc import Mapping
from typing import Final

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.cluster import Instant, MemberPlacement, Mode, QueueName, Reservation, ShareClass
from vc_egpu.core.model.findings import NoOption, Shortage
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.policy import CLAIMED_PART, CLOCK_SKEW_S
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.core.standing.lending import aside
from vc_egpu.core.standing.soonest import soonest
from vc_egpu.core.standing.tenants import Wait, wait_for
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import ready

_MOST_SOUGHT: Final = 2
"""So many searches for the soonest places in one decision: each may look at many nodes."""

_TURN_S: Final = 5.0
"""So long the same ones come first."""

Places = Mapping[str, MemberPlacement]


def book(trial: Trial) -> None:
    """What is claimed already is kept from others from now on."""
    for key in _in_turn(trial):
        view = trial.index.view(key)
        reservation = view.gang.reservation
        wait = _wait(trial, view, reservation.members) if reservation is not None else None
        if wait is not None and reservation is not None:
            claim = _claim(trial, view, reservation, wait)
            trial.claims.add(claim)
            trial.book(claim)


def _in_turn(trial: Trial) -> list[str]:
    """Gangs with reservations: of a higher class first, then those that wait longer."""

    def rank(key: str) -> tuple[int, float, str]:
        gang = trial.index.gangs[key]
        return -int(gang.share_class), gang.reservation.since if gang.reservation is not None else 0.0, key

    return sorted((key for key in trial.index.reserved if key in trial.index.gangs), key=rank)


def _wait(trial: Trial, view: GangView, places: Places) -> Wait | None:
    """What the gang waits for on these places; None where it cannot get them."""
    bookings = _bookings(trial, view, places)
    return wait_for(trial, list(bookings.values())) if bookings else None


def _bookings(trial: Trial, view: GangView, places: Places) -> dict[str, Booking]:
    """What its members would take there; none where a member, its node or its card is not there any more."""
    members = {member.key: member for member in view.waiting}
    found: dict[str, Booking] = {}
    for key, place in places.items():
        member = members.get(key)
        if member is None or place.node is None or not _is_open(trial, view, member, place):
            return {}
        shares = [share for _, share in place.shares]
        share_class, several = view.gang.share_class, view.gang.is_of_several
        booking = trial.ledger.booking(place.node, member.shape, shares, share_class, several=several)
        if booking is None or len(booking.seats) != len(shares):
            return {}
        found[key] = booking
    return found


def _is_open(trial: Trial, view: GangView, member: Member, place: MemberPlacement) -> bool:
    ledger, name = trial.ledger, place.node
    row = ledger.rows.get(name) if name is not None else None
    if row is None or not trial.mask(view.gang, member.shape)[row]:
        return False
    columns = ledger.columns[row]
    return all(share.card in columns and ledger.usable[row, columns[share.card]] for _, share in place.shares)


def _claim(trial: Trial, view: GangView, reservation: Reservation, wait: Wait) -> Claim:
    """``wait``: for its places, in the order of the reservation's members."""
    share_class, end = view.gang.share_class, wait.end
    return Claim(
        view.gang.key,
        ClaimKind.RESERVATION,
        dict(zip(reservation.members, wait.bookings, strict=True)),
        reservation.claimed,
        yields_above=share_class,
        lends_s=max(0.0, end - trial.now) if math.isfinite(end) else 0.0,
        lends_to_low=share_class is ShareClass.HIGH and trial.policy.preemption,
        waits_for=wait.gangs,
        until=end if math.isfinite(end) else None,
        blocked=wait.cost[1],
    )


def forecast(trial: Trial, view: GangView) -> Instant | None:
    """When the gang could start at the soonest, as far as it is known when others end; None: it is not."""
    places = soonest(trial, view, next(ready.cores(view)))
    wait = _wait(trial, view, places) if places else None
    return wait.end if wait is not None and math.isfinite(wait.end) else None


# --- after all turns -----------------------------------------------------------------------------


def review(trial: Trial, record: Recorder, *, complete: bool) -> None:
    """Make, move and end claims. ``complete``: all gangs had their turn, so it is known who is first."""
    for key in sorted(trial.index.reserved):
        verdict = record.verdicts.get(key)
        if key in trial.index.gangs and (complete if verdict is None else not lacks_cards(verdict)):
            record.reserves(key, None)
    if not complete or not math.isfinite(trial.policy.reserve_after_s):
        return
    heads = _heads(trial, record)
    for key in _in_turn(trial):
        reservation = trial.index.gangs[key].reservation
        waits = lacks_cards(record.verdicts[key]) if key in record.verdicts else False
        if waits and key not in heads and reservation is not None and not reservation.members:
            record.reserves(key, None)  # another one is first now
    _Claimants(trial, record, heads).settle()


def lacks_cards(verdict: Verdict) -> bool:
    """Whether nothing but cards is missing for what the gang needs at least."""
    found = verdict.finding
    if isinstance(found, NoOption):
        found = found.standing  # its pods are made, and wait for these very cards
    return isinstance(found, Shortage) and found.beyond is None and bool(found.request.cards)


def _heads(trial: Trial, record: Recorder) -> list[str]:
    """The first gang of each queue and class that lacks only cards, by the order of the turns."""
    first: dict[tuple[QueueName, ShareClass], str] = {}
    for key, verdict in record.verdicts.items():
        if lacks_cards(verdict):
            gang = trial.index.gangs[key]
            first.setdefault((gang.queue, gang.share_class), key)
    return list(first.values())


class _Claimants:
    """Those that have a claim or are to get one, in the order in which they may."""

    def __init__(self, trial: Trial, record: Recorder, heads: list[str]) -> None:
        self._trial = trial
        self._record = record
        self._may_seek: set[str] = set()
        self._claims = {claim.gang: claim for claim in trial.claims.of(ClaimKind.RESERVATION)}
        """As they were found at the beginning. What this decision places on lent cards does not end them."""
        self._claimed: dict[int, int] = {}
        """By kind of card, how many are claimed by those before."""
        self._all: dict[str, Reservation] = {}
        for key in heads:
            known = trial.index.gangs[key].reservation
            # An instant far in the future was written by a wrong clock.
            wrong = known is not None and known.since > trial.now + CLOCK_SKEW_S
            if known is None or wrong:
                record.reserves(key, Reservation(since=trial.now))
            self._all[key] = known if known is not None and not wrong else Reservation(since=trial.now)
        for key in trial.index.reserved:
            known = trial.index.gangs[key].reservation if key in trial.index.gangs else None
            waits = key in record.verdicts and lacks_cards(record.verdicts[key])
            if known is not None and known.members and waits:
                self._all[key] = known

    def settle(self) -> None:
        """Make claims, move them, and give up those for which there is no room."""
        ranked = sorted(self._all, key=self._rank)
        seekers = [key for key in ranked if self._seeks(key)]
        # Searches are few in one decision, so others come first in a later one.
        turn = int(self._trial.now / _TURN_S) % max(1, len(seekers))
        self._may_seek = set([*seekers[turn:], *seekers[:turn]][:_MOST_SOUGHT])
        for key in ranked:
            self._settle(key)

    def _seeks(self, key: str) -> bool:
        """Whether a place is to be sought: its time has come, or a better place may be free by now."""
        reservation, claim = self._all[key], self._claims.get(key)
        due = self._trial.now - reservation.since >= self._trial.policy.reserve_after_s
        return bool(claim.waits_for) if claim is not None else due or bool(reservation.members)

    def _rank(self, key: str) -> tuple[int, float, str]:
        return -int(self._trial.index.gangs[key].share_class), self._all[key].since, key

    def _settle(self, key: str) -> None:
        trial, reservation, claim = self._trial, self._all[key], self._claims.get(key)
        view = trial.index.view(key)
        if not reservation.members and key not in self._may_seek:
            return
        members = next(ready.cores(view))
        if not self._may_claim(members):
            if reservation.members:
                self._record.reserves(key, Reservation(reservation.since))
            return
        places = None
        if key in self._may_seek:
            with aside(trial, view):
                places = self._places(view, members, claim)
        if places is not None:
            self._move(view, Reservation(reservation.since, trial.now, places))
        elif claim is None and reservation.members:
            self._record.reserves(key, Reservation(reservation.since))
        if places is not None or claim is not None:
            self._count(members)

    def _move(self, view: GangView, reservation: Reservation) -> None:
        """The claim is here from now on, also for those that seek theirs later in this decision."""
        trial, key = self._trial, view.gang.key
        for claim in trial.claims.take(ClaimKind.RESERVATION, key):
            trial.unbook(claim)
        wait = _wait(trial, view, reservation.members)
        if wait is None:
            return
        claim = _claim(trial, view, reservation, wait)
        trial.claims.add(claim)
        trial.book(claim)
        self._record.reserves(key, reservation)

    def _places(self, view: GangView, members: tuple[Member, ...], before: Claim | None) -> Places | None:
        """The places that serve it soonest, where they do so sooner than those that it has."""
        places = soonest(self._trial, view, members)
        if not places or before is None:
            return places or None
        wait = _wait(self._trial, view, places)
        return places if wait is not None and wait.cost < before.cost else None

    def _may_claim(self, members: tuple[Member, ...]) -> bool:
        """Whether all claims together stay small. The first on a kind of card is whole, whatever it takes."""
        ledger = self._trial.ledger
        for kind, cards in self._kinds(members).items():
            there = int(((ledger.kind == kind) & ledger.usable).sum())
            before = self._claimed.get(kind, 0)
            if before and before + cards >= CLAIMED_PART * there:
                return False
        return True

    def _count(self, members: tuple[Member, ...]) -> None:
        for kind, cards in self._kinds(members).items():
            self._claimed[kind] = self._claimed.get(kind, 0) + cards

    def _kinds(self, members: tuple[Member, ...]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for member in members:
            for ask in member.shape.asks:
                kind = self._trial.ledger.kind_of(ask.model, Mode.NATIVE if ask.native else Mode.SHARED)
                counts[kind] = counts.get(kind, 0) + ask.cards
        return counts
