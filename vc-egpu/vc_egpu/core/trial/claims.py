"""All that is booked for a gang that is not there, as one kind of value: a claim.

Several makers, one reader. The books keep the plans in force (:mod:`vc_egpu.core.books.planned`). The
standing room makes the claims for replacements, for standby and for gangs that wait long. A trial reads all
of them here.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from vc_egpu.core.books.booking import Booking, Seat
from vc_egpu.core.books.index import Index
from vc_egpu.core.model.cluster import Instant, PodUid, QueueName, ShareClass
from vc_egpu.core.model.gangs import GangView

_NO_QUEUE: Final = QueueName("")


class ClaimKind(StrEnum):
    """What a claim is for, in the words that users read."""

    PLAN = "plan"
    """Members of a plan in force that have not been let go yet."""
    REPLACEMENT = "replacement"
    """The cards of a member that failed: its gang runs on and gets another member."""
    STANDBY = "standby"
    """Room on the cards that a suspended gang comes back to."""
    RESERVATION = "reservation"
    """The cards that will serve a gang soonest which waits long."""
    GUARANTEE = "guarantee"
    """Cards that a queue is guaranteed and does not use."""
    MOVE = "move"
    """The cards that a gang moves to, so that another one fits or less is left over."""


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """What is booked for one gang, and which gangs need not mind it."""

    gang: str
    kind: ClaimKind
    bookings: Mapping[str, Booking]
    """By plan key; for a standby by pod UID."""
    since: Instant
    yields_to: ShareClass | None = None
    """Gangs of this class take no notice; None: all other gangs mind it."""
    task: str = ""
    """For a replacement: the task that lacks the member."""
    instead_of: Mapping[PodUid, Booking] = field(default_factory=dict)
    """For a standby: what its pods take on their nodes without the claim."""
    yields_above: ShareClass | None = None
    """Gangs of a higher class than this take no notice either; None: no further ones."""
    lends_s: float = 0.0
    """Gangs that are known to end within so many seconds may use it meanwhile."""
    lends_to_low: bool = False
    """Low gangs may use it meanwhile: they leave for the gang that claims it."""
    queue: QueueName = _NO_QUEUE
    """For a guarantee: gangs of this queue, and of those below it, may use it."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """For a guarantee: how many places of each kind of card."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """For a move: what those members will count in ``counts_in``, and do not yet."""
    counts_in: QueueName = _NO_QUEUE
    waits_for: tuple[str, ...] = ()
    """For a reservation: the gangs that are on its cards and have to leave first."""
    until: Instant | None = None
    """When they are known to have left; None: that is not known, or none has to."""
    blocked: int = 0
    """Cards that they hold."""

    def __post_init__(self) -> None:
        if self.kind is not ClaimKind.STANDBY and any(b.marks for b in self.bookings.values()):
            # Those that it is for are not there: no other pod must rely on them.
            to_come = {key: booking.to_come() for key, booking in self.bookings.items()}
            object.__setattr__(self, "bookings", to_come)

    def yields(self, view: GangView, chain: Collection[QueueName] = ()) -> bool:
        """Whether this gang may use what is claimed. A standby waits for its pods, not for new members.

        ``chain``: the gang's queue and those above it.
        """
        own = view.gang.key == self.gang and self.kind is not ClaimKind.STANDBY
        own = own or self.queue in chain
        share_class = view.gang.share_class
        if own or share_class is self.yields_to:
            return True
        if self.yields_above is not None and share_class > self.yields_above:
            return True
        if self.lends_to_low and share_class is ShareClass.LOW:
            return True
        runtime_s = view.runtime_s if self.lends_s > 0 else None
        return runtime_s is not None and runtime_s <= self.lends_s

    @property
    def cost(self) -> tuple[Instant, int]:
        """For a reservation: the smaller, the sooner its cards are free."""
        if not self.waits_for:
            return -math.inf, 0
        return self.until if self.until is not None else math.inf, self.blocked

    @property
    def cards(self) -> int:
        """How many cards it is on."""
        return len({(row, seat.col) for row, seat in self._seats()})

    @property
    def memory_mib(self) -> int:
        """Memory that it takes on cards."""
        return sum(seat.memory_mib for _, seat in self._seats())

    @property
    def cores_percent(self) -> int:
        """Compute that it takes from low and unset shares."""
        return sum(seat.low for _, seat in self._seats())

    def _seats(self) -> Iterator[tuple[int, Seat]]:
        return ((booking.row, seat) for booking in self.bookings.values() for seat in booking.seats)


class Claims:
    """The claims that one decision knows. What is booked for them is the trial's affair."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._made: dict[ClaimKind, dict[str, list[Claim]]] = {kind: {} for kind in ClaimKind}
        self._aside: list[Claim] = []

    def add(self, claim: Claim) -> None:
        """Another claim, made by this decision."""
        self._made[claim.kind].setdefault(claim.gang, []).append(claim)

    def has(self, kind: ClaimKind, gang: str) -> bool:
        """Whether this decision made one for the gang. It may be set aside just now."""
        aside = any(claim.gang == gang and claim.kind is kind for claim in self._aside)
        return aside or gang in self._made[kind]

    def take(self, kind: ClaimKind, gang: str) -> list[Claim]:
        """One gang's claims of this kind; they are not known here any more."""
        return self._made[kind].pop(gang, [])

    def set_aside(self, kinds: Collection[ClaimKind], view: GangView) -> list[Claim]:
        """Take those of these kinds out that yield to this gang, until :meth:`restore`."""
        found = [claim for kind in kinds for claim in self.of(kind)]
        if not found:
            return []
        staying = self.stays(view)
        found = [claim for claim in found if self._yields(claim, view, staying=staying)]
        for claim in found:
            left = [other for other in self._made[claim.kind][claim.gang] if other is not claim]
            if left:
                self._made[claim.kind][claim.gang] = left
            else:
                del self._made[claim.kind][claim.gang]
        self._aside += found
        return found

    def stays(self, view: GangView) -> bool:
        """Whether the gang would not leave again: no controller makes some of its pods once more."""
        pods = self._index.pods
        return any(
            pods[uid].bare or pods[uid].protected for uid in self._index.pods_of.get(view.gang.key, ())
        )

    def _yields(self, claim: Claim, view: GangView, *, staying: bool) -> bool:
        claim = replace(claim, lends_to_low=False) if staying and claim.lends_to_low else claim
        return claim.yields(view, tuple(self._index.chain(view.gang.queue)))

    def restore(self) -> list[Claim]:
        """Those that were set aside are known again."""
        found, self._aside = self._aside, []
        for claim in found:
            self.add(claim)
        return found

    @property
    def any_aside(self) -> bool:
        """Whether something is set aside for the gang whose turn it is."""
        return bool(self._aside)

    def own(self, gang: str) -> Claim | None:
        """The reservation of the gang whose turn it is."""
        own = (c for c in self._aside if c.gang == gang and c.kind is ClaimKind.RESERVATION)
        return next(own, None)

    def of(self, kind: ClaimKind) -> list[Claim]:
        """All claims of this kind that the decision made. Plans in force: see :meth:`plans`."""
        return [claim for claims in self._made[kind].values() for claim in claims]

    def against(self, kind: ClaimKind, view: GangView) -> list[Claim]:
        """Those of them that keep something from this gang."""
        found = self.of(kind)
        if not found:
            return []
        staying = self.stays(view)
        return [claim for claim in found if not self._yields(claim, view, staying=staying)]

    def plans(self) -> list[tuple[GangView, Claim]]:
        """Each gang with a plan in force that is not carried out yet, by key."""
        views = (self._index.view(key) for key in sorted(self._index.planned.bookings))
        return [(view, self._plan(view)) for view in views if view.planned]

    def _plan(self, view: GangView) -> Claim:
        plan = view.gang.plan
        bookings = self._index.planned.bookings[view.gang.key]
        return Claim(view.gang.key, ClaimKind.PLAN, bookings, plan.created if plan is not None else 0.0)
