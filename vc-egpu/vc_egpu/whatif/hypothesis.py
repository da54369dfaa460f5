"""A cluster on paper that can be changed: nothing here is carried out anywhere."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, TypeVar

from vc_egpu.core.books.capacity import first_node
from vc_egpu.core.books.state import ClusterState, index_of
from vc_egpu.core.decide import decide
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    Card,
    CardId,
    Gang,
    Instant,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    Share,
    Snapshot,
    plan_key,
)
from vc_egpu.core.model.gangs import HOLDING, partition_of
from vc_egpu.core.model.plan import Admission, Plan
from vc_egpu.core.model.policy import Policy

Tasks = tuple[tuple[str, int, PodShape], ...]
"""(task, replicas, shape)"""
PLAN_ID = "0-0"
"""All plans on paper have this id."""
Step = Callable[[], None]
"""Called between the steps of an answer. It may wait, and it may raise :class:`OutOfTimeError`."""
_Thing = TypeVar("_Thing")
STEP_OBJECTS: Final = 16
"""So many objects are entered in one step."""


class UnknownThingError(LookupError):
    """The cluster has no such node, queue or gang; the text names it and some that are near."""


class OutOfTimeError(Exception):
    """The time for an answer is over."""


def at_once() -> None:
    """Go on without a pause: a :data:`Step` where there is no hurry."""


class Hypothesis:
    """Starts as the snapshot is. Not thread-safe. ``step`` is called before each decision, too."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: Instant, step: Step = at_once) -> None:
        self.policy = policy
        self.now = now
        self.state = ClusterState(dict(snapshot.models))
        self._step = step
        self._entered = 0
        for queue in self._paced(snapshot.queues.values()):
            self.state.put_queue(queue)
        for node in self._paced(snapshot.nodes.values()):
            self.state.put_node(node)
        for name, use in self._paced(snapshot.measured.items()):
            self.state.set_measured(name, use)
        for gang in self._paced(snapshot.gangs.values()):
            self.state.put_gang(gang)
        for pod in self._paced(chain(snapshot.kept.values(), snapshot.pods.values())):
            self.state.put_pod(pod)
        for uid in snapshot.kept:
            self.state.remove_pod(uid)
        self.state.remember_moves(snapshot.moves_of_gone)
        self._hold(snapshot)
        self._revision = snapshot.revision

    def _paced(self, things: Iterable[_Thing]) -> Iterator[_Thing]:
        for thing in things:
            self._entered += 1
            if self._entered % STEP_OBJECTS == 0:
                self._step()
            yield thing

    def _hold(self, snapshot: Snapshot) -> None:
        node_of = {card.uuid: node.name for node in snapshot.nodes.values() for card in node.cards}
        held: dict[NodeName, list[tuple[PodUid, Share]]] = defaultdict(list)
        for card, shares in snapshot.held.items():
            if card in node_of:
                held[node_of[card]] += shares
        for name, found in held.items():
            self.state.set_held(name, tuple(found))

    def snapshot(self) -> Snapshot:
        """As it is now."""
        self._revision += 1
        return self.state.snapshot(self._revision)

    def decide(self, only: Collection[str] | None = None) -> Plan:
        """What the live decision says."""
        self._step()
        return decide(self.snapshot(), self.policy, self.now, only)

    def pods_of(self, key: str) -> tuple[Pod, ...]:
        """The members of a gang."""
        index = index_of(self.snapshot())
        return tuple(index.pods[uid] for uid in index.pods_of.get(key, ()))

    # --- changes ---------------------------------------------------------------------------------

    def submit(self, gang: Gang, tasks: Tasks) -> None:
        """The gang is there, and its pods wait."""
        self.state.put_gang(replace(gang, template=()))
        namespace, _, name = gang.key.partition("/")
        for task, replicas, shape in tasks:
            for index in range(replicas):
                pod = Pod(
                    uid=PodUid(f"what-if {gang.key} {task} {index}"),
                    namespace=namespace,
                    name=f"{name}-{task}-{index}",
                    shape=shape,
                    phase=PodPhase.GATED,
                    gang=gang.key,
                    task=task,
                    index=index,
                    queue=gang.queue,
                    created=self.now,
                    subgroup=partition_of(gang, task, index),
                )
                self.state.put_pod(pod)

    def start(self, admission: Admission) -> None:
        """Its members are on their cards now. Those that had to go for it are not looked at."""
        for pod in self.pods_of(admission.gang):
            place = admission.members.get(plan_key(pod))
            if place is not None and pod.phase is PodPhase.GATED:
                self.state.put_pod(
                    replace(
                        pod,
                        phase=PodPhase.PLACED,
                        node=place.node if place.node is not None else self._some_node(pod),
                        shares=place.shares,
                        plan_id=PLAN_ID,
                        started=self.now,
                    )
                )

    def _some_node(self, pod: Pod) -> NodeName | None:
        """Where a scheduler may put a pod without cards: the first node by name that takes it."""
        index = index_of(self.snapshot())
        return first_node(index.ledger, pod.shape, index.mask(pod.shape))

    def end(self, key: str) -> None:
        """All of the gang's pods are gone, and the gang with them. Raises :class:`UnknownThingError`."""
        if self.state.gang(key) is None:
            raise UnknownThingError(f"there is no gang {key!r}")
        for pod in self.pods_of(key):
            self.state.remove_pod(pod.uid)
        self.state.remove_gang(key)

    def end_pods(self, uids: Iterable[PodUid]) -> None:
        """These pods are over."""
        for uid in uids:
            self.state.remove_pod(uid)

    def add_nodes(self, like: NodeName, count: int) -> None:
        """Empty nodes like one that is there. Raises :class:`UnknownThingError`."""
        model = self._node(like)
        for number in range(count):
            name = f"{like}+{number + 1}"
            cards = tuple(_fresh(card, name) for card in model.cards)
            labels = {**model.labels, "kubernetes.io/hostname": name}
            self.state.put_node(
                replace(
                    model,
                    name=NodeName(name),
                    cards=cards,
                    labels=labels,
                    unschedulable=False,
                    ready=True,
                    lost=False,
                    drained=False,
                    problem="",
                    created=self.now,
                )
            )

    def drain(self, name: NodeName) -> tuple[str, ...]:
        """The node takes nothing new, and the gangs with cards there wait again. Those gangs, sorted.

        Raises :class:`UnknownThingError`.
        """
        self.state.put_node(replace(self._node(name), drained=True))
        evictions = [one for one in self.decide(()).evictions if one.cause is Cause.DRAIN]
        going = {uid for one in evictions for uid in one.pods}
        moved: set[str] = set()
        for pod in list(self.snapshot().pods.values()):
            if pod.uid not in going and (pod.node != name or pod.phase not in HOLDING):
                continue
            if pod.gang is None or not pod.shares:
                self.state.remove_pod(pod.uid)
                continue
            moved.add(pod.gang)
            self.state.put_pod(
                replace(pod, phase=PodPhase.GATED, node=None, shares=(), plan_id="", started=None)
            )
        self.state.set_held(name, ())
        return tuple(sorted(moved))

    def set_cap(self, queue: QueueName, resource: str, amount: int | None) -> None:
        """The queue's cap of one resource; None: it names none. Raises :class:`UnknownThingError`."""
        known = self.snapshot().queues
        if queue not in known:
            raise UnknownThingError(f"there is no queue {queue!r}")
        caps = dict(known[queue].capability)
        if amount is None:
            caps.pop(resource, None)
        else:
            caps[resource] = amount
        self.state.put_queue(replace(known[queue], capability=caps))

    def _node(self, name: NodeName) -> Node:
        found = self.snapshot().nodes.get(name)
        if found is None:
            raise UnknownThingError(f"there is no node {name!r}")
        return found


def _fresh(card: Card, node: str) -> Card:
    def renamed(uuid: CardId) -> CardId:
        return CardId(f"{uuid}@{node}")

    links = {renamed(other): link for other, link in card.links.items()}
    return replace(card, uuid=renamed(card.uuid), usable=True, links=links)
