"""The mirror as data: values go in one at a time, snapshots come out at no cost.

A snapshot's mappings never change. The sums that travel with it (:class:`.index.Index`) are current until
the next change of the state. A later decision counts them again from the values, which is right but slow. So
decide first, then feed the next events.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vc_egpu.core.books.index import Index
from vc_egpu.core.measured.use import NodeUse
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    Instant,
    Move,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    Share,
    Snapshot,
    plan_key,
)


@dataclass(frozen=True, slots=True)
class IndexAt:
    """An index as it was at one moment; ``current`` while nothing has changed since."""

    index: Index
    generation: int

    @property
    def current(self) -> bool:
        """Whether the index still says what it said when this was made."""
        return self.index.generation == self.generation


class ClusterState:
    """Nodes, pods, gangs and queues, kept current by their watcher. Not thread-safe."""

    def __init__(self, models: dict[str, int] | None = None) -> None:
        self._models = dict(models or {})
        self._index = Index(self._models)
        self._kept: dict[str, dict[PodUid, Pod]] = {}

    def put_node(self, node: Node) -> None:
        """Enter or replace a node; equal values cost nothing."""
        if self._index.nodes.get(node.name) != node:
            self._index.put_node(node)

    def remove_node(self, name: NodeName) -> None:
        """The node object is gone: its cards, and what was held on them, are gone with it."""
        self._index.set_held(name, ())
        self._index.remove_node(name)

    def node(self, name: NodeName) -> Node:
        """As it was entered last. Raises ``KeyError``."""
        return self._index.nodes[name]

    def put_pod(self, pod: Pod) -> None:
        """Enter or replace a pod, ours or not; a finished one releases what it held."""
        if self._index.pods.get(pod.uid) == pod:
            return
        self._index.put_pod(pod)
        if pod.gang is not None and pod.phase is PodPhase.PLACED:
            kept = self._kept.get(pod.gang, {})
            for uid in [uid for uid, failed in kept.items() if plan_key(failed) == plan_key(pod)]:
                del kept[uid]

    def remove_pod(self, uid: PodUid) -> None:
        """The pod object is gone. Cards of a failed member stay known, for the gang's replacement."""
        pod = self._index.pods.get(uid)
        if pod is None:
            return
        if pod.phase is PodPhase.FAILED and pod.gang in self._index.gangs and pod.finished is not None:
            self._kept.setdefault(str(pod.gang), {})[uid] = pod
        self._index.remove_pod(uid)

    def forget_kept(self, before: Instant) -> None:
        """Drop failed members that finished before this instant; decisions ignore them after the hold."""
        for gang, pods in list(self._kept.items()):
            for uid in [uid for uid, pod in pods.items() if (pod.finished or 0.0) < before]:
                del pods[uid]
            if not pods:
                del self._kept[gang]

    def put_gang(self, gang: Gang) -> None:
        """Enter or replace a gang with the plan that stands on it."""
        if self._index.gangs.get(gang.key) != gang:
            self._index.put_gang(gang)

    def gang(self, key: str) -> Gang | None:
        """As it was entered last."""
        return self._index.gangs.get(key)

    def remove_gang(self, key: str) -> None:
        """The PodGroup is gone, and its plan with it."""
        self._kept.pop(key, None)
        self._index.remove_gang(key)

    def put_queue(self, queue: Queue) -> bool:
        """A queue came or changed; returns whether that is news to a decision."""
        if self._index.queues.get(queue.name) == queue:
            return False
        self._index.put_queue(queue)
        return True

    def is_below(self, queue: QueueName, above: QueueName | None) -> bool:
        """Whether the queue is this one, or somewhere below it."""
        return any(name == above for name in self._index.chain(queue))

    def remove_queue(self, name: QueueName) -> None:
        """The queue object is gone; its gangs wait."""
        if name in self._index.queues:
            self._index.remove_queue(name)

    def set_held(self, node: NodeName, shares: tuple[tuple[PodUid, Share], ...]) -> None:
        """All shares that the node's agent reports as held, living pods' included: those are counted once."""
        self._index.set_held(node, shares)

    def set_measured(self, node: NodeName, use: NodeUse | None) -> None:
        """What a node that is there says of how busy it is; None: nothing."""
        self._index.set_measured(node, use)

    @property
    def somebody_is_away(self) -> bool:
        """Whether members of gangs are suspended, or are to be."""
        return bool(self._index.notable.suspended)

    @property
    def somebody_moves(self) -> bool:
        """Whether a gang has claimed other cards and not come to them yet, as far as decisions know."""
        return bool(self._index.moves_under_way())

    @property
    def somebody_is_emptied(self) -> bool:
        """Whether a node bears our taint."""
        return bool(self._index.emptied)

    def moves_since(self, since: Instant) -> dict[str, Move]:
        """By UID of the PodGroup: what counts of all moves from then on, of gangs that are gone, too."""
        gangs = (self._index.gangs[key] for key in self._index.moved)
        there = {gang.uid: gang.move.past for gang in gangs if gang.move is not None}
        return {uid: m for uid, m in {**self._index.moves_of_gone, **there}.items() if m.at >= since}

    def remember_moves(self, moves: Mapping[str, Move]) -> None:
        """What an earlier leader knew of moves. A PodGroup that is there tells of its own."""
        there = {gang.uid for gang in self._index.gangs.values()}
        gone = {uid: move for uid, move in moves.items() if uid not in there}
        self._index.set_moves_of_gone({**gone, **self._index.moves_of_gone})

    def snapshot(self, revision: int) -> Snapshot:
        """This moment, at no cost: later changes copy the little that they touch."""
        index = self._index
        held: dict[CardId, list[tuple[PodUid, Share]]] = {}
        for _, uid, share in index.held.orphans():
            held.setdefault(share.card, []).append((uid, share))
        return Snapshot(
            revision=revision,
            nodes=index.nodes.freeze(),
            pods=index.pods.freeze(),
            gangs=index.gangs.freeze(),
            queues=index.queues.freeze(),
            models=self._models,
            held={card: tuple(shares) for card, shares in held.items()},
            kept={uid: pod for pods in self._kept.values() for uid, pod in pods.items()},
            moves_of_gone=index.moves_of_gone,
            measured=index.measured.freeze(),
            index=IndexAt(index, index.generation),
        )


def index_of(snapshot: Snapshot) -> Index:
    """The sums over a snapshot: those that travel with it while they are current, else counted again."""
    at = snapshot.index
    if isinstance(at, IndexAt) and at.current:
        return at.index
    return fresh_index(snapshot)


def fresh_index(snapshot: Snapshot) -> Index:
    """The sums over a snapshot, counted from its values alone."""
    index = Index(snapshot.models)
    for queue in snapshot.queues.values():
        index.put_queue(queue)
    for node in snapshot.nodes.values():
        index.put_node(node)
    for name, use in snapshot.measured.items():
        index.set_measured(name, use)
    index.set_moves_of_gone(snapshot.moves_of_gone)
    for gang in snapshot.gangs.values():
        index.put_gang(gang)
    for pod in snapshot.pods.values():
        index.put_pod(pod)
    node_of = {card.uuid: node.name for node in snapshot.nodes.values() for card in node.cards}
    held: dict[NodeName, list[tuple[PodUid, Share]]] = {}
    for card, shares in snapshot.held.items():
        if card in node_of:
            held.setdefault(node_of[card], []).extend(shares)
    for node_name, entries in held.items():
        index.set_held(node_name, tuple(entries))
    return index
