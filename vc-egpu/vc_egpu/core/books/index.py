"""Sums over the cluster's values, kept up to date one change at a time.

It answers what a decision asks (what is booked where, what a queue uses, which pods a gang has) without
looking at every pod. :class:`.state.ClusterState` feeds it: the same values in any order, the same answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from vc_egpu.core.books.agent_reports import HeldShares
from vc_egpu.core.books.booking import Booking, as_it_stands
from vc_egpu.core.books.cow import Shards
from vc_egpu.core.books.fit import NodeMasks
from vc_egpu.core.books.ledger import Flags, Ints, Ledger
from vc_egpu.core.books.planned import PlannedMembers, discard
from vc_egpu.core.books.use import Holders, QueueUse
from vc_egpu.core.environments.needs import NO_NEEDS, Crowd
from vc_egpu.core.measured.rows import MeasuredRows
from vc_egpu.core.measured.use import NodeUse
from vc_egpu.core.model.cluster import (
    Gang,
    Move,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Share,
    ShareClass,
    SuspensionState,
    class_of,
    plan_key,
)
from vc_egpu.core.model.gangs import HOLDING, GangView, Intern, Mark, Member, mark_of, view_of
from vc_egpu.core.model.resources import amounts, low_parts, parts

_Name = TypeVar("_Name", bound=str)
MOST_GONE: Final = 1000
"""The moves of so many gangs that are gone are remembered."""
_SPARE_SHAPES: Final = 10_000
_SPARE_PARTS: Final = 200_000
"""For all shapes together, some 40 MiB: one shape may have tens of thousands."""


class Notable:
    """The few pods that every decision has to look at, so that it need not go through all pods.

    Kept up to date pod by pod. Dicts keep the order in which pods came.
    """

    def __init__(self) -> None:
        self.terminating: dict[PodUid, None] = {}
        self.failed: dict[PodUid, None] = {}
        """Failed members of gangs."""
        self.suspended: dict[PodUid, None] = {}
        """Members told to leave their cards or on their way, and those that users wish to be suspended."""
        self.resizing: dict[PodUid, None] = {}
        """Members that users wish to have shares of another size."""

    def note(self, pod: Pod) -> None:
        """The pod came, or changed; it is not in here."""
        if pod.phase is PodPhase.TERMINATING:
            self.terminating[pod.uid] = None
        elif pod.phase is PodPhase.FAILED and pod.gang is not None:
            self.failed[pod.uid] = None
        elif pod.phase is PodPhase.PLACED and pod.gang is not None:
            on_its_way = pod.suspension is not SuspensionState.RUNNING
            if pod.suspend_ordered or pod.pause_wished or on_its_way:
                self.suspended[pod.uid] = None
            if pod.resize:
                self.resizing[pod.uid] = None

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or changes."""
        self.terminating.pop(uid, None)
        self.failed.pop(uid, None)
        self.suspended.pop(uid, None)
        self.resizing.pop(uid, None)


def _list_if(known: dict[_Name, None], name: _Name, *, when: bool) -> None:
    """Have the name among the known ones, or not."""
    if when:
        known[name] = None
    else:
        known.pop(name, None)


