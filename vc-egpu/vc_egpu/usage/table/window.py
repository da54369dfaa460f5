"""The hours that a report covers: all of them whole, in UTC, with the local hour and weekday of each.

``--since`` is a length or a date. An hour that has not ended is left out, because its rows still grow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

HOUR: Final = timedelta(hours=1)
_UNITS: Final = {"h": HOUR, "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LATE: Final = timedelta(minutes=5)
"""How long after its end an hour is taken as told: scrapes and remote writes come late."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_DAYS: Final = 400


class WindowError(ValueError):
    """A span of time that no report can cover; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Window:
    """From the first hour's start to the last hour's end, both in UTC and on the hour."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        if self.since >= self.until:
            raise WindowError(f"no whole hour lies between {text_of(self.since)} and {text_of(self.until)}")
        if self.until - self.since > timedelta(days=LONGEST_DAYS):
            raise WindowError(f"a report covers at most {LONGEST_DAYS} days")

    @property
    def hours(self) -> int:
        """How many hours it covers."""
        return (self.until - self.since) // HOUR

    def starts(self) -> Iterator[datetime]:
        """The start of each hour."""
        for number in range(self.hours):
            yield self.since + number * HOUR


@dataclass(frozen=True, slots=True)
class CalendarHour:
    """One hour as people at a place know it; weekday 1 is Monday."""

    start: datetime
    index: int
    local_hour: int
    local_weekday: int
    utc_day: str


def index_of(moment: datetime) -> int:
    """Whole hours since 1970."""
    return (moment - _EPOCH) // HOUR


def moment_of(index: int) -> datetime:
    """The start of the hour of that index."""
    return _EPOCH + index * HOUR


def text_of(moment: datetime) -> str:
    """As ``2026-11-26T17:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def calendar(window: Window, zone: ZoneInfo) -> list[CalendarHour]:
    """Each hour of a window with its local hour; a zone half an hour off takes the hour that it begins in."""
    hours = []
    for start in window.starts():
        local = start.astimezone(zone)
        day = start.strftime("%Y-%m-%d")
        hours.append(CalendarHour(start, index_of(start), local.hour, local.isoweekday(), day))
    return hours


def window_of(since: str, until: str, now: datetime) -> Window:
    """The window that two texts name.

    ``since``: a length back from the end (``8d``, ``36h``, ``2w``) or a date with or without a time.
    ``until``: a date, or empty for the last hour that has ended.
    """
    last = _floor(now - _LATE)
    end = min(_moment(until), last) if until else last
    length = _length(since)
    start = end - length if length else _moment(since)
    return Window(_floor(start), _floor(end))


def _length(text: str) -> timedelta | None:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()):
        return None
    if len(number) > len(str(LONGEST_DAYS * 24)):
        raise WindowError(f"a report covers at most {LONGEST_DAYS} days")
    return int(number) * _UNITS[unit]


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WindowError(f"{text!r} is no time: 8d, 36h, 2026-11-26 and 2026-11-26T08:00Z are") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _floor(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
