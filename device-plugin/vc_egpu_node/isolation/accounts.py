"""What containers say in their usage and activity pages. Pure, and doubtful: any number may be there.

A reader takes what is within bounds and nothing else, so that a page of nonsense makes its own container's
figures wrong and no other's.
"""

import ctypes
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from vc_egpu_node.isolation import abi

MAX_BYTES: Final = 1 << 44
"""16 TiB: far above any card."""
MAX_UNITS: Final = 1 << 53
_PID_MASK: Final = 0x7FFFFFFF
_EMPTYING: Final = 0x80000000
_NS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Slot:
    """One process as the library registered it."""

    pid: int
    """In the process's own PID namespace."""
    start_ticks: int
    """Low 32 bits; 0: not known."""
    device_bytes: tuple[int, ...]
    """By card of the container."""
    managed_bytes: tuple[int, ...]
    contexts: int
    """Bit i: it has a context on card i."""
    changes: int = 0
    """Counts changes of the above, from 1 on; 0: its library does not count."""
    index: int = -1
    """Its place in the page."""
    namespace: int = 0
    """Inode of its PID namespace; 0: not known, and its PID may be judged as it is seen."""

    def uses(self, card: int) -> bool:
        """Whether it says to use that card."""
        return bool(self.contexts >> card & 1 or self.device_bytes[card] or self.managed_bytes[card])


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory that several processes hold."""

    card: int
    size: int
    holders: tuple[int, ...]
    """Words of bits, by a slot's place in the page."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A container's memory as its library counts it."""

    slots: tuple[Slot, ...] = ()
    shared_bytes: tuple[int, ...] = ()
    """By card: memory that several processes hold."""
    shared: tuple[Shared, ...] = ()
    """The same, by piece."""

    def charged_bytes(self, card: int) -> int:
        """Device memory on that card."""
        return min(MAX_BYTES, self.shared_bytes[card] + sum(slot.device_bytes[card] for slot in self.slots))

    def managed_bytes(self, card: int) -> int:
        """Managed memory."""
        return min(MAX_BYTES, sum(slot.managed_bytes[card] for slot in self.slots))

    def held_bytes(self, slot: Slot, card: int) -> int:
        """The part of the shared memory that the process holds."""
        word, bit = divmod(slot.index, 64)
        held = (
            one.size
            for one in self.shared
            if one.card == card and 0 <= word < len(one.holders) and one.holders[word] >> bit & 1
        )
        return min(MAX_BYTES, sum(held))

    def claiming(self) -> list[Slot]:
        """Those for which anything counts."""
        held = [0] * (abi.USAGE_SLOTS // 64)
        for one in self.shared:
            held = [word | more for word, more in zip(held, one.holders, strict=True)]
        return [
            slot
            for slot in self.slots
            if any(slot.device_bytes)
            or any(slot.managed_bytes)
            or held[slot.index // 64] >> slot.index % 64 & 1
        ]

    def without(self, places: Collection[int]) -> "Usage":
        """The same without the slots at these places, and without what only they held."""
        lost = [0] * (abi.USAGE_SLOTS // 64)
        for place in places:
            lost[place // 64] |= 1 << place % 64
        shared = (
            replace(one, holders=tuple(word & ~gone for word, gone in zip(one.holders, lost, strict=True)))
            for one in self.shared
        )
        kept = tuple(one for one in shared if any(one.holders))
        slots = tuple(slot for slot in self.slots if slot.index not in places)
        return Usage(slots, _sums(kept, len(self.shared_bytes)), kept)

    def slot_of(self, pid: int, start_ticks: int) -> Slot | None:
        """The slot of a process, by its PID in the container and its start."""
        for slot in self.slots:
            if slot.pid == pid and slot.start_ticks in (0, start_ticks & 0xFFFFFFFF):
                return slot
        return None


def read_usage(data: bytes | None, cards: int) -> Usage | None:
    """A usage page of a container with so many cards. None: it is not there or says nothing, being fresh,
    damaged or of another version."""
    if data is None or len(data) < ctypes.sizeof(abi.UsagePage):
        return None
    magic, major = struct.unpack_from("<II", data)
    slots_used, shared_used = struct.unpack_from("<II", data, abi.UsagePage.slots_used.offset)
    if magic != abi.USAGE_MAGIC or major != abi.ABI_MAJOR:
        return None
    shared = _shared(data, min(shared_used, abi.USAGE_SHARED), cards)
    slots = []
    for index in range(min(slots_used, abi.USAGE_SLOTS)):
        at = abi.UsagePage.slots.offset + index * ctypes.sizeof(abi.UsageSlot)
        slot = abi.UsageSlot.from_buffer_copy(data, at)
        owner = slot.owner
        if owner and not owner & _EMPTYING:
            slots.append(
                Slot(
                    pid=owner & _PID_MASK,
                    start_ticks=owner >> 32,
                    device_bytes=tuple(min(one.device, MAX_BYTES) for one in slot.cards[:cards]),
                    managed_bytes=tuple(min(one.managed, MAX_BYTES) for one in slot.cards[:cards]),
                    contexts=slot.contexts,
                    changes=slot.changes,
                    index=index,
                    namespace=slot.pid_namespace,
                )
            )
    return Usage(tuple(slots), _sums(shared, cards), shared)


def _sums(shared: Iterable[Shared], cards: int) -> tuple[int, ...]:
    sums = [0] * cards
    for one in shared:
        sums[one.card] = min(MAX_BYTES, sums[one.card] + one.size)
    return tuple(sums)


def _shared(data: bytes, count: int, cards: int) -> tuple[Shared, ...]:
    """The first so many entries, as far as they say anything."""
    found = []
    for index in range(count):
        at = abi.UsagePage.shared.offset + index * ctypes.sizeof(abi.UsageShared)
        entry = abi.UsageShared.from_buffer_copy(data, at)
        card, size = entry.bytes_card & 0xFFF, entry.bytes_card & ~0xFFF
        if entry.key and card < cards and any(entry.holders):
            found.append(Shared(card, size, tuple(entry.holders)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Activity:
    """What a container did on one card, and whether it is active there now."""

    busy_s: float = 0.0
    units: int = 0
    longest_s: float = 0.0
    held_s: float = 0.0
    """Launches waited for a higher class."""
    capped_s: float = 0.0
    """Launches waited for their own share."""
    active: bool = False
    """It has work there now, and the work moves on."""


def read_activity(
    data: bytes | None, cards: int, *, age_s: float, now_ns: int, lease_ms: int, hang_ms: int
) -> tuple[Activity, ...]:
    """By card of the container. No time is longer than the container is old."""
    if data is None or len(data) < ctypes.sizeof(abi.ActivityPage):
        return (Activity(),) * cards
    page = abi.ActivityPage.from_buffer_copy(data)
    if page.magic not in (0, abi.ACTIVITY_MAGIC):
        return (Activity(),) * cards
    result = []
    lease_ns = (
        lease_ms * 1_000_000
    )  # stamps may lie a little ahead: processors differ, and pages change while read
    for card in page.cards[: min(cards, abi.MAX_CARDS)]:
        fresh = -lease_ns <= now_ns - card.beat_ns <= lease_ns
        moves = -lease_ns <= now_ns - card.progress_ns <= hang_ms * 1_000_000
        result.append(
            Activity(
                busy_s=min(card.busy_ns * _NS, age_s),
                units=min(card.units, MAX_UNITS),
                longest_s=min(card.longest_ns * _NS, age_s),
                held_s=min(card.held_ns * _NS, age_s),
                capped_s=min(card.capped_ns * _NS, age_s),
                active=bool(card.word & 1 and fresh and moves),
            )
        )
    return tuple(result)


CONTEXT_LIMIT: Final = 1 << 30
_GRANULE: Final = 2 << 20
ROUGH_LOOKS: Final = 8


State = tuple[int, int, int]
"""A slot's pid, start and count of changes."""


