"""The world tried on paper: a copy of what is booked, on which one decision places, evicts and takes back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from vc_egpu.core.books import capacity, fit
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import AskNeed, Assignment, Need, seats_of, starts_of
from vc_egpu.core.books.index import Index
from vc_egpu.core.books.ledger import Flags, Ledger
from vc_egpu.core.environments.needs import Crowd
from vc_egpu.core.layouts.table import ANYWHERE
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    Instant,
    MemberPlacement,
    Mode,
    NodeName,
    Pod,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Share,
    ShareClass,
)
from vc_egpu.core.model.effort import Effort
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.neighbours import members_of
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.resources import add_to
from vc_egpu.core.trial.claims import Claim, ClaimKind, Claims


@dataclass(frozen=True, slots=True, eq=False)
class Seated:
    """A member with its place, booked on the trial's ledger."""

    member: Member
    need: Need
    row: int
    assignment: Assignment
    booking: Booking


def share_of(ask: AskNeed, card: CardId, start: int = ANYWHERE) -> Share:
    """What the ask gets on this card, as a plan names it; ``start``: see :attr:`.cluster.Share.start`."""
    physical_mib = ask.physical_mib if ask.physical_mib < ask.memory_mib else None
    whole, native = ask.ask.whole, ask.ask.native
    return Share(
        card,
        ask.memory_mib,
        ask.cores_percent,
        whole,
        native,
        physical_mib,
        swap=ask.ask.swap,
        slice=ask.ask.slice,
        start=start,
    )


