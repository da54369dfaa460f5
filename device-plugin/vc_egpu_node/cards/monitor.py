"""The one thread that talks to the vendor's library: counts cards, waits for errors, reads utilisation."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu_node.vendors.base import (
    CardReading,
    CardSample,
    NodeReading,
    ProcessSample,
    Readings,
    UntoldError,
)

log = logging.getLogger(__name__)

FORGET_S: Final = 600.0
"""A card that the driver no longer lists stays in the inventory, ill, for so long."""
MISSING: Final = "the driver no longer lists it"


@dataclass(frozen=True, slots=True)
class Health:
    """Whether one card is in order; one :func:`step` per observation.

    - A fault or an error event makes the card ill, and starts its quiet time again.
    - An ill card of which nothing is heard for ``recovery_s`` is well.
    """

    reason: str = ""
    """Empty: well."""
    last_bad_s: float = 0.0
    """When something was last wrong, on the caller's monotonic clock."""

    @property
    def well(self) -> bool:
        """Whether the card may take containers."""
        return not self.reason


WELL: Final = Health()


def step(health: Health, *, now_s: float, fault: str, recovery_s: float) -> Health:
    """The state after one observation; ``fault`` says what is wrong now, empty if nothing is."""
    if fault:
        return Health(reason=fault, last_bad_s=now_s)
    if health.well or now_s - health.last_bad_s < recovery_s:
        return health
    return WELL


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of the cards at one moment. Replaced as a whole, never changed."""

    reading: NodeReading = field(default_factory=NodeReading)
    ill: Mapping[str, str] = field(default_factory=dict)
    """UUID to reason."""
    samples: Mapping[str, CardSample] = field(default_factory=dict)
    processes: Mapping[str, tuple[ProcessSample, ...]] = field(default_factory=dict)
    untold: frozenset[str] = frozenset()
    """Cards that did not tell who runs on them: their processes are as they told last."""
    error_codes: Mapping[str, int] = field(default_factory=dict)
    """UUID to the last error number that the driver reported."""
    scans: int = 0
    looks: int = 0
    """How often processes were read."""


def unattributed_mib(seen: Observation, uuid: str) -> int | None:
    """Memory of a card that is used, but by no process that the driver names; None: the card does not tell.

    The driver counts memory for the process that owns it. Memory that only a DMA-BUF keeps counts as the
    driver's own (``RmDmabufGetClientAndDevice`` in NVIDIA's kernel module). Memory that crashed programs
    left behind does so too. Used memory and processes are not read at one moment: only a difference that
    lasts means anything.
    """
    sample, processes = seen.samples.get(uuid), seen.processes.get(uuid, ())
    if uuid in seen.untold or sample is None or sample.memory_used_mib is None:
        return None
    if any(one.memory_mib == 0 for one in processes):  # the card does not tell how much these have
        return None
    return max(0, sample.memory_used_mib - sum(one.memory_mib for one in processes))


class Monitor:
    """Watches the cards of one vendor. ``observation`` may be read from any thread."""

    def __init__(
        self,
        readings: Readings,
        *,
        probe_interval_s: float,
        rescan_interval_s: float,
        recovery_s: Callable[[], float],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._readings = readings
        self._look_interval_s = 0.0
        self._after_look: Callable[[], None] = lambda: None
        self._heeded: list[Callable[[], Mapping[str, str]]] = []
        self._probe_interval_s = probe_interval_s
        self._rescan_interval_s = rescan_interval_s
        self._recovery_s = recovery_s
        self._on_change = on_change
        self._health: dict[str, Health] = {}
        self._error_codes: dict[str, int] = {}
        self._known: dict[str, tuple[CardReading, float]] = {}
        self._missing: frozenset[str] = frozenset()
        self._counted: NodeReading | None = None
        """What the last scan found, until it is told."""
        self._look_due_s = self._scanned_s = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cards", daemon=True)
        self.observation = Observation()
        self.beat_s = time.monotonic()

    def read_processes(self, every_s: float, then: Callable[[], None]) -> None:
        """Read processes so often (0: with everything else), and call ``then`` after each time, on the
        monitor's thread. Only before the start."""
        self._look_interval_s, self._after_look = every_s, then

    def heed(self, found: Callable[[], Mapping[str, str]]) -> None:
        """Take what others found (UUID to fault) for faults of the cards too. Only before the start."""
        self._heeded.append(found)

    def start(self) -> None:
        """Begin on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End it, at the latest after one probe interval."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._probe_interval_s + 5)
        self._readings.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.beat_s = time.monotonic()
            try:
                self.turn()
            except Exception:
                log.exception("reading the cards failed, trying again")
                self._stopping.wait(self._probe_interval_s)

    def turn(self) -> None:
        """Count the cards if that is due, probe them, then listen until the next probe is due. Called by the
        monitor's own thread, or by a test."""
        if self._clock() - self._scanned_s >= self._scan_due_s():
            self._scan()
            self._scanned_s = self._clock()
        self._probe()
        self._listen()

    def _scan_due_s(self) -> float:
        """Cards are counted more often while some are missing or ill: that is how they come back."""
        troubled = bool(self.observation.reading.problem) or bool(self.observation.ill)
        return self._rescan_interval_s / 4 if troubled else self._rescan_interval_s

    def _scan(self) -> None:
        before = self.observation
        now_s = self._clock()
        reading = self._readings.scan()
        if reading.problem and reading.problem != before.reading.problem:
            log.warning("%s", reading.problem)
        listed = {card.uuid for card in reading.cards}
        self._known.update({card.uuid: (card, now_s) for card in reading.cards})
        self._known = {uuid: seen for uuid, seen in self._known.items() if now_s - seen[1] < FORGET_S}
        self._missing = frozenset(self._known) - listed
        kept = tuple(self._known[uuid][0] for uuid in sorted(self._missing))
        self._counted = replace(reading, cards=reading.cards + kept)
        # With it goes what was wrong with it: cards are counted more often while any is ill.
        self._health = {uuid: health for uuid, health in self._health.items() if uuid in self._known}
        self._error_codes = {uuid: code for uuid, code in self._error_codes.items() if uuid in self._known}

    def _probe(self) -> None:
        """Health and utilisation of every card. What was counted is told with it: a card that is ill from the
        beginning is never offered."""
        now_s = self._clock()
        counted, self._counted = self._counted, None
        uuids = [card.uuid for card in (counted or self.observation.reading).cards]
        heeded = {uuid: fault for found in self._heeded for uuid, fault in found().items()}
        faults = {**heeded, **self._readings.faults()}
        for uuid in uuids:
            self._step(uuid, now_s, MISSING if uuid in self._missing else faults.get(uuid, ""))
        self._publish(
            reading=counted,
            samples={uuid: self._readings.sample(uuid) for uuid in uuids},
            scans=self.observation.scans + 1 if counted else None,
        )
        self._look_when_due()

    def _look_when_due(self) -> None:
        """Read processes on time, however many errors the driver reports meanwhile. The second wall judges
        by two looks in a row, and relies on the time between them."""
        now_s = self._clock()
        if now_s >= self._look_due_s:
            self._look_due_s = now_s + self._look_interval_s
            self._look()

    def _look(self) -> None:
        """Read the processes on the cards."""
        uuids = [card.uuid for card in self.observation.reading.cards]
        before = self.observation
        processes: dict[str, tuple[ProcessSample, ...]] = {}
        untold: dict[str, str] = {}
        for uuid in uuids:
            try:
                processes[uuid] = self._readings.processes(uuid)
            except UntoldError as error:
                processes[uuid] = before.processes.get(uuid, ())
                untold[uuid] = str(error)
        for uuid in untold.keys() - before.untold:
            log.warning("card %s does not tell who runs on it: %s", uuid, untold[uuid])
        self._publish(processes=processes, untold=frozenset(untold))
        self._after_look()

    def _listen(self) -> None:
        """Until the next probe is due, or the driver tells of an error; processes are read more often."""
        due_s = self._clock() + self._probe_interval_s
        while not self._stopping.is_set():
            until_s = min(due_s, self._look_due_s) if self._look_interval_s else due_s
            events = self._readings.wait_events(max(0.0, until_s - self._clock()))
            for event in events:
                log.warning("card %s: %s", event.uuid, event.text)
                if event.code:
                    self._error_codes[event.uuid] = event.code
                if event.fatal and not event.recovered:
                    self._step(event.uuid, self._clock(), event.text)
            if events or self._clock() >= due_s:
                break
            self.beat_s = time.monotonic()
            if self._look_interval_s:
                self._look_when_due()
        self._publish()

    def _step(self, uuid: str, now_s: float, fault: str) -> None:
        before = self._health.get(uuid, WELL)
        after = step(before, now_s=now_s, fault=fault, recovery_s=self._recovery_s())
        if before.well and not after.well:
            log.warning("card %s is ill: %s", uuid, after.reason)
        elif after.well and not before.well:
            log.info("card %s is well again", uuid)
        self._health[uuid] = after

    def _publish(
        self,
        *,
        reading: NodeReading | None = None,
        samples: Mapping[str, CardSample] | None = None,
        processes: Mapping[str, tuple[ProcessSample, ...]] | None = None,
        untold: frozenset[str] | None = None,
        scans: int | None = None,
    ) -> None:
        before = self.observation
        self.observation = Observation(
            reading=before.reading if reading is None else reading,
            ill={uuid: health.reason for uuid, health in self._health.items() if not health.well},
            samples=before.samples if samples is None else samples,
            processes=before.processes if processes is None else processes,
            untold=before.untold if untold is None else untold,
            error_codes=dict(self._error_codes),
            scans=before.scans if scans is None else scans,
            looks=before.looks + (processes is not None),
        )
        changed = self.observation.reading != before.reading or self.observation.ill != before.ill
        if changed or (before.scans == 0 and scans):
            self._on_change()
