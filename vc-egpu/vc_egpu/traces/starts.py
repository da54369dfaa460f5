"""The starts of gangs, from what their objects said one after the other.

A gang starts when its Job is made, or when its last pod has ended and it comes back. Its start is over when
as many pods run as it needs. A gang that already ran when this process began has no start that we saw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.core.model.cluster import Instant
from vc_egpu.traces.facts import GroupFacts, PodFacts

MOST_WAITS: Final = 64
"""Reasons that one start remembers, in a row; the last one goes on."""


@dataclass(slots=True)
class Wait:
    """One reason for which a gang waited."""

    reason: str
    message: str
    since: Instant
    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A start that is over, or was given up."""

    group: GroupFacts
    number: int
    """1: its first. A gang that was evicted starts once more."""
    began: Instant
    ended: Instant
    waits: tuple[Wait, ...]
    planned: Instant | None
    pods: tuple[PodFacts, ...]
    """In the order in which they ran."""
    ran: bool
    """False: it was removed before it ran."""

    @property
    def made(self) -> Instant | None:
        """When the last pod that it needed was made; None: they were not all made."""
        created = sorted(pod.created for pod in self.pods)
        return created[self.group.needed - 1] if len(created) >= self.group.needed else None


@dataclass(slots=True)
class _Gang:
    number: int = 1
    began: Instant | None = None
    group: GroupFacts | None = None
    pods: dict[str, PodFacts] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    planned: Instant | None = None
    runs: bool = False
    """Its start is over, and some of its pods are there."""


class Starts:
    """All gangs that are known. Not for several threads at once."""

    def __init__(self, jobs: Mapping[str, Instant]) -> None:
        """``jobs``: when each Volcano Job was made, by namespace and name."""
        self._jobs = jobs
        self._gangs: dict[str, _Gang] = {}

    def __len__(self) -> int:
        return len(self._gangs)

    def group(self, facts: GroupFacts, told: Instant) -> Start | None:
        """A PodGroup as it is now; the start that is over thereby."""
        gang = self._gangs.setdefault(facts.key, _Gang())
        if gang.group is not None and gang.group.uid != facts.uid:  # made again under its name
            gang = self._gangs[facts.key] = _Gang(pods={k: p for k, p in gang.pods.items() if not p.over})
        gang.group = facts
        if not gang.runs:
            _tell(gang, facts, told)
        return self._over(gang, told)

    def group_gone(self, facts: GroupFacts, told: Instant) -> Start | None:
        """It was deleted; the start that was given up thereby."""
        gang = self._gangs.pop(facts.key, None)
        if gang is None or gang.runs or gang.group is None or not gang.pods:
            return None
        return self._start(gang, gang.group, told, ran=False)

    def pod(self, facts: PodFacts, told: Instant) -> Start | None:
        """A pod as it is now; the start that is over thereby."""
        gang = self._gangs.setdefault(facts.group, _Gang())
        if facts.over:
            self.pod_gone(facts, told)
            return None
        known = gang.pods.get(facts.uid)
        gang.pods[facts.uid] = facts if known is None else _first(known, facts)
        return self._over(gang, told)

    def pod_gone(self, facts: PodFacts, told: Instant) -> None:
        """It has ended, or was deleted. After its last pod a gang that ran starts once more."""
        gang = self._gangs.get(facts.group)
        if gang is None:
            return
        gang.pods.pop(facts.uid, None)
        if gang.runs and not any(pod.running for pod in gang.pods.values()):
            self._gangs[facts.group] = _Gang(gang.number + 1, told, gang.group, gang.pods)
        elif gang.group is None and not gang.pods:
            del self._gangs[facts.group]

    def _over(self, gang: _Gang, told: Instant) -> Start | None:
        group = gang.group
        if group is None or gang.runs:
            return None
        if sum(pod.running is not None for pod in gang.pods.values()) < group.needed:
            return None
        gang.runs = True
        start = self._start(gang, group, told, ran=True)
        gang.waits, gang.planned = [], None
        return start

    def _start(self, gang: _Gang, group: GroupFacts, told: Instant, *, ran: bool) -> Start:
        pods = sorted(gang.pods.values(), key=lambda pod: (pod.running or told, pod.name))
        seen = group.created if gang.began is None else gang.began
        if gang.number == 1 and group.job:
            namespace, _, _ = group.key.partition("/")
            seen = min(seen, self._jobs.get(f"{namespace}/{group.job}", seen))
        ended = (
            max((pod.running for pod in pods[: group.needed] if pod.running), default=told) if ran else told
        )
        return Start(
            group, gang.number, seen, max(seen, ended), tuple(gang.waits), gang.planned, tuple(pods), ran
        )


def _tell(gang: _Gang, facts: GroupFacts, told: Instant) -> None:
    """What the gang waits for, or that it has its plan."""
    planned = facts.plan_id or facts.admitted
    last = gang.waits[-1] if gang.waits else None
    if planned:
        gang.planned = told if gang.planned is None else gang.planned
        if facts.admitted and facts.said is not None:
            gang.planned = min(gang.planned, facts.said)
        if last is not None and last.until is None:
            last.until = max(last.since, gang.planned)
    elif facts.admitted is False:
        gang.planned = None  # it was taken back
        if last is not None and last.until is None and last.reason == facts.reason:
            last.message = facts.message
            return
        since = told if last is not None else min(told, facts.said or told)
        if last is not None and last.until is None:
            last.until = since
        if len(gang.waits) >= MOST_WAITS:
            gang.waits.pop(0)
        gang.waits.append(Wait(facts.reason, facts.message, since))


def _first(known: PodFacts, now: PodFacts) -> PodFacts:
    """The pod as it is now, with the moments as they were first told."""
    return PodFacts(
        uid=now.uid,
        group=now.group,
        name=now.name,
        node=now.node,
        share_class=now.share_class,
        created=known.created,
        bound=known.bound or now.bound,
        sandbox=known.sandbox or now.sandbox,
        running=(known.running or now.running) if now.running else None,
        over=now.over,
    )
