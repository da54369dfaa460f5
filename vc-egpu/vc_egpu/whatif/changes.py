"""The changes that a question supposes, made on the copy of the cluster."""

from collections.abc import Iterable
from dataclasses import replace

from vc_egpu.core.model.cluster import CardId, Node, NodeName, PodPhase
from vc_egpu.sim.world import World
from vc_egpu.whatif.question import AddNodes, Change, Drain, End, QuestionError, SetCap


def make(world: World, changes: Iterable[Change]) -> None:
    """All of them, in their order. Raises :class:`QuestionError` for what is not there."""
    for change in changes:
        match change:
            case AddNodes():
                _add(world, change)
            case Drain():
                _drain(world, change.node)
            case SetCap():
                _cap(world, change)
            case End():
                if world.state.gang(change.gang) is None:
                    raise QuestionError(f"there is no gang {change.gang!r} that could end")
                world.finish(change.gang)


def _node(world: World, name: NodeName) -> Node:
    node = world.snapshot().nodes.get(name)
    if node is None:
        raise QuestionError(f"there is no node {name!r}")
    return node


def _add(world: World, change: AddNodes) -> None:
    like, known = _node(world, change.like), world.snapshot().nodes
    number = 0
    for _ in range(change.count):
        number += 1
        while (name := NodeName(f"{like.name}-new-{number}")) in known:
            number += 1
        ids = {card.uuid: CardId(f"{name}/{card.index}") for card in like.cards}
        cards = tuple(
            replace(
                card,
                uuid=ids[card.uuid],
                usable=True,
                links={ids[peer]: links for peer, links in card.links.items() if peer in ids},
                near={ids[peer]: way for peer, way in card.near.items() if peer in ids},
            )
            for card in like.cards
        )
        labels = {
            key: str(name) if key == "kubernetes.io/hostname" else value for key, value in like.labels.items()
        }
        fresh = replace(
            like,
            name=name,
            labels=labels,
            cards=cards,
            unschedulable=False,
            ready=True,
            lost=False,
            problem="",
        )
        world.put_node(replace(fresh, created=world.now))


def _drain(world: World, name: NodeName) -> None:
    """As an operator does it: a gang goes whole if too few of its members would be left."""
    world.put_node(replace(_node(world, name), unschedulable=True))
    snapshot = world.snapshot()
    there = [p for p in snapshot.pods.values() if p.node == name and p.phase is PodPhase.PLACED and p.gang]
    for key in sorted({str(pod.gang) for pod in there}):
        gang = snapshot.gangs.get(key)
        placed = [pod for pod in world.pods_of(key) if pod.phase is PodPhase.PLACED]
        leaving = [pod for pod in placed if pod.node == name]
        if gang is not None and not gang.single and len(placed) - len(leaving) < gang.min_member:
            leaving = placed
        for pod in leaving:
            world.terminate(pod)
    world.leave()


def _cap(world: World, change: SetCap) -> None:
    queue = world.snapshot().queues.get(change.queue)
    if queue is None:
        raise QuestionError(f"there is no queue {change.queue!r}")
    caps = {name: amount for name, amount in queue.capability.items() if name != change.resource}
    if change.amount is not None:
        caps[change.resource] = change.amount
    world.put_queue(replace(queue, capability=caps))
