"""Quota that is free once some pods are gone: room in the caps of queues, and not only on cards."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from vc_egpu.core.model.cluster import PodUid, Queue, QueueName
from vc_egpu.core.model.resources import add_to
from vc_egpu.core.queues import caps
from vc_egpu.core.trial.trial import Trial

Quota = Mapping[QueueName, Mapping[str, int]]
"""By queue, what counts there."""


class Relief:
    """For members of one gang whose caps are full: whether they would be allowed without others.

    A :class:`.caps.QueueTree` that uses less than the trial does.
    """

    def __init__(self, trial: Trial, queue: QueueName, ask: Mapping[str, int]) -> None:
        self._trial = trial
        self._queue = queue
        self._ask = ask
        self._less: dict[QueueName, dict[str, int]] = {}
        self._gone: dict[PodUid, int] = {}
        """How often each pod was taken to be gone: suspended first, and then evicted all the same."""

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        """All queues by name."""
        return self._trial.queues

    def chain(self, queue: QueueName) -> Iterator[QueueName]:
        """The queue and its ancestors."""
        return self._trial.chain(queue)

    def use_of(self, queue: QueueName) -> Mapping[str, int]:
        """What is used without the pods that are taken to be gone."""
        use, less = self._trial.use_of(queue), self._less.get(queue)
        if not less:
            return use
        return {resource: amount - less.get(resource, 0) for resource, amount in use.items()}

    def without(self, pods: Iterable[PodUid]) -> Callable[[], None]:
        """Have these pods gone from their queues; call the answer to undo it."""
        gone = list(pods)
        self._add(gone, 1)
        return lambda: self._add(gone, -1)

    def _add(self, pods: Iterable[PodUid], sign: int) -> None:
        changed = []
        for uid in pods:
            before = self._gone.get(uid, 0)
            self._gone[uid] = before + sign
            if min(before, before + sign) <= 0:
                changed.append(uid)
        _count(self._trial, self._less, changed, sign)

    def is_enough_without(self, quota: Quota) -> bool:
        """Whether the caps allow the members once so much less is used.

        ``quota``: by :func:`quota_by_queue`, of pods that are not taken to be gone already.
        """
        before, self._less = self._less, {name: dict(less) for name, less in self._less.items()}
        for name, amounts in quota.items():
            less = self._less.setdefault(name, {})
            for resource, amount in amounts.items():
                add_to(less, resource, amount)
        try:
            return self.is_enough()
        finally:
            self._less = before

    def is_enough(self) -> bool:
        """Whether the caps allow the members now."""
        unlimited = self._trial.policy.unnamed_model_unlimited
        return caps.check(self, self._queue, self._ask, unnamed_unlimited=unlimited) is None


def quota_by_queue(trial: Trial, pods: Iterable[PodUid]) -> Quota:
    """What these pods count in their queues and in those above, by queue."""
    found: dict[QueueName, dict[str, int]] = {}
    _count(trial, found, pods, 1)
    return found


def _count(trial: Trial, totals: dict[QueueName, dict[str, int]], pods: Iterable[PodUid], sign: int) -> None:
    """Add what these pods count. Most have few shapes, and pods of one shape share their amounts."""
    alike: dict[tuple[QueueName, int], tuple[int, Mapping[str, int]]] = {}
    for uid in pods:
        charge = trial.charge_of(uid)
        if charge is not None:
            queue, amounts = charge
            count, _ = alike.get((queue, id(amounts)), (0, amounts))
            alike[queue, id(amounts)] = (count + sign, amounts)
    for (queue, _), (times, amounts) in alike.items():
        for name in trial.chain(queue):
            total = totals.setdefault(name, {})
            for resource, amount in amounts.items():
                add_to(total, resource, times * amount)


def quota_of(trial: Trial, pods: Iterable[PodUid], relieves: QueueName | None) -> list[PodUid]:
    """Those of the pods that count in this queue or below it. Once told to go, they count no more."""
    charges = ((uid, trial.charge_of(uid)) for uid in pods)
    return [uid for uid, charge in charges if charge and any(q == relieves for q in trial.chain(charge[0]))]
