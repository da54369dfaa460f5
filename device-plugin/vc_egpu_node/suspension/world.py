"""Suspension put together with the rest of the agent."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.kube import ApiConnection
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.api.node import OwnNode, Teller
from vc_egpu_node.api.notices import PodEvents, pod_reference
from vc_egpu_node.api.pods import NodePods
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers import admission
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.containers.identity import Stock
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.settings.config import CHECKPOINT_BY_POD, Settings
from vc_egpu_node.suspension.facts import FactsOf, LowPod, NodeState, low_pods, spilled_mib
from vc_egpu_node.suspension.helper import Helper, PodHelper, ProgramHelper, SweptOnce
from vc_egpu_node.suspension.room import MemoryLimits
from vc_egpu_node.suspension.suspender import Store, SuspendedPod, Suspender
from vc_egpu_node.suspension.verdict import Verdict, judge
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.wall.wall import SecondWall

log = logging.getLogger(__name__)

RECORDS: Final = "suspensions"
"""Folder in the agent's state."""
TURNS: Final = "swaps"
"""The same for pods that take turns."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What of the agent it works with."""

    settings: Settings
    api: ApiConnection
    grants: GrantFolder
    pods: NodePods
    node: OwnNode
    isolation: Isolation
    wall: SecondWall
    hosts: ContainerOfProcess
    events: PodEvents
    policy: Callable[[], Policy]
    observation: Callable[[], Observation]
    stock: Callable[[], Stock]

    def facts(self) -> FactsOf:
        """What is known of pods, for one that asks; each forgets pods by its own list."""
        return FactsOf(
            hosts=self.hosts,
            limits=MemoryLimits(self.settings.cgroup_dir),
            proc_dir=self.settings.proc_dir,
            paged=lambda: self.isolation.paged,
        )

    @property
    def all_known(self) -> bool:
        """Whether pods here, and what they hold, are known."""
        return self.pods.synced and self.wall.last.number >= 0

    def is_here(self, pod_uid: str) -> bool:
        """See :meth:`World.is_here`."""
        return any(view.uid == pod_uid and not view.ended for view in self.pods.views())

    def node_state(self, booked_mib: Mapping[str, int]) -> NodeState:
        """``booked_mib``: by pod UID, host memory that is taken already."""
        policy = self.policy()
        return NodeState(
            driver_version=self.observation().reading.driver_version,
            several_allowed=policy.suspend_several_processes,
            budget_mib=policy.host_memory_mib,
            booked_mib=booked_mib,
        )

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        """See :meth:`World.gate`."""
        grants = self.grants.all()
        self.isolation.gate([one for one in grants if one.pod_uid == pod_uid], grants, closed=closed)

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        """See :meth:`World.tell`."""
        self.events.tell(kind, pod_reference(pod.view.namespace, pod.view.name, pod.uid), reason, text)


class NodeWorld:
    """See :class:`vc_egpu_node.suspension.suspender.World`."""

    def __init__(self, parts: Parts, facts: FactsOf) -> None:
        self._parts = parts
        self._facts = facts
        self.teller = Teller(parts.node.say_suspension)

    def pods(self) -> Mapping[str, LowPod] | None:
        """See :meth:`World.pods`."""
        if not self._parts.all_known:
            return None  # what they hold is not known: an order would be refused for that
        found = low_pods(self._parts.grants.all(), self._parts.pods.views())
        self._facts.forget(frozenset(found))
        return found

    def is_here(self, pod_uid: str) -> bool:
        """See :meth:`World.is_here`."""
        return self._parts.is_here(pod_uid)

    def state(self) -> NodeState:
        """See :meth:`World.state`."""
        return self._parts.node_state(spilled_mib(self._parts.grants.all()))

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        """See :meth:`World.verdict`."""
        return judge(self._facts.of_pod(pod, self._parts.wall.last, node))

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        """See :meth:`World.gate`."""
        self._parts.gate(pod_uid, closed=closed)

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        """See :meth:`World.tell`."""
        self._parts.tell(pod, kind, reason, text)

    def publish(self, text: str) -> None:
        """See :meth:`World.publish`."""
        self.teller.say(text)


