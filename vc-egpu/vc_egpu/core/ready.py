"""Whether a gang can be decided at all: complete, not held back by others, its queue open.

Also which members a decision is about: those that the minimum still needs (``core``), all at once, and
the surplus above it, one by one.
"""

from collections.abc import Iterable

from vc_egpu.core import say
from vc_egpu.core.cluster import Gang
from vc_egpu.core.gangs import GangView, Member, task_counts
from vc_egpu.core.reasons import Reason, Verdict
from vc_egpu.core.trial import Trial


def waits(view: GangView) -> bool:
    """Whether a verdict is due: somebody waits, or the gang has not even come together."""
    if view.waiting or view.foreign_gated or view.planned:
        return True
    finished = view.failed or view.succeeded
    return view.missing > 0 and not finished


def check(trial: Trial, view: GangView) -> Verdict | None:
    """Why the gang is not decided now, whatever room there is; None if it is."""
    gang = view.gang
    queue = trial.queues.get(gang.queue)
    if queue is None:
        return Verdict(Reason.QUEUE_CLOSED, f"there is no queue {gang.queue}", {"queue": str(gang.queue)})
    size = view.present + len(view.waiting)
    if max(size, gang.min_member) > trial.policy.max_gang_members:
        most = trial.policy.max_gang_members
        text = f"has {max(size, gang.min_member)} members; a gang may have {most} at most"
        return Verdict(Reason.EXCEEDS_CAP, text, {"members": size, "limit": most})
    # A closed queue lets running gangs heal, and nothing new begin.
    if not queue.open and not (view.runs and view.missing):
        return Verdict(Reason.QUEUE_CLOSED, f"the queue {gang.queue} is closed", {"queue": str(gang.queue)})
    short = _short(view)
    if short is not None:
        return say.foreign_gate(view) if view.foreign_gated else short
    if not view.waiting:
        return say.foreign_gate(view)
    if gang.not_before > trial.now:
        seconds = int(gang.not_before - trial.now) + 1
        text = f"was rolled back and is tried again in {seconds} s"
        return Verdict(Reason.WAITING_FOR_CARDS, text, {"seconds": seconds})
    return None


def _short(view: GangView) -> Verdict | None:
    gang = view.gang
    have = view.present + len(view.waiting)
    counts = task_counts([*_present_tasks(view), *(member.task for member in view.waiting)])
    tasks = [
        (task, counts.get(task, 0), wanted)
        for task, wanted in sorted(task_minimums(gang).items())
        if counts.get(task, 0) < wanted
    ]
    if have >= gang.min_member and not tasks:
        return None
    return say.short_of_members(gang, have, tasks)


def task_minimums(gang: Gang) -> dict[str, int]:
    """Each task's minimum; none where their sum exceeds the gang's own, as in Volcano."""
    minimums = {task: count for task, count in gang.min_task_member.items() if count > 0}
    return minimums if sum(minimums.values()) <= gang.min_member else {}


def _present_tasks(view: GangView) -> Iterable[str]:
    for pod in (*view.placed, *view.succeeded):
        yield pod.task
    for entry in view.planned:
        yield entry.key.rpartition("/")[0]


def core(view: GangView, *, easiest_first: bool = False) -> tuple[Member, ...]:
    """The members that have to find a place all at once; empty where all further ones are surplus.

    First what each task's minimum lacks, then others, in the order of tasks and indexes, or the smallest
    asks first.
    """
    wanted = dict(task_minimums(view.gang))
    for task in _present_tasks(view):
        if task in wanted:
            wanted[task] -= 1
    candidates = list(view.waiting)
    if easiest_first:
        candidates.sort(key=_size)
    chosen: list[Member] = []
    rest: list[Member] = []
    for member in candidates:
        if wanted.get(member.task, 0) > 0:
            wanted[member.task] -= 1
            chosen.append(member)
        else:
            rest.append(member)
    return (*chosen, *rest[: max(0, view.missing - len(chosen))])


def _size(member: Member) -> tuple[int, ...]:
    shape = member.shape
    return (
        sum(ask.cards for ask in shape.asks),
        sum(ask.cards * ask.memory_mib for ask in shape.asks),
        sum(ask.cards * ask.cores_percent for ask in shape.asks),
        shape.requests.cpu_milli,
    )
