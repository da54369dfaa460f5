"""What earlier runs of the same Job showed, for rules that ask for it. Values; the controller keeps them.

Only runs that came to their end by themselves are counted: what was evicted says nothing of its length.
"""

from dataclasses import dataclass
from typing import Final

SHORT: Final = "short"
LONG: Final = "long"
WORDS: Final = (SHORT, LONG)
SHORT_S: Final = 15 * 60.0
"""Runs that hold their cards for less than this in the mean are short."""
LONG_S: Final = 2 * 3600.0
"""Runs that hold them for longer than this are long."""
MOST_S: Final = 30 * 86_400.0
_NEWEST_PART: Final = 0.25
"""What the newest pod counts of the mean, once there were so many."""
_SUFFIX: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")
"""What the API server makes suffixes of."""
_SUFFIX_LETTERS: Final = 5


@dataclass(frozen=True, slots=True)
class Habit:
    """One Job, as its pods showed it."""

    pods: int = 0
    """That ended by themselves; counted up to a hundred."""
    held_s: float = 0.0
    """How long they held their cards in the mean, newer ones more."""

    @property
    def words(self) -> tuple[str, ...]:
        """Those of :data:`WORDS` that hold; none while nothing is known."""
        if not self.pods:
            return ()
        return (SHORT,) if self.held_s < SHORT_S else (LONG,) if self.held_s > LONG_S else ()


_MOST_PODS: Final = 100
NO_HABIT: Final = Habit()


def ended(before: Habit, held_s: float) -> Habit:
    """One more pod of the Job came to its end after so many seconds."""
    held_s = min(max(0.0, held_s), MOST_S)
    part = max(_NEWEST_PART, 1 / (before.pods + 1))
    return Habit(min(_MOST_PODS, before.pods + 1), before.held_s + (held_s - before.held_s) * part)


def job_of(namespace: str, kind: str, name: str) -> str:
    """Equal for runs of the same Job: what a CronJob or a generated name adds at the end is left out."""
    stem, _, last = name.rpartition("-")
    made = last.isascii() and last.isdecimal()
    made = made or (len(last) == _SUFFIX_LETTERS and _SUFFIX.issuperset(last))
    return f"{kind} {namespace}/{stem if stem and made else name}"