def shortage(
    pod: LowPod,
    card_mib: Mapping[str, int],
    *,
    stock: Stock,
    observation: Observation,
    held: Iterable[admission.HeldShare],
) -> str:
    """Why the pod does not fit onto its cards again: neither by the books nor by what is free; empty: it
    does. ``held``: all shares on the node, suspended pods asleep."""
    everyone = list(held)
    total = {card.uuid: card.memory_mib for card in observation.reading.cards}
    for grant in pod.grants:
        for share in grant.held:
            card = stock.card(share.uuid)
            if card is None or not card.healthy:
                return f"card {share.uuid} is not there or ill"
            refusal = admission.refusal(stock.limits(card), admission.rivals(everyone, (), share), share)
            if refusal:
                return refusal
    for uuid, needed in card_mib.items():
        if uuid in observation.untold:
            return f"card {uuid} does not tell who is on it"
        sample = observation.samples.get(uuid)
        reserved = (sample.memory_reserved_mib if sample is not None else 0) or 0
        used = sum(one.memory_mib for one in observation.processes.get(uuid, ()))
        free = total.get(uuid, 0) - reserved - used
        if needed > free:
            return f"card {uuid} has {free} MiB free, {needed} are needed"
    return ""


def away(state_dir: Path) -> list[str]:
    """Pods that do not run for having been suspended, or for its being another one's turn, as the records
    say."""
    folders = (state_dir / name for name in (RECORDS, TURNS))
    records = [one for folder in folders if folder.is_dir() for one in Store(folder).all().values()]
    return sorted(f"{one.namespace}/{one.pod}" for one in records if one.state is not SuspensionState.RUNNING)


class Suspension:
    """All of it; what the agent starts, stops and pokes."""

    def __init__(self, parts: Parts, also_away: Callable[[], frozenset[str]] = frozenset) -> None:
        """``also_away``: UIDs of pods that left their cards for another reason. Raises ``OSError``."""
        settings = parts.settings
        self._parts = parts
        self._also_away = also_away
        self._pod_helper = _helper(parts)
        self.helper: Helper = SweptOnce(self._pod_helper)
        """Others may use it, too."""
        facts = parts.facts()
        worker = Worker(self.helper, facts, look=lambda: parts.wall.last, shortage=self.shortage)
        self._world = NodeWorld(parts, facts)
        self.suspender = Suspender(self._world, worker, Store(settings.state_dir / RECORDS), parts.policy)
        parts.pods.subscribe(self.poke)

    def shortage(self, pod: LowPod, card_mib: Mapping[str, int]) -> str:
        """Why the pod does not fit onto its cards again; see :func:`shortage`."""
        shares = (share for grant in self._parts.grants.all() for share in grant.held)
        return shortage(
            pod,
            card_mib,
            stock=self._parts.stock(),
            observation=self._parts.observation(),
            held=admission.asleep(shares, self.suspender.suspended() | self._also_away()),
        )

    def poke(self) -> None:
        """Pods changed."""
        if isinstance(self._pod_helper, PodHelper):
            self._pod_helper.poke()
        self.suspender.poke()

    def pods(self) -> list[SuspendedPod]:
        """For metrics."""
        return self.suspender.pods()

    def unsaid_s(self) -> float:
        """Likewise: for how long the Node has not said how far they are."""
        return self._world.teller.unsaid_s()


def _helper(parts: Parts) -> Helper:
    settings = parts.settings
    if settings.checkpoint == CHECKPOINT_BY_POD:
        return PodHelper(
            parts.api,
            node=settings.node_name,
            namespace=settings.checkpoint_namespace,
            pods=parts.pods,
            results=settings.state_dir / "checkpoints",
        )
    return ProgramHelper(Path(settings.checkpoint))
