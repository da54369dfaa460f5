"""Several vendors of one node as one: each question goes to the vendor whose card it is about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vc_egpu_node.vendors.base import (
    CardEvent,
    CardReading,
    CardSample,
    Edits,
    EditsError,
    NodeReading,
    ProcessSample,
    UntoldError,
    Vendor,
)
from vc_egpu_node.vendors.slices import HeldSlice, Realised, SliceError, SliceWish


def joined(vendors: Sequence[Vendor]) -> Vendor:
    """One alone stays as it is. The first of several gives the facts that a node has once."""
    if len(vendors) == 1:
        return vendors[0]
    first, owners = vendors[0], Owners(vendors)
    facts = replace(
        first.facts,
        name="+".join(one.facts.name for one in vendors),
        library=" or ".join(one.facts.library for one in vendors),
        partitioned="; ".join(one.facts.partitioned for one in vendors),
        shared_devices=tuple(name for one in vendors for name in one.facts.shared_devices),
    )
    isolation = next((one.isolation for one in vendors if one.isolation is not None), None)
    trials = {one.facts.name: one.trial for one in vendors}

    def trial(uuid: str) -> str:
        owner = owners.of(uuid)
        found = None if owner is None else trials[owner.facts.name]
        if found is None:
            raise UntoldError("this vendor has no trial of its cards")
        return found(uuid)

    return Vendor(
        facts,
        JoinedReadings(owners),
        JoinedEdits(owners),
        isolation,
        trial,
        slicer=JoinedSlicer(owners),
        memory_limits=next((one.memory_limits for one in vendors if one.memory_limits is not None), None),
    )


class Owners:
    """Whose each card is, as of the last scan."""

    def __init__(self, vendors: Sequence[Vendor]) -> None:
        self.vendors = tuple(vendors)
        self._of: dict[str, Vendor] = {}

    def learn(self, vendor: Vendor, reading: NodeReading) -> None:
        """What a scan found."""
        self._of |= {card.uuid: vendor for card in reading.cards}

    def of(self, uuid: str) -> Vendor | None:
        """None: no scan has found it."""
        return self._of.get(uuid)

    def grouped(self, cards: Iterable[CardReading]) -> list[tuple[Vendor, list[CardReading]]]:
        """The cards of each vendor; unknown ones are the first vendor's."""
        parts: dict[str, tuple[Vendor, list[CardReading]]] = {}
        for card in cards:
            owner = self.of(card.uuid) or self.vendors[0]
            parts.setdefault(owner.facts.name, (owner, []))[1].append(card)
        return list(parts.values())


class JoinedReadings:
    """All libraries of the node; used by one thread."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def scan(self) -> NodeReading:
        """All cards, each vendor's behind those of the vendors before."""
        cards: list[CardReading] = []
        versions: dict[str, str] = {}
        problems, outdated = [], False
        for vendor in self._owners.vendors:
            reading = vendor.readings.scan()
            self._owners.learn(vendor, reading)
            cards += [replace(card, index=index) for index, card in enumerate(reading.cards, len(cards))]
            own = {f"{vendor.facts.name}-{name}": text for name, text in reading.versions.items()}
            versions |= dict(reading.versions) if vendor is self._owners.vendors[0] else own
            problems += [reading.problem] if reading.problem else []
            outdated |= reading.outdated
        return NodeReading(tuple(cards), versions, "; ".join(problems), outdated)

    def faults(self) -> Mapping[str, str]:
        """See :meth:`vc_egpu_node.vendors.base.Readings.faults`."""
        return {uuid: text for one in self._owners.vendors for uuid, text in one.readings.faults().items()}

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """Each library is waited for in turn: a vendor's event is told after the others' part of the time."""
        each_s = timeout_s / len(self._owners.vendors)
        return tuple(event for one in self._owners.vendors for event in one.readings.wait_events(each_s))

    def sample(self, uuid: str) -> CardSample:
        """See :meth:`vc_egpu_node.vendors.base.Readings.sample`."""
        owner = self._owners.of(uuid)
        return CardSample() if owner is None else owner.readings.sample(uuid)

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        """See :meth:`vc_egpu_node.vendors.base.Readings.processes`."""
        owner = self._owners.of(uuid)
        if owner is None:
            raise UntoldError("no vendor lists the card")
        return owner.readings.processes(uuid)

    def close(self) -> None:
        """Let go of all libraries."""
        for one in self._owners.vendors:
            one.readings.close()


class JoinedEdits:
    """Each card's edits by its own vendor."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def edits(
        self,
        cards: Sequence[CardReading],
        driver_version: str,
        *,
        shared: bool,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        return _together([
            vendor.edits.edits(own, driver_version, shared=shared, realised=_of(own, realised))
            for vendor, own in self._owners.grouped(cards)
        ])  # fmt: skip

    def record(
        self, cards: Sequence[CardReading], *, shared: bool, realised: Sequence[Realised] = ()
    ) -> Edits:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        return _together([
            vendor.edits.record(own, shared=shared, realised=_of(own, realised))
            for vendor, own in self._owners.grouped(cards)
        ])  # fmt: skip

    def unusable(self, cards: Iterable[CardReading], driver_version: str) -> dict[str, str]:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        return {
            uuid: text
            for vendor, own in self._owners.grouped(cards)
            for uuid, text in vendor.edits.unusable(own, driver_version).items()
        }


class JoinedSlicer:
    """Each card's slices by its own vendor."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def _owner(self, uuid: str) -> Vendor:
        owner = self._owners.of(uuid)
        if owner is None:
            raise SliceError("absent", f"no vendor lists card {uuid}")
        return owner

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        """See :class:`vc_egpu_node.vendors.slices.Slicer`."""
        owner = self._owner(uuid)
        return () if owner.slicer is None else owner.slicer.slices(uuid)

    def make(self, wish: SliceWish) -> HeldSlice | None:
        """See :class:`vc_egpu_node.vendors.slices.Slicer`."""
        owner = self._owner(wish.uuid)
        if owner.slicer is None:
            raise SliceError("not-supported", f"cards of {owner.facts.name} are not cut")
        return owner.slicer.make(wish)

    def destroy(self, uuid: str, slice_id: str) -> None:
        """See :class:`vc_egpu_node.vendors.slices.Slicer`."""
        owner = self._owner(uuid)
        if owner.slicer is not None:
            owner.slicer.destroy(uuid, slice_id)


def _of(cards: Iterable[CardReading], realised: Iterable[Realised]) -> tuple[Realised, ...]:
    known = {card.uuid for card in cards}
    return tuple(one for one in realised if one.uuid in known)


def _together(parts: Sequence[Edits]) -> Edits:
    if not parts:
        raise EditsError("the container has no cards")
    versions = (one.cdi_version for one in parts)
    version = max(versions, key=lambda text: [int(part) for part in text.split(".")])
    return Edits(version, tuple(part for one in parts for part in one.parts))
