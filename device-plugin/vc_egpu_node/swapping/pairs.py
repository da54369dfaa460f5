"""The node's swap pods, as a suspender sees them: its orders come from here, not from the admission layer.

A pod that starts is kept from its cards until it is its turn. After each look of the suspender the next turn
is decided. What an earlier agent was at is known from the suspender's records and from the pages.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.codec.suspension import MAX_REASON, NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.swapping.notes import NodeSwaps, PodSwap, SwapPlace
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation.control import shared
from vc_egpu_node.suspension.facts import LowPod, NodeState
from vc_egpu_node.suspension.machine import Record
from vc_egpu_node.suspension.verdict import Verdict
from vc_egpu_node.swapping.signs import Seen, Sign, asked_since, follow
from vc_egpu_node.swapping.totals import Totals
from vc_egpu_node.swapping.turns import Member, Place, Rules, turn

log = logging.getLogger(__name__)

AGAIN_S: Final = 60.0
"""A pod that could not leave its cards is not told to again for this long."""
_PLACES: Final[Mapping[Place, SwapPlace]] = {
    Place.CARD: "card",
    Place.LEAVING: "leaving",
    Place.AWAY: "away",
    Place.COMING: "coming",
    Place.LOST: "lost",
}


@dataclass(frozen=True, slots=True)
class SwapPod(LowPod):
    """A pod that takes its cards in turns with others."""

    @property
    def book_mib(self) -> int:
        """All of it: on its cards it may hold that much, whatever is booked for it there."""
        return sum(share.memory_mib for grant in self.grants for share in grant.shares)

    @property
    def cards(self) -> frozenset[str]:
        """UUIDs."""
        return frozenset(share.uuid for grant in self.grants for share in grant.shares)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.view.namespace}/{self.view.name}"


def swap_pods(grants: Iterable[Grant], views: Iterable[PodView]) -> dict[str, SwapPod]:
    """By UID. Pods that have ended are left out."""
    by_pod: dict[str, list[Grant]] = {}
    for grant in grants:
        if grant.swap and shared(grant):
            by_pod.setdefault(grant.pod_uid, []).append(grant)
    return {
        view.uid: SwapPod(view, tuple(by_pod[view.uid]))
        for view in views
        if view.uid in by_pod and not view.ended
    }


class Around(Protocol):
    """What is around: see :class:`vc_egpu_node.swapping.swapping.NodeAround`."""

    def pods(self) -> Mapping[str, SwapPod] | None:
        """The swap pods here, by UID; None: not known yet."""

    def is_here(self, pod_uid: str) -> bool:
        """Whether it still is on this node and has not ended."""

    def node(self) -> NodeState:
        """The node's state, without what swap pods take."""

    def policy(self) -> Policy:
        """As of now."""

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        """Whether it can leave its cards."""

    def sign(self, pod: SwapPod) -> Sign:
        """What its pages say now."""

    def closed(self, pod: LowPod) -> bool:
        """Whether its launches wait, by its pages."""

    def holds(self, pod: LowPod) -> bool:
        """Whether some of its processes are on a card, as last looked."""

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        """Let its launches wait, or go on."""

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        """An event of the pod."""

    def publish(self, text: str | None) -> None:
        """Onto the Node, unless it says so already. Raises ``KubeError``."""

    def clocks(self) -> tuple[float, int]:
        """Unix time in s, and the monotonic clock in ns."""


@dataclass(slots=True)
class _Kept:
    """What is remembered of one pod."""

    place: Place
    since_s: float
    let: bool
    """Its gate may be open."""
    order: str | None = None
    ordered_s: float = 0.0
    cut: bool = False
    """It worked when it was told to leave: it waits to go on."""
    wanted_s: float | None = None
    not_before_s: float = 0.0
    bound: str = ""
    away_mib: int = 0
    """GPU memory of it that is, or was lately, on the host."""
    begun_s: float | None = None
    """When the hand-over to it began."""


