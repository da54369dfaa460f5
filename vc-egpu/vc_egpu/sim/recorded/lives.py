"""What became of each pod of a record."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vc_egpu.core.model.cluster import Gang, Instant, PodShape, Snapshot
from vc_egpu.core.model.gangs import HOLDING, OVER
from vc_egpu.report.recorded.rows import Begun, GangSeen, PodCame, PodOver, PodRuns, Row, ShapeSeen


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
                life = Life(_member(row.pod, row.task, row.index), row.task, shapes[row.shape], row.at)
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
        if pod.gang is None or pod.phase in OVER:
            continue
        life = known.get(uid)
        if life is None:
            life = Life(_member(uid, pod.task, pod.index), pod.task, pod.shape, min(pod.created, begun.at))
            known[uid] = found.lives.setdefault(pod.gang, {})[uid] = life
        if life.runs is None and pod.phase in HOLDING:
            life.runs = begun.at
    there = {uid for uid, pod in snapshot.pods.items() if pod.phase not in OVER}
    for name, life in known.items():
        if life.over is None and name not in there:
            life.over = begun.at


def _member(pod: str, task: str, index: int) -> str:
    """The pod's place in its gang; itself where it has no place of its own."""
    return f"{task}/{index}" if task and index >= 0 else pod


def _seen(gang: Gang) -> GangSeen:
    return GangSeen(gang.key, gang.queue, gang.share_class, gang.min_member, gang.single, gang.traits.owner)
