"""A vendor of toys, written from ``docs/vendor-guide.md`` step by step. It is the guide's test."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from vc_egpu_node.vendors import paths
from vc_egpu_node.vendors.base import (
    SHARED,
    CardEvent,
    CardReading,
    CardSample,
    Edits,
    EditsError,
    NodeReading,
    ProcessSample,
    UntoldError,
    Vendor,
    VendorFacts,
)
from vc_egpu_node.vendors.slices import Realised

# Step 1 of the guide: facts.
FACTS: Final = VendorFacts(
    name="toy",
    library="libtoy",
    partitioned="it is cut into slices",
    open_command="toyctl open {uuid}",
    labels=None,
    hide={"TOY_VISIBLE_DEVICES": "void"},
    runtime="toy-runtime",
    all_cards="TOY_VISIBLE_DEVICES=all",
    shared_devices=("toyctl",),
)


# Step 2: readings.
class ToyCards:
    """One card that is always well."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def scan(self) -> NodeReading:
        """The card."""
        card = CardReading(
            uuid="TOY-1", index=0, product="Toy T1", memory_mib=16384, devices=("toy0",), abilities=SHARED
        )
        return NodeReading((card,), {"driver": "1.0"})

    def faults(self) -> Mapping[str, str]:
        """None."""
        return {}

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """It has no events: the time passes."""
        self._ended.wait(timeout_s)
        return ()

    def sample(self, uuid: str) -> CardSample:
        """Half busy."""
        return CardSample(gpu_util_percent=50) if uuid == "TOY-1" else CardSample()

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        """It does not tell."""
        raise UntoldError(f"{uuid} does not tell")

    def close(self) -> None:
        """Let go of it."""
        self._ended.set()


# Step 3: container edits.
class ToyEdits:
    """A node for each card."""

    def __init__(self, dev: Path) -> None:
        self._dev = dev

    def edits(
        self,
        cards: Sequence[CardReading],
        driver_version: str,
        *,
        shared: bool,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """Refused where a node is missing."""
        absent = paths.missing(self._dev, [card.devices[0] for card in cards])
        if absent:
            raise EditsError(f"{absent} is not there for driver {driver_version}: load it")
        return self.record(cards, shared=shared, realised=realised)

    def record(
        self,
        cards: Sequence[CardReading],
        *,
        shared: bool,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """The nodes, as they are called."""
        if realised:
            raise EditsError("toys are not cut")
        return Edits(parts=tuple({"deviceNodes": paths.nodes(card.devices)} for card in cards))

    def unusable(self, cards: Iterable[CardReading], driver_version: str) -> dict[str, str]:
        """Cards whose node is missing."""
        absent = {card.uuid: paths.missing(self._dev, card.devices) for card in cards}
        return {uuid: f"{name} is not there ({driver_version})" for uuid, name in absent.items() if name}


# Step 4: the bundle.
def toy(readings: ToyCards, edits: ToyEdits) -> Vendor:
    """All that the agent needs of toys."""
    return Vendor(FACTS, readings, edits, isolation=None)
