"""What hand-overs were."""

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """What hand-overs were, since the agent began."""

    hand_overs: int = 0
    seconds: float = 0.0
    """From the order to leave until the next one ran."""
    moved_bytes: int = 0
    """GPU memory that went to the host and back."""
