"""What one pod takes of its node: the unit in which the ledger adds and removes."""

from dataclasses import dataclass
from typing import NamedTuple

from vc_egpu.core.cluster import PodShape, Share, ShareClass
from vc_egpu.core.resources import AMOUNT_LIMIT, clamp, slot_resource

HostPort = tuple[str, str, int]


class Seat(NamedTuple):
    """One share on one card of a node. ``high`` and ``low`` are the cores it takes from either sum."""

    col: int
    memory_mib: int
    cores_percent: int
    high: int
    """Counts against the sum of high and unset."""
    low: int
    """Counts against the sum of unset and low."""
    alone: int
    """1 for a whole card or a native one."""


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


def cores_of(share_class: ShareClass, cores_percent: int) -> tuple[int, int]:
    """(what counts against high + unset, what counts against unset + low)."""
    high = cores_percent if share_class >= ShareClass.UNSET else 0
    low = cores_percent if share_class <= ShareClass.UNSET else 0
    return high, low


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


def seat_of(col: int, share: Share, share_class: ShareClass) -> Seat:
    """The seat that a share takes; amounts below zero count as zero."""
    cores = min(max(share.cores_percent, 0), AMOUNT_LIMIT)
    high, low = cores_of(share_class, cores)
    return Seat(col, clamp(share.memory_mib), cores, high, low, int(share.whole or share.native))
