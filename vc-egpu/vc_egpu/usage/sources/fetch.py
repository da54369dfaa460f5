"""The small path: all series of the missing hours from Prometheus, piece by piece, into the store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from vc_egpu.usage.sources.hourly import queue_rows, usage_rows
from vc_egpu.usage.sources.minutes import LONGEST_GAP_MINUTES, MINUTES, MinuteSeries, series_of
from vc_egpu.usage.sources.pieces import Store
from vc_egpu.usage.sources.prometheus import Answer, PrometheusError, TooMuch
from vc_egpu.usage.table.database import Database
from vc_egpu.usage.table.series import SERIES, Role, Series
from vc_egpu.usage.table.window import Window, index_of, moment_of, text_of

_HOUR_S: Final = 3600
_MOST_FAILURES: Final = 3
"""So many pieces in a row without an answer end the reading: the server is not there."""


class Server(Protocol):
    """What answers range queries."""

    def minutes(self, query: str, first_end_s: int, last_end_s: int) -> Answer:
        """The values of a query at the end of each minute."""


@dataclass(slots=True)
class Reading:
    """What became of a reading."""

    pieces: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a sentence for the report, once."""
        if text not in self.notes:
            self.notes.append(text)


def read_missing(
    server: Server,
    store: Store,
    database: Database,
    window: Window,
    cluster: str,
    progress: Callable[[int, int], None],
) -> Reading:
    """Read the hours of the window that the store lacks.

    ``cluster``: the cluster's name where no label says it. ``progress`` is told pieces done and pieces in all. A
    piece that cannot be read is noted and left for the next run. Hours without a row are not kept, either.
    """
    hours = range(index_of(window.since), index_of(window.until))
    pieces = list(store.missing(hours))
    reading, in_a_row = Reading(), 0
    for number, piece in enumerate(pieces):
        progress(number, len(pieces))
        try:
            _read_piece(server, store, database, piece, cluster, reading)
            in_a_row = 0
        except PrometheusError as error:
            in_a_row += 1
            reading.note(f"hours from {_text(piece.start)} to {_text(piece.stop)} are missing: {error}")
            if in_a_row >= _MOST_FAILURES or in_a_row == len(pieces):
                raise
    progress(len(pieces), len(pieces))
    return reading


def _read_piece(
    server: Server, store: Store, database: Database, hours: range, cluster: str, reading: Reading
) -> None:
    try:
        told = {series: _read(server, series, hours, reading) for series in SERIES}
    except TooMuch:
        if len(hours) == 1:
            raise
        middle = hours.start + len(hours) // 2
        for half in (range(hours.start, middle), range(middle, hours.stop)):
            _read_piece(server, store, database, half, cluster, reading)
        return
    usage, queues = usage_rows(told, cluster, hours), queue_rows(told, cluster, hours)
    if usage:
        store.put(database, hours, usage, queues)
        reading.pieces += 1
    else:
        reading.note(f"Prometheus has nothing from {_text(hours.start)} to {_text(hours.stop)}")


def _read(server: Server, series: Series, hours: range, reading: Reading) -> Sequence[MinuteSeries]:
    """The minutes of one series; a counter's from some minutes before, so that its first step is known."""
    before = LONGEST_GAP_MINUTES * MINUTES
    first = hours.start * _HOUR_S - before + MINUTES
    answer = server.minutes(series.per_minute(), first, hours.stop * _HOUR_S)
    for warning in answer.warnings:
        reading.note(f"Prometheus warns: {warning}")
    if series.role is Role.SHARE and not answer.series:
        reading.note(f"Prometheus has no {series.name} from {_text(hours.start)} to {_text(hours.stop)}")
    try:
        return [series_of(labels, points) for labels, points in answer.series]
    except (ValueError, TypeError, IndexError) as error:
        raise PrometheusError(f"{series.name} is not in Prometheus' form: {error}") from None


def _text(hour: int) -> str:
    return text_of(moment_of(hour))