@dataclass(slots=True)
class Pairs:
    """See :class:`vc_egpu_node.suspension.suspender.World`. ``decide`` runs on the suspender's thread."""

    around: Around
    poke: Callable[[], None]
    totals: Totals = field(default_factory=Totals)
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _seen: dict[str, Seen] = field(default_factory=dict)
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)

    def remember(self, records: Iterable[Record]) -> None:
        """What an earlier agent left: its suspender's records."""
        for record in records:
            ordered_s = _ordered_s(record.plan_id)
            if record.state in (SuspensionState.SUSPENDING, SuspensionState.SUSPENDED):
                kept = _Kept(_place(record.state, ordered=True), record.since_s, let=False)
                kept.order, kept.ordered_s = _order(record.pod_uid, record.plan_id), ordered_s
            else:
                kept = _Kept(_place(record.state, ordered=False), record.since_s, let=True)
            kept.away_mib = record.host_mib
            self._kept[record.pod_uid] = kept

    # --- what the suspender asks -----------------------------------------------------------------

    def pods(self) -> Mapping[str, LowPod] | None:
        """Those here, each with its order."""
        found = self.around.pods()
        if found is None:
            return None
        return {
            uid: replace(pod, view=replace(pod.view, suspend=self._order_of(uid)))
            for uid, pod in found.items()
        }

    def is_here(self, pod_uid: str) -> bool:
        """See there."""
        return self.around.is_here(pod_uid)

    def state(self) -> NodeState:
        """See there."""
        return self.around.node()

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        """See there."""
        self._verdicts[pod.uid] = self.around.verdict(pod, node)
        return self._verdicts[pod.uid]

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        """One that starts stays closed until its turn, unless it is on the card already."""
        kept = self._kept.get(pod_uid)
        if kept is None and not closed:
            pod = (self.around.pods() or {}).get(pod_uid)
            if pod is None or (self.around.closed(pod) and not self.around.holds(pod)):
                return
        elif kept is not None and not closed and not kept.let:
            return
        self.around.gate(pod_uid, closed=closed)

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        """See there."""
        self.around.tell(pod, kind, reason, text)

    def publish(self, text: str) -> None:
        """The suspender has looked at all: take in how far they are, and decide. Raises ``KubeError``."""
        pods = self.around.pods()
        if pods is None:
            return
        said = NodeSuspension.decode(text).pods
        now_s, now_ns = self.around.clocks()
        here = {uid: pod for uid, pod in pods.items() if uid in said}
        self._kept = {
            uid: kept for uid, kept in self._kept.items() if uid in here or self.around.is_here(uid)
        }
        signs = {uid: self.around.sign(pod) for uid, pod in here.items()}
        self._seen = follow(self._seen, signs, now_s)
        for uid, pod in here.items():
            self._take_in(pod, said[uid], now_s, now_ns)
        if self._decide(here, now_s):
            self.poke()
        self.around.publish(self._document(here, said))

    # --- one look --------------------------------------------------------------------------------

    def _take_in(self, pod: SwapPod, said: PodSuspension, now_s: float, now_ns: int) -> None:
        uid, sign = pod.uid, self._seen[pod.uid].sign
        kept = self._kept.get(uid)
        if kept is None:
            starts = self.around.closed(pod) and not self.around.holds(pod)
            place = Place.AWAY if starts else Place.CARD
            kept = self._kept[uid] = _Kept(place, now_s, let=not starts)
        if (
            kept.order is not None
            and said.state is SuspensionState.RUNNING
            and said.plan_id == _plan_of(kept)
        ):
            kept.bound, kept.not_before_s = said.reason, now_s + AGAIN_S
            kept.order, kept.let, kept.cut = None, True, False
            self.around.gate(uid, closed=False)
        place = _place(said.state, ordered=kept.order is not None)
        if not kept.let and said.state is SuspensionState.RUNNING and kept.order is None:
            place = Place.AWAY  # it has not been there yet
        if said.state is not SuspensionState.RUNNING:
            kept.away_mib = said.host_mib
        if place is not kept.place:
            self._moved(kept, place, now_s)
        if kept.place is Place.AWAY and kept.wanted_s is None:
            since_s = kept.ordered_s if kept.order is not None else 0.0
            if kept.cut or asked_since(sign, now_ns, now_s, since_s):
                kept.wanted_s = kept.ordered_s if kept.cut else now_s

    def _moved(self, kept: _Kept, place: Place, now_s: float) -> None:
        if place is Place.CARD and kept.begun_s is not None:
            self.totals.hand_overs += 1
            self.totals.seconds += max(0.0, now_s - kept.begun_s)
            kept.begun_s = None
        if (kept.place, place) in ((Place.LEAVING, Place.AWAY), (Place.COMING, Place.CARD)):
            self.totals.moved_bytes += kept.away_mib << 20
        kept.place, kept.since_s = place, now_s
        if place is Place.CARD:
            kept.wanted_s, kept.cut, kept.away_mib = None, False, 0

    def _decide(self, here: Mapping[str, SwapPod], now_s: float) -> bool:
        """Whether anything is to be done."""
        policy = self.around.policy()
        members = [self._member(pod, policy, now_s) for pod in here.values()]
        node = self.around.node()
        host_mib = policy.host_memory_mib - sum(node.booked_mib.values())
        due = turn(members, Rules(policy.swap_min_stay_s, host_mib), now_s)
        self._reasons = dict(due.reasons)
        for uid in sorted(due.leave):
            kept = self._kept[uid]
            plan_id = f"0-{int(now_s * 1000)}"
            kept.order, kept.ordered_s, kept.let = _order(uid, plan_id), now_s, False
            kept.cut = self._is_active(uid, policy, now_s)
            kept.place, kept.since_s, kept.bound = Place.LEAVING, now_s, ""
            log.info("%s leaves its card for another", here[uid].name)
        for uid in due.served:
            self._kept[uid].begun_s = now_s
        for uid in sorted(due.come):
            self._come(here[uid], now_s)
        return bool(due.leave or due.come)

    def _come(self, pod: SwapPod, now_s: float) -> None:
        kept = self._kept[pod.uid]
        kept.let = True
        log.info("%s comes to its card", pod.name)
        if kept.order is None:  # nothing of it is away
            self._moved(kept, Place.CARD, now_s)
            self.around.gate(pod.uid, closed=False)
        else:
            kept.order = None
            kept.place, kept.since_s = Place.COMING, now_s

    def _member(self, pod: SwapPod, policy: Policy, now_s: float) -> Member:
        kept, verdict = self._kept[pod.uid], self._verdicts.get(pod.uid, Verdict())
        waits = now_s < kept.not_before_s <= now_s + AGAIN_S
        return Member(
            uid=pod.uid,
            name=pod.name,
            cards=pod.cards,
            memory_mib=pod.book_mib,
            place=kept.place,
            since_s=kept.since_s,
            wanted_s=kept.wanted_s,
            active=kept.place is Place.CARD and self._is_active(pod.uid, policy, now_s),
            bound=verdict.reason or (kept.bound if waits else ""),
        )

    def _is_active(self, uid: str, policy: Policy, now_s: float) -> bool:
        return now_s - self._seen[uid].worked_s <= policy.swap_idle_s

    def _order_of(self, uid: str) -> str | None:
        kept = self._kept.get(uid)
        return kept.order if kept is not None else None

    def _document(self, here: Mapping[str, SwapPod], said: Mapping[str, PodSuspension]) -> str | None:
        if not here:
            return None
        swaps = {
            uid: PodSwap(
                place=_PLACES[self._kept[uid].place],
                since=int(self._kept[uid].since_s),
                reason=_short(
                    self._reasons.get(uid)
                    or (said[uid].reason if self._kept[uid].place is Place.LOST else "")
                ),
                host_mib=0 if self._kept[uid].place is Place.CARD else self._kept[uid].away_mib,
            )
            for uid in sorted(here)
        }
        return NodeSwaps(pods=swaps).encode()


def _place(state: SuspensionState, *, ordered: bool) -> Place:
    if state is SuspensionState.FAILED:
        return Place.LOST
    if state is SuspensionState.SUSPENDED:
        return Place.AWAY if ordered else Place.COMING
    if state is SuspensionState.RESUMING:
        return Place.COMING
    return Place.LEAVING if ordered or state is SuspensionState.SUSPENDING else Place.CARD


def _order(uid: str, plan_id: str) -> str:
    return SuspendOrder(pod_uid=uid, plan_id=plan_id, why="another pod's turn").encode()


def _short(text: str) -> str:
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 3]}..."


def _plan_of(kept: _Kept) -> str:
    return SuspendOrder.decode(kept.order).plan_id if kept.order is not None else ""


def _ordered_s(plan_id: str) -> float:
    """Our orders are numbered by the time at which they were given."""
    _, _, number = plan_id.partition("-")
    return int(number) / 1000 if number.isdecimal() else 0.0
