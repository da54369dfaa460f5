"""The candidates: which gangs may be suspended or evicted to make room.

The cause says which gangs it may take (:mod:`.causes`), in each round of the search (:mod:`.hunt`). They go
as a whole, or by members above their minimum. Gangs that a PodDisruptionBudget protects are spared. So are
gangs whose queue would fall below its guarantee. A gang is suspended only if each of its members can be, and
the hosts have memory for it. Bare pods may be suspended and are never evicted: no controller makes them
again.
"""

import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.core.books.capacity import places_up_to
from vc_egpu.core.books.ledger import Ints, Ledger
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import NodeName, Pod, PodUid, QueueName, SuspensionState
from vc_egpu.core.model.gangs import HOLDING, GangView, shares_of, task_counts, task_minimums
from vc_egpu.core.model.plan import Eviction, Suspension
from vc_egpu.core.placing.place import Group
from vc_egpu.core.room.causes import taking
from vc_egpu.core.room.departures import Departures, Totals, add_use, departures, moment
from vc_egpu.core.room.hunt import Hunt, gangs
from vc_egpu.core.room.lateness import Lateness, lateness
from vc_egpu.core.room.reclaim import Excess
from vc_egpu.core.room.relief import Quota, quota_by_queue
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.silent_nodes import is_on_a_silent_node
from vc_egpu.core.trial.trial import Trial

_LATE_S: Final = 30.0
"""A pod that is still there so long after its grace period may be held by a finalizer without end."""
_SOON_S: Final = 3600.0
"""The longest wait for a pod that its owner deleted: a delete may name any grace period."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gang that may go."""

    view: GangView
    pods: tuple[Pod, ...]
    """All that would go with the whole gang."""
    surplus: tuple[Pod, ...]
    """Members that may go singly, all of them together at most; the most useful ones."""
    cards: int
    """Cost of the whole gang."""
    evictable: bool = True
    """Otherwise it may be suspended, and no more."""
    lateness: Lateness = Lateness.USUAL
    """It is tried only if those of earlier stages are not enough."""

    @property
    def key(self) -> str:
        """The gang's key."""
        return self.view.gang.key


def candidates(
    trial: Trial, preemptor: GangView, useful: Collection[NodeName], hunt: Hunt
) -> list[Candidate]:
    """All gangs that may be evicted, cheapest first. ``useful``: nodes the preemptor may go to."""
    known = prey(trial, hunt)
    if len(useful) == len(trial.index.nodes):
        return [candidate for candidate in known.listed if candidate.key != preemptor.gang.key]
    found = []
    for candidate in known.listed:
        if candidate.key != preemptor.gang.key and any(pod.node in useful for pod in candidate.pods):
            parts = goes_in_part(candidate.view, hunt)
            surplus = _surplus(candidate.view, candidate.pods, useful) if parts else ()
            found.append(replace(candidate, surplus=surplus))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Prey:
    """All candidates of one hunt, and what would be booked without them."""

    listed: list[Candidate]
    without: Ledger
    """Lacks also what was booked since: good for an upper bound of the room that there could be."""
    spared: Ledger | None
    """The same without the protected pods too; None where there are none."""
    _answers: dict[tuple[object, ...], bool] = field(default_factory=dict)
    """Whether groups find their places: a gang of several kinds asks again for each of its sets."""
    _quota: dict[QueueName, Mapping[str, int]] = field(default_factory=dict)

    def quota(self, trial: Trial) -> Quota:
        """What all candidates count in queues."""
        if not self._quota:
            uids = (pod.uid for candidate in self.listed for pod in candidate.pods)
            self._quota.update(quota_by_queue(trial, uids))
        return self._quota

    def takes(self, trial: Trial, view: GangView, groups: Iterable[Group]) -> bool:
        """Whether each of the gang's groups by itself would find its places without them."""
        for group in groups:
            one, blocked = group.members[0], view.gang.blocked_nodes
            mark = (one.shape_id, group.need.share_class, group.need.side, blocked, len(group.members))
            known = self._answers.get(mark)
            if known is None:
                trial.effort.placed(1, len(trial.index.nodes))
                known = self._answers[mark] = are_enough(self.without, (group,))
            if not known:
                return False
        return True


