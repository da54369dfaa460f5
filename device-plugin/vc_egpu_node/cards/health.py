"""Whether a card is in order: pure state, one step per observation, with a way back.

=========  =====================================  =========
state      what is seen                           next
=========  =====================================  =========
well       fault or error event                   ill
ill        fault or error event                   ill (the quiet time begins anew)
ill        nothing for ``recovery_s``             well
=========  =====================================  =========
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Health:
    """State of one card."""

    reason: str = ""
    """Empty: well."""
    last_bad_s: float = 0.0
    """When something was last wrong, on the caller's monotonic clock."""

    @property
    def well(self) -> bool:
        """Whether the card may take containers."""
        return not self.reason


WELL: Final = Health()


def step(health: Health, *, now_s: float, fault: str, recovery_s: float) -> Health:
    """The state after one observation; ``fault`` says what is wrong now, empty if nothing is."""
    if fault:
        return Health(reason=fault, last_bad_s=now_s)
    if health.well or now_s - health.last_bad_s < recovery_s:
        return health
    return WELL
