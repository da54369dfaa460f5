"""Suspended gangs: pauses that users wish, the way back to the cards, and gangs that cannot come back.

A suspended gang keeps its plan, its cards and its place in its queue. What it held on the cards is free for
others until it is told to come back, whole, on the same cards. High-priority gangs are served before that and
all others after it, so that no newcomer takes the cards of a gang that could run on.
"""

from collections.abc import Iterable, Iterator

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import CardId, Pod, PodUid, ShareClass, SuspensionState
from vc_egpu.core.model.plan import Eviction, Resume, Suspension
from vc_egpu.core.model.resources import add_to
from vc_egpu.core.queues import caps
from vc_egpu.core.room.victims import host_needs, may_be_suspended, may_go
from vc_egpu.core.standing import standby
from vc_egpu.core.trial import recheck
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial


def begin(trial: Trial, record: Recorder) -> None:
    """Before any gang is placed: evict gangs that cannot come back, suspend those that users want paused."""
    for key in _gangs(trial):
        placed = [pod for pod in _placed(trial, key) if pod.uid not in trial.leaving]
        paused = any(pod.pause_wished for pod in placed)
        lost = [pod for pod in placed if _is_lost(pod, paused=paused)]
        if lost:
            whole = not trial.index.gangs[key].single
            going = placed if whole else lost
            if any(pod.bare for pod in going):
                continue  # no controller makes it again: users are told, and it is left alone
            trial.leaving.update(dict.fromkeys(pod.uid for pod in going))
            uids, all_of_it = frozenset(pod.uid for pod in going), len(going) == len(placed)
            record.evicts(Eviction(key, uids, whole=all_of_it, cause=_why_lost(lost)))
        elif paused:
            _wish(trial, record, key, placed)


def _is_lost(pod: Pod, *, paused: bool) -> bool:
    """Whether it cannot come back. A paused pod waits on for its cards: a new one would start to run."""
    return pod.suspension is SuspensionState.FAILED or (pod.stranded and not paused)


def _why_lost(lost: Iterable[Pod]) -> Cause:
    """An agent that could not bring a pod back says so; otherwise its cards are gone."""
    failed = any(pod.suspension is SuspensionState.FAILED for pod in lost)
    return Cause.ROLLBACK if failed else Cause.NODE


def _wish(trial: Trial, record: Recorder, key: str, placed: list[Pod]) -> None:
    asked = [pod for pod in placed if pod.shares and not pod.suspend_ordered]
    if not asked or any(trial.index.class_of(pod) is not ShareClass.LOW for pod in asked):
        return
    if any(pod.uid in trial.suspending for pod in asked) or not all(
        may_be_suspended(trial, pod) for pod in asked
    ):
        return
    free = trial.ledger.host_cap - trial.ledger.host_used
    if any(more > free[row] for row, more in host_needs(trial, asked).items()):
        return
    uids = frozenset(pod.uid for pod in asked)
    trial.told_to_leave(sorted(uids))
    record.suspends(Suspension(key, uids, Cause.WISH))


def resume(trial: Trial, record: Recorder) -> None:
    """Tell gangs to come back whose cards are free again; the one suspended first comes first.

    A gang comes back as a whole. Replicas above its minimum come back singly, so that one whose card is taken
    keeps no other away.
    Those that cannot and have waited long claim room from now on (:mod:`.standby`). A gang cannot while any
    of it is told to leave its cards, and is not overtaken for that reason.
    """
    claimed: set[CardId] = set()
    still: list[tuple[str, list[Pod]]] = []
    for _, key, away, going in sorted(_away(trial), key=lambda entry: entry[:2]):
        cards = {share.card for pod in away for _, share in pod.shares}
        # A gang that waits longer is not overtaken on its own cards.
        if not _within_caps(trial, key, away):
            continue  # it waits for quota, and keeps no cards from others meanwhile
        if not (going or cards & claimed) and _comes_back(trial, away):
            trial.charge(trial.index.gangs[key].queue, _off_quota(trial, away))
            record.resumes(Resume(key, frozenset(pod.uid for pod in away)))
        else:
            claimed |= cards
            still.append((key, away))
    standby.claim(trial, still)


def _away(trial: Trial) -> Iterator[tuple[tuple[int, int], str, list[Pod], bool]]:
    """What comes back together: number of its order, gang, suspended pods; whether any of it is to go now."""
    for key in _gangs(trial):
        placed = _placed(trial, key)
        if any(pod.pause_wished for pod in placed):
            continue
        for part in ((pod,) for pod in placed) if _is_surplus(trial, key) else (placed,):
            away = [pod for pod in part if pod.suspend_ordered and pod.uid not in trial.leaving]
            if away:
                going = any(pod.uid in trial.suspending or pod.uid in trial.leaving for pod in part)
                yield min(pod.suspend_order for pod in away), key, away, going


def _is_surplus(trial: Trial, key: str) -> bool:
    """Whether those of its members that are suspended go and come each by itself."""
    view = trial.index.view(key)
    if view.gang.is_of_replicas:
        return True
    away = {pod.uid for pod in view.placed if pod.suspend_ordered}
    return view.gang.single and may_go(view, view.placed, away)


def _off_quota(trial: Trial, away: Iterable[Pod]) -> dict[str, int]:
    """What those of the pods ask for that count in no queue while they are away."""
    total: dict[str, int] = {}
    for pod in away:
        if pod.off_quota:
            low = trial.index.class_of(pod) is ShareClass.LOW
            shape_id = trial.index.shape_ids[pod.uid]
            for resource, amount in trial.index.amounts_of(shape_id, pod.shape, low=low).items():
                add_to(total, resource, amount)
    return total


def _within_caps(trial: Trial, key: str, away: Iterable[Pod]) -> bool:
    """Whether the caps allow those that count in no queue now."""
    ask, unlimited = _off_quota(trial, away), trial.policy.unnamed_model_unlimited
    queue = trial.index.gangs[key].queue
    return caps.check(trial, queue, ask, unnamed_unlimited=unlimited) is None


def _comes_back(trial: Trial, away: Iterable[Pod]) -> bool:
    """Book the pods on their cards again, all of them, or none where that does not fit."""
    done: list[tuple[PodUid, Booking, Booking]] = []
    fits = True
    for pod in away:
        asleep, booking = trial.booked(pod.uid), trial.awake(pod)
        if asleep is None or booking is None or len(booking.seats) != len(pod.shares):
            fits = False
            break
        awake = booking.leaving()
        trial.rebook(pod.uid, awake)
        done.append((pod.uid, asleep, awake))
        if not recheck.cards_hold(trial, awake):  # nor would they with more of them
            fits = False
            break
    if fits and all(recheck.cards_hold(trial, awake) for _, _, awake in done):
        return True
    for uid, asleep, _ in done:
        trial.rebook(uid, asleep)
    return False


def _gangs(trial: Trial) -> list[str]:
    pods = trial.index.pods
    keys = {pods[uid].gang for uid in trial.index.notable.suspended}
    return sorted(key for key in keys if key is not None and key in trial.index.gangs)


def _placed(trial: Trial, key: str) -> tuple[Pod, ...]:
    return trial.index.view(key).placed
