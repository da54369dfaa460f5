"""What each cluster has, asked again and again. One that is slow or gone holds no other up.

A quick look lists nodes: it says whether the cluster answers, and which cards it has. What of them is used
needs all pods. That is read for few clusters at a time, and the more rarely the more it takes.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vc_egpu.cli.exit_status import explain
from vc_egpu.cli.sites.catalogue import Catalogue, Site
from vc_egpu.cli.sites.fan_out import CLUSTER_TIMEOUT_S
from vc_egpu.cli.sites.overview import Overview
from vc_egpu.kube import ConfigError
from vc_egpu.kube.wire.errors import KubeError

EVERY_S: Final = 10.0
"""So long after a look is a cluster looked at again."""
UNWATCHED_S: Final = 30.0
"""So long after the page asked last, no cluster is asked any more until it asks again."""
READERS: Final = 2
"""Clusters whose pods are read at the same time."""
_LONGEST_REST_S: Final = 2.0
SHARE: Final = 4.0
"""Looks, and readings of pods, are so rare that each takes less than a quarter of one processor."""
State = Literal["asking", "ok", "silent"]
Reader = Callable[[Site], Overview]
"""Reads one cluster. It may raise anything, and it ends by itself."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SiteModel:
    """The cards of one model."""

    name: str
    cards: int
    closed: int
    """Cards that take nothing new."""
    used_mib: int | None
    """None: not read yet, of one cluster at least."""
    memory_mib: int


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One cluster, as it is known now."""

    name: str
    title: str
    city: str
    state: State
    reason: str
    """Why it is silent, or why its use is unknown; empty where all is well."""
    since: str
    """Since when it is silent, an instant in UTC; empty where it is not."""
    answered: str
    """When it answered last; empty: not since the page was started. The cards are of then."""
    read: str
    """When its use was read last: memory and what waits are of then."""
    models: tuple[SiteModel, ...]
    waiting: int | None
    """Gangs that wait; None: unknown, or the user may not see them."""


@dataclass(frozen=True, slots=True)
class LinkRow:
    """What lies between two clusters, both ways."""

    between: tuple[str, str]
    mbit_per_s: int


@dataclass(frozen=True, slots=True)
class SitesReport:
    """All clusters. The sums are over those alone that answer now."""

    asked: int
    answered: int
    clusters: tuple[SiteRow, ...]
    links: tuple[LinkRow, ...]
    sums: tuple[SiteModel, ...]


class _Round:
    """What is known of one cluster."""

    def __init__(self, site: Site, within_s: float) -> None:
        self.site = site
        self._within_s = within_s
        self._lock = threading.Lock()
        self._began: float | None = None
        """When the look under way began, by the monotonic clock."""
        self._began_at = 0.0
        self._seen: Overview | None = None
        self._seen_at = 0.0
        self._whole: Overview | None = None
        self._whole_at = 0.0
        self._reason = self._whole_reason = ""
        self._silent_since = 0.0
        self._due = 0.0

    def look(self, quick: Reader) -> None:
        """Ask which cards it has."""
        with self._lock:
            self._began, self._began_at = time.monotonic(), time.time()
        try:
            seen = quick(self.site)
        except Exception as error:  # noqa: BLE001 - shown in its row
            reason = _reason(error)
            logger.info("cluster %s: %s", self.site.name, reason)
            with self._lock:
                if not self._reason:
                    self._silent_since = self._began_at
                self._reason, self._began = reason, None
        else:
            with self._lock:
                self._seen, self._seen_at, self._reason = seen, time.time(), ""
                self._began = None

    def take(self) -> bool:
        """Whether its pods are to be read now, by the caller alone."""
        with self._lock:
            wanted = self._seen is not None and not self._reason and time.monotonic() >= self._due
            if wanted:
                self._due = float("inf")
            return wanted

    def read(self, whole: Reader, every_s: float, share: float) -> None:
        """Ask what is used, after :meth:`take`."""
        began_s, found, reason = time.thread_time(), None, ""
        try:
            found = whole(self.site)
        except Exception as error:  # noqa: BLE001 - shown in its row
            reason = _reason(error)
        with self._lock:
            if found is not None:
                self._whole, self._whole_at = found, time.time()
            self._whole_reason = reason
            self._due = time.monotonic() + max(every_s, share * (time.thread_time() - began_s))

    def now(self) -> SiteRow:
        """Its row."""
        with self._lock:
            reason, since = self._reason, self._silent_since
            is_late = self._began is not None and time.monotonic() - self._began > self._within_s
            if is_late and not reason:
                reason, since = f"no answer within {self._within_s:g} s", self._began_at
            seen, whole = self._seen, self._whole
            state: State = "silent" if reason else "asking" if seen is None else "ok"
            return SiteRow(
                name=self.site.name,
                title=self.site.title,
                city=self.site.city,
                state=state,
                reason=(reason or self._whole_reason)[:512],
                since=_instant(since) if reason else "",
                answered=_instant(self._seen_at) if seen is not None else "",
                read=_instant(self._whole_at) if whole is not None else "",
                models=_models(seen, whole),
                waiting=whole.waiting if whole is not None else None,
            )


class Rounds:
    """All clusters of a catalogue. ``within_s``: later than that, a cluster counts as silent.

    ``quick`` tells which cards there are, ``whole`` what is used of them, too.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        quick: Reader,
        whole: Reader,
        within_s: float = CLUSTER_TIMEOUT_S,
        *,
        every_s: float = EVERY_S,
        unwatched_s: float = UNWATCHED_S,
    ) -> None:
        self._links = tuple(LinkRow(link.between, link.mbit_per_s) for link in catalogue.links)
        self._rounds: Sequence[_Round] = [_Round(site, within_s) for site in catalogue.clusters]
        self._quick = quick
        self._whole = whole
        self._every_s = every_s
        self._unwatched_s = unwatched_s
        self._watched_at_s = time.monotonic()
        self._watched = threading.Event()
        self._stopping = threading.Event()

    def start(self) -> "Rounds":
        """Look at all of them at once. A thread that hangs ends with the process."""
        for one in self._rounds:
            name = f"look-{one.site.name}"
            threading.Thread(target=self._look, args=(one,), name=name, daemon=True).start()
        for number in range(READERS):
            threading.Thread(target=self._read, name=f"read-{number}", daemon=True).start()
        return self

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()
        self._watched.set()

    def report(self) -> SitesReport:
        """What is known now; it asks nothing and waits for nothing. The asking goes on for a while."""
        self._watched_at_s = time.monotonic()
        self._watched.set()
        rows = tuple(one.now() for one in self._rounds)
        answering = [row for row in rows if row.state == "ok"]
        models = [model for row in answering for model in row.models]
        return SitesReport(len(rows), len(answering), rows, self._links, _sums(models))

    @property
    def is_watched(self) -> bool:
        """Whether a page asked lately; only then are clusters asked."""
        return time.monotonic() - self._watched_at_s < self._unwatched_s

    def _goes_on(self) -> bool:
        """Whether the next cluster is to be asked. Waits as long as no page asks."""
        while not self._stopping.is_set():
            self._watched.clear()
            if self.is_watched:
                return True
            self._watched.wait(_LONGEST_REST_S)  # another thread may have cleared what woke this one
        return False

    def _look(self, one: _Round) -> None:
        while self._goes_on():
            began_s = time.thread_time()
            one.look(self._quick)
            took_s = time.thread_time() - began_s
            self._stopping.wait(max(self._every_s, SHARE * len(self._rounds) * took_s))

    def _read(self) -> None:
        share = SHARE * len(self._rounds)
        # Which clusters are there, and which cards they have, is shown before it is read what is used.
        while any(one.now().state == "asking" for one in self._rounds):
            if self._stopping.wait(min(0.1, self._every_s)):
                return
        while self._goes_on():
            due = next((one for one in self._rounds if one.take()), None)
            if due is not None:
                due.read(self._whole, self._every_s, share)
            else:
                self._stopping.wait(min(0.2, self._every_s))


def _models(seen: Overview | None, whole: Overview | None) -> tuple[SiteModel, ...]:
    used = {row.name: row.used_mib for row in whole.models} if whole is not None else {}
    rows = seen.models if seen is not None else ()
    return tuple(
        SiteModel(row.name, row.cards, row.closed, used.get(row.name), row.memory_mib) for row in rows
    )


def _sums(models: Sequence[SiteModel]) -> tuple[SiteModel, ...]:
    """By model: different ones are never added up, and what is not known is in no sum."""
    total = []
    for name in sorted({one.name for one in models if one.cards}):
        same = [one for one in models if one.name == name]
        used = [one.used_mib for one in same]
        known = [one for one in used if one is not None]
        total.append(
            SiteModel(
                name,
                sum(one.cards for one in same),
                sum(one.closed for one in same),
                sum(known) if len(known) == len(used) else None,
                sum(one.memory_mib for one in same),
            )
        )
    return tuple(total)


def _instant(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _reason(error: Exception) -> str:
    if isinstance(error, KubeError):
        return explain(error)[0]
    return str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
