"""Fill the two tables of hours: from a folder, from one Prometheus, or from that of each cluster."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vc_egpu.usage.flags import UsageError
from vc_egpu.usage.reports.clusters import Clusters
from vc_egpu.usage.sources.fetch import Reader
from vc_egpu.usage.sources.folder import load
from vc_egpu.usage.sources.pieces import Store, StoreError
from vc_egpu.usage.sources.prometheus import Prometheus, PrometheusError
from vc_egpu.usage.sources.several import Missing, Source, load_all, told
from vc_egpu.usage.table.database import Database
from vc_egpu.usage.table.window import Window, index_of

Sources = Callable[[Namespace], Sequence[Source]]
"""Takes the flags; tells where each cluster of the file has its Prometheus, and whether that answers."""


def prometheus_of(
    source: Source, timeout_s: float, sleep: Callable[[float], None] = time.sleep
) -> Prometheus:
    """Its server. Raises :class:`UsageError` and :class:`PrometheusError`."""
    headers = {"Authorization": f"Bearer {_token(source.token_file)}"} if source.token_file else {}
    return Prometheus(source.url, headers, source.ca_file, timeout_s, sleep)


@dataclass(frozen=True, slots=True)
class Loading:
    """What one run reads, and where to. ``sleep``: before Prometheus is asked again, in seconds."""

    options: Namespace
    database: Database
    window: Window
    now: datetime
    sleep: Callable[[float], None]

    def load(self, sources: Sources | None) -> tuple[list[str], Clusters | None]:
        """Fill both tables. Returns sentences on what they lack, and with several clusters which these are.

        ``sources``: reads the file of ``--clusters``.
        """
        options = self.options
        if options.clusters is not None:
            if sources is None:
                raise UsageError("--clusters belongs to `vc-egpu report` and `kubectl egpu report`")
            return self._load_several(sources(options))
        if options.folder:
            return load(self.database, Path(options.folder), self.window, self.now).notes, None
        source = Source(options.cluster, options.prometheus, options.token_file, options.ca_file)
        folder, notes = self._fetch(source, Path(options.store) if options.store else None)
        return [*notes, *load(self.database, folder, self.window, self.now).notes], None

    def _load_several(self, sources: Sequence[Source]) -> tuple[list[str], Clusters]:
        """The same of each cluster that answers. Raises :class:`PrometheusError` where none does."""
        missing = [Missing(source.cluster, source.trouble) for source in sources if source.trouble]
        folders: dict[str, Path] = {}
        notes: list[str] = []
        for source in sources:
            if source.trouble:
                continue
            place = Path(self.options.store) / source.cluster if self.options.store else None
            try:
                folders[source.cluster], said = self._fetch(source, place)
                notes += [f"{source.cluster}: {note}" for note in said]
            except (PrometheusError, StoreError, UsageError) as error:
                missing.append(Missing(source.cluster, str(error)))
        if not folders:
            raise PrometheusError(f"no cluster answers; {told(missing)}")
        loaded, empty = load_all(self.database, folders, self.window, self.now)
        order = [source.cluster for source in sources]
        missing = sorted([*missing, *empty], key=lambda one: order.index(one.cluster))
        return [*notes, *loaded.notes], Clusters(tuple(order), tuple(missing))

    def _fetch(self, source: Source, place: Path | None) -> tuple[Path, list[str]]:
        """Read what the store lacks of one source. ``place``: the store; None: a folder of the cache."""
        server = prometheus_of(source, self.options.timeout_s, self.sleep)
        store = Store(place or _cache(server.url, source.cluster))
        store.claim(f"{server.url} {source.cluster}".strip())
        if self.options.refresh:
            store.forget(range(index_of(self.window.since), index_of(self.window.until)))
        with _progress() as progress:
            reader = Reader(server, store, self.database, source.cluster)
            reader.read_missing(self.window, progress)
        return store.folder, reader.notes()


def _token(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token cannot be read: {error}") from None


def _cache(url: str, cluster: str) -> Path:
    """A folder of the user's cache for each source."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = "".join(
        letter if letter.isalnum() or letter in ".-" else "_" for letter in f"{url} {cluster}".strip()
    )
    return Path(base) / "vc-egpu" / "usage" / name


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; a line now and then where stderr is none."""
    if not sys.stderr.isatty():
        yield _lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading Prometheus"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("pieces", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(done: int, total: int) -> None:
    tenth = max(total // 10, 1)
    if total and (done % tenth == 0 or done == total):
        sys.stderr.write(f"reading Prometheus: {done} of {total} pieces\n")