class Index:
    """Ledger, queue use, the pods of gangs and of nodes."""

    reserved: dict[str, None]
    """Gangs that are to get cards before others, see :class:`.cluster.Reservation`."""
    emptied: dict[NodeName, None]
    """Nodes that bear our taint, see :class:`.cluster.Node`."""
    moved: dict[str, None]
    """Gangs that move or were moved, see :class:`.cluster.Move`."""
    moves_of_gone: Mapping[str, Move]
    """By UID of its PodGroup: the last move of each gang that is gone. Replaced, never changed."""

    def __init__(self, card_mib: Mapping[str, int] | None = None) -> None:
        self.card_mib: Mapping[str, int] = card_mib or {}
        """The table: memory of one card in MiB, by model."""
        self.generation = 0
        self.ledger = Ledger()
        self.nodes: Shards[NodeName, Node] = Shards()
        self.pods: Shards[PodUid, Pod] = Shards()
        self.gangs: Shards[str, Gang] = Shards()
        self.queues: Shards[QueueName, Queue] = Shards()
        self.measured: Shards[NodeName, NodeUse] = Shards()
        """What nodes say of how busy they are, those that are there; ``busy`` has it by row."""
        self.busy = MeasuredRows()
        self.uses = QueueUse()
        self.bookings: dict[PodUid, Booking] = {}
        self.planned = PlannedMembers(self.ledger, self.uses, self.gangs, self.pods, self._amounts_for)
        self.shape_ids: dict[PodUid, int] = {}
        """By pod; exactly the pods there are."""
        self.node_changes: dict[NodeName, int] = {}
        """By node: the generation in which the node object changed last."""
        self.reviewed: dict[str, tuple[str, int]] = {}
        """By gang: its plan, and the generation in which that was last found to hold."""
        self.spare: Ledger | None = None
        """A copy of the ledger that a decision has left over; its memory serves the next one."""
        self.remembered: dict[str, object] = {}
        """What placement policies have worked out already. Never needed for a right answer."""
        self.held = HeldShares(self.ledger, self.shape_ids)
        self.pods_of: dict[str, dict[PodUid, None]] = {}
        self.pods_on: dict[NodeName, dict[PodUid, None]] = {}
        self.notable = Notable()
        self.holders = Holders()
        self.gangs_in: dict[QueueName, dict[str, None]] = {}
        """By queue, its gangs, running or not; only queues that have any."""
        self.low_gangs: dict[str, None] = {}
        """Gangs of low priority, running or not."""
        self.reserved, self.emptied, self.moved, self.moves_of_gone = {}, {}, {}, {}
        self.drained: dict[NodeName, None] = {}
        """Nodes whose gangs shall run elsewhere."""
        self.intern = Intern()
        self._most_parts = _SPARE_PARTS
        self._pod_charges: dict[PodUid, tuple[QueueName, str | None, Mapping[str, int]]] = {}
        self.settled: set[str] = set()
        """Gangs that a decision found to wait for nothing; as long as none of their pods changes."""
        self._views: dict[str, GangView] = {}
        self._marks: dict[str, Mark | None] = {}
        self._likes: dict[str, Mark | None] = {}
        self._bare: dict[int, int] = {}
        """By number of a shape with needs, that of the same shape without."""
        self._masks = NodeMasks(self.ledger)
        self._amounts: dict[tuple[int, bool], Mapping[str, int]] = {}

    # --- answers ---------------------------------------------------------------------------------

    def view(self, key: str) -> GangView:
        """The gang with its pods; kept until one of them changes."""
        view = self._views.get(key)
        if view is None:
            pods = [self.pods[uid] for uid in self.pods_of.get(key, ())]
            view = self._views[key] = view_of(self.gangs[key], pods, self.shape_ids, self.intern)
        return view

    def mark(self, view: GangView) -> Mark | None:
        """See :func:`.gangs.mark_of`: the mark of the gang as it is now, kept as long as its view.

        ``view`` may be the gang as it will be once some members have left.
        """
        key = view.gang.key
        if key not in self._marks:
            self._marks[key] = mark_of(self.view(key))
        return self._marks[key]

    def like(self, view: GangView) -> Mark | None:
        """The same for gangs that find the same places, whatever words they need them by: see :meth:`mark`.

        Programs that need different things are alike where the same nodes meet what they need.
        """
        key = view.gang.key
        if key not in self._likes:
            self._likes[key] = mark_of(self.view(key), self._kind)
        return self._likes[key]

    def _kind(self, member: Member) -> tuple[int, int]:
        shape = member.shape
        if not shape.needs.ways or shape.options:
            return member.shape_id, -1
        bare = self._bare.get(member.shape_id)
        if bare is None:
            bare = self._bare[member.shape_id] = self.intern(replace(shape, needs=NO_NEEDS))
        return bare, self._masks.meeting(shape.needs)

    def crowd(self, cards: tuple[int, ...]) -> Crowd:
        """What nodes tell of their software that have a card of any of these kinds, and how many of them."""
        return self._masks.crowd(cards)

    def _forget_view(self, key: str) -> None:
        self._views.pop(key, None)
        self._marks.pop(key, None)
        self._likes.pop(key, None)
        self.settled.discard(key)

    def _forget_shapes(self) -> None:
        """Number the shapes of the present pods again: pods come and go, and so do shapes."""
        self.intern = Intern()
        for uid, pod in self.pods.items():
            self.shape_ids[uid] = self.intern(pod.shape)
        self._most_parts = _SPARE_PARTS + 2 * self.intern.parts
        self._amounts.clear()
        self._views.clear()
        self._marks.clear()
        self._likes.clear()
        self._bare.clear()

    def amounts_of(self, shape_id: int, shape: PodShape, *, low: bool = False) -> Mapping[str, int]:
        """What one pod of this shape counts in its queue, and its parts of cards. ``low``: it runs as low."""
        found = self._amounts.get((shape_id, low))
        if found is None:
            found = amounts(shape) | parts(shape, self.card_mib)
            found = self._amounts[shape_id, low] = found | (low_parts(found) if low else {})
        return found

    def _amounts_for(self, shape: PodShape, share_class: ShareClass) -> Mapping[str, int]:
        return self.amounts_of(self.intern(shape), shape, low=share_class is ShareClass.LOW)

    def take_spare(self) -> Ledger | None:
        """The left-over copy, once."""
        spare, self.spare = self.spare, None
        return spare

    def mask(self, shape: PodShape) -> Flags:
        """By row: whether the node takes pods of this shape at all. Not to be written to."""
        return self._masks.mask(self.nodes, shape)

    def reach(self, shape: PodShape) -> tuple[Flags, ...]:
        """For each spread of the shape, by row: whether the node counts. Not to be written to."""
        spreads = shape.neighbours.spreads
        return tuple(self._masks.reach(self.nodes, shape, spread) for spread in spreads)

    def preferences(self, shape: PodShape) -> Ints:
        """By row: how much the shape prefers the node. Not to be written to."""
        return self._masks.preferences(self.nodes, shape)

    def ranks(self) -> Ints:
        """By row: the node's place in the order of names, which settles ties."""
        return self._masks.ranks()

    def chain(self, queue: QueueName) -> Iterator[QueueName]:
        """The queue and its ancestors, nearest first."""
        return self.uses.chain(queue)

    # --- nodes -----------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """Enter or replace a node."""
        before = self.nodes.get(node.name)
        moved = before is None or [c.uuid for c in before.cards] != [c.uuid for c in node.cards]
        moved = moved or before is None or [c.index for c in before.cards] != [c.index for c in node.cards]
        if moved:
            self._clear_row(node.name)
        self.generation += 1
        self.nodes[node.name] = node
        _list_if(self.drained, node.name, when=node.drained)
        _list_if(self.emptied, node.name, when=node.emptied is not None)
        self.node_changes[node.name] = self.generation
        row = self.ledger.put_node(node)
        if self._masks.node_changed(row, node):
            self._likes.clear()
        if before is None:
            self._masks.names_changed()
        if moved:
            self._fill_row(node.name)
            self.busy.put(row, self.measured.get(node.name), self.ledger.columns[row])

    def remove_node(self, name: NodeName) -> None:
        """Forget a node; what was booked on it is booked no more."""
        if name not in self.nodes:
            return
        self._clear_row(name)
        self.set_measured(name, None)
        row = self.ledger.rows[name]
        self.ledger.remove_node(name)
        self.generation += 1
        del self.nodes[name]
        self.drained.pop(name, None)
        self.emptied.pop(name, None)
        self.node_changes[name] = self.generation
        self._masks.node_changed(row, None)
        self._masks.names_changed()

    def set_measured(self, name: NodeName, use: NodeUse | None) -> None:
        """What a node says of how busy it is; None: nothing. Nothing is booked otherwise because of it."""
        row = self.ledger.rows.get(name)
        if row is None or self.measured.get(name) == use:
            return
        self.generation += 1
        if use is None:
            del self.measured[name]
        else:
            self.measured[name] = use
        self.busy.put(row, use, self.ledger.columns[row])

    def set_held(self, node: NodeName, shares: tuple[tuple[PodUid, Share], ...]) -> None:
        """All shares that the agent of this node reports, of living pods as well."""
        self.generation += 1
        self.held.report(node, shares)

    def _clear_row(self, name: NodeName) -> None:
        for uid in self.pods_on.get(name, ()):
            self._unbook_pod(uid)
        self.held.unbook(name)
        self.planned.unbook(name)

    def _fill_row(self, name: NodeName) -> None:
        for uid in self.pods_on.get(name, ()):
            self._book_pod(uid)
        self.held.book(name)
        self.planned.book(name)

    # --- pods ------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        """Enter or replace a pod."""
        before = self.pods.get(pod.uid)
        same = before is not None and (before.gang, plan_key(before)) == (pod.gang, plan_key(pod))
        if pod.gang is not None and (before is None or before.shape != pod.shape):
            self.reviewed.pop(pod.gang, None)  # a plan may send it where it does not go any more
        self.remove_pod(pod.uid, replaced=same)
        self.generation += 1
        self.pods[pod.uid] = pod
        self.shape_ids[pod.uid] = self.intern(pod.shape)
        too_many = len(self.intern) > _SPARE_SHAPES + 2 * len(self.pods)
        if too_many or self.intern.parts > self._most_parts:
            self._forget_shapes()
        self.notable.note(pod)
        if pod.node is not None and pod.phase in HOLDING:
            self.pods_on.setdefault(pod.node, {})[pod.uid] = None
            self._book_pod(pod.uid)
        if pod.gang is not None:
            self._forget_view(pod.gang)
            self.pods_of.setdefault(pod.gang, {})[pod.uid] = None
            self._charge_pod(pod)
            self.planned.pod_came(pod)
        self.held.pod_changed(pod.uid)

    def remove_pod(self, uid: PodUid, *, replaced: bool = False) -> None:
        """Forget a pod; unless an agent still reports its shares, its cards are free."""
        if uid not in self.pods:
            return
        self.generation += 1
        pod = self.pods[uid]
        del self.pods[uid]
        self._unbook_pod(uid)
        self.notable.forget(uid)
        self.shape_ids.pop(uid, None)
        if pod.node is not None:
            discard(self.pods_on, pod.node, uid)
        self._uncharge_pod(uid)
        if pod.gang is not None:
            self._forget_view(pod.gang)
            discard(self.pods_of, pod.gang, uid)
            self.planned.pod_went(pod, replaced=replaced)
        if not replaced:
            self.held.pod_changed(uid)

    def class_of(self, pod: Pod) -> ShareClass:
        """The class that a pod runs with. Where that is not known it blocks both sums of cores."""
        return class_of(pod, self.gangs.get(pod.gang or ""), ShareClass.UNSET)

    def is_of_several(self, pod: Pod) -> bool:
        """Whether more than one pod of its gang has to run at once; not where the gang is gone."""
        gang = self.gangs.get(pod.gang or "")
        return gang is not None and gang.is_of_several

    def _book_pod(self, uid: PodUid) -> None:
        pod = self.pods[uid]
        if pod.node is None:
            return
        shares = [share for _, share in pod.shares]
        share_class, several = self.class_of(pod), self.is_of_several(pod)
        booking = self.ledger.booking(pod.node, pod.shape, shares, share_class, several=several)
        if booking is not None:
            self.bookings[uid] = booking = as_it_stands(booking, pod)
            self.ledger.add(booking)

    def _unbook_pod(self, uid: PodUid) -> None:
        booking = self.bookings.pop(uid, None)
        if booking is not None:
            self.ledger.remove(booking)

    def _charge_pod(self, pod: Pod) -> None:
        gang = self.gangs.get(pod.gang) if pod.gang is not None else None
        queue = gang.queue if gang is not None else pod.queue
        if queue is None or pod.phase not in HOLDING:
            return
        low = self.class_of(pod) is ShareClass.LOW
        charge = self.amounts_of(self.shape_ids[pod.uid], pod.shape, low=low)
        if pod.suspend_ordered and pod.off_quota:
            charge = {}
        self._pod_charges[pod.uid] = (queue, pod.gang, charge)
        self.holders.add(queue, pod.gang)
        self.uses.add(queue, charge)

    def charge_of(self, uid: PodUid) -> tuple[QueueName, Mapping[str, int]] | None:
        """The queue that a pod counts in, and what it counts there; None where it counts nowhere."""
        found = self._pod_charges.get(uid)
        return (found[0], found[2]) if found is not None and found[2] else None

    def _uncharge_pod(self, uid: PodUid) -> None:
        found = self._pod_charges.pop(uid, None)
        if found is not None:
            queue, gang, charge = found
            self.holders.add(queue, gang, -1)
            self.uses.add(queue, charge, -1)

    # --- gangs -----------------------------------------------------------------------------------

    def put_gang(self, gang: Gang) -> None:
        """Enter or replace a gang; its pods and its plan are counted again where that matters."""
        before = self.gangs.get(gang.key)
        other = before is None or (before.queue, before.share_class) != (gang.queue, gang.share_class)
        if before is None or other or before.blocked_nodes != gang.blocked_nodes:
            self.reviewed.pop(gang.key, None)
        self.planned.drop(gang.key)
        self.generation += 1
        self.gangs[gang.key] = gang
        if before is not None and before.queue != gang.queue:
            discard(self.gangs_in, before.queue, gang.key)
        self.gangs_in.setdefault(gang.queue, {})[gang.key] = None
        self._forget_view(gang.key)
        _list_if(self.low_gangs, gang.key, when=gang.share_class is ShareClass.LOW)
        _list_if(self.reserved, gang.key, when=gang.reservation is not None)
        _list_if(self.moved, gang.key, when=gang.move is not None)
        if gang.uid in self.moves_of_gone:
            self.set_moves_of_gone({uid: m for uid, m in self.moves_of_gone.items() if uid != gang.uid})
        if other or (before is not None and before.is_of_several != gang.is_of_several):
            self._recount_pods(gang.key)
        self.planned.enter(gang)

    def set_moves_of_gone(self, moves: Mapping[str, Move]) -> None:
        """Gangs that are gone, with their last moves; the oldest entries of too many are dropped."""
        self.generation += 1
        self.moves_of_gone = dict(list(moves.items())[-MOST_GONE:])

    def all_moves(self) -> Iterator[Move]:
        """The last move of each gang that has one, gone or not."""
        for key in self.moved:
            move = self.gangs[key].move
            if move is not None:
                yield move
        yield from self.moves_of_gone.values()

    def moving_for(self, key: str) -> list[str]:
        """Gangs that have claimed other cards so that this one fits, by key."""
        return [name for name, move in self.moves_under_way() if move.whom == key]

    def moves_under_way(self) -> list[tuple[str, Move]]:
        """Gangs that have claimed other cards and not come to them yet, by key, each with its move."""
        moves = ((key, self.gangs[key].move) for key in sorted(self.moved))
        return [(key, move) for key, move in moves if move is not None and move.places]

    def remove_gang(self, key: str) -> None:
        """Forget a gang and its plan; pods of it that are still there keep what they hold."""
        if key not in self.gangs:
            return
        self.planned.drop(key)
        self.reviewed.pop(key, None)
        self.generation += 1
        gang = self.gangs[key]
        discard(self.gangs_in, gang.queue, key)
        del self.gangs[key]
        if gang.move is not None:
            self.set_moves_of_gone({**self.moves_of_gone, gang.uid: gang.move.past})
        self.low_gangs.pop(key, None)
        self.reserved.pop(key, None)
        self.moved.pop(key, None)
        self._forget_view(key)
        self._recount_pods(key)

    def _recount_pods(self, key: str) -> None:
        for uid in self.pods_of.get(key, ()):
            pod = self.pods[uid]
            self._uncharge_pod(uid)
            self._unbook_pod(uid)
            if pod.phase in HOLDING:
                self._book_pod(uid)
            self._charge_pod(pod)

    # --- queues ----------------------------------------------------------------------------------

    def put_queue(self, queue: Queue) -> None:
        """Enter or replace a queue."""
        self.generation += 1
        self.queues[queue.name] = queue
        self.uses.set_parent(queue.name, queue.parent)

    def remove_queue(self, name: QueueName) -> None:
        """Forget a queue; what its gangs use is still counted under its name."""
        self.generation += 1
        if name in self.queues:
            del self.queues[name]
        self.uses.set_parent(name, None)
