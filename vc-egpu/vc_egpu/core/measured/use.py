"""How busy a node was, in steps of ten points. Values; its agent measures, and the controller reads.

100 points are all of a card's compute, of its memory, of a node's cpu or of its memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FULL_POINTS: Final = 100
STEP_POINTS: Final = 10
UNKNOWN: Final = -1
"""What is not measured."""
OLD_AFTER_S: Final = 1500.0
"""An agent says what it measures every ten minutes at least. After so long nobody measures any more."""
USUAL_POINTS: Final = 50
"""What a share without guaranteed cores is taken to use, while no earlier run of its Job shows it."""


@dataclass(frozen=True, slots=True)
class CardUse:
    """One card, the mean of the window."""

    compute_points: int = UNKNOWN
    memory_points: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class NodeUse:
    """One node, the mean of the window."""

    at: float
    """When it was written, in seconds since the epoch, by the clock of the node."""
    cpu_points: int = UNKNOWN
    memory_points: int = UNKNOWN
    cards: Mapping[str, CardUse] = field(default_factory=dict)
    """By UUID."""

    @property
    def points(self) -> int:
        """The busiest of cpu, memory, the compute of its cards and their memory; cards in the mean."""
        cards = self.cards.values()
        compute = _mean([card.compute_points for card in cards])
        memory = _mean([card.memory_points for card in cards])
        return max(self.cpu_points, self.memory_points, compute, memory)


def _mean(points: list[int]) -> int:
    known = [one for one in points if one != UNKNOWN]
    return sum(known) // len(known) if known else UNKNOWN


def known(points: int) -> int | None:
    """The points; None where they were not measured."""
    return None if points == UNKNOWN else points


def in_steps(points: float) -> int:
    """The nearest step, 0 to 100."""
    step = round(points / STEP_POINTS) * STEP_POINTS
    return min(FULL_POINTS, max(0, step))


def is_current(at: float, now: float, skew_s: float) -> bool:
    """Whether a figure of that moment still counts. One from further ahead than clocks differ never does."""
    return now - OLD_AFTER_S <= at <= now + skew_s
