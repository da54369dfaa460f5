"""How late a gang is taken: those that have just begun, and those that went often, are the last.

An eviction costs a gang the run time it has. A gang that goes before it has done anything, again and again,
never ends. So candidates are tried in stages, and a later stage only if the earlier ones are not enough.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from vc_egpu.core.model.cluster import Instant, QueueName
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.policy import CLOCK_SKEW_S, OFTEN, OFTEN_WITHIN_S
from vc_egpu.core.trial.trial import Trial


class Lateness(IntEnum):
    """The stage in which a gang is taken."""

    USUAL = 0
    FRESH = 1
    """It began less than its minimum run time ago."""
    OFTEN = 2
    """It was evicted for others several times within the last hour."""


class Staged(Protocol):
    """What has a stage."""

    @property
    def lateness(self) -> Lateness:
        """In which stage it is tried."""
        ...


_S = TypeVar("_S", bound=Staged)


def lateness(trial: Trial, view: GangView) -> Lateness:
    """The stage of this gang, which has placed members."""
    if len(lately(view.gang.victim_at, trial.now)) >= OFTEN:
        return Lateness.OFTEN
    began = [pod.started for pod in view.placed if pod.started is not None]
    # None of them has started: the gang is only about to begin. A failed member's replacement begins nothing.
    age_s = trial.now - min(began) if began else 0.0
    # An instant far in the future was dated by a wrong clock: how old it is cannot be known.
    fresh = -CLOCK_SKEW_S <= age_s < min_runtime_s(trial, view.gang.queue)
    return Lateness.FRESH if fresh else Lateness.USUAL


def min_runtime_s(trial: Trial, queue: QueueName) -> float:
    """What the queue says, else the nearest one above it that says something, else the controller."""
    for name in trial.chain(queue):
        entry = trial.queues.get(name)
        if entry is not None and entry.min_runtime_s is not None:
            return entry.min_runtime_s
    return trial.policy.min_runtime_s


def lately(times: Iterable[Instant], now: Instant) -> tuple[Instant, ...]:
    """Those within the last hour. One from far in the future was dated by a wrong clock, and is none."""
    return tuple(at for at in times if -CLOCK_SKEW_S <= now - at <= OFTEN_WITHIN_S)


def once_more(times: Iterable[Instant], now: Instant) -> tuple[Instant, ...]:
    """What is noted of a gang that goes now: no more than the rule needs, oldest first."""
    return (*sorted(lately(times, now)), now)[-OFTEN:]


def stages(listed: Sequence[_S]) -> Iterator[list[_S]]:
    """The candidates of the first stage, then with those of the next one, and so on."""
    for stage in sorted({candidate.lateness for candidate in listed}):
        yield [candidate for candidate in listed if candidate.lateness <= stage]
