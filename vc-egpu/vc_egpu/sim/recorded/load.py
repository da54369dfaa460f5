"""What a replay plays of a record. Times count from the record's begin."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from vc_egpu.core.model.cluster import Gang, Instant, Pod, PodShape, Snapshot
from vc_egpu.core.model.gangs import Intern
from vc_egpu.report.recorded.rows import GangSeen, RecordError
from vc_egpu.sim.load import Load, Work
from vc_egpu.sim.recorded.lines import Unread, rows_of
from vc_egpu.sim.recorded.lives import Life, Told, told


def load_of(path: Path) -> tuple[Load, str]:
    """The load, and in words what could not be read of it; empty: all could.

    Raises ``OSError``, and :class:`RecordError` where it has no begin.
    """
    unread = Unread()
    found = told(rows_of(path, unread))
    if found is None:
        raise RecordError(f"{path} is no record: no line says how all stood at the begin")
    note = f"{unread.lines} lines were left out, the first: {unread.first}" if unread.lines else ""
    return _load(found), note


def _load(found: Told) -> Load:
    begin, works = found.begin, []
    ends: dict[str, float] = {}
    lifetimes: dict[str, float] = {}
    waits = {pod.gang for pod in begin.pods.values() if pod.node is None}
    for key, lives in found.lives.items():
        gang = found.gangs.get(key)
        if gang is None:
            continue
        if key not in begin.gangs:
            works.append(_work(gang, lives, found.at))
            continue
        runs_s = _runs_s(lives.values(), found.at)
        if runs_s is not None:
            (lifetimes if key in waits else ends)[key] = runs_s
    works.sort(key=lambda work: (work.arrival_s, work.key))
    return Load((), tuple(works), (), _rebased(begin, found.at), ends=ends, lifetimes=lifetimes)


def _work(gang: GangSeen, lives: Mapping[str, Life], begin: Instant) -> Work:
    first: dict[str, Life] = {}
    for life in lives.values():
        first.setdefault(life.member, life)
    intern = Intern()
    tasks: dict[tuple[str, int], tuple[str, int, PodShape]] = {}
    for life in first.values():
        kind = (life.task, intern(life.shape))
        count = tasks[kind][1] if kind in tasks else 0
        tasks[kind] = (life.task, count + 1, life.shape)
    return Work(
        key=gang.gang,
        tasks=_named(tasks.values()),
        gpu_milli=1000 * sum(ask.cards for life in first.values() for ask in life.shape.asks),
        queue=gang.queue,
        share_class=gang.share_class,
        arrival_s=max(0.0, max(life.came for life in first.values()) - begin),
        lifetime_s=_runs_s(lives.values(), begin),
        owner=gang.owner,
        least=gang.least,
        single=gang.single,
    )


def _named(tasks: Collection[tuple[str, int, PodShape]]) -> tuple[tuple[str, int, PodShape], ...]:
    """Tasks of one name and several shapes get names of their own."""
    names = [task for task, _, _ in tasks]
    alone = len(set(names)) == len(names)
    return tuple(
        (task if task and alone else f"{task or 'w'}-{number}", count, shape)
        for number, (task, count, shape) in enumerate(tasks)
    )


def _runs_s(lives: Iterable[Life], begin: Instant) -> float | None:
    """How long the gang ran: from when all had their place, the last time, to its last end.

    None: it never ran, or has not ended. Pods that ran before stood for the same members.
    """
    last: dict[str, Life] = {}
    for life in lives:
        last[life.member] = life
    began = [life.runs for life in last.values() if life.runs is not None]
    over = [life.over for life in last.values() if life.over is not None]
    if len(over) < len(last) or not began:
        return None
    return max(0.0, max(over) - max(*began, begin))


def _rebased(snapshot: Snapshot, at: Instant) -> Snapshot:
    def pod_of(pod: Pod) -> Pod:
        started = pod.started - at if pod.started is not None else None
        finished = pod.finished - at if pod.finished is not None else None
        return replace(pod, created=pod.created - at, started=started, finished=finished)

    def gang_of(gang: Gang) -> Gang:
        victim_at = tuple(moment - at for moment in gang.victim_at)
        not_before = gang.not_before - at if gang.not_before else 0.0
        return replace(gang, created=gang.created - at, victim_at=victim_at, not_before=not_before)

    return replace(
        snapshot,
        pods={uid: pod_of(pod) for uid, pod in snapshot.pods.items()},
        gangs={key: gang_of(gang) for key, gang in snapshot.gangs.items()},
        measured={},
    )
