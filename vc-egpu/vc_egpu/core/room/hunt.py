"""One round of looking for victims: for which cause, and among which gangs. One is tried after the other."""

from collections.abc import Collection
from dataclasses import dataclass, field

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import QueueName, ShareClass
from vc_egpu.core.trial.trial import Trial


@dataclass(frozen=True, slots=True)
class Quarry:
    """A queue whose gangs may be taken while it, and those above it that count, are above a line."""

    queue: QueueName
    lines: tuple[QueueName, ...] = field(compare=False)
    """The queue and those above it, up to the one that it shares with the taker, as far as they have a line.
    Empty: the queue deserves nothing of these cards."""
    kinds: tuple[str, ...] = ()
    """Kinds of cards of which all of them have too much."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """Equal hunts of one decision look at the same gangs."""

    cause: Cause
    most: ShareClass = ShareClass.LOW
    """The highest class that may go."""
    quarry: tuple[Quarry, ...] | None = None
    """None: gangs of all queues may go."""
    kinds: tuple[str, ...] = ()
    """Kinds of cards that the taker asks for, where only these are judged."""
    named: tuple[str, ...] = ()
    """Only these gangs may go, where any is named."""
    relieves: QueueName | None = field(default=None, compare=False)
    """The highest of the taker's queues whose cap is full: victims make room in it, and in caps below it."""


def gangs(trial: Trial, hunt: Hunt) -> Collection[str]:
    """Keys of gangs that may go by their queue and their class, in any order. Some may not run."""
    index, low = trial.index, hunt.most is ShareClass.LOW
    if hunt.named:
        return [key for key in hunt.named if key in index.gangs]
    if hunt.quarry is None:
        return index.low_gangs
    return [
        key
        for quarry in hunt.quarry
        for key in index.holders.gangs(quarry.queue)
        if key in index.gangs
        and (key in index.low_gangs if low else index.gangs[key].share_class <= hunt.most)
    ]