def are_enough(ledger: Ledger, groups: Iterable[Group]) -> bool:
    """Whether each group by itself finds its places."""
    return all(
        places_up_to(ledger, group.need, group.mask, len(group.members)) == len(group.members)
        for group in groups
    )


def prey(trial: Trial, hunt: Hunt) -> Prey:
    """All candidates. They are found once per decision, and again after victims were chosen."""
    now = moment(trial)
    then, known = trial.notes.get(hunt, (-1, None))
    if then == now and isinstance(known, Prey):
        return known
    rule = taking(hunt.cause)
    listed = []
    spared: list[Pod] = []
    nodes = trial.index.nodes
    coming = {pod.gang for pod in trial.coming_back()}
    for key in sorted(gangs(trial, hunt)):
        view = trial.index.view(key)
        if view.planned or any(pod.uid in trial.suspending for pod in view.placed):
            continue
        if any(pod.protected for pod in view.placed):
            spared += rule.members(trial, view, hunt)
            continue
        if key in coming:
            continue  # it takes seconds, then suspending it again is enough
        pods = tuple(pod for pod in rule.members(trial, view, hunt) if pod.uid not in trial.leaving)
        bare = any(pod.bare for pod in pods)
        if bare and not all(may_be_suspended(trial, pod) for pod in pods):
            spared += pods
        elif any(pod.node in nodes for pod in pods):
            surplus = _surplus(view, pods, nodes) if goes_in_part(view, hunt) else ()
            late = lateness(trial, view)
            listed.append(Candidate(view, pods, surplus, shares_of(pods), not bare, late))
    listed.sort(key=lambda candidate: (candidate.cards, candidate.key))
    without = trial.ledger.copy()
    uids = [pod.uid for candidate in listed for pod in candidate.pods]
    kinds = (ClaimKind.REPLACEMENT, ClaimKind.RESERVATION, ClaimKind.GUARANTEE, ClaimKind.MOVE)
    claimed = (claim for kind in kinds for claim in trial.claims.of(kind))  # for some gang it is room
    without.remove_all(trial.bookings_of(uids) + [b for claim in claimed for b in claim.bookings.values()])
    protected = _without_too(trial, without, spared) if spared else None
    found = Prey(listed, without, protected)
    trial.notes[hunt] = (now, found)
    return found


def goes_in_part(view: GangView, hunt: Hunt) -> bool:
    """Whether members above the minimum may go without the others."""
    return view.gang.single or not taking(hunt.cause).moves


def _without_too(trial: Trial, without: Ledger, pods: Iterable[Pod]) -> Ledger:
    ledger = without.copy()
    for pod in pods:
        booking = trial.booked(pod.uid)
        if booking is not None and pod.uid not in trial.leaving:
            ledger.remove(booking)
    return ledger


def sleepers(
    trial: Trial, listed: Iterable[Candidate], useful: Container[NodeName | None]
) -> list[Candidate]:
    """The candidates all of whose running members may be suspended. Host memory is not looked at.

    Their pods are those that run; the surplus is what may be suspended while the gang runs on.
    """
    found = []
    for candidate in listed:
        running = tuple(pod for pod in candidate.pods if not pod.suspend_ordered)
        if any(pod.shares for pod in running) and all(may_be_suspended(trial, pod) for pod in running):
            surplus = tuple(pod for pod in _surplus(candidate.view, running, useful) if pod.shares)
            found.append(replace(candidate, pods=running, surplus=surplus, cards=shares_of(running)))
    found.sort(key=lambda candidate: (candidate.cards, candidate.key))
    return found


def may_be_suspended(trial: Trial, pod: Pod) -> bool:
    """Whether an order to leave its cards could be carried out, and taken back.

    Members without cards need no order. A pod cannot come back to a card that its node reports no more, and
    on a silent node no agent reads the order.
    """
    able = pod.suspendable and not pod.suspend_ordered and pod.suspension is SuspensionState.RUNNING
    able = able and not is_on_a_silent_node(pod, trial.index.nodes)
    booking = trial.booked(pod.uid)
    known = booking is not None and len(booking.seats) == len(pod.shares)
    return (able and known) or not pod.shares


