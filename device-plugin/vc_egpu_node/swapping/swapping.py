"""Swap pods put together with the rest of the agent."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.api.node import Teller
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.pages import ACTIVITY
from vc_egpu_node.suspension.facts import FactsOf, LowPod, NodeState
from vc_egpu_node.suspension.helper import Answer, Drain, Helper, NotBegunError, Verb
from vc_egpu_node.suspension.machine import Process
from vc_egpu_node.suspension.suspender import Store, Suspender
from vc_egpu_node.suspension.verdict import Verdict, judge
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.suspension.world import Parts
from vc_egpu_node.swapping.pairs import Around, Pairs, SwapPod, swap_pods
from vc_egpu_node.swapping.signs import Sign, sign_of
from vc_egpu_node.wall.wall import SecondWall

SETTLE_S: Final = 0.25
"""Between the closed gate and the lock: programs look at their pages every 50 ms. One that is locked before
it has looked could not tell that it wants its card again."""
RESUME_ROOM_S: Final = 3600.0
"""Nobody else has shares of the card, so room comes."""


class Settled:
    """A helper that gives programs time to see that their gate is closed."""

    def __init__(self, helper: Helper, settle_s: float = SETTLE_S) -> None:
        self._helper = helper
        self._settle_s = settle_s
        self._stopping = threading.Event()

    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        """See :meth:`Helper.run`."""
        if verb == "suspend" and self._stopping.wait(self._settle_s):
            raise NotBegunError("the agent ends")
        return self._helper.run(verb, processes, lock_ms, drain)

    def sweep(self) -> None:
        """See the end of what an earlier agent left behind."""
        self._helper.sweep()

    def stop(self) -> None:
        """See :meth:`Helper.stop`."""
        self._stopping.set()
        self._helper.stop()


@dataclass(frozen=True, slots=True)
class NodeAround:
    """See :class:`vc_egpu_node.swapping.pairs.Around`."""

    parts: Parts
    facts: FactsOf
    booked_mib: Callable[[], Mapping[str, int]]
    """By pod UID: host memory that other pods take."""
    teller: Teller

    def pods(self) -> Mapping[str, SwapPod] | None:
        """See there."""
        if not self.parts.all_known:
            return None
        found = swap_pods(self.parts.grants.all(), self.parts.pods.views())
        self.facts.forget(frozenset(found))
        return found

    def is_here(self, pod_uid: str) -> bool:
        """See there."""
        return self.parts.is_here(pod_uid)

    def node(self) -> NodeState:
        """See there."""
        return self.parts.node_state(self.booked_mib())

    def policy(self) -> Policy:
        """See there."""
        return self.parts.policy()

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        """See there."""
        return verdict_of(self.facts, pod, self.parts.wall, node)

    def sign(self, pod: SwapPod) -> Sign:
        """See there."""
        return sign_by(self.parts.isolation, self.parts.wall, pod)

    def closed(self, pod: LowPod) -> bool:
        """See there."""
        return any(grant.name in self.parts.isolation.closed for grant in pod.grants)

    def holds(self, pod: LowPod) -> bool:
        """See there."""
        return holds(self.parts.wall, pod)

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        """See there."""
        self.parts.gate(pod_uid, closed=closed)

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        """See there."""
        self.parts.tell(pod, kind, reason, text)

    def publish(self, text: str | None) -> None:
        """See there."""
        if text is None:
            self.parts.node.say_swaps(None)
        else:
            self.teller.say(text)

    def clocks(self) -> tuple[float, int]:
        """See there."""
        return time.time(), time.monotonic_ns()


def verdict_of(facts: FactsOf, pod: LowPod, wall: SecondWall, node: NodeState) -> Verdict:
    """Whether it can leave its cards. Other pods of its gang would wait for it there."""
    several = max(grant.gang_pods for grant in pod.grants)
    if several > 1:
        return Verdict(f"{several} pods of its gang run at once", "gang")
    return judge(facts.of_pod(pod, wall.last, node))


def holds(wall: SecondWall, pod: LowPod) -> bool:
    """Whether some of its processes are on a card, as last looked."""
    names = {grant.name for grant in pod.grants}
    return any(one.owner in names for one in wall.last.seen)


def sign_by(isolation: Isolation, wall: SecondWall, pod: SwapPod) -> Sign:
    """What its pages say now, and its memory as last looked."""
    pages = [
        (
            isolation.pages.read(ACTIVITY, grant.name),
            wall.last.usages.get(grant.name),
            len(grant.shares),
        )
        for grant in pod.grants
    ]
    return sign_of(pages, time.monotonic_ns())


class Swapping:
    """A suspender of its own for these pods, and what decides whose turn it is."""

    def __init__(self, around: Around, worker: Worker, store: Store, teller: Teller) -> None:
        """Raises ``OSError``."""
        self.teller = teller
        self.pairs = Pairs(around, poke=self._poke)
        self.pairs.remember(store.all().values())
        self.suspender = Suspender(self.pairs, worker, store, lambda: patient(around.policy()))

    def _poke(self) -> None:
        self.suspender.poke()


def patient(policy: Policy) -> Policy:
    """As these pods are brought back: until there is room."""
    return policy.model_copy(update={"resume_room_s": RESUME_ROOM_S})


def begins_closed(grant: Grant) -> bool:
    """Whether a container that starts waits for its turn."""
    return grant.swap
