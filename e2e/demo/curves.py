"""What one card did over time, from the fake driver's log: shares, requests, and how they look in a terminal.

Pure: stretches in, numbers and text out. Times are nanoseconds of the log's clock, shares are parts of one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fakes.cuda_log import Stretch, Unit, busy_ns

MS = 1_000_000
S = 1_000_000_000
_LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the story."""

    name: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request of inference."""

    launched_ns: int
    """Its first kernel was handed to the driver."""
    began_ns: int
    """Its first kernel began to run."""
    ended_ns: int
    """Its last kernel had run."""
    handed_ns: int = 0
    """Its last kernel was handed to the driver."""

    @property
    def wait_ns(self) -> int:
        """How long the card went on with what it was at."""
        return self.began_ns - self.launched_ns

    @property
    def at_once(self) -> bool:
        """Whether its kernels were handed over without a pause, in which training may go on."""
        return self.handed_ns - self.launched_ns < MS


@dataclass(frozen=True, slots=True)
class OneCard:
    """Two programs on one card."""

    card: str
    training: Sequence[Stretch]
    inference: Sequence[Stretch]
    requests: Sequence[Request]
    """Of the phase in which inference stays below its cap."""
    phases: Sequence[Phase]
    """In order, the first begins and the last ends the picture."""
    cap: float
    """What inference is granted of the card's time."""

    @property
    def begin_ns(self) -> int:
        return self.phases[0].begin_ns

    @property
    def end_ns(self) -> int:
        return self.phases[-1].end_ns

    def typical(self) -> Request:
        """The request with the median wait."""
        ordered = sorted(self.requests, key=lambda request: request.wait_ns)
        return ordered[len(ordered) // 2]


def share(stretches: Sequence[Stretch], begin_ns: int, end_ns: int) -> float:
    """Part of the time in which one of the stretches ran."""
    return busy_ns(stretches, begin_ns, end_ns) / max(1, end_ns - begin_ns)


def shares(stretches: Sequence[Stretch], begin_ns: int, end_ns: int, buckets: int) -> list[float]:
    """:func:`share` of each of so many equal parts of the time. Stretches are in order."""
    edges = [begin_ns + (end_ns - begin_ns) * number // buckets for number in range(buckets + 1)]
    found, at = [], 0
    for left, right in pairwise(edges):
        while at < len(stretches) and stretches[at].end_ns <= left:
            at += 1
        until = at
        while until < len(stretches) and stretches[until].start_ns < right:
            until += 1
        found.append(share(stretches[at:until], left, right))
    return found


def requests_of(units: Sequence[Unit], kernels: int) -> list[Request]:
    """Of a server that takes one request at a time, each so many kernels, after a kernel to warm up."""
    ordered = sorted(units, key=lambda unit: unit.seq)[1:]
    groups = [ordered[at : at + kernels] for at in range(0, len(ordered) - kernels + 1, kernels)]
    return [
        Request(group[0].enqueued_ns, group[0].start_ns, group[-1].end_ns, group[-1].enqueued_ns)
        for group in groups
    ]


def held(training: Sequence[Stretch], requests: Sequence[Request]) -> int:
    """During how many requests training handed nothing to the card.

    What it had handed over before may go on beside a request: the card slices time between the two by itself.
    """
    launches = sorted(one.enqueued_ns for one in training)
    return sum(
        bisect_right(launches, request.launched_ns) == bisect_left(launches, request.ended_ns)
        for request in requests
    )


def sparkline(values: Sequence[float], height: int = 1) -> list[str]:
    """Rows of text, the topmost first: a column for each value from 0 to 1."""
    steps = len(_LEVELS) - 1
    filled = [round(min(1.0, max(0.0, value)) * height * steps) for value in values]
    return [
        "".join(_LEVELS[min(steps, max(0, column - row * steps))] for column in filled)
        for row in reversed(range(height))
    ]


def over(phases: Sequence[Phase], columns: int) -> str:
    """One line that names the phases above their columns."""
    begin_ns, end_ns = phases[0].begin_ns, phases[-1].end_ns
    line = ""
    for phase in phases:
        at = (phase.begin_ns - begin_ns) * columns // (end_ns - begin_ns)
        until = (phase.end_ns - begin_ns) * columns // (end_ns - begin_ns)
        line = f"{line:<{at}}" + f"│{phase.name}"[: max(1, until - at)]
    return line
