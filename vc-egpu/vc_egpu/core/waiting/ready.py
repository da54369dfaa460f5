"""Whether a gang can be decided at all: complete, not held back by others, its queue open.

Also which members a decision is about: those that the minimum still needs (:func:`cores`), all at once. The
surplus above the minimum goes one by one.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from vc_egpu.core.model.cluster import QueueName
from vc_egpu.core.model.findings import (
    BackOff,
    Closed,
    ForeignGate,
    Leaving,
    MissingMembers,
    NoQueue,
    Suspended,
    TooLarge,
)
from vc_egpu.core.model.gangs import GangView, Member, short_of
from vc_egpu.core.model.policy import CLOCK_SKEW_S, MAX_BACK_OFF_S
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import say


def waits(view: GangView) -> bool:
    """Whether a verdict is due: a member waits, or the gang is not complete yet."""
    if view.waiting or view.foreign_gated or view.planned:
        return True
    finished = view.failed or view.succeeded
    return view.missing > 0 and not finished


def check(trial: Trial, view: GangView) -> Verdict | None:
    """Why the gang is not decided now, whatever room there is; None if it is."""
    known = _queue(trial, view) or _size_limit(trial, view) or _complete(trial, view)
    found = known or _back_off(trial, view) or _suspended(view)
    return say.verdict(found) if found is not None else None


def _queue(trial: Trial, view: GangView) -> NoQueue | Closed | None:
    name = view.gang.queue
    if trial.queues.get(name) is None:
        return NoQueue(name)
    # A closed queue lets running gangs heal, and nothing new begin.
    shut = which_closed(trial, name)
    return None if shut is None or (view.runs and view.missing) else Closed(name, shut)


def closed(trial: Trial, view: GangView) -> bool:
    """Whether the gang's queue takes nothing new."""
    return which_closed(trial, view.gang.queue) is not None


def which_closed(trial: Trial, queue: QueueName) -> QueueName | None:
    """The queue that is closed: this one (or it is not there), else the nearest above it.

    Volcano closes what is below a queue with it. Without Volcano the queues below keep their own state.
    """
    if queue not in trial.queues:
        return queue
    known = ((name, trial.queues.get(name)) for name in trial.index.uses.chain(queue))
    return next((name for name, found in known if found is not None and not found.open), None)


def _size_limit(trial: Trial, view: GangView) -> TooLarge | None:
    size = max(view.present + len(view.waiting), view.gang.min_member)
    most = trial.policy.max_gang_members
    return TooLarge(size, most) if size > most else None


def _complete(trial: Trial, view: GangView) -> ForeignGate | MissingMembers | None:
    short = _short(trial, view)
    if view.foreign_gated and (short is not None or not view.waiting):
        gates = {gate for pod in view.foreign_gated for gate in pod.other_gates}
        return ForeignGate(len(view.foreign_gated), tuple(sorted(gates)))
    return short


def _back_off(trial: Trial, view: GangView) -> BackOff | None:
    left_s = view.gang.not_before - trial.now
    # Longer than any back-off: a clock was set back, here or on the leader that rolled the gang back.
    if left_s <= 0 or left_s > MAX_BACK_OFF_S + CLOCK_SKEW_S:
        return None
    return BackOff(math.ceil(left_s))


def _suspended(view: GangView) -> Suspended | None:
    """What is above the minimum waits for those that are suspended; what the minimum lacks does not."""
    if view.missing or not view.waiting:
        return None
    away = sum(pod.suspend_ordered for pod in view.placed)
    return Suspended(away, len(view.placed)) if away else None


def _short(trial: Trial, view: GangView) -> MissingMembers | None:
    short = short_of(view.gang, [*view.present_tasks(), *(member.task for member in view.waiting)])
    return MissingMembers(*short, _leaving(trial, view)) if short is not None else None


