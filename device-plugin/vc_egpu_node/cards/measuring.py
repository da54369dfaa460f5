"""Has the Node say how busy it was: looks now and then, and says something new once a minute at most."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.measured.notes import NodeUseNote

from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.cards.use_window import CardLook, HostLook, Look, PodLook, UseWindow
from vc_egpu_node.vendors.base import CardSample

LOOK_S: Final = 5.0
EVERY_S: Final = 60.0
"""So long at least lies between two writes."""
AGAIN_S: Final = 600.0
"""The same figures are said again after so long, with their moment: those of nobody grow old."""
_FULL: Final = 100.0
_IDLE: Final = (3, 4)
"""Columns of ``/proc/stat`` that are no work: idle, and waiting for disks."""
_COLUMNS: Final = 8
"""Those after them are in the first ones already."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is looked at, and where it is said."""

    observation: Callable[[], Observation]
    pods: Callable[[], Mapping[str, PodLook]]
    host: Callable[[], HostLook]
    say: Callable[[str | None], None]
    """None: nothing. Raises :class:`KubeError`."""
    wanted: Callable[[], bool]
    """Whether the node's policy has it said."""


class Measuring:
    """The agent's loop turns it."""

    def __init__(
        self,
        sources: Sources,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._wall = wall
        self._window = UseWindow()
        self._looked_s = self._judged_s = self._written_s = float("-inf")
        self._said: NodeUseNote | None = None

    def turn(self) -> None:
        """Look if it is time to, and say what is news. A write that fails is tried again a minute later."""
        if not self._sources.wanted():
            self._window, self._said = UseWindow(), None
            self._write(None)
            return
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._window.add(self._look(now_s))
        if now_s - self._judged_s < EVERY_S:
            return
        note = self._window.note(int(self._wall()))
        if note is None:
            return
        self._judged_s, said = now_s, self._said
        is_news = said is None or note.model_copy(update={"at": said.at}) != said
        if is_news or now_s - self._written_s >= AGAIN_S:
            self._written_s = now_s
            self._said = note if self._write(note.encode()) else None

    def _write(self, text: str | None) -> bool:
        try:
            self._sources.say(text)
        except KubeError as error:
            log.warning("the Node does not say how busy it was: %s", error)
            return False
        return True

    def _look(self, now_s: float) -> Look:
        seen = self._sources.observation()
        listed = {card.uuid for card in seen.reading.cards}
        cards = {uuid: _card(sample) for uuid, sample in seen.samples.items() if uuid in listed}
        return Look(now_s, cards, self._sources.host(), self._sources.pods())


def _card(sample: CardSample) -> CardLook:
    used, free = sample.memory_used_mib, sample.memory_free_mib
    whole = (used or 0) + (free or 0)
    told = used is not None and free is not None and whole > 0
    compute = sample.gpu_util_percent
    return CardLook(
        compute=float(compute) if compute is not None else None,
        memory=_FULL * (used or 0) / whole if told else None,
    )


def host_look(proc_dir: Path) -> HostLook:
    """The host as its kernel tells."""
    return HostLook(_cpu(proc_dir), _memory(proc_dir))


def _cpu(proc_dir: Path) -> tuple[int, int] | None:
    try:
        word, *columns = (proc_dir / "stat").read_text().partition("\n")[0].split()
        ticks = [int(column) for column in columns[:_COLUMNS]]
    except (OSError, ValueError):
        return None
    if word != "cpu" or len(ticks) <= max(_IDLE):
        return None
    return sum(ticks) - sum(ticks[column] for column in _IDLE), sum(ticks)


def _memory(proc_dir: Path) -> float | None:
    found: dict[str, int] = {}
    try:
        for line in (proc_dir / "meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in {"MemTotal", "MemAvailable"}:
                found[name] = int(rest.split()[0])
    except (OSError, ValueError, IndexError):
        return None
    whole, free = found.get("MemTotal", 0), found.get("MemAvailable")
    return _FULL * (whole - free) / whole if whole > 0 and free is not None else None
