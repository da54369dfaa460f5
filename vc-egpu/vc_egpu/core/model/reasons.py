"""Why a gang waits, or that it does not: one reason, and the numbers behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

SURPLUS_NUMBER: Final = "surplus_waiting"
"""Among the numbers of a verdict: so many members wait beside those that have their place."""


class Reason(Enum):
    """The values are what users see in conditions and events."""

    ADMITTED = "Admitted"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_CARDS = "WaitingForCards"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    WAITING_FOR_EVICTION = "WaitingForEviction"
    WAITING_FOR_GATE = "WaitingForGate"
    WAITING_FOR_MODEL = "WaitingForModel"
    EXCEEDS_CAP = "ExceedsCap"
    QUEUE_CLOSED = "QueueClosed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one gang. ``message`` is one sentence with the numbers in it."""

    reason: Reason
    message: str
    numbers: Mapping[str, int | str] = field(default_factory=dict)
    """The same numbers for programs, e.g. ``{"asked": 4, "free": 2, "cap": 6}``."""
