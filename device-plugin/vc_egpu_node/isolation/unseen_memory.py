"""Memory that the driver shows of a process beyond what the library charged for it. Pure.

Device code, local memory of kernels, what no call tells: the driver counts it for the process, the library
in the container does not. The difference goes into the container's control page, and the library counts it
from then on. It is reckoned for each process by itself, so that what one claims hides nothing of another's.

The driver and the usage page are read one after the other, and programs allocate in between. So a figure
counts only where the process changed nothing from one look to the next (the library counts changes). For a
process that always changes something, many looks count: the least that the driver showed, less the most that
it claimed. Figures rise when two looks agree, and fall when many do: what a container sees as free does not
shrink and grow while nothing happens.

The usage page is the container's to forge. A process that claims more than it has is charged more there, or
gains at most what stands here. Whatever the page says, the second wall compares the driver's own figure with
the grant.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import Slot, Usage

GRANULE: Final = 2 << 20
"""In what the driver takes memory; less is the driver's rounding."""
FALL_LOOKS: Final = 15
"""So many without a change must show less before a figure falls."""
UNSTEADY_LOOKS: Final = 8
"""Over so many a process is judged that always changes something."""
MISSING_LOOKS: Final = 2
"""A process that the driver did not list so often is gone."""

Process = tuple[int, int]
"""(pid in the container, start in clock ticks)."""
Place = tuple[str, str]
"""(name of the container, UUID of the card)."""
Shown = Mapping[Place, Mapping[Process, int]]
"""Bytes of each process as the driver tells."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """What a control page says of it, in granules."""

    always: tuple[int, ...] = ()
    """By card of the container: counts until the page says otherwise. Empty: nothing."""
    processes: tuple[tuple[int, int, int], ...] = ()
    """(owner as in a slot, card, bytes): counts while the usage page has that owner."""

    def on(self, card: int) -> int:
        """Bytes on that card."""
        return sum(self.always[card : card + 1]) + sum(size for _, at, size in self.processes if at == card)


NOTHING: Final = Beyond()


@dataclass(slots=True)
class _Track:
    bytes: int = 0
    excess: int = 0
    """As of the last look."""
    changes: int = 0
    owner: int = 0
    """0: it has no slot."""
    missing: int = 0
    steady: deque[int] = field(default_factory=lambda: deque(maxlen=FALL_LOOKS))
    looks: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=UNSTEADY_LOOKS))
    """(shown by the driver, claimed)."""

    def look(self, shown: int, slot: Slot | None, claimed: int) -> None:
        """One more look. ``claimed``: by the slot."""
        if self.looks and (slot is None) == bool(self.owner):  # all that was known of it was something else
            self.bytes = self.excess = 0
            self.looks.clear()
            self.steady.clear()
        changes = slot.changes if slot is not None else 0
        # Without a slot there is nothing that could be read at the wrong time.
        settled = slot is None or (changes != 0 and changes == self.changes and self.owner == owner_of(slot))
        excess = max(0, shown - claimed)
        if settled:
            self.steady.append(excess)
        self.looks.append((shown, claimed))
        risen = 0
        if settled and len(self.looks) > 1:
            risen = min(self.excess, excess)
        elif len(self.looks) == UNSTEADY_LOOKS:
            risen = max(0, min(one for one, _ in self.looks) - max(one for _, one in self.looks))
        if len(self.steady) == FALL_LOOKS:
            self.bytes = min(self.bytes, max(self.steady))
        self.bytes = min(max(self.bytes, risen), shown)
        self.excess, self.changes, self.missing = excess, changes, 0
        self.owner = owner_of(slot) if slot is not None else 0


class Reckoning:
    """The figures of one container on one card over all looks."""

    def __init__(self, card: int, told: Beyond = NOTHING) -> None:
        """``card``: index in the container; ``told``: what its control page says already."""
        self._card = card
        self._told = {owner: size for owner, at, size in told.processes if at == card}
        self._tracks: dict[Process, _Track] = {}

    def look(self, shown: Mapping[Process, int], usage: Usage) -> None:
        """One more look: what the driver shows of each process, in bytes, and what the usage page says."""
        for process in shown.keys() - self._tracks.keys():
            slot = usage.slot_of(*process)
            told = self._told.pop(owner_of(slot), 0) if slot is not None else 0
            self._tracks[process] = _Track(bytes=told)
        for process, track in list(self._tracks.items()):
            if process in shown:
                slot = usage.slot_of(*process)
                claimed = claim(usage, slot, self._card) if slot is not None else 0
                track.look(shown[process], slot, claimed)
                continue
            track.missing += 1
            if track.missing >= MISSING_LOOKS:
                del self._tracks[process]

    def at_least(self, processes: Iterable[Process], size: int) -> None:
        """That much is known of these: contexts that were there before the cost of one was known."""
        for process in processes:
            if process in self._tracks:
                self._tracks[process].bytes = max(self._tracks[process].bytes, size)

    def figures(self, forgiven: int = 0) -> tuple[int, list[tuple[int, int]]]:
        """(bytes of processes without a slot, (owner, bytes) of the others). ``forgiven``: bytes above the
        grant that are not held against those with a slot."""
        always, owners = 0, []
        for track in self._tracks.values():
            size = track.bytes // GRANULE * GRANULE
            if not track.owner:
                always += size
                continue
            spared = min(size, -(-forgiven // GRANULE) * GRANULE)
            forgiven -= min(forgiven, spared)
            if size > spared:
                owners.append((track.owner, size - spared))
        return always, owners


class Books:
    """The figures of all containers of the node."""

    def __init__(self, told: Callable[[str], Beyond]) -> None:
        """``told``: what a container's control page says already."""
        self._told = told
        self._reckonings: dict[Place, Reckoning] = {}

    def look(
        self,
        grants: Iterable[Grant],
        usages: Mapping[str, Usage | None],
        shown: Shown,
        untold: Collection[str] = (),
    ) -> None:
        """One more look at these containers, and the end of what was known of others. ``usages`` has those
        whose page can be read, None where it says nothing. Figures of others stay as they are, and all on
        cards that are ``untold``."""
        known = self._reckonings
        self._reckonings = {}
        for grant in grants:
            for card, share in enumerate(grant.shares):
                place = (grant.name, share.uuid)
                one = known.get(place) or Reckoning(card, self._told(grant.name))
                self._reckonings[place] = one
                if grant.name in usages and share.uuid not in untold:
                    usage = usages[grant.name] or Usage((), (0,) * len(grant.shares))
                    one.look(shown.get(place, {}), usage)

    def at_least(self, place: Place, processes: Iterable[Process], size: int) -> None:
        """See :meth:`Reckoning.at_least`."""
        self._reckonings[place].at_least(processes, size)

    def figures(self, grant: Grant, allowed_mib: Mapping[str, int]) -> Beyond:
        """What a container's page has to say. ``allowed_mib``: by card UUID; what is above the grant is not
        held against it."""
        return beyond_of(
            self._reckonings[grant.name, share.uuid].figures(
                (allowed_mib[share.uuid] - share.memory_mib) << 20
            )
            for share in grant.shares
        )


def beyond_of(figures: Iterable[tuple[int, list[tuple[int, int]]]]) -> Beyond:
    """The figures of a container's cards, as its page holds them: the smaller ones together where there are
    more than fit."""
    always, entries = [], []
    for card, (size, owners) in enumerate(figures):
        always.append(size)
        entries += [(owner, card, more) for owner, more in owners]
    entries.sort(key=lambda entry: (-entry[2], entry))
    for _, card, size in entries[abi.MAX_BEYOND :]:
        always[card] += size
    return Beyond(tuple(always) if any(always) else (), tuple(entries[: abi.MAX_BEYOND]))


def owner_of(slot: Slot) -> int:
    """As the slot names it."""
    return slot.start_ticks << 32 | slot.pid


def claim(usage: Usage, slot: Slot, card: int) -> int:
    """What a process may have by its page. Managed memory counts as if all lay on the card, and shared
    memory for each of its holders."""
    return slot.device_bytes[card] + slot.managed_bytes[card] + usage.held_bytes(slot, card)