class Trial:
    """Starts as the cluster is. No other decision sees what is tried on it."""

    def __init__(self, index: Index, policy: Policy, now: Instant) -> None:
        self.index = index
        self.policy = policy
        self.now = now
        self.ledger: Ledger = index.ledger.copy(index.take_spare())
        self.ledger.apart = policy.high_apart
        self.effort = Effort()
        self.leaving: dict[PodUid, None] = {}
        """Victims of plans in force and of this decision: no other gang may have them."""
        self.suspending: dict[PodUid, None] = {}
        """The same, of those that are suspended and not evicted; and pods that users wish to be suspended."""
        self._booked: dict[PodUid, Booking] = {}
        """What is booked now for pods of which it is something else than in the index."""
        self._asleep: dict[PodUid, tuple[Booking, Booking]] = {}
        """What pods took awake and would take suspended: asked again and again."""
        self.claims = Claims(index)
        self._use: dict[QueueName, dict[str, int]] = {}
        self._needs: dict[tuple[int, ShareClass, bool], Need] = {}
        self.notes: dict[object, tuple[int, object]] = {}
        """What the search for victims keeps for the next gang of the same decision."""
        self.scratch: dict[str, object] = {}
        """What placement policies keep for the next gang of the same decision."""
        self._versions: dict[QueueName, int] = {}
        self.charges = 0
        """Grows when the use of any queue changes."""
        self._forgone: dict[PodUid, tuple[QueueName, Mapping[str, int]]] = {}
        """Pods that count in no queue any more although they are there: others get their quota."""
        self._rows_of: dict[str, dict[int, int]] = {}
        self._near: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        """By gang, the subgroups and rows of members that this decision has placed."""
        self._counted: set[str] = set()
        """Gangs whose members are counted by node."""
        self._kinds: dict[int, bool] = {}
        self._opened: frozenset[NodeName] = frozenset()
        self._blocked_masks: dict[tuple[object, object, frozenset[NodeName], frozenset[NodeName]], Flags] = {}

    def close(self) -> None:
        """Nothing is tried any more; the trial must not be used after this."""
        self.index.spare = self.ledger

    # --- queues, see caps.QueueTree ----------------------------------------------------------------

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """All queues by name."""
        return self.index.queues

    def chain(self, queue: QueueName) -> Iterator[QueueName]:
        """The queue and its ancestors."""
        return self.index.chain(queue)

    def use_of(self, queue: QueueName) -> Mapping[str, int]:
        """What the queue and all below it use, this decision's admissions included."""
        tried = self._use.get(queue)
        return tried if tried is not None else self.index.uses.total.get(queue, {})

    def charge(self, queue: QueueName, amounts: Mapping[str, int], sign: int = 1) -> None:
        """Count an admission in the queue and its ancestors."""
        for name in self.chain(queue):
            use = self._use.get(name)
            if use is None:
                use = self._use[name] = dict(self.index.uses.total.get(name, {}))
            self._versions[name] = self._versions.get(name, 0) + 1
            self.charges += 1
            for resource, amount in amounts.items():
                add_to(use, resource, sign * amount)

    def charge_of(self, uid: PodUid) -> tuple[QueueName, Mapping[str, int]] | None:
        """The queue that a pod counts in now, and what it counts there; None where it counts nowhere."""
        return self.index.charge_of(uid) if uid not in self._forgone else None

    def forgo(self, uids: Iterable[PodUid]) -> None:
        """These make room in caps for a plan: their quota is the plan's already."""
        for uid in uids:
            charge = self.charge_of(uid)
            if charge is not None:
                self._forgone[uid] = charge
                self.charge(*charge, -1)

    def keep_quota(self, uids: Iterable[PodUid]) -> None:
        """Undo :meth:`forgo`: the plan does not hold any more."""
        for uid in uids:
            charge = self._forgone.pop(uid, None)
            if charge is not None:
                self.charge(*charge)

    def version(self, queue: QueueName) -> int:
        """Changes when the use of the queue or of one above it does."""
        return sum(self._versions.get(name, 0) for name in self.chain(queue))

    def amounts_of(
        self, members: Iterable[Member], share_class: ShareClass = ShareClass.UNSET
    ) -> dict[str, int]:
        """What these members count in their queue together, as members of a gang of this class."""
        low = share_class is ShareClass.LOW
        total: dict[str, int] = {}
        counts: dict[int, int] = {}
        shapes: dict[int, PodShape] = {}
        for member in members:
            counts[member.shape_id] = counts.get(member.shape_id, 0) + 1
            shapes[member.shape_id] = member.shape
        for shape_id, count in counts.items():
            for resource, amount in self.index.amounts_of(shape_id, shapes[shape_id], low=low).items():
                add_to(total, resource, amount * count)
        return total

    # --- shapes --------------------------------------------------------------------------------------

    def need(self, member: Member, gang: Gang) -> Need:
        """The shape of a member of this gang in the ledger's terms; equal shapes once."""
        key = (member.shape_id, gang.share_class, gang.is_of_several)
        need = self._needs.get(key)
        if need is None:
            need = capacity.need_of(self.ledger, member.shape, gang.share_class, several=key[2])
            if member.shape.neighbours.spreads:
                need = replace(need, reach=self.index.reach(member.shape))
            self._needs[key] = need
        return need

    def need_in(self, view: GangView, member: Member) -> Need:
        """The same for a member of this gang, which may have only so many members on one node."""
        need, most = self.need(member, view.gang), view.gang.most_per_node
        if not most:
            return need
        mark = members_of(view.gang.key)
        if view.gang.key not in self._counted:
            self._counted.add(view.gang.key)
            for row, count in self.rows_of(view).items():
                for _ in range(count):
                    self.ledger.marks.add(row, (mark,), 1)
        return replace(need, marks=(*need.marks, mark), limits=(*need.limits, (mark, most)), packed=mark)

    def mask(self, gang: Gang, shape: PodShape) -> Flags:
        """By row: whether the node may take this gang's pods of this shape. Not to be written to."""
        mask = self.index.mask(shape)
        if not (gang.blocked_nodes or self._opened):
            return mask
        key = (fit.static_key(shape), shape.needs, gang.blocked_nodes, self._opened)
        known = self._blocked_masks.get(key)
        if known is None:
            known = mask.copy()
            for node in self._opened:
                opened = replace(self.index.nodes[node], emptied=None)
                known[self.ledger.rows[node]] = fit.accepts(opened, shape)
            for node in gang.blocked_nodes:
                row = self.ledger.rows.get(node)
                if row is not None:
                    known[row] = False
            self._blocked_masks[key] = known
        return known

    @contextmanager
    def opened(self, names: Iterable[NodeName]) -> Iterator[None]:
        """As if these nodes, which are being emptied, took work."""
        self._opened = frozenset(names)
        try:
            yield
        finally:
            self._opened = frozenset()

    def rows_of(self, view: GangView) -> dict[int, int]:
        """How many of the gang's members each row has already."""
        counts = dict(self._rows_of.get(view.gang.key, {}))
        for pod in view.placed:
            row = self.ledger.rows.get(pod.node) if pod.node is not None else None
            if row is not None:
                counts[row] = counts.get(row, 0) + 1
        return counts

    # --- bookings ------------------------------------------------------------------------------------

    def remember(self, view: GangView, seated: Sequence[Seated]) -> None:
        """These members stay: later ones of the gang spread away from them."""
        counts = self._rows_of.setdefault(view.gang.key, {})
        for entry in seated:
            counts[entry.row] = counts.get(entry.row, 0) + 1
        self.remember_near(view.gang.key, seated)

    def remember_near(self, gang: str, seated: Iterable[Seated]) -> None:
        """These members stay: later ones of the gang have to be near them."""
        self._near.setdefault(gang, []).extend((entry.member.subgroup, entry.row) for entry in seated)

    def seats_near(self, gang: str, subgroup: tuple[str, ...] = ()) -> list[int]:
        """Rows of members of a gang, or of one subgroup of it, that this decision has placed."""
        return [row for its, row in self._near.get(gang, ()) if not subgroup or its == subgroup]

    def seat(self, member: Member, need: Need, row: int, assignment: Assignment) -> Seated:
        """Book a member on its place."""
        starts = starts_of(self.ledger, need, row, assignment)
        seats = seats_of(need, assignment, self.ledger.ratio_for(row, need.share_class), starts)
        booking = Booking(row, need.requests, seats, need.scalars, need.slots, need.ports, need.marks)
        self.ledger.add(booking)
        return Seated(member, need, row, assignment, booking)

    def to_come(self, seated: Iterable[Seated]) -> tuple[Seated, ...]:
        """These wait for others to leave: no other pod must rely on them meanwhile."""
        later = []
        for entry in seated:
            booking = entry.booking.to_come()
            if booking is not entry.booking:
                self.ledger.remove(entry.booking)
                self.ledger.add(booking)
            later.append(replace(entry, booking=booking))
        return tuple(later)

    def unseat(self, seated: Iterable[Seated]) -> None:
        """Take members back."""
        for entry in seated:
            self.ledger.remove(entry.booking)

    def reseat(self, seated: Iterable[Seated]) -> None:
        """Undo :meth:`unseat`."""
        for entry in seated:
            self.ledger.add(entry.booking)

    def lift(self, uids: Iterable[PodUid]) -> list[Booking]:
        """Take pods off the ledger, to see what fits without them; give the answer to :meth:`put_back`."""
        bookings = self.bookings_of(uids)
        self.ledger.remove_all(bookings)
        return bookings

    def bookings_of(self, uids: Iterable[PodUid]) -> list[Booking]:
        """All that is booked for these pods, of those that are gone as well."""
        bookings = []
        for uid in uids:
            booking = self.booked(uid)
            bookings += [booking] if booking is not None else self.index.held.bookings_of(uid)
        return bookings

    def put_back(self, bookings: Sequence[Booking]) -> None:
        """Undo :meth:`lift`."""
        self.ledger.add_all(bookings)

    def booked(self, uid: PodUid) -> Booking | None:
        """What is booked for a pod now."""
        return self._booked.get(uid) or self.index.bookings.get(uid)

    def awake(self, pod: Pod) -> Booking | None:
        """What a pod takes while it runs on its cards; None where its node is not known."""
        if pod.node is None:
            return None
        shares = [share for _, share in pod.shares]
        share_class, several = self.index.class_of(pod), self.index.is_of_several(pod)
        return self.ledger.booking(pod.node, pod.shape, shares, share_class, several=several)

    def rebook(self, uid: PodUid, booking: Booking) -> None:
        """Book this for a pod instead of what is booked for it."""
        before = self.booked(uid)
        if before is not None:
            self.ledger.remove(before)
        self.ledger.add(booking)
        self._booked[uid] = booking

    def coming_back(self) -> list[Pod]:
        """Pods on their way back to their cards, where they can be suspended again in a moment."""
        pods = (self.index.pods[uid] for uid in sorted(self.index.notable.suspended))
        return [pod for pod in pods if pod.comes_back]

    def told_to_leave(self, uids: Iterable[PodUid]) -> None:
        """These are to be suspended: no other gang may have them, and room on the host is theirs."""
        for uid in uids:
            self.suspending[uid] = None
            booking = self.booked(uid)
            if booking is not None:
                self.rebook(uid, booking.leaving())

    def sleep(self, uids: Iterable[PodUid]) -> list[tuple[PodUid, Booking]]:
        """Suspend pods on paper; give the answer to :meth:`wake`."""
        done = []
        for uid in uids:
            booking = self.booked(uid)
            if booking is None or all(seat.asleep for seat in booking.seats):
                continue
            known = self._asleep.get(uid)
            if known is None or known[0] is not booking:
                known = self._asleep[uid] = (booking, booking.suspended())
            self.rebook(uid, known[1])
            done.append((uid, booking))
        return done

    def wake(self, slept: Iterable[tuple[PodUid, Booking]]) -> None:
        """Undo :meth:`sleep`."""
        for uid, booking in slept:
            self.rebook(uid, booking)

    # --- claims --------------------------------------------------------------------------------------

    def book(self, claim: Claim) -> None:
        """Book what is claimed."""
        if claim.kind is not ClaimKind.STANDBY:
            self.ledger.add_all(tuple(claim.bookings.values()))
            if claim.counts:
                self.charge(claim.counts_in, claim.counts)
            return
        for key, booking in claim.bookings.items():
            self.rebook(PodUid(key), booking)

    def unbook(self, claim: Claim) -> None:
        """Undo :meth:`book`."""
        if claim.kind is not ClaimKind.STANDBY:
            self.ledger.remove_all(tuple(claim.bookings.values()))
            if claim.counts:
                self.charge(claim.counts_in, claim.counts, -1)
        for uid, booking in claim.instead_of.items():
            self.rebook(uid, booking)

    @contextmanager
    def without(self, claims: Sequence[Claim]) -> Iterator[None]:
        """As if these claims, which are booked, were not."""
        for claim in claims:
            self.unbook(claim)
        try:
            yield
        finally:
            for claim in claims:
                self.book(claim)

    @contextmanager
    def with_claims(self, claims: Sequence[Claim]) -> Iterator[None]:
        """As if these claims, which are not booked, were."""
        for claim in claims:
            self.book(claim)
        try:
            yield
        finally:
            for claim in claims:
                self.unbook(claim)

    # --- answers -------------------------------------------------------------------------------------

    def placement(self, seated: Seated, *, pinned: bool = False) -> MemberPlacement:
        """The member's place as a plan names it: no node for one without cards, unless it is ``pinned``."""
        if not seated.need.uses_cards:
            return MemberPlacement(node=self.ledger.names[seated.row] if pinned else None)
        uuids = self.ledger.uuids[seated.row]
        ratio = self.ledger.ratio_for(seated.row, seated.need.share_class)
        starts = (seat.start for seat in seated.booking.seats)  # one for each share, in the same order
        shares = tuple(
            (ask.ask.container, share_of(ask.here(ratio), uuids[col], next(starts)))
            for ask, cols in zip(seated.need.asks, seated.assignment, strict=True)
            for col in cols
        )
        return MemberPlacement(node=self.ledger.names[seated.row], shares=shares)

    def crowd(self, kinds: tuple[tuple[str, bool], ...]) -> Crowd:
        """What nodes with a card of any of these (model, native) are like; without kinds, all nodes."""
        modes = ((model, Mode.NATIVE if native else Mode.SHARED) for model, native in kinds)
        return self.index.crowd(tuple(self.ledger.kind_of(model, mode) for model, mode in modes))

    def has_kind(self, model: str, *, native: bool) -> bool:
        """Whether some node reports a card of this model in this mode, usable or not; asked once per kind."""
        kind = self.ledger.kind_of(model, Mode.NATIVE if native else Mode.SHARED)
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = bool(np.any(self.ledger.kind == kind))
        return known
