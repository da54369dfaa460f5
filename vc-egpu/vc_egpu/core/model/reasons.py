"""Why a gang waits, or that it does not: one reason, one sentence, and the numbers in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from vc_egpu.core.model.findings import Finding

SURPLUS_NUMBER: Final = "surplus_waiting"
"""Among the numbers of a verdict: how many members wait while the others have their place."""
BACK_OFF_NUMBER: Final = "seconds"
"""Among the numbers of a verdict: how long the gang is not tried, whatever room there is."""


class Reason(Enum):
    """The values are what users see in conditions and events."""

    ADMITTED = "Admitted"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_CARDS = "WaitingForCards"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    WAITING_FOR_TURN = "WaitingForTurn"
    """Cards are free, and claimed for a gang that waits longer."""
    WAITING_FOR_EVICTION = "WaitingForEviction"
    WAITING_FOR_GATE = "WaitingForGate"
    WAITING_FOR_MODEL = "WaitingForModel"
    WAITING_FOR_ENVIRONMENT = "WaitingForEnvironment"
    """No node has the software, or the kind of card, that its program needs."""
    EXCEEDS_CAP = "ExceedsCap"
    QUEUE_CLOSED = "QueueClosed"
    WRITE_REFUSED = "WriteRefused"
    """The API server does not take the gang's plan: its PodGroup has no room, or a policy forbids it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one gang. ``message`` has the numbers in it."""

    reason: Reason
    message: str
    numbers: Mapping[str, int | str] = field(default_factory=dict)
    """The same numbers for programs, e.g. ``{"asked": 4, "free": 2, "cap": 6}``."""
    finding: Finding | None = field(default=None, compare=False, repr=False)
    """What the sentence was made from; None where another process part wrote the sentence itself."""
