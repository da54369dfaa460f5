"""What became of each pod of a record."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.core.model.cluster import Gang, Instant, PodPhase, PodShape, Snapshot
from vc_egpu.report.recorded.rows import Begun, GangSeen, PodCame, PodOver, PodRuns, Row, ShapeSeen

_HOLDS: Final = frozenset({PodPhase.PLACED, PodPhase.TERMINATING})
_OVER: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})


@dataclass(slots=True)
class Life:
    """One pod."""

    member: str
    """Equal for pods that are made one after the other for the same place in their gang."""
    task: str
    shape: PodShape
    came: Instant
    runs: Instant | None = None
    over: Instant | None = None


@dataclass(slots=True)
class Told:
    """What a record tells."""

    begin: Snapshot
    at: Instant
    """When it begins."""
    gangs: dict[str, GangSeen] = field(default_factory=dict)
    lives: dict[str, dict[str, Life]] = field(default_factory=dict)
    """By gang and pod, in the order in which they came."""


def told(rows: Iterable[Row]) -> Told | None:
    """What the rows tell from the first begin on; None: none of them is one."""
    found: Told | None = None
    known: dict[str, Life] = {}
    shapes: dict[int, PodShape] = {}
    for row in rows:
        if isinstance(row, Begun):
            shapes.clear()
            if found is None:
                found = Told(row.snapshot, row.at)
            _meanwhile(found, known, row)
        elif isinstance(row, ShapeSeen):
            shapes[row.number] = row.shape
        elif found is None:
            continue
        elif isinstance(row, GangSeen):
            found.gangs.setdefault(row.gang, row)
        elif isinstance(row, PodCame):
            if row.shape in shapes and row.pod not in known:
                member = f"{row.task}/{row.index}" if row.task and row.index >= 0 else row.pod
                life = Life(member, row.task, shapes[row.shape], row.at)
                known[row.pod] = found.lives.setdefault(row.gang, {})[row.pod] = life
        elif isinstance(row, PodRuns) and row.pod in known:
            known[row.pod].runs = row.at
        elif isinstance(row, PodOver) and row.pod in known:
            known[row.pod].over = row.at
    return found


def _meanwhile(found: Told, known: dict[str, Life], begun: Begun) -> None:
    """How all stands now says what happened while nobody wrote."""
    snapshot = begun.snapshot
    for gang in snapshot.gangs.values():
        found.gangs.setdefault(gang.key, _seen(gang))
    for uid, pod in snapshot.pods.items():
        if pod.gang is None or pod.phase in _OVER:
            continue
        life = known.get(uid)
        if life is None:
            member = f"{pod.task}/{pod.index}" if pod.task and pod.index >= 0 else uid
            life = Life(member, pod.task, pod.shape, min(pod.created, begun.at))
            known[uid] = found.lives.setdefault(pod.gang, {})[uid] = life
        if life.runs is None and pod.phase in _HOLDS:
            life.runs = begun.at
    there = {uid for uid, pod in snapshot.pods.items() if pod.phase not in _OVER}
    for name, life in known.items():
        if life.over is None and name not in there:
            life.over = begun.at


def _seen(gang: Gang) -> GangSeen:
    return GangSeen(gang.key, gang.queue, gang.share_class, gang.min_member, gang.single, gang.traits.owner)
