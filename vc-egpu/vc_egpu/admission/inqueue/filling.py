"""How many gangs have their pods made at once, and whose are next.

A few at a time: a thousand Jobs at once would queue at the webhook for longer than its time-out. The Job's
controller would also create pods twice that it does not see yet. No gang waits for those whose pods do not
come.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.admission.state.mirror import Mirror

MOST_FILLING: Final = 256
"""Pods of gangs that were enqueued and are not complete yet; one gang more may be begun below it."""
FILLED_BY_S: Final = 5.0
"""A gang that is not complete by then (its pods are refused, say) holds up no other."""
UNMOVED_S: Final = 25.0
"""A gang that gets no further pod in so long after that does not just stand behind others whose are made."""
SLOW_FOR_S: Final = 600.0
"""So long the gangs of its namespace come one by one, apart from all others, unless one is complete."""


@dataclass(slots=True)
class Filling:
    """Gangs that were enqueued and are not complete yet."""

    until: dict[str, float] = field(default_factory=dict)
    """Until when a gang counts as being filled."""
    late: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Gangs that were not filled in their time: since when, and how many pods they had."""
    slow: dict[str, float] = field(default_factory=dict)
    """Namespaces with a gang that gets no pods, and when that was seen. A quota refuses them, say, and each
    gang of the namespace would keep all others waiting."""

    def overdue(self, clock: float) -> list[str]:
        """Those whose time is over."""
        return [key for key, until in self.until.items() if until <= clock]

    def admit(self, line: Iterable[str], standing: Container[str], mirror: Mirror, clock: float) -> list[str]:
        """Those to enqueue now, in the order of the ``line``, which may name one twice.

        Gangs that were to be enqueued and are ``standing`` there still are named again: the API server has
        not said so yet.
        """
        self._look(standing, mirror, clock)
        usual = [key for key in self.until if _namespace(key) not in self.slow]
        pods = sum(mirror.groups[key].decoded.gang.min_member for key in usual)
        busy = {_namespace(key) for key in self.until}
        chosen = [key for key in self.until if key in standing]
        for key in line:
            slow = (namespace := _namespace(key)) in self.slow
            if pods >= MOST_FILLING and not self.slow:
                break
            if key in self.until or (namespace in busy if slow else pods >= MOST_FILLING):
                continue
            pods += 0 if slow else mirror.groups[key].decoded.gang.min_member
            busy.add(namespace)
            self.until[key] = clock + FILLED_BY_S
            chosen.append(key)
        return chosen

    def _look(self, standing: Container[str], mirror: Mirror, clock: float) -> None:
        """What became of those before."""
        for key in self.overdue(clock):
            if key not in standing:
                self.late.setdefault(key, (clock, _pods(key, mirror)))
        for key in {*self.until, *self.late}:
            if not _lacks_pods(key, mirror):
                self.late.pop(key, None)
                if key in mirror.groups:
                    self.slow.pop(_namespace(key), None)
        for key, (since, had) in list(self.late.items()):
            if clock - since >= UNMOVED_S:
                del self.late[key]
                if _pods(key, mirror) <= had:
                    self.slow[_namespace(key)] = clock
        self.slow = {k: at for k, at in self.slow.items() if clock - at < SLOW_FOR_S}
        self.until = {k: at for k, at in self.until.items() if at > clock and _lacks_pods(k, mirror)}


def _namespace(key: str) -> str:
    return key.split("/", 1)[0]


def _pods(key: str, mirror: Mirror) -> int:
    return len(mirror.members.get(key, ()))


def _lacks_pods(key: str, mirror: Mirror) -> bool:
    group = mirror.groups.get(key)
    return group is not None and _pods(key, mirror) < group.decoded.gang.min_member
