"""What one pod takes of its node: the unit in which the ledger adds and removes."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from vc_egpu.core.layouts.table import ANYWHERE
from vc_egpu.core.model.cluster import Pod, PodPhase, PodShape, Share, ShareClass, SuspensionState
from vc_egpu.core.model.neighbours import Mark, of_leaving, of_planned
from vc_egpu.core.model.resources import AMOUNT_LIMIT, clamp, slot_resource

HostPort = tuple[str, str, int]
TURNS = 1 << 20
"""Such shares count so much in the column of shares that stand alone: more than a card has sharers."""
OF_HIGH, OF_SEVERAL = 1, 1 << 20
"""What shares of class high, and of low gangs of several pods, count in the column of sides."""


class Seat(NamedTuple):
    """One share on one card of a node. ``high`` and ``low`` are the cores it takes from either sum."""

    col: int
    memory_mib: int
    physical_mib: int
    """The part of its memory that lies on the card."""
    host_mib: int
    """What it takes of the node's host memory budget."""
    cores_percent: int
    high: int
    """Counts against the sum of high and unset."""
    low: int
    """Counts against the sum of unset and low."""
    alone: int
    """1 for a whole card or a native one, :data:`TURNS` for one that is taken in turns."""
    asleep: int = 0
    """1 for a suspended one: it does not count where a share must be alone on the card."""
    side: int = 0
    """:func:`side_of` its pod."""
    slice: str = ""
    """Its template, where it is a slice of fixed size. It stays while its pod sleeps."""
    start: int = ANYWHERE


@dataclass(frozen=True, slots=True)
class Booking:
    """What one pod takes on one node; made by :meth:`Ledger.booking`."""

    row: int
    requests: tuple[int, int, int, int]
    """cpu milli, memory bytes, ephemeral bytes, pods."""
    seats: tuple[Seat, ...] = ()
    scalars: tuple[tuple[str, int], ...] = ()
    slots: tuple[tuple[str, int], ...] = ()
    ports: tuple[HostPort, ...] = ()
    marks: tuple[Mark, ...] = ()
    """By which rules between pods count it."""
    mark: int = field(init=False, compare=False, repr=False)
    """Its hash, counted once: ledgers add and remove the same booking in each decision."""

    def __post_init__(self) -> None:
        parts = (self.row, self.requests, self.seats, self.scalars, self.slots, self.ports, self.marks)
        object.__setattr__(self, "mark", hash(parts))

    def __hash__(self) -> int:
        return self.mark

    def suspended(self) -> "Booking":
        """The same pod once it has left its cards: its memory is the host's, its places remain its own."""
        return replace(self, seats=tuple(_asleep(seat) for seat in self.seats))

    def leaving(self) -> "Booking":
        """The same pod on its way from or to its cards: it has both, its cards and room on the host."""
        seats = (seat._replace(host_mib=max(seat.host_mib, seat.memory_mib)) for seat in self.seats)
        return replace(self, seats=tuple(seats))

    def to_come(self) -> "Booking":
        """The same pod while it is not on its node yet: other pods must not rely on it."""
        if not self.marks:
            return self
        return replace(self, marks=of_planned(self.marks))


def _asleep(seat: Seat) -> Seat:
    return Seat(seat.col, 0, 0, seat.memory_mib, 0, 0, 0, 0, asleep=1, slice=seat.slice, start=seat.start)


def cores_of(share_class: ShareClass, cores_percent: int) -> tuple[int, int]:
    """(what counts against high + unset, what counts against unset + low)."""
    high = cores_percent if share_class >= ShareClass.UNSET else 0
    low = cores_percent if share_class <= ShareClass.UNSET else 0
    return high, low


def side_of(share_class: ShareClass, *, several: bool) -> int:
    """On which side a pod's shares are, where operators keep high off low gangs of several pods.

    ``several``: more than one pod of its gang has to run at once. 0: it is on neither.
    """
    if share_class is ShareClass.HIGH:
        return OF_HIGH
    return OF_SEVERAL if several and share_class is ShareClass.LOW else 0


@overload
def takes_side(sides: int, side: int) -> bool: ...
@overload
def takes_side(sides: npt.NDArray[np.int64], side: int) -> npt.NDArray[np.bool_]: ...
def takes_side(sides: Any, side: int) -> Any:
    """Whether among shares that count so much, of one card or by card, there is none of the other side than
    this. 0 is on no side."""
    if not side:
        return sides >= 0
    return sides < OF_SEVERAL if side == OF_HIGH else sides % OF_SEVERAL == 0


def requests_of(shape: PodShape) -> tuple[int, int, int, int]:
    """The four requests every node counts, clamped; a pod always takes one of its node's pods."""
    requests = shape.requests
    return clamp(requests.cpu_milli), clamp(requests.memory_bytes), clamp(requests.ephemeral_bytes), 1


def slots_of(shape: PodShape) -> tuple[tuple[str, int], ...]:
    """(kubelet resource, slots) that a pod of this shape takes."""
    total: dict[str, int] = {}
    for ask in shape.asks:
        name = slot_resource(ask)
        total[name] = total.get(name, 0) + ask.cards
    return tuple(sorted(total.items()))


def as_it_stands(booking: Booking, pod: Pod) -> Booking:
    """The pod's booking by what has become of its suspension: its cards, room on the host, or both.

    From its write on, an order takes room on the host. It frees cards only once it is carried out. Taking an
    order back counts the other way round. So nothing is promised that a pod may still need.
    """
    if booking.marks and pod.phase is PodPhase.TERMINATING:
        booking = replace(booking, marks=of_leaving(booking.marks))
    if pod.asleep:
        return booking.suspended()
    if pod.suspend_ordered or pod.suspension is not SuspensionState.RUNNING:
        return booking.leaving()
    return booking


def seat_of(col: int, share: Share, share_class: ShareClass, *, several: bool = False) -> Seat:
    """The seat that a share takes; amounts below zero count as zero. ``several``: see :func:`side_of`."""
    cores = min(max(share.cores_percent, 0), AMOUNT_LIMIT)
    high, low = cores_of(share_class, cores)
    memory_mib = clamp(share.memory_mib)
    physical_mib = min(clamp(share.on_card_mib), memory_mib)
    alone = TURNS if share.swap else int(share.whole or share.native)
    host_mib = memory_mib if share.swap and physical_mib < memory_mib else memory_mib - physical_mib
    return Seat(
        col,
        memory_mib,
        physical_mib,
        host_mib,
        cores,
        high,
        low,
        alone,
        side=side_of(share_class, several=several),
        slice=share.slice,
        start=share.start,
    )