def _leaving(trial: Trial, view: GangView) -> Leaving | None:
    """Members that are still on their way off their nodes; None where none is."""
    nodes = tuple(sorted({pod.node for pod in view.terminating if pod.node is not None}))
    if not nodes:
        return None
    silent = (name for name in nodes if (node := trial.index.nodes.get(name)) and node.is_silent)
    return Leaving(len(view.terminating), nodes, tuple(silent))


def cores(view: GangView) -> Iterator[tuple[Member, ...]]:
    """Sets of members that have to find a place all at once; the empty one where all further are surplus.

    The first set goes by the order of tasks and indexes. Other sets follow where the gang has more members
    than it needs, and of several kinds. Any of them makes the gang whole; the smallest asks come first.
    Sets that differ only in which of equal members they hold are given once.
    """
    kinds: dict[tuple[str, int], list[Member]] = {}
    for member in view.waiting:
        kinds.setdefault((member.task, member.shape_id), []).append(member)
    lacking, size = view.lacking, view.missing
    first = _first(view.waiting, lacking, size)
    yield first
    if size == len(view.waiting) or len(kinds) == 1 or not size:
        return
    given = tuple(sorted(member.key for member in first))
    by_size = sorted(kinds.values(), key=lambda members: _extent(members[0]))
    for chosen in _choices(by_size, size, lacking):
        if tuple(sorted(member.key for member in chosen)) != given:
            yield chosen


def _first(waiting: tuple[Member, ...], lacking: dict[str, int], size: int) -> tuple[Member, ...]:
    """First what each task's minimum lacks, then others, in order."""
    wanted = dict(lacking)
    chosen: list[Member] = []
    rest: list[Member] = []
    for member in waiting:
        if wanted.get(member.task, 0) > 0:
            wanted[member.task] -= 1
            chosen.append(member)
        else:
            rest.append(member)
    return (*chosen, *rest[: max(0, size - len(chosen))])


def _choices(
    kinds: list[list[Member]], size: int, lacking: Mapping[str, int]
) -> Iterator[tuple[Member, ...]]:
    """Every way to take ``size`` members of these kinds that gives each task what it lacks.

    Ways with many members of the first kinds come first.

    A step leads from one way to the next, whatever lies between: a user may have any number of kinds.
    """
    counts, least = _counts(kinds, size, lacking, [])
    while True:
        yield tuple(chain.from_iterable(kind[:count] for kind, count in zip(kinds, counts, strict=True)))
        at = next((at for at in reversed(range(len(counts))) if counts[at] > least[at]), None)
        if at is None:
            return
        counts, least = _counts(kinds, size, lacking, [*counts[:at], counts[at] - 1])


def _counts(
    kinds: list[list[Member]], size: int, lacking: Mapping[str, int], chosen: list[int]
) -> tuple[list[int], list[int]]:
    """How many of each kind, with those ``chosen`` for the first ones; and the fewest that each could have.

    The fewest of a kind: with the kinds before it as they are. The members are enough for ``size`` and for
    what each task lacks.
    """
    lacks = dict(lacking)
    later = Counter[str]()
    for kind in kinds:
        later[kind[0].task] += len(kind)
    left, after, owed = size, later.total(), sum(lacks.values())
    counts: list[int] = []
    least: list[int] = []
    for at, kind in enumerate(kinds):
        task = kind[0].task
        own = lacks.get(task, 0)
        later[task] -= len(kind)
        after -= len(kind)
        least.append(max(0, left - after, own - later[task]))
        count = chosen[at] if at < len(chosen) else min(len(kind), left - (owed - own))
        counts.append(count)
        left -= count
        owed -= min(own, count)
        lacks[task] = max(0, own - count)
    return counts, least


def _extent(member: Member) -> tuple[int, ...]:
    shape = member.shape
    return (
        sum(ask.cards for ask in shape.asks),
        sum(ask.cards * ask.memory_mib for ask in shape.asks),
        sum(ask.cards * ask.cores_percent for ask in shape.asks),
        shape.requests.cpu_milli,
    )
