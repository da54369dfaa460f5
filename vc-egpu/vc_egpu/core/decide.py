"""The decision, step by step. Start here.

``decide`` looks at one snapshot and says what is to be done; it never does it, and it reads no clock.
"""

from collections.abc import Collection, Iterable

from vc_egpu.core.admit import admit
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Instant, QueueName, Snapshot
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.queues import caps, order
from vc_egpu.core.standing import hold, suspend
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import ready


def decide(snapshot: Snapshot, policy: Policy, now: Instant, only: Collection[str] | None = None) -> Plan:
    """Decide, for every waiting gang, to admit it, to make room for it, or why it waits.

    Deterministic: equal arguments give equal plans. No gang is admitted in part. A low-priority pod is
    suspended or evicted only for a high-priority gang all of which fits once it is gone. Suspended gangs come
    back after the high-priority gangs had their turn, and before all others.

    ``only`` names the gangs to try; plans in force are looked at in any case. Gangs not named get no
    verdict.
    """
    trial = Trial(index_of(snapshot), policy, now)
    record = Recorder(snapshot.revision)
    hold.find_kept(trial, snapshot)  # cards of failed members wait for the replacements
    hold.review(trial, record)  # plans in force: kept, turned ready, or withdrawn
    hold.book_kept(trial)
    suspend.begin(trial, record)  # users' wishes, and gangs that could not be brought back
    resumed = False
    for known in order.turns(_waiting(trial, record, only), *_queues(trial)):  # 1. who asks first
        if not resumed and not order.goes_before_resumes(known):
            suspend.resume(trial, record)
            resumed = True
        view = known.without(trial.leaving)  # this decision may have added to them
        verdict = record.known(trial, view) or ready.check(trial, view)
        if verdict is not None:
            record.waits(view, verdict)
            continue
        trial.effort.begin_turn()
        with hold.released(trial, view) as kept:
            outcome = admit(trial, record, view)  # 2. to 5.: caps, place, make room, hold
            kept.replaced_by(outcome)
    if not resumed:
        suspend.resume(trial, record)
    trial.close()
    return record.plan()  # 6. one verdict for every gang


def _waiting(trial: Trial, record: Recorder, only: Collection[str] | None) -> Iterable[GangView]:
    index = trial.index
    for key in index.gangs if only is None else only:
        if key in index.gangs and not record.decided(key):
            view = index.view(key)
            if ready.waits(view):
                yield view


def _queues(trial: Trial) -> tuple[order.PriorityOf, order.ShareOf]:
    def priority(name: QueueName) -> int:
        queue = trial.queues.get(name)
        return queue.priority if queue is not None else 0

    def share(name: QueueName) -> float:
        return caps.share(trial.queues.get(name), trial.use_of(name))

    return priority, share
