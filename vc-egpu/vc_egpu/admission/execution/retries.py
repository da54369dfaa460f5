"""When what failed is tried again, by gang. Pure but for the jitter; the clock is the conductor's."""

from dataclasses import dataclass, field
from typing import Final

from vc_egpu.admission.execution.results import Overtaken, result_of
from vc_egpu.kube.backoff import Backoff
from vc_egpu.kube.wire.errors import BudgetExhausted, KubeError, Temporary

FIRST_S: Final = 0.02
MOST_S: Final = 30.0
_AT_ONCE: Final = 3
"""So many conflicts in a row are answered without waiting: what stands there was read in the meantime."""


@dataclass(slots=True)
class Retries:
    """Gangs that wait after a failure."""

    _at: dict[str, float] = field(default_factory=dict)
    _backoffs: dict[str, Backoff] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is remembered of a failure."""
        return bool(self._at or self._backoffs)

    def failed(self, key: str, error: KubeError | None, clock: float, *, is_read: bool = False) -> float:
        """Something for this gang failed; returns after how many seconds it is tried again.

        Not before the server's time, where it names one. A budget's is that of a pod, not of who needs room.
        """
        backoff = self._backoffs.setdefault(key, Backoff(FIRST_S, MOST_S))
        is_overtaken = isinstance(result_of(error), Overtaken)
        at_once = is_overtaken and backoff.failures < _AT_ONCE and not is_read
        delay_s = 0.0 if at_once else backoff.next_s()
        if is_overtaken:
            backoff.failures += 1
        if isinstance(error, Temporary) and not isinstance(error, BudgetExhausted):
            delay_s = max(delay_s, error.retry_after_s or 0.0)
        if delay_s > 0:
            self._at[key] = clock + delay_s
        return delay_s

    def succeeded(self, key: str) -> None:
        """It did not fail again, or the gang is gone: the next failure is a first one again."""
        self._backoffs.pop(key, None)

    def may_try(self, key: str, clock: float) -> bool:
        """Whether nothing failed for this gang a moment ago."""
        return self._at.get(key, 0.0) <= clock

    def due(self, clock: float) -> list[str]:
        """Gangs whose time has come; each is named once."""
        due = [key for key, at in self._at.items() if at <= clock]
        for key in due:
            del self._at[key]
        return due

    def next_at(self) -> float | None:
        """When the next one is due."""
        return min(self._at.values(), default=None)
