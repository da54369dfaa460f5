"""From the highest value of each minute to the values of an hour. Pure.

A sample that comes twice changes no minute, and the scrape interval changes no hour. A gauge has its maximum,
its mean and its minutes. A counter has what it grew by, from each minute to the next one that was seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MINUTES: Final = 60
LONGEST_GAP_MINUTES: Final = 5
"""What a counter grew by over a longer gap is counted nowhere: its hour says that minutes are missing."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MinuteSeries:
    """One series: its labels, and the value of each minute seen. Minutes count from 1970 and rise."""

    labels: Mapping[str, str]
    minutes: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class GaugeHour:
    """A gauge within one hour."""

    highest: float
    mean: float
    minutes: int


@dataclass(frozen=True, slots=True)
class CounterHour:
    """What a counter grew by within one hour, and its highest growth per second in one minute."""

    growth: float
    highest_rate: float
    minutes: int


def series_of(labels: Mapping[str, str], points: Sequence[tuple[float, str]]) -> MinuteSeries:
    """A series from points of Prometheus' answer: (seconds at the minute's end, value as text).

    What is no finite number is left out.
    """
    ends = np.array([point[0] for point in points], dtype=np.float64)
    values = np.array([point[1] for point in points], dtype=np.float64)
    finite = np.isfinite(values)
    minutes = (ends[finite] // MINUTES).astype(np.int64) - 1
    return MinuteSeries(labels, minutes, values[finite])


def gauge_hours(series: MinuteSeries) -> dict[int, GaugeHour]:
    """By hour since 1970."""
    hours, starts, counts = _hours(series.minutes)
    if not len(hours):
        return {}
    highest = np.maximum.reduceat(series.values, starts)
    sums = np.add.reduceat(series.values, starts)
    return {
        int(hour): GaugeHour(float(top), float(total / count), int(count))
        for hour, top, total, count in zip(hours, highest, sums, counts, strict=True)
    }


def counter_hours(series: MinuteSeries) -> dict[int, CounterHour]:
    """By hour since 1970. A value below the one before is a restart: the counter began again at 0."""
    hours, starts, counts = _hours(series.minutes)
    if not len(hours):
        return {}
    gaps = np.diff(series.minutes, prepend=series.minutes[0] - LONGEST_GAP_MINUTES - 1)
    steps = np.diff(series.values, prepend=0.0)
    growth = np.where(steps < 0, series.values, steps)
    growth[gaps > LONGEST_GAP_MINUTES] = 0.0
    rates = growth / (np.maximum(gaps, 1) * 60.0)
    totals, highest = np.add.reduceat(growth, starts), np.maximum.reduceat(rates, starts)
    return {
        int(hour): CounterHour(float(total), float(top), int(count))
        for hour, total, top, count in zip(hours, totals, highest, counts, strict=True)
    }


def _hours(minutes: Ints) -> tuple[Ints, Ints, Ints]:
    """The hours that were seen, where each begins, and how many minutes it has."""
    hours, starts, counts = np.unique(minutes // MINUTES, return_index=True, return_counts=True)
    return hours, starts.astype(np.int64), counts.astype(np.int64)
