"""The small path: all series of the missing hours from Prometheus, piece by piece, into the store."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from vc_egpu.usage.sources.hourly import queue_rows, usage_rows
from vc_egpu.usage.sources.minutes import LONGEST_GAP_MINUTES, MINUTES, MinuteSeries, series_of
from vc_egpu.usage.sources.pieces import Store
from vc_egpu.usage.sources.prometheus import Answer, PrometheusError, TooMuch, Unreachable
from vc_egpu.usage.table.database import Database
from vc_egpu.usage.table.series import SERIES, Series
from vc_egpu.usage.table.window import Window, index_of, moment_of, text_of

_HOUR_S: Final = 3600
_MOST_FAILURES: Final = 3
"""So many pieces in a row without an answer end the reading: the server is not there."""


class Server(Protocol):
    """What answers range queries."""

    def minutes(self, query: str, first_end_s: int, last_end_s: int) -> Answer:
        """The values of a query at the end of each minute."""


Progress = Callable[[int, int], None]
"""Is told pieces done and pieces in all."""


@dataclass(slots=True)
class Reader:
    """Reads hours into a store, and keeps what it has to say of them.

    ``cluster``: the cluster's name where no label says it.
    """

    server: Server
    store: Store
    database: Database
    cluster: str
    pieces: int = 0
    _said: list[str] = field(default_factory=list)
    _absent: Counter[str] = field(default_factory=Counter)

    def read_missing(self, window: Window, progress: Progress) -> None:
        """Read the hours of the window that the store lacks.

        A piece that cannot be read is noted and left for the next run. Hours without a row are not kept,
        either.
        """
        pieces = list(self.store.missing(range(index_of(window.since), index_of(window.until))))
        in_a_row = 0
        for number, piece in enumerate(pieces):
            progress(number, len(pieces))
            try:
                self._read_piece(piece)
                in_a_row = 0
            except Unreachable:
                raise
            except PrometheusError as error:
                in_a_row += 1
                self._say(f"hours from {_text(piece.start)} to {_text(piece.stop)} are missing: {error}")
                if in_a_row >= _MOST_FAILURES or in_a_row == len(pieces):
                    raise
        progress(len(pieces), len(pieces))

    def notes(self) -> list[str]:
        """Sentences for the report."""
        absent = [
            f"Prometheus has no {name} in {count} of {self.pieces} spans of hours"
            for name, count in sorted(self._absent.items())
        ]
        return [*self._said, *absent]

    def _read_piece(self, hours: range) -> None:
        try:
            told = {series: self._read(series, hours) for series in SERIES}
        except TooMuch:
            if len(hours) == 1:
                raise
            middle = hours.start + len(hours) // 2
            self._read_piece(range(hours.start, middle))
            self._read_piece(range(middle, hours.stop))
            return
        usage, queues = usage_rows(told, self.cluster, hours), queue_rows(told, self.cluster, hours)
        if not usage:
            self._say(f"Prometheus has nothing from {_text(hours.start)} to {_text(hours.stop)}")
            return
        self.store.put(self.database, hours, usage, queues)
        self.pieces += 1
        self._absent.update(series.name for series, found in told.items() if not found and series.is_ours)

    def _read(self, series: Series, hours: range) -> Sequence[MinuteSeries]:
        """The minutes of one series, from some minutes before, so that a counter's first step is known."""
        before = LONGEST_GAP_MINUTES * MINUTES
        first = hours.start * _HOUR_S - before + MINUTES
        answer = self.server.minutes(series.per_minute(), first, hours.stop * _HOUR_S)
        for warning in answer.warnings:
            self._say(f"Prometheus warns: {warning}")
        try:
            return [series_of(labels, points) for labels, points in answer.series]
        except (ValueError, TypeError, IndexError) as error:
            raise PrometheusError(f"{series.name} is not in Prometheus' form: {error}") from None

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.append(text)


def _text(hour: int) -> str:
    return text_of(moment_of(hour))