def host_needs(trial: Trial, pods: Iterable[Pod]) -> dict[int, int]:
    """By row, MiB of host memory that these pods would take in addition once they are suspended.

    Hosts of which they take nothing more are left out: another host that is over its budget does not matter.
    """
    need: dict[int, int] = {}
    for pod in pods:
        booking = trial.booked(pod.uid)
        more = sum(seat.memory_mib - seat.host_mib for seat in booking.seats) if booking is not None else 0
        if booking is not None and more:
            need[booking.row] = need.get(booking.row, 0) + more
    return need


def _surplus(view: GangView, pods: tuple[Pod, ...], useful: Container[NodeName | None]) -> tuple[Pod, ...]:
    """As many members as the gang runs above its minimum, those on useful nodes first, the youngest first."""
    spare = len(pods) + len(view.succeeded) - view.gang.min_member
    if spare <= 0:
        return ()
    minimums = task_minimums(view.gang)
    left = task_counts([pod.task for pod in (*pods, *view.succeeded)])
    chosen: list[Pod] = []
    for pod in sorted(pods, key=lambda pod: (pod.node not in useful, -(pod.started or 0.0), pod.uid)):
        if len(chosen) == spare or pod.node not in useful:
            break
        if left[pod.task] > minimums.get(pod.task, 0):
            left[pod.task] -= 1
            chosen.append(pod)
    return tuple(chosen)


def may_go(view: GangView, pods: tuple[Pod, ...], going: Collection[PodUid]) -> bool:
    """Whether the gang still has its minimum, overall and per task, without those."""
    stay = [pod for pod in (*pods, *view.succeeded) if pod.uid not in going]
    counts = task_counts(pod.task for pod in stay)
    enough = all(counts.get(task, 0) >= least for task, least in task_minimums(view.gang).items())
    return enough and len(stay) >= view.gang.min_member


class Guarantees:
    """What queues are guaranteed, against what evictions would take from them."""

    def __init__(self, trial: Trial, preemptor: GangView) -> None:
        self._trial = trial
        # Room that moves between two queues below a common ancestor does not leave that ancestor.
        self._shared = frozenset(trial.chain(preemptor.gang.queue))
        self._any = any(queue.guarantee for queue in trial.queues.values())
        # A suspended pod uses nothing of what its queue is guaranteed.
        self._gone = departures(trial) if self._any else Departures({}, {})

    def amounts(self, pods: Iterable[Pod]) -> Totals:
        """What these pods use, by queue; empty where no queue has a guarantee.

        A suspended pod counts as zero, and still names its queue. So a queue that is below its guarantee
        keeps its suspended pods too.
        """
        taken: Totals = {}
        if self._any:
            add_use(self._trial, taken, pods, counted=self._gone.pods)
        return {name: amounts for name, amounts in taken.items() if name not in self._shared}

    def allow(self, taken: Totals) -> bool:
        """Whether no queue would use less than its guarantee of anything of this, once all of it is gone."""
        return all(self._holds(name, amounts) for name, amounts in taken.items())

    def _holds(self, name: QueueName, amounts: Mapping[str, int]) -> bool:
        queue = self._trial.queues.get(name)
        if queue is None:
            return True
        use = self._trial.use_of(name)
        leaving = self._gone.of(name)
        return all(
            use.get(resource, 0) - leaving.get(resource, 0) - amounts[resource] >= guaranteed
            for resource, guaranteed in queue.guarantee.items()
            if resource in amounts
        )


