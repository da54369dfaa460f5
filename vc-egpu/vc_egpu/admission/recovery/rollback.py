"""When a gang that was let go has to come back. Pure; the clock stands still while the API server is away.

Three things count. The scheduler did not bind the gang within 30 s after a gate fell. The kubelet refused a
member. Our agent kept a container from starting for 30 s. Image pulls, volumes and init containers happen
after binding and show none of these, so they never count. Nor does the time in which the scheduler binds
those that were let go before: gates may fall ten times as fast as it binds.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.admission.state import owners
from vc_egpu.core.model.cluster import Gang, NodeName, PodPhase, PodUid
from vc_egpu.core.model.gangs import lacking, short_of, task_counts
from vc_egpu.core.model.reasons import BACK_OFF_NUMBER, Reason, Verdict
from vc_egpu.volcano.codec.pod_codec import DecodedPod

PATIENCE_S: Final = 30.0
STARVED_S: Final = 600.0
"""A running gang that lacks members whose replacements find no room is given up after this long."""


_NO_ROOM: Final = frozenset(
    {
        Reason.WAITING_FOR_CARDS,
        Reason.WAITING_FOR_TURN,
        Reason.WAITING_FOR_MODEL,
        Reason.WAITING_FOR_ENVIRONMENT,
        Reason.WAITING_FOR_EVICTION,
    }
)


@dataclass(slots=True)
class Watchlist:
    """Since when pods have been on their way without arriving, by UID."""

    unbound: dict[PodUid, float] = field(default_factory=dict)
    failing: dict[PodUid, float] = field(default_factory=dict)
    refused: set[PodUid] = field(default_factory=set)
    starved: dict[str, float] = field(default_factory=dict)
    """Since when gangs run below their minimum although the replacements are there, by gang."""
    done: set[PodUid] = field(default_factory=set)
    """Pods that are being rolled back already."""
    bound: list[tuple[float, float]] = field(default_factory=list)
    """When pods were let go that have been bound, and when they were bound. Both rise: pods that were let go
    later and bound earlier do not matter."""

    def note(self, pod: DecodedPod, clock: float) -> None:
        """A pod changed."""
        uid, placed = pod.pod.uid, pod.pod.phase is PodPhase.PLACED
        if uid in self.done:
            return
        if placed and pod.bound and uid in self.unbound:
            self._was_bound(self.unbound[uid], clock)
        _keep(self.unbound, uid, clock, present=placed and not pod.bound)
        if not self.unbound:
            self.bound.clear()  # what is let go from now on comes after all of these
        _keep(self.failing, uid, clock, present=placed and bool(pod.start_error))
        if pod.refusal:
            # Also where no plan speaks for it any more: no other part replaces it.
            self.refused.add(uid)

    def _was_bound(self, let_go: float, clock: float) -> None:
        while self.bound and self.bound[-1][0] >= let_go:
            self.bound.pop()
        self.bound.append((let_go, clock))
        # What is older keeps no pod waiting: by then each is given as much time of its own.
        del self.bound[: bisect_right(self.bound, clock - PATIENCE_S, key=lambda entry: entry[1])]

    def its_turn(self, let_go: float) -> float:
        """Since when the scheduler has bound all that was let go before that moment, as far as it shows."""
        before = bisect_right(self.bound, let_go, key=lambda entry: entry[0])
        return max(let_go, self.bound[before - 1][1]) if before else let_go

    def note_gang(self, gang: Gang, members: Mapping[PodUid, DecodedPod], clock: float) -> None:
        """A gang changed: see whether it waits for a replacement to find room."""
        counted = {PodPhase.PLACED, PodPhase.SUCCEEDED}
        there = [m.pod.task for m in members.values() if m.pod.phase in counted]
        runs = any(m.bound and m.pod.phase is PodPhase.PLACED for m in members.values())
        short = lacking(gang, task_counts(there))
        # One that another gate holds back, or that cannot be read, waits for no room.
        replaced = any(
            m.pod.phase is PodPhase.GATED and not m.pod.other_gates and not m.problem
            for m in members.values()
            if len(there) < gang.min_member or m.pod.task in short
        )
        if runs and replaced and not gang.single:
            self.starved.setdefault(gang.key, clock)
        else:
            self.starved.pop(gang.key, None)

    def wait_for_room(self, verdicts: Mapping[str, Verdict], clock: float, *, admitting: bool) -> None:
        """For gangs that do not lack room the time begins again: giving them up would not help."""
        for key in self.starved:
            if not admitting or not finds_no_room(verdicts.get(key)):
                self.starved[key] = clock

    def forget(self, uid: PodUid) -> None:
        """The pod is gone."""
        self.done.discard(uid)
        self.unbound.pop(uid, None)
        if not self.unbound:
            self.bound.clear()
        self.failing.pop(uid, None)
        self.refused.discard(uid)

    def handled(self, uids: Iterable[PodUid]) -> None:
        """These are being rolled back: nothing counts against them a second time."""
        for uid in uids:
            self.forget(uid)
            self.done.add(uid)

    def uids(self) -> frozenset[PodUid]:
        """All pods that something counts against."""
        return frozenset((*self.unbound, *self.failing, *self.refused))

    def __bool__(self) -> bool:
        return bool(self.unbound or self.failing or self.refused or self.starved)


def finds_no_room(verdict: Verdict | None) -> bool:
    """Whether a gang waits because there is no place for it; not for quota, a gate, members or a back-off.

    A plan that the API server does not take is as good as no place: what runs without its peers comes back.
    """
    if verdict is None:
        return False
    if verdict.reason is Reason.WRITE_REFUSED:
        return True
    return verdict.reason in _NO_ROOM and BACK_OFF_NUMBER not in verdict.numbers


def _keep(since: dict[PodUid, float], uid: PodUid, clock: float, *, present: bool) -> None:
    if present:
        since.setdefault(uid, clock)
    else:
        since.pop(uid, None)


@dataclass(frozen=True, slots=True)
class RollBack:
    """What has to come back, why, and which nodes refused."""

    pods: tuple[DecodedPod, ...]
    why: str
    nodes: frozenset[NodeName]
    left_alone: tuple[DecodedPod, ...] = ()
    """Bare pods: no controller would replace them, so they are reported and not deleted."""
    packed: int = 0
    """The most members on a node of which the scheduler refused one; 0: it was the kubelet, or our agent."""
    refusals: tuple[str, ...] = ()
    """What kubelets said that refused members, by member."""


@dataclass(frozen=True, slots=True)
class Rolling:
    """A roll-back under way: first the plan goes, in one write with ``record``, then the pods."""

    pods: tuple[DecodedPod, ...]
    record: str
    """The back-off as the PodGroup will carry it; it stands there once the plan is gone."""
    why: str
    is_noted: bool = True
    """False: the PodGroup takes no such note, and the pods go without it."""


def judge(
    gang: Gang, members: Mapping[PodUid, DecodedPod], watchlist: Watchlist, clock: float
) -> RollBack | None:
    """Whether this gang has to be rolled back now."""
    trouble = dict(_troubles(members, watchlist, clock))
    if not trouble and clock - watchlist.starved.get(gang.key, clock) >= STARVED_S:
        why = f"a replacement found no room for {STARVED_S / 60:.0f} minutes"
        trouble = {uid: why for uid, m in members.items() if m.pod.phase is PodPhase.PLACED}
        return _roll_back(gang, members, trouble, frozenset())
    if not trouble:
        return None
    refused = (members[uid].pod.node for uid in trouble)
    back = _roll_back(gang, members, trouble, frozenset(node for node in refused if node is not None))
    said = tuple(members[uid].refusal for uid in sorted(trouble) if uid in watchlist.refused)
    return replace(back, packed=_packed(members, trouble), refusals=said) if back is not None else None


def _packed(members: Mapping[PodUid, DecodedPod], trouble: Iterable[PodUid]) -> int:
    """How many members were meant for the fullest node of which the scheduler refused one; 0: none did."""
    unbound = [m.pod for uid in trouble if not (m := members[uid]).bound and m.pod.phase is PodPhase.PLACED]
    placed = Counter(m.pod.node for m in members.values() if m.pod.phase is PodPhase.PLACED)
    return max((placed[pod.node] for pod in unbound if pod.node is not None), default=0)


def _roll_back(
    gang: Gang,
    members: Mapping[PodUid, DecodedPod],
    trouble: Mapping[PodUid, str],
    nodes: frozenset[NodeName],
) -> RollBack | None:
    if not trouble:
        return None
    well = [
        m
        for uid, m in members.items()
        if m.pod.phase is PodPhase.SUCCEEDED
        or (m.pod.phase is PodPhase.PLACED and m.bound and uid not in trouble)
    ]
    if gang.single or short_of(gang, [m.pod.task for m in well]) is None:
        back = [members[uid] for uid in trouble]
    else:
        back = [m for uid, m in members.items() if m.pod.phase is PodPhase.PLACED or uid in trouble]
    back.sort(key=lambda m: m.pod.name)
    first = min(trouble, key=lambda uid: members[uid].pod.name)
    more = f" (and {len(trouble) - 1} more)" if len(trouble) > 1 else ""
    return RollBack(
        pods=tuple(m for m in back if owners.may_be_removed(m.owner)),
        why=f"pod {members[first].pod.name}{more}: {trouble[first]}",
        nodes=nodes,
        left_alone=tuple(m for m in back if not owners.may_be_removed(m.owner)),
    )


def _troubles(
    members: Mapping[PodUid, DecodedPod], watchlist: Watchlist, clock: float
) -> Iterable[tuple[PodUid, str]]:
    # For each plan: replacements and replicas that come later are let go by plans of their own.
    last_fall: dict[str, float] = {}
    for uid, member in members.items():
        if uid in watchlist.unbound:
            plan = member.pod.plan_id
            last_fall[plan] = max(last_fall.get(plan, 0.0), watchlist.unbound[uid])
    turn = {plan: watchlist.its_turn(fall) for plan, fall in last_fall.items()}
    for uid, member in members.items():
        if uid in watchlist.refused:
            yield uid, f"the kubelet refused it: {member.refusal}"
        elif uid in watchlist.failing and clock - watchlist.failing[uid] >= PATIENCE_S:
            yield uid, f"not started for {PATIENCE_S:.0f} s: {member.start_error}"
        elif uid in watchlist.unbound and clock - turn[member.pod.plan_id] >= PATIENCE_S:
            yield uid, f"not bound {PATIENCE_S:.0f} s after the last gate fell"
