"""Volcano Jobs whose controller was told to make the pods, and makes none.

Volcano's Job controller acts when it sees a PodGroup's phase change. A PodGroup that is ``Inqueue`` when it
first sees it tells it nothing (1.15.1; its watch came back late after the API server was away). The Job would
then wait without end: without pods, and with the cards of a plan that may be ready. So the phase is taken
back to ``Pending``, from where it goes to ``Inqueue`` as usual: now the controller watches.
"""

from dataclasses import dataclass, field
from typing import Final

from vc_egpu.admission.execution import steps
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.state.mirror import Mirror

FIRST_S: Final = 60.0
"""A controller that has much to do needs seconds."""
MOST_S: Final = 960.0
"""Pods that are refused at the door are not made either, however often one says so."""


@dataclass(slots=True)
class Unheard:
    """When what gangs ask for is said again; times are monotonic."""

    _next: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By gang: when, and how long that was waited for."""

    def __bool__(self) -> bool:
        return bool(self._next)

    def look(self, key: str, mirror: Mirror, clock: float) -> None:
        """A gang changed."""
        if not _waits(key, mirror):
            self._next.pop(key, None)
        elif key not in self._next:
            self._next[key] = clock + FIRST_S, FIRST_S

    def due(self, mirror: Mirror, clock: float) -> list[str]:
        """Those to take back to ``Pending`` now; each time they wait twice as long."""
        found = [key for key, (at, _) in self._next.items() if at <= clock and _is_told(key, mirror)]
        for key in found:
            waited_s = min(2 * self._next[key][1], MOST_S)
            self._next[key] = clock + waited_s, waited_s
        return found


def _is_told(key: str, mirror: Mirror) -> bool:
    group = mirror.groups.get(key)
    return group is not None and group.decoded.phase == steps.ENQUEUED


def _waits(key: str, mirror: Mirror) -> bool:
    """Whether its Job is one of ours that has not begun, and has no pod."""
    group = mirror.groups.get(key)
    job = enqueue.job_of(group, mirror) if group is not None and key not in mirror.members else None
    if group is None or job is None or group.decoded.phase not in {"", "Pending", steps.ENQUEUED}:
        return False
    phase = ((job.get("status") or {}).get("state") or {}).get("phase") or "Pending"
    return phase == "Pending" and enqueue.is_managed(job)