class Allowance:
    """Which victims may go together: asked one by one, each counted with those taken before."""

    def __init__(
        self,
        trial: Trial,
        guarantees: Guarantees,
        host_free: Ints | None = None,
        excess: Excess | None = None,
    ) -> None:
        """``host_free``: by row, where they are to be suspended. ``excess``: where queues take back."""
        self._trial = trial
        self._guarantees = guarantees
        self._excess = excess
        self._free = host_free
        self._taken: Totals = {}
        self._hosts: dict[int, int] = {}

    def suspending(self, host_free: Ints) -> "Allowance":
        """The same allowance, for further victims that are suspended. ``host_free``: host memory by row."""
        self._free = host_free
        return self

    def most_of(self, candidate: Candidate) -> tuple[Pod, ...]:
        """All of the gang, or as much of its surplus as may go as well. They are taken."""
        if self.takes(candidate.pods):
            return candidate.pods
        return tuple(pod for pod in candidate.surplus if self.takes((pod,)))

    def takes(self, pods: Iterable[Pod]) -> bool:
        """Whether these may go as well. If so they are taken."""
        listed = list(pods)
        hosts: dict[int, int] = {}
        if self._free is not None:
            hosts = host_needs(self._trial, listed)
            if any(self._hosts.get(row, 0) + more > self._free[row] for row, more in hosts.items()):
                return False
        taken = self._guarantees.amounts(listed)
        for name, amounts in taken.items():
            for resource, amount in self._taken.get(name, {}).items():
                amounts[resource] = amounts.get(resource, 0) + amount
        if not self._guarantees.allow(taken):
            return False
        if self._excess is not None and not self._excess.takes(listed):
            return False
        self._taken.update(taken)
        for row, more in hosts.items():
            self._hosts[row] = self._hosts.get(row, 0) + more
        return True


def soon_gone(trial: Trial) -> list[PodUid]:
    """Pods that are leaving anyway and will; not those of a dead kubelet, nor those that are long overdue."""
    result = []
    for uid in dict.fromkeys([*trial.index.notable.terminating, *trial.leaving]):
        pod = _on_a_live_node(trial, uid)
        if pod is not None and _is_soon(trial, pod):
            result.append(uid)
    return result


def _is_soon(trial: Trial, pod: Pod) -> bool:
    if pod.gone_by is None:
        return True
    within_s = math.inf if pod.uid in trial.leaving else _SOON_S
    return -_LATE_S <= pod.gone_by - trial.now <= within_s


def soon_asleep(trial: Trial) -> list[PodUid]:
    """Pods that were told to leave their cards and have not yet."""
    ordered = [uid for uid in trial.index.notable.suspended if trial.index.pods[uid].suspend_ordered]
    result = []
    for uid in dict.fromkeys([*ordered, *trial.suspending]):
        pod = _on_a_live_node(trial, uid)
        if pod is not None and pod.shares and not pod.asleep:
            result.append(uid)
    return result


def _on_a_live_node(trial: Trial, uid: PodUid) -> Pod | None:
    pod = trial.index.pods.get(uid)
    node = trial.index.nodes.get(pod.node) if pod is not None and pod.node is not None else None
    return pod if node is not None and node.is_up else None


def grouped(trial: Trial, uids: Iterable[PodUid], cause: Cause) -> tuple[Eviction, ...]:
    """Pods as evictions, one per gang, by key."""
    by_gang: dict[str, set[PodUid]] = {}
    for uid in uids:
        pod = trial.index.pods.get(uid)
        gang = pod.gang if pod is not None and pod.gang is not None else "a gang that is gone"
        by_gang.setdefault(gang, set()).add(uid)
    result = []
    for key, pods in sorted(by_gang.items()):
        there = trial.index.view(key) if key in trial.index.gangs else None
        placed = {pod.uid for pod in there.placed} if there is not None else set()
        result.append(Eviction(key, frozenset(pods), whole=placed <= pods, cause=cause))
    return tuple(result)


def suspended(trial: Trial, uids: Iterable[PodUid], cause: Cause) -> tuple[Suspension, ...]:
    """Pods as suspensions, one per gang, by key."""
    return tuple(Suspension(entry.gang, entry.pods, cause) for entry in grouped(trial, uids, cause))


def cards_held(trial: Trial, going: Iterable[Eviction | Suspension]) -> int:
    """Cards held by the pods that have to leave them."""
    uids = [uid for entry in going for uid in sorted(entry.pods)]
    pods = [trial.index.pods[uid] for uid in uids if uid in trial.index.pods]
    return shares_of(pod for pod in pods if pod.phase in HOLDING)
