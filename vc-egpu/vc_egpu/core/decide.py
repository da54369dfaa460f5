"""The decision, step by step. Start here.

``decide`` looks at one snapshot and says what is to be done; it never does it, and it reads no clock.
"""

from collections.abc import Collection, Iterable, Iterator

from vc_egpu.core import admit
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Instant, QueueName, Snapshot
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.queues import caps, order
from vc_egpu.core.standing import guaranteed, lending, plans_in_force, replacements, reservations, suspend
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
    trial, record = Trial(index_of(snapshot), policy, now), Recorder(snapshot.revision)
    plans_in_force.review(trial, record, snapshot)  # a. claims: what is booked for gangs that are not there
    guaranteed.book(trial)
    reservations.book(trial)
    suspend.begin(trial, record)  # b. pauses that users wish, gangs that cannot come back
    for view in _turns(trial, record, only):  # 1. order
        with lending.aside(trial, view), replacements.released(trial, view) as own:
            attempt = admit.begin(trial, record, view, own)
            attempt.check_caps()  # 2. caps
            attempt.place()  # 3. place
            attempt.make_room()  # 4. make room
            attempt.hold()  # 5. hold
            attempt.say()  # 6. record: one verdict for every gang
    reservations.review(trial, record, complete=only is None)
    trial.close()
    return record.plan()


def _turns(trial: Trial, record: Recorder, only: Collection[str] | None) -> Iterator[GangView]:
    """The gangs to try, one after the other. Suspended gangs come back in a turn of their own."""
    for turn in order.turns(_waiting(trial, record, only), *_queues(trial)):
        if isinstance(turn, order.Resumes):
            with lending.away(trial):
                suspend.resume(trial, record)
            continue
        view = turn.without(trial.leaving)  # this decision may have added to them
        verdict = record.known(trial, view) or ready.check(trial, view)
        if verdict is not None:
            record.waits(view, verdict)
        else:
            yield view


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
