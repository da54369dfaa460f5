"""The order of turns: replacements, then priority, then the queue furthest below what it deserves, then age.

Suspended gangs have one turn together: after the high-priority gangs and before all others.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator

from vc_egpu.core.model.cluster import Gang, QueueName, ShareClass
from vc_egpu.core.model.gangs import GangView

ShareOf = Callable[[QueueName], float]
PriorityOf = Callable[[QueueName], int]
Rank = tuple[int, int, int, int]


class Resumes:
    """The turn in which suspended gangs come back."""


def turns(
    views: Iterable[GangView], queue_priority: PriorityOf, share_of: ShareOf
) -> Iterator[GangView | Resumes]:
    """Yield the gangs in the order in which they are tried, and among them once the suspended ones.

    Within equal priority the queues take turns by their share. It is read again after every gang, so that one
    queue's backlog does not take all that has become free.
    """
    ranks: dict[Rank, dict[QueueName, list[GangView]]] = {}
    for view in views:
        gang = view.gang
        rank = _rank(view, queue_priority(gang.queue))
        ranks.setdefault(rank, {}).setdefault(gang.queue, []).append(view)
    ordered = sorted(ranks)
    first = sum(_goes_before_resumes(rank) for rank in ordered)
    for rank in ordered[:first]:
        yield from _by_share(ranks[rank], share_of)
    yield Resumes()
    for rank in ordered[first:]:
        yield from _by_share(ranks[rank], share_of)


def _rank(view: GangView, queue_priority: int) -> Rank:
    gang = view.gang
    return (0 if _replaces(view) else 1, -int(gang.share_class), -gang.priority_value, -queue_priority)


def _goes_before_resumes(rank: Rank) -> bool:
    replaces, share_class, *_ = rank
    return replaces == 0 or share_class == -ShareClass.HIGH


def _replaces(view: GangView) -> bool:
    return view.runs and view.missing > 0


def _by_share(queues: dict[QueueName, list[GangView]], share_of: ShareOf) -> Iterator[GangView]:
    for backlog in queues.values():
        backlog.sort(key=lambda view: age(view.gang), reverse=True)
    if len(queues) == 1:
        (backlog,) = queues.values()
        yield from reversed(backlog)
        return
    heap = [(share_of(queue), age(backlog[-1].gang), queue) for queue, backlog in queues.items()]
    heapq.heapify(heap)
    while heap:
        _, _, queue = heapq.heappop(heap)
        backlog = queues[queue]
        yield backlog.pop()
        if backlog:
            heapq.heappush(heap, (share_of(queue), age(backlog[-1].gang), queue))


def age(gang: Gang) -> tuple[float, str]:
    """Older first; the key settles ties, so that equal clusters give equal orders."""
    return (gang.created, gang.key)