def context_costs(
    usage: Usage, card: int, used_bytes: Mapping[tuple[int, int], int], charged_bytes: int = 0
) -> dict[State, int]:
    """What one process's context costs on a card, from processes that say to have one and nothing that
    cannot be told apart from it. ``used_bytes`` is by (pid in the container, start): what the driver sees.
    ``charged_bytes``: what the library charges for a context already."""
    costs: dict[State, int] = {}
    for slot in () if any(usage.shared_bytes) else _alone(usage.slots, card):
        used = next(
            (size for (pid, ticks), size in used_bytes.items()
             if pid == slot.pid and slot.start_ticks in (0, ticks & 0xFFFFFFFF)), 0,
        )  # fmt: skip
        cost = used - slot.device_bytes[card] + charged_bytes
        if 0 < cost <= CONTEXT_LIMIT:
            costs[slot.pid, slot.start_ticks, slot.changes] = -(-cost // _GRANULE) * _GRANULE
    return costs


class ContextCost:
    """What a context costs in one container on one card, until it is known.

    The driver and the page are not read at one moment, and programs allocate in between. So two looks count
    where a process changed nothing between them. Where a process does not count its changes, the lower of
    both looks counts. For processes that always change something, the median of many looks has to do.
    """

    def __init__(self) -> None:
        self._before: Mapping[State, int] = {}
        self._rough: list[int] = []

    def look(self, now: Mapping[State, int]) -> tuple[int, bool]:
        """Take one more look's costs; the cost, and whether it is final. A cost that is not final is only
        not held against processes that have a context by now. 0: nothing new is known. The least of all
        processes counts: others load more code into their contexts."""
        before, self._before = self._before, dict(now)
        costs = [cost if one[2] else min(cost, before[one]) for one, cost in now.items() if one in before]
        if costs:
            return min(costs), True
        if not before or not now:
            return 0, False
        self._rough.append(min(now.values()))
        if len(self._rough) == ROUGH_LOOKS:
            return sorted(self._rough)[ROUGH_LOOKS // 2], True
        return (max(min(before.values()), self._rough[0]) if len(self._rough) == 1 else 0), False


def _alone(slots: Iterable[Slot], card: int) -> Iterable[Slot]:
    return (slot for slot in slots if slot.contexts >> card & 1 and not slot.managed_bytes[card])
