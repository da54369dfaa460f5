"""What earlier runs of the same Job showed, for rules that ask for it. Values; the controller keeps them.

Only runs that came to their end by themselves are counted: what was evicted says nothing of its length.
"""

from dataclasses import dataclass
from typing import Final

from vc_egpu.core.measured.use import in_steps

SHORT: Final = "short"
LONG: Final = "long"
IDLE: Final = "idle"
BUSY: Final = "busy"
WORDS: Final = (SHORT, LONG, IDLE, BUSY)
SHORT_S: Final = 15 * 60.0
"""Runs that hold their cards for less than this in the mean are short."""
LONG_S: Final = 2 * 3600.0
"""Runs that hold them for longer than this are long."""
IDLE_POINTS: Final = 20
"""Runs that use less of each card's compute than so much of a hundred are idle."""
BUSY_POINTS: Final = 60
"""Runs that use so much or more are busy."""
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
    used_points: float | None = None
    """How much of each card's compute they used in the end, of a hundred, newer ones more; None: that was
    not measured."""

    @property
    def words(self) -> tuple[str, ...]:
        """Those of :data:`WORDS` that hold; none while nothing is known."""
        if not self.pods:
            return ()
        length = (SHORT,) if self.held_s < SHORT_S else (LONG,) if self.held_s > LONG_S else ()
        if self.used_points is None:
            return length
        if self.used_points < IDLE_POINTS:
            return (*length, IDLE)
        return (*length, BUSY) if self.used_points >= BUSY_POINTS else length

    @property
    def uses_points(self) -> int | None:
        """The same in steps of ten."""
        return None if self.used_points is None else in_steps(self.used_points)


_MOST_PODS: Final = 100
NO_HABIT: Final = Habit()


def ended(before: Habit, held_s: float, used_points: int | None = None) -> Habit:
    """One more pod of the Job came to its end after so many seconds. ``used_points``: what it used then."""
    held_s = min(max(0.0, held_s), MOST_S)
    part = max(_NEWEST_PART, 1 / (before.pods + 1))
    used = before.used_points
    if used_points is not None:
        used = float(used_points) if used is None else used + (used_points - used) * part
    return Habit(min(_MOST_PODS, before.pods + 1), before.held_s + (held_s - before.held_s) * part, used)


def job_of(namespace: str, kind: str, name: str) -> str:
    """Equal for runs of the same Job: what a CronJob or a generated name adds at the end is left out."""
    stem, _, last = name.rpartition("-")
    made = last.isascii() and last.isdecimal()
    made = made or (len(last) == _SUFFIX_LETTERS and _SUFFIX.issuperset(last))
    return f"{kind} {namespace}/{stem if stem and made else name}"
