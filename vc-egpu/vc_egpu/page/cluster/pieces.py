"""Rows in pieces: cards by node, gangs by PodGroup. A change makes one piece again and not the whole.

A piece is made by the functions of :mod:`vc_egpu.report` from a snapshot of that piece alone. All sums over
pieces are kept up to date by difference. Nothing here is thread-safe, and nothing asks the API server.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sized

from vc_egpu.cli import partial_snapshot, world
from vc_egpu.cli.views import cards as card_views
from vc_egpu.cli.views import queues as queue_views
from vc_egpu.cli.views import waiting as waiting_views
from vc_egpu.core.check.recount import Use
from vc_egpu.core.model.cluster import Node, NodeName, Pod, PodUid, QueueName, Snapshot
from vc_egpu.jobsapi.what_if.view import Held
from vc_egpu.kube import Json
from vc_egpu.page.cluster import light
from vc_egpu.report.cards import CardRow, cards
from vc_egpu.report.gangs import GangRow, gangs
from vc_egpu.report.shares import ShareRow, shares
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, answer_to
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, NodeCards
from vc_egpu.volcano.words.model_table import ModelTable


@dataclasses.dataclass(frozen=True, slots=True)
class CardFigures:
    """One card in figures. Memory in MiB, compute in percent of the card."""

    index: int
    model: str
    memory_mib: int
    allocated_mib: int
    suspended_mib: int
    cores_high_percent: int
    cores_low_percent: int
    state: str
    """``ok``, or why it takes nothing new."""
    sharers: int
    unseen: int
    """Pods that hold a share and that the user may not see."""
    least: bool
    """What these hold is not known: the figures are at least so much."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodePiece:
    """One node."""

    name: str
    problem: str
    cards: tuple[CardFigures, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _KnownNode:
    node: Node
    inventory: NodeCards
    document: Json
    answers: Mapping[str, PodSuspension]


@dataclasses.dataclass(slots=True)
class _GangPiece:
    use: Use
    row: GangRow | None
    waits: waiting_views.WaitingGang | None


OfOthers = Mapping[str, Mapping[int, Held]]
"""By node and index of the card, what pods hold that the user may not see. An absent card is not known."""


class Pieces:
    """The objects that one user sees, and their rows."""

    def __init__(self, table: ModelTable) -> None:
        self.table = table
        self._nodes: dict[str, _KnownNode] = {}
        self._pods: dict[str, Json] = {}
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._members: dict[str, set[str]] = defaultdict(set)
        self._groups: dict[str, Json] = {}
        self._queues: dict[str, Json] = {}
        self._gangs: dict[str, _GangPiece] = {}
        self._use: Use = {}
        self._others: OfOthers = {}
        self._dirty_nodes: dict[str, None] = {}
        self._dirty_gangs: dict[str, None] = {}

    # --- objects -------------------------------------------------------------------------------------

    def put_node(self, document: Json) -> None:
        """A node that is there now, as :func:`.light.node` keeps it."""
        name = world.name(document)
        known = self._nodes.get(name)
        if known is not None and light.is_same(known.document, document):
            return
        decoded = partial_snapshot.nodes_of([document], self.table)
        if inventory := decoded.inventories.get(NodeName(name)):
            self._nodes[name] = _KnownNode(
                decoded.nodes[NodeName(name)], inventory, document, _answers(document)
            )
        else:
            self._nodes.pop(name, None)
        self._dirty_nodes[name] = None

    def drop_node(self, name: str) -> None:
        """A node that is gone."""
        if self._nodes.pop(name, None) is not None:
            self._dirty_nodes[name] = None

    def put_pod(self, document: Json) -> None:
        """A pod that is there now, as :func:`.light.pod` keeps it."""
        uid = document["metadata"]["uid"]
        if light.is_same(self._pods.get(uid), document):
            return
        self.drop_pod(uid)
        self._pods[uid] = document
        pod: Pod = document[light.POD]
        if pod.node is not None:
            self._on_node[pod.node].add(uid)
        self._members[pod.gang or ""].add(uid)
        self._touch(pod)

    def drop_pod(self, uid: str) -> None:
        """A pod that is gone."""
        document = self._pods.pop(uid, None)
        if document is None:
            return
        pod: Pod = document[light.POD]
        if pod.node is not None:
            self._on_node[pod.node].discard(uid)
        self._members[pod.gang or ""].discard(uid)
        self._touch(pod)

    def _touch(self, pod: Pod) -> None:
        if pod.node is not None:
            self._dirty_nodes[pod.node] = None
        self._dirty_gangs[pod.gang or ""] = None

    def put_group(self, document: Json) -> None:
        """A PodGroup that is there now, as :func:`.light.group` keeps it."""
        key = world.key(document)
        if not light.is_same(self._groups.get(key), document):
            self._groups[key] = document
            self._dirty_gangs[key] = None

    def drop_group(self, key: str) -> None:
        """A PodGroup that is gone."""
        if self._groups.pop(key, None) is not None:
            self._dirty_gangs[key] = None

    def put_queue(self, document: Json) -> bool:
        """A Queue that is there now; whether that is news."""
        name = world.name(document)
        if light.is_same(self._queues.get(name), document):
            return False
        self._queues[name] = document
        return True

    def drop_queue(self, name: str) -> None:
        """A Queue that is gone."""
        self._queues.pop(name, None)

    def put_others(self, others: OfOthers) -> None:
        """What is known of others' pods now, in place of what was."""
        before, self._others = self._others, others
        for name in {*before, *others}:
            if before.get(name) != others.get(name):
                self._dirty_nodes[name] = None

    # --- rows ----------------------------------------------------------------------------------------

    def changed_nodes(self) -> Iterator[tuple[str, NodePiece | None]]:
        """Each node whose rows may be other ones now; None: it is gone, or has no cards any more."""
        while self._dirty_nodes:
            name = next(iter(self._dirty_nodes))
            del self._dirty_nodes[name]
            yield name, self._node_piece(name)

    def changed_gangs(self) -> int:
        """Bring the gangs up to date; returns how many had changed."""
        dirty, self._dirty_gangs = self._dirty_gangs, {}
        for key in dirty:
            self._renew_gang(key)
        return len(dirty)

    def sharers(self, node: str, index: int) -> tuple[str, tuple[ShareRow, ...]] | None:
        """UUID of that card and the shares on it; None where there is no such card."""
        known = self._nodes.get(node)
        if known is None:
            return None
        found = (card for card in known.node.cards if card.index == index)
        if (card := next(found, None)) is None:
            return None
        rows = shares(self._with_gangs(known, tuple(self._pods_on(known))))
        return card.uuid, tuple(row for row in rows if row.uuid == card.uuid)

    def state_of(self, node: str, index: int) -> str:
        """``ok``, or why that card takes nothing new; empty where there is no such card."""
        piece = self._node_piece(node)
        found = (card.state for card in piece.cards if card.index == index) if piece is not None else ()
        return next(iter(found), "")

    def find(self, text: str) -> tuple[list[tuple[str, int]], int]:
        """Cards on which a share has that text in its namespace, pod, gang or queue; and how many pods."""
        found: set[tuple[str, int]] = set()
        pods = 0
        for document in self._pods.values():
            pod: Pod = document[light.POD]
            if not pod.shares or text not in f"{pod.namespace}/{pod.name} {pod.gang or ''} {pod.queue or ''}":
                continue
            known = self._nodes.get(pod.node or "")
            held = {share.card for _, share in pod.shares}
            indices = [card.index for card in known.node.cards if card.uuid in held] if known else []
            found.update((str(pod.node), index) for index in indices)
            pods += 1
        return sorted(found), pods

    def queues(self, *, partial: bool) -> queue_views.QueuesReport:
        """All queues; ``partial``: the user may not see all pods, so a queue's own count is taken, too."""
        rows = [piece.row for piece in self._gangs.values() if piece.row is not None]
        return queue_views.of_gangs(self._queues.values(), self._use, rows, partial="-" if partial else "")

    def waiting(self) -> list[waiting_views.WaitingGang]:
        """All gangs that wait, those first that have waited longest."""
        rows = (piece.waits for piece in self._gangs.values() if piece.waits is not None)
        return sorted(rows, key=lambda row: (row.since or "~", row.gang))

    def counts(self) -> dict[str, int]:
        """How many objects are kept."""
        kept: dict[str, Sized] = {
            "nodes": self._nodes,
            "pods": self._pods,
            "groups": self._groups,
            "queues": self._queues,
        }
        return {kind: len(objects) for kind, objects in kept.items()}

    # --- one piece -----------------------------------------------------------------------------------

    def _node_piece(self, name: str) -> NodePiece | None:
        known = self._nodes.get(name)
        if known is None:
            return None
        pods = {pod.uid: pod for pod in self._pods_on(known)}
        snapshot = partial_snapshot.snapshot(nodes={known.node.name: known.node}, pods=pods)
        held = {card.uuid: card.held for card in known.inventory.cards}
        states = dict(card_views.states(known.document, known.inventory))
        others = self._others.get(name, {})
        figures = (
            self._figures(row, states[row.uuid], held[row.uuid], others.get(row.index))
            for row in cards(snapshot, shares(snapshot))
        )
        return NodePiece(name, known.inventory.problem, tuple(sorted(figures, key=lambda card: card.index)))

    def _figures(self, row: CardRow, state: str, held: Iterable[str], others: Held | None) -> CardFigures:
        """``held``: UIDs of pods, as the agent tells them. ``others``: what the user may not see."""
        unseen = sum(uid not in self._pods for uid in set(held))
        more = others if others is not None else Held()
        return CardFigures(
            index=row.index,
            model=row.model,
            memory_mib=row.memory_mib,
            allocated_mib=row.allocated_mib + more.memory_mib,
            suspended_mib=row.suspended_mib + more.suspended_mib,
            cores_high_percent=row.cores_high_percent + more.cores_high_percent,
            cores_low_percent=row.cores_low_percent + more.cores_low_percent,
            state=state,
            sharers=len({share.pod_uid for share in row.shares}),
            unseen=unseen if others is None else others.pods,
            least=others is None and unseen > 0,
        )

    def _pods_on(self, known: _KnownNode) -> Iterator[Pod]:
        for uid in self._on_node.get(known.node.name, ()):
            document = self._pods[uid]
            pod: Pod = document[light.POD]
            order = document[light.ORDER]
            if order is not None:
                state = answer_to(order, known.answers.get(uid)).state
                pod = dataclasses.replace(pod, suspension=state)
            yield pod

    def _with_gangs(self, known: _KnownNode, pods: tuple[Pod, ...]) -> Snapshot:
        """One node for which queues and classes are asked, too."""
        keys = {pod.gang for pod in pods if pod.gang is not None}
        documents = [self._groups[key] for key in keys if key in self._groups]
        members = {key: [self._pods[uid] for uid in self._members[key]] for key in keys}
        return partial_snapshot.snapshot(
            nodes={known.node.name: known.node},
            pods={pod.uid: pod for pod in pods},
            gangs=partial_snapshot.gangs_of(documents, members),
        )

    def _renew_gang(self, key: str) -> None:
        before = self._gangs.pop(key, None)
        if before is not None:
            _add(self._use, before.use, -1)
        uids = self._members.get(key) or set()
        group = self._groups.get(key)
        if not uids:
            self._members.pop(key, None)
            if group is None:
                return
        documents = [self._pods[uid] for uid in uids]
        known = [group] if group is not None else []
        decoded = partial_snapshot.gangs_of(known, {key: documents})
        pods = {PodUid(document["metadata"]["uid"]): document[light.POD] for document in documents}
        seen = partial_snapshot.snapshot(pods=pods, gangs=decoded)
        row, waits = None, None
        if group is not None and not partial_snapshot.is_completed(group):
            (row,) = gangs(seen, partial_snapshot.conditions(known))
            waits = next(iter(waiting_views.report(known, documents, place="").waiting), None)
        piece = _GangPiece(queue_views.own_use(seen), row, waits)
        self._gangs[key] = piece
        _add(self._use, piece.use, 1)


def _answers(document: Json) -> Mapping[str, PodSuspension]:
    text = world.annotations(document).get(names.NODE_SUSPENSION)
    try:
        return NodeSuspension.decode(text).pods if text is not None else {}
    except AnnotationError:
        return {}


def _add(total: Use, use: Use, sign: int) -> None:
    for queue, amounts in use.items():
        own = total.setdefault(QueueName(queue), {})
        for resource, amount in amounts.items():
            rest = own.get(resource, 0) + sign * amount
            if rest:
                own[resource] = rest
            else:
                own.pop(resource, None)
