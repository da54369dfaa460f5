"""The decision, step by step. Start here.

``decide`` looks at one snapshot and says what is to be done; it never does it, and it reads no clock.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from vc_egpu.core import choice
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Instant, QueueName, Snapshot
from vc_egpu.core.model.findings import Behind
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.moving import emptying, seek, underway
from vc_egpu.core.queues import order
from vc_egpu.core.room import lines
from vc_egpu.core.standing import (
    drains,
    guaranteed,
    lending,
    plans_in_force,
    replacements,
    reservations,
    resize,
    suspend,
)
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import ready, say

_HELD_UP: Final = frozenset(
    {
        Reason.WAITING_FOR_QUOTA,
        Reason.WAITING_FOR_CARDS,
        Reason.WAITING_FOR_MODEL,
        Reason.WAITING_FOR_ENVIRONMENT,
        Reason.WAITING_FOR_TURN,
    }
)
"""What a gang waits for that holds up those behind it, in a queue that serves in order."""


def decide(snapshot: Snapshot, policy: Policy, now: Instant, only: Collection[str] | None = None) -> Plan:
    """Decide, for every waiting gang, to admit it, to make room for it, or why it waits.

    Deterministic: equal arguments give equal plans. No gang is admitted in part. A low-priority pod is
    suspended or evicted only for a high-priority gang all of which fits once it is gone. Suspended gangs come
    back after the high-priority gangs had their turn, and before all others.

    ``only`` names the gangs to try; plans in force are looked at in any case. Gangs not named get no
    verdict, except for those of a queue that serves its gangs in order.
    """
    trial, record = Trial(index_of(snapshot), policy, now), Recorder(snapshot.revision)
    plans_in_force.review(trial, record, snapshot)  # a. claims: what is booked for gangs that are not there
    underway.book(trial)
    guaranteed.book(trial)
    reservations.book(trial)
    underway.review(trial, record)
    plans_in_force.withdraw_needless(trial, record)
    drains.begin(trial, record)  # b. nodes that operators drain
    suspend.begin(trial, record)  # c. pauses that users wish, gangs that cannot come back
    for view in _turns(trial, record, only):  # 1. order
        with lending.aside(trial, view), replacements.released(trial, view) as own:
            attempt = choice.begin(trial, record, view, own)
            attempt.check_caps()  # 2. caps
            attempt.place()  # 3. place
            is_short = attempt.is_allowed and not attempt.is_seated and bool(trial.index.emptied)
            opened = emptying.opens_for(trial, record, choice.made(trial, view)) if is_short else ()
            if not opened:
                attempt.make_room()  # 4. make room
            attempt.hold()  # 5. hold
            attempt.say()  # 6. record: one verdict for every gang
            if opened:
                emptying.tell(record, view, opened)
    resize.judge(trial, record)
    underway.close(trial, record)
    reservations.review(trial, record, complete=only is None)
    emptying.review(trial, record, complete=only is None)
    seek.seek(trial, record, complete=only is None)
    trial.close()
    return record.plan()


def _turns(trial: Trial, record: Recorder, only: Collection[str] | None) -> Iterator[GangView]:
    """The gangs to try, one after the other. Suspended gangs come back in a turn of their own."""
    heads: dict[QueueName, str] = {}
    for turn in order.turns(_waiting(trial, record, only), *_queues(trial)):
        if isinstance(turn, order.Resumes):
            with lending.away(trial):
                suspend.resume(trial, record)
            continue
        view = turn.without(trial.leaving)  # this decision may have added to them
        queue, key = view.gang.queue, view.gang.key
        verdict = record.known(trial, view) or ready.check(trial, view)
        is_tried = verdict is None or verdict.reason in _HELD_UP
        if is_tried and queue in heads:
            verdict = say.verdict(Behind(queue, heads[queue]))
        if verdict is not None:
            record.waits(view, verdict)
        else:
            yield view
        if is_tried and view.missing and record.reason(key) in _HELD_UP and _is_fifo(trial, queue):
            heads.setdefault(queue, key)


def _waiting(trial: Trial, record: Recorder, only: Collection[str] | None) -> Iterable[GangView]:
    index = trial.index
    for key in index.gangs if only is None else _with_those_before(trial, only):
        if key in index.settled or key not in index.gangs or record.decided(key):
            continue
        view = index.view(key)
        if ready.waits(view):
            yield view
        else:
            index.settled.add(key)


def _is_fifo(trial: Trial, queue: QueueName) -> bool:
    entry = trial.queues.get(queue)
    return entry is not None and entry.fifo


def _with_those_before(trial: Trial, only: Collection[str]) -> Iterable[str]:
    """Those gangs, and all others of their queues that serve in order: one that is not asked about may be
    the head."""
    gangs, found = trial.index.gangs, dict.fromkeys(only)
    for queue in {gangs[key].queue for key in only if key in gangs}:
        if _is_fifo(trial, queue):
            found.update(trial.index.gangs_in.get(queue, {}))
    return found


def _queues(trial: Trial) -> tuple[order.PriorityOf, order.ShareOf]:
    def priority(name: QueueName) -> int:
        queue = trial.queues.get(name)
        return queue.priority if queue is not None else 0

    def share(name: QueueName) -> float:
        return lines.share(trial, name)

    return priority, share
